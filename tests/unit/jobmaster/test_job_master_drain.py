"""Tests the JobMaster at another parallelism: releases in phases, and checkpoints that know of it."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from penstock.protocol.values.elements import SubtaskId
from penstock.protocol.values.messages import (
    DrainReport,
    ReleaseVertices,
    SlotAck,
    SlotStatus,
    SubtaskStatus,
    TriggerCheckpoint,
)
from penstock.protocol.values.metadata import ChannelCapture, InflightRange, InputCut, OutputCut
from penstock.storage.metadata_file import read_metadata
from tests.unit.jobmaster.master_world import World, seen_by, two_vertices


class WorldInFlight(World):
    """Two rows are in flight from producer 0 to consumer 1."""

    def ack(self, slot: int, checkpoint_id: int) -> SlotAck:
        ack = super().ack(slot, checkpoint_id)
        source, sink = ack.subtasks
        if slot == 0:
            source = msgspec.structs.replace(source, outputs=[OutputCut("a-b-0-0", [0, 2], [])])
        if slot == 1:
            held = InputCut("a-b-0-0", [0, 0], [ChannelCapture(0, [InflightRange(0, 2, 0, 0, 7, 0)], [])])
            sink = msgspec.structs.replace(sink, inputs=[held])
        return msgspec.structs.replace(ack, subtasks=[source, sink])


def resumed(parallelism: int, first: type[World] = WorldInFlight, autostart: bool = True, **options: str) -> World:
    world = first()
    world.at(60.0)
    return World(
        dict(options),
        directories=world.directories,
        resume=True,
        incarnation="two",
        graph=two_vertices(parallelism),
        autostart=autostart,
    )


def report(world: World, subtask: SubtaskId, sequence: int, applied: int, layers_read: bool = True) -> None:
    generation = world.slots[subtask.subtask].generation
    assert generation is not None
    counts = ({0: applied}, {}) if subtask.vertex else ({}, {0: applied})
    world.say(subtask.subtask, DrainReport(generation, subtask.subtask, subtask, sequence, layers_read, True, *counts))
    world.run_until_idle()


def test_without_rows_in_flight_nothing_is_held() -> None:
    world = resumed(3, World)
    assert world.master.report.state == "RUNNING" and not seen_by(world, 0, ReleaseVertices)
    assert not world.master.running.is_draining and world.master.report.draining is None


def test_at_the_same_parallelism_nothing_is_held() -> None:
    assert not seen_by(resumed(2), 0, ReleaseVertices)


def test_consumers_are_released_first_and_sources_when_everything_is_read() -> None:
    world = resumed(3)
    assert [(r.vertices, r.is_last) for r in seen_by(world, 2, ReleaseVertices)] == [([1], False)]
    for slot in range(3):
        report(world, SubtaskId(1, slot), 1, applied=0, layers_read=slot != 1)
    assert world.master.running.is_draining
    report(world, SubtaskId(1, 1), 2, applied=0)
    assert [(r.vertices, r.is_last) for r in seen_by(world, 2, ReleaseVertices)] == [([1], False), ([0], True)]
    assert not world.master.running.is_draining


def test_the_report_says_how_many_layers_have_been_read() -> None:
    world = resumed(3, autostart=False)
    world.layers = {0: 2, 2: 3}
    world.run_until_idle()
    said = world.master.report.draining
    assert str(said) == "draining 0 of 5 layers" and said is not None and not said.is_over
    generation = world.slots[2].generation
    assert generation is not None
    world.say(2, SlotStatus(generation, 2, [SubtaskStatus(1, 2, 0, 0, 0, 0, 0.5, 0.0, 0, layers=1)], 1))
    world.run_until_idle()
    assert str(world.master.report.draining) == "draining 2 of 5 layers"
    world.clock.now_ms += 40
    for slot in range(3):
        report(world, SubtaskId(1, slot), 1, applied=0)
    said = world.master.report.draining
    assert said is not None and said.is_over and (said.layers_read, said.duration_ms) == (5, 40.0)
    world.layers = {1: 4}
    world.kill(1)
    world.run_until_idle()
    assert str(world.master.report.draining) == "draining 0 of 4 layers", "a new generation counts anew"


def test_a_release_names_the_checkpoints_that_are_under_way() -> None:
    world = resumed(3)
    world.muted.add(TriggerCheckpoint)
    world.at(200.0)
    (trigger,) = seen_by(world, 0, TriggerCheckpoint)
    for slot in range(3):
        report(world, SubtaskId(1, slot), 1, applied=0)
    assert seen_by(world, 0, ReleaseVertices)[-1].checkpoints == [trigger.barrier.checkpoint_id]


def test_a_checkpoint_says_whether_the_job_was_draining_and_a_restore_of_it_drains_again() -> None:
    world = resumed(3)
    world.at(60.0)
    newest = max(c for c, status in world.reports().items() if status == "completed")
    path = f"chk-{newest}/_metadata"
    metadata = read_metadata(world.store, path)
    assert metadata.draining and [v.parallelism for v in metadata.vertices] == [3, 3]
    for slot in range(3):
        report(world, SubtaskId(1, slot), 1, applied=0)
    world.at(250.0)
    newest = max(c for c, status in world.reports().items() if status == "completed")
    assert not read_metadata(world.store, f"chk-{newest}/_metadata").draining


def test_a_failure_in_the_middle_drains_anew() -> None:
    world = resumed(3)
    world.kill(1)
    world.run_until_idle()
    assert [r.vertices for r in seen_by(world, 0, ReleaseVertices)] == [[1], [1]]
    assert world.master.running.is_draining


def test_the_max_parallelism_of_the_checkpoint_is_kept() -> None:
    first = World(graph=two_vertices(2))
    first.at(60.0)
    graph = two_vertices(3)
    wider = replace(graph, vertices=tuple(replace(v, max_parallelism=256) for v in graph.vertices))
    second = World(directories=first.directories, resume=True, incarnation="two", graph=wider)
    assert second.master.report.state == "RUNNING"
    assert [v.max_parallelism for v in second.master.job.graph.vertices] == [128, 128]
    second.at(200.0)
    newest = max(second.reports())
    assert {v.max_parallelism for v in read_metadata(second.store, f"chk-{newest}/_metadata").vertices} == {128}
