"""Checks the invariants that hold whatever has happened.

Checkers stand apart from the assertions in the code, and see only what can be seen from outside: objects in the store,
messages, output.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from penstock.protocol.values.messages import Decline, Message, SlotAck
from simulation.checkers.log_checker import LogChecker
from simulation.jobs.output import Output
from simulation.jobs.workload import Workload
from simulation.world.world import World
from simulation.world.world_hooks import Row


class AnswerChecker:
    """Checks that every checkpoint that is offered to a subtask ends there in one acknowledgement or one decline, never
    in two.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._declined: set[tuple[Any, ...]] = set()
        self._acknowledged: dict[tuple[Any, ...], SlotAck] = {}
        self.declines: Counter[str] = Counter()

    def on_sent(self, process: str, message: Message) -> None:
        if isinstance(message, Decline):
            key = (tuple(message.generation), message.checkpoint_id, tuple(message.subtask))
            what = f"checkpoint {message.checkpoint_id}, subtask {tuple(message.subtask)}"
            self.declines[message.reason] += 1
            if key in self._declined:
                self._world.violate(f"{what}: declined twice")
            self._declined.add(key)
            ack = self._acknowledged.get((tuple(message.generation), message.checkpoint_id, message.slot))
            if ack is not None:
                self._world.violate(f"{what}: declined ({message.reason}) after its acknowledgement")
        elif isinstance(message, SlotAck):
            generation = tuple(message.generation)
            slot_key = (generation, message.checkpoint_id, message.slot)
            before = self._acknowledged.setdefault(slot_key, message)
            if before is not message and before.segment != message.segment:
                self._world.violate(f"checkpoint {message.checkpoint_id}: slot {message.slot} wrote two segments")
            for s in message.subtasks:
                if (generation, message.checkpoint_id, (s.vertex, s.subtask)) in self._declined:
                    what = f"checkpoint {message.checkpoint_id}, subtask {(s.vertex, s.subtask)}"
                    self._world.violate(f"{what}: acknowledged after its decline")


def check_output(world: World, output: Output, workload: Workload) -> None:
    """Check that every row has its effect exactly once, in the order of its split and key unless something has
    scattered it.
    """
    for sink, expected in workload.sinks.items():
        rows: list[Any] = [tuple(row) for part in output.of(sink) for row in part.rows]
        width = 5 if expected.exact else 4
        names = Counter(row[:width] for row in rows)
        wanted = Counter(row[:width] for row in expected.rows)
        if names != wanted:
            lost, twice = wanted - names, names - wanted
            world.violate(
                f"{sink}: {sum(lost.values())} rows lost {_some(lost)}, {sum(twice.values())} too many {_some(twice)}"
            )
        elif expected.counts:
            _check_counted(world, sink, rows)
        if expected.ordered:
            _check_order(world, sink, output)


def check_cancelled(world: World, output: Output, workload: Workload, log: LogChecker | None) -> None:
    """Check that all earlier commits are there once, and nothing else; only retained checkpoints are left behind."""
    for sink, expected in workload.sinks.items():
        names = Counter(tuple(row[:4]) for part in output.of(sink) for row in part.rows)
        too_many = names - Counter(row[:4] for row in expected.rows)
        if too_many:
            world.violate(f"{sink}: {sum(too_many.values())} rows too many {_some(too_many)}")
    if log is not None:
        log.check_orphans()


def _some(rows: Counter[Any]) -> str:
    return str(sorted(rows)[:3])


def _check_counted(world: World, sink: str, rows: list[Row]) -> None:
    counts = Counter((row[2], row[4]) for row in rows)
    repeated = [key for key, times in counts.items() if times > 1]
    if repeated:
        world.violate(f"{sink}: (key, count) {sorted(repeated)[:3]} of different rows: state was lost or used twice")


def _check_order(world: World, sink: str, output: Output) -> None:
    last: dict[tuple[int, int, int], tuple[int, int]] = {}
    for part in output.of(sink):
        for split, number, key, copy, _ in part.rows:
            place = (part.subtask, split, key)
            before = last.get(place)
            if before is not None and before >= (number, copy):
                world.violate(f"{sink}/{part.subtask}: split {split} key {key}: {(number, copy)} after {before}")
                return
            last[place] = (number, copy)


def check_end(world: World, output: Output, workload: Workload, log: LogChecker | None, is_swept: bool) -> None:
    check_output(world, output, workload)
    if log is not None:
        if log.final is None:
            world.violate("the job has finished without a final checkpoint in its log")
        elif is_swept:
            log.check_orphans()
