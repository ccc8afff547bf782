"""Gives each message of a slot to the part of the JobMaster that it is for."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Protocol

from penstock.common.clock import Clock
from penstock.graph.job_graph import JobGraph
from penstock.jobmaster.checkpoints import Checkpoints
from penstock.jobmaster.console import Console
from penstock.jobmaster.ending import JobEnding
from penstock.jobmaster.generations import Generations
from penstock.jobmaster.identity import JobIdentity
from penstock.jobmaster.job_directory import JobDirectory
from penstock.jobmaster.ports import SlotLinks
from penstock.jobmaster.reports import Reporter
from penstock.jobmaster.restore import RestorePoint, refusal
from penstock.protocol.checkpoint.coordinator import CheckpointCoordinator
from penstock.protocol.job.lifecycle import Lifecycle
from penstock.protocol.job.lifecycle_effects import Effect, FailureCause
from penstock.protocol.job.lifecycle_table import Phase
from penstock.protocol.log.publication import to_give_up_rows
from penstock.protocol.values.elements import Generation, SubtaskId
from penstock.protocol.values.messages import (
    Connected,
    Decline,
    DrainReport,
    Left,
    Message,
    PeerLost,
    Printed,
    ReachedEndOfData,
    Register,
    Restored,
    SlotAck,
    SlotStatus,
    SplitsRequested,
    StoreRequest,
    SubtaskFailed,
    WatermarkReport,
)
from penstock.protocol.values.reasons import SubtaskFailureReason
from penstock.storage.layout import METADATA_NAME


class Master(Protocol):
    """Declares what the messages of slots are given to."""

    graph: JobGraph
    identity: JobIdentity
    links: SlotLinks
    clock: Clock
    console: Console
    lifecycle: Lifecycle
    coordinator: CheckpointCoordinator
    checkpoints: Checkpoints
    generations: Generations
    job_directory: JobDirectory
    ending: JobEnding
    reporter: Reporter
    restore_point: RestorePoint | None

    def execute(self, decided: Sequence[Effect]) -> None: ...

    def connected(self, process: str) -> None:
        """Remember the process, to close its link at the end."""

    def abandon(self, error: str) -> None: ...


class SlotMessages:
    def __init__(self, master: Master) -> None:
        self._master = master

    def on_message(self, process: str, message: Message) -> None:
        master, life = self._master, self._master.lifecycle
        now_ms = master.clock.monotonic_ms()
        life.processes.on_heard(process, now_ms)
        played_slot = life.roster.plays(process)
        match message:
            case Register():
                self._register(message, now_ms)
            case Printed(subtask=subtask, lines=lines, is_error=is_error):
                for line in lines:
                    master.console.line(subtask, line, is_error)
            case StoreRequest():
                master.links.send(process, master.job_directory.serve(message))
            case Left(generation):
                master.execute(life.on_left(process, Generation(*generation), now_ms))
            case SlotAck():
                master.checkpoints.execute(master.coordinator.on_ack(message, now_ms))
            case Connected(generation) if played_slot is not None:
                master.execute(life.on_connected(process, Generation(*generation), now_ms))
            case Restored(generation, slot, layers) if played_slot is not None:
                if Generation(*generation) == life.generation:
                    master.reporter.on_restored(slot, layers)
                master.execute(life.on_restored(process, Generation(*generation), now_ms))
            case _ if played_slot is not None:
                self._on_message_of_generation(played_slot, message, now_ms)

    def _register(self, register: Register, now_ms: float) -> None:
        master = self._master
        ours = f"{sys.version_info.major}.{sys.version_info.minor}"
        theirs = ".".join(register.python.split(".")[:2])
        if theirs != ours:
            master.abandon(
                f"slot {register.slot} on {register.host} runs Python {register.python}, the driver {ours}; functions "
                "can only be shipped between equal minor versions: set PYSPARK_PYTHON for the executors"
            )
        master.connected(register.process)
        master.execute(master.lifecycle.on_register(register, now_ms))

    def _on_message_of_generation(self, played_slot: int, message: Any, now_ms: float) -> None:
        master, lifecycle = self._master, self._master.lifecycle
        generation = lifecycle.generation
        if generation is None or message.generation != generation:
            if isinstance(message, SlotStatus):
                # Before it is deployed, a process names the slot that it was submitted for.
                master.reporter.on_memory(played_slot, message.rss_bytes)
            return
        match message:
            case SlotStatus(slot=slot, restoring=restoring):
                member = lifecycle.roster.member(slot)
                if member is not None:
                    lifecycle.processes.on_restoring(member.process, restoring)
                master.reporter.on_status(message, now_ms)
            case Decline():
                master.checkpoints.execute(master.coordinator.on_decline(message, now_ms))
            case SubtaskFailed():
                master.execute(lifecycle.on_failure(generation, self._cause(message), now_ms))
            case PeerLost(slot=slot, peer=peer, detail=detail):
                summary = f"slot {slot} lost its connection to slot {peer}: {detail}"
                cause = FailureCause(summary, slot_lost=True, lost_peer=peer)
                master.execute(lifecycle.on_failure(generation, cause, now_ms))
            case DrainReport():
                master.generations.on_drain_report(message, now_ms)
            case ReachedEndOfData(subtask=subtask, status=status):
                if status is not None:
                    master.reporter.on_subtask(status, now_ms)
                master.generations.on_source_ended(SubtaskId(*subtask))
                ended = master.coordinator.on_end_of_data(SubtaskId(*subtask), now_ms)
                master.checkpoints.execute(ended)
            case WatermarkReport(subtask=subtask, watermark_ms=watermark_ms):
                master.generations.on_watermark(SubtaskId(*subtask), watermark_ms)
            case SplitsRequested(subtask=subtask):
                master.generations.on_splits_requested(SubtaskId(*subtask), now_ms)

    def _cause(self, failed: SubtaskFailed) -> FailureCause:
        master, point = self._master, self._master.restore_point
        vertex = master.graph.vertices[failed.subtask.vertex]
        where = f"subtask {failed.subtask.subtask + 1}/{vertex.parallelism} of '{vertex.name}', slot {failed.slot}"
        is_damage = failed.reason is SubtaskFailureReason.DAMAGE
        if point is not None and is_damage and master.lifecycle.phase is Phase.RESTORING:
            master.ending.keep_everything = True
            detail = f"{failed.error} ({where})"
            if point.root is None:
                text = refusal(point.metadata, detail, master.job_directory.retained_paths, master.identity.directory)
            else:
                where = (
                    point.root if point.path == METADATA_NAME else f"{point.root}/chk-{point.metadata.checkpoint_id}"
                )
                text = f"{where} cannot be restored: {detail}. {to_give_up_rows(point.metadata.checkpoint_id, detail)}"
            return FailureCause(text, restartable=False)
        restartable = failed.reason is not SubtaskFailureReason.PERMANENT
        return FailureCause(f"{failed.error} ({where})", failed.traceback, restartable=restartable)
