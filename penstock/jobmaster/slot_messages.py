"""Gives each message of a slot to the part of the JobMaster that it is for."""

from __future__ import annotations

import sys
from typing import Any

from penstock.jobmaster.current_job import CurrentJob
from penstock.jobmaster.driver import Driver
from penstock.jobmaster.generations import Generations
from penstock.jobmaster.job_directory import JobDirectory
from penstock.jobmaster.master_ports import MasterPorts
from penstock.jobmaster.process_links import ProcessLinks
from penstock.jobmaster.reports import Reporter
from penstock.jobmaster.restore import START_ELSEWHERE, refusal
from penstock.protocol.driver import driver_events as events
from penstock.protocol.driver.driver_effects import FailureCause
from penstock.protocol.driver.lifecycle import Phase
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


class SlotMessages:
    """Handles messages of slots. Those of an earlier generation are ignored, except for memory."""

    def __init__(
        self,
        job: CurrentJob,
        driver: Driver,
        links: ProcessLinks,
        generations: Generations,
        job_directory: JobDirectory,
        reporter: Reporter,
        ports: MasterPorts,
    ) -> None:
        self._job = job
        self._driver = driver
        self._links = links
        self._generations = generations
        self._job_directory = job_directory
        self._reporter = reporter
        self._ports = ports

    def on_message(self, process: str, message: Message) -> None:
        life, handle = self._driver.lifecycle, self._driver.handle
        handle(events.Heard(process))
        played_slot = life.roster.plays(process)
        match message:
            case Register():
                self._register(message)
            case Printed(subtask=subtask, lines=lines, is_error=is_error):
                for line in lines:
                    self._ports.console.line(subtask, line, is_error)
            case StoreRequest():
                self._ports.links.send(process, self._job_directory.serve(message))
            case Left(generation):
                handle(events.SlotLeft(process, Generation(*generation)))
            case SlotAck():
                handle(message)
            case Connected(generation) if played_slot is not None:
                handle(events.SlotConnected(process, Generation(*generation)))
            case Restored(generation, slot, layers) if played_slot is not None:
                if Generation(*generation) == life.generation:
                    self._reporter.on_restored(slot, layers)
                handle(events.SlotRestored(process, Generation(*generation)))
            case _ if played_slot is not None:
                self._on_message_of_generation(played_slot, message, self._ports.clock.monotonic_ms())

    def _register(self, register: Register) -> None:
        ours = f"{sys.version_info.major}.{sys.version_info.minor}"
        theirs = ".".join(register.python.split(".")[:2])
        if theirs != ours:
            self._driver.abandon(
                f"slot {register.slot} on {register.host} runs Python {register.python}, the driver {ours}; functions "
                "can only be shipped between equal minor versions: set PYSPARK_PYTHON for the executors"
            )
        self._links.registered(register.process)
        self._driver.handle(events.Registered(register))

    def _on_message_of_generation(self, played_slot: int, message: Any, now_ms: float) -> None:
        lifecycle, handle = self._driver.lifecycle, self._driver.handle
        generation = lifecycle.generation
        if generation is None or message.generation != generation:
            if isinstance(message, SlotStatus):
                # Before it is deployed, a process names the slot that it was submitted for.
                self._reporter.on_memory(played_slot, message.rss_bytes)
            return
        match message:
            case SlotStatus(slot=slot, restoring=restoring):
                member = lifecycle.roster.member(slot)
                if member is not None:
                    handle(events.Restoring(member.process, restoring))
                self._reporter.on_status(message, now_ms)
            case Decline():
                handle(message)
            case SubtaskFailed():
                handle(events.Failed(self._cause(message), generation))
            case PeerLost(slot=slot, peer=peer, detail=detail):
                summary = f"slot {slot} lost its connection to slot {peer}: {detail}"
                cause = FailureCause(summary, slot_lost=True, lost_peer=peer)
                handle(events.Failed(cause, generation))
            case DrainReport():
                self._generations.on_drain_report(message, now_ms)
            case ReachedEndOfData(subtask=subtask, status=status):
                if status is not None:
                    self._reporter.on_subtask(status, now_ms)
                self._generations.on_source_ended(SubtaskId(*subtask))
                handle(events.EndOfData(SubtaskId(*subtask)))
            case WatermarkReport(subtask=subtask, watermark_ms=watermark_ms):
                self._generations.on_watermark(SubtaskId(*subtask), watermark_ms)
            case SplitsRequested(subtask=subtask):
                self._generations.on_splits_requested(SubtaskId(*subtask), now_ms)

    def _cause(self, failed: SubtaskFailed) -> FailureCause:
        point = self._job.restore_point
        vertex = self._job.graph.vertices[failed.subtask.vertex]
        where = f"subtask {failed.subtask.subtask + 1}/{vertex.parallelism} of '{vertex.name}', slot {failed.slot}"
        is_restoring = self._driver.lifecycle.phase is Phase.RESTORING
        is_damage = failed.reason is SubtaskFailureReason.DAMAGED_RANGE or (
            failed.reason is SubtaskFailureReason.DAMAGE and is_restoring
        )
        if point is not None and is_damage:
            self._job_directory.keep_everything = True
            detail = f"{failed.error} ({where})"
            if point.root is None:
                directory = self._job.identity.directory
                text = refusal(point.metadata, detail, self._job_directory.retained_paths, directory)
            else:
                where = (
                    point.root if point.path == METADATA_NAME else f"{point.root}/chk-{point.metadata.checkpoint_id}"
                )
                without_rows = to_give_up_rows(point.metadata.checkpoint_id, detail)
                text = f"{where} cannot be restored: {detail}. {without_rows}{START_ELSEWHERE}"
            return FailureCause(text, restartable=False)
        restartable = failed.reason is not SubtaskFailureReason.PERMANENT
        return FailureCause(f"{failed.error} ({where})", failed.traceback, restartable=restartable)
