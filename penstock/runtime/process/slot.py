"""Implements a slot: one process's share of a job.

It builds its subtasks for each generation, routes what arrives to them, and releases them when the generation is over.
The process stays: a restart happens inside it.

The connections' thread delivers messages and frames, one after the other; they never wait here.
"""

from __future__ import annotations

from typing import Any, Callable

from penstock.common.clock import Clock
from penstock.common.limits import USUAL, Limits
from penstock.common.options import ExecutionOptions
from penstock.common.program.failures import describe, summary
from penstock.graph.deployment import DeploymentPlan
from penstock.operators.calls.call_runner import NewCallRunner
from penstock.protocol.values.elements import Generation, SubtaskId
from penstock.protocol.values.frames import Frame
from penstock.protocol.values.messages import (
    Cancel,
    CheckpointEnded,
    Connected,
    Deploy,
    EndSources,
    Left,
    LimitWatermark,
    Message,
    PeerLost,
    ReleaseVertices,
    Restore,
    SlotStatus,
    SplitsAssigned,
    StartRun,
    StoreReply,
    SubtaskFailed,
    TriggerCheckpoint,
)
from penstock.protocol.values.reasons import SubtaskFailureReason
from penstock.runtime.checkpoint.master_store import MasterStore
from penstock.runtime.process.backup import OpenBackup, opened_backup
from penstock.runtime.process.call_threads import new_call_runner
from penstock.runtime.process.reason_of import reason_of, text_of
from penstock.runtime.process.slot_deployment import OpenStore, SlotDeployment, SlotPorts
from penstock.runtime.process.slot_ports import DataLinks, MasterLink, Runner, StepScheduler
from penstock.runtime.subtask.slot_resources import RowBackend
from penstock.state.choice import row_backend as configured_backend
from penstock.storage.local_backup import LocalBackup


class Slot:
    """Implements a slot. `index` is the slot's number; a spare's changes when it takes another's place. `open_backup`
    opens where it keeps copies of its segments, once in its life. The rest: see `SlotPorts`.
    """

    def __init__(
        self,
        index: int,
        clock: Clock,
        master: MasterLink,
        links: DataLinks,
        scheduler: StepScheduler,
        open_store: OpenStore,
        new_random: Callable[[], str],
        row_backend: RowBackend = configured_backend,
        open_backup: OpenBackup = opened_backup,
        limits: Limits = USUAL,
        new_calls: NewCallRunner = new_call_runner,
    ) -> None:
        self.index = index
        self.clock = clock
        self.master = master
        self.links = links
        self.master_store = MasterStore(index, master)
        self.backup: LocalBackup | None = None
        self._open_backup = open_backup
        self._ports = SlotPorts(
            clock,
            master,
            links,
            open_store,
            new_random,
            row_backend,
            self.master_store,
            scheduler.run_apart,
            limits,
            new_calls,
        )
        self._scheduler = scheduler
        self._deployment: SlotDeployment | None = None
        self._letting_go: list[Any] = []

    # ---- from the JobMaster -------------------------------------------------------------------------------------

    def on_message(self, message: Message) -> None:
        """Handle a message. An error ends the generation. Without this: the connections' thread logs it, and the
        JobMaster waits for an answer.
        """
        deployment = self._deployment
        try:
            self._on_message(message)
        except Exception as error:
            if deployment is None:
                raise
            first = SubtaskId(0, self.index)
            what, reason = f"{text_of(error)} (slot {self.index}, on {type(message).__name__})", reason_of(error)
            deployment.send(
                SubtaskFailed(deployment.generation, self.index, first, "deployment", what, describe(error), reason)
            )

    def _on_message(self, message: Message) -> None:
        match message:
            case Deploy():
                self._deploy(message)
            case Restore(generation):
                if deployment := self._of(generation):
                    deployment.restore()
            case StartRun(generation):
                if deployment := self._of(generation):
                    deployment.post(message)
            case ReleaseVertices(generation):
                if deployment := self._of(generation):
                    deployment.release(message)
            case TriggerCheckpoint(generation):
                if deployment := self._of(generation):
                    deployment.trigger(message)
            case LimitWatermark(generation):
                if deployment := self._of(generation):
                    deployment.limit(message)
            case EndSources(generation):
                if deployment := self._of(generation):
                    deployment.post_to_sources(message)
            case CheckpointEnded(generation):
                if deployment := self._of(generation):
                    deployment.on_checkpoint_ended(message)
            case SplitsAssigned(generation, subtask):
                if deployment := self._of(generation):
                    deployment.post_to(SubtaskId(*subtask), message)
            case Cancel(generation):
                self._cancel(Generation(*generation))
            case StoreReply():
                self.master_store.on_reply(message)
            case _:
                pass

    def _of(self, generation: Generation) -> SlotDeployment | None:
        """Return the deployment that a message belongs to; None for one of an older generation."""
        deployment = self._deployment
        return deployment if deployment is not None and deployment.generation == tuple(generation) else None

    def _deploy(self, message: Deploy) -> None:
        self._revoke()
        self.index = message.slot  # a spare has had a number beyond those of the slots until now
        try:
            deployment = SlotDeployment(message, self._ports, self._backup_of)
        except Exception as error:
            first = SubtaskId(0, self.index)
            text = f"slot {self.index} cannot build its subtasks: {summary(error)}"
            permanent = SubtaskFailureReason.PERMANENT
            self.master.send(
                SubtaskFailed(message.generation, self.index, first, "deployment", text, describe(error), permanent)
            )
            return
        self._deployment = deployment
        runners: list[Runner] = [*deployment.runners, deployment.writer_runner]
        for runner in runners:
            self._scheduler.start(runner)
        self.links.connect(message.peers, deployment.generation)

    def _backup_of(self, plan: DeploymentPlan) -> LocalBackup | None:
        if self.backup is None:
            self.backup = self._open_backup(plan)
        return self.backup

    def _cancel(self, generation: Generation) -> None:
        """Release the generation, and report `Left` when none of its threads runs any more."""
        self._revoke()
        self.links.disconnect()
        self._when_left(lambda: self.master.send(Left(generation, self.index)))

    def _when_left(self, done: Callable[[], None]) -> None:
        """Call `done` once no thread of any generation runs here any more: of the last one, and of those before it,
        whose threads an earlier call may be waiting for still."""
        self._letting_go = [runner for runner in self._letting_go if not runner.done]
        # 12.3: whoever does not return ends its process.
        self._scheduler.when_done(list(self._letting_go), self._cancellation_timeout_ms, done)

    _cancellation_timeout_ms = 180_000.0

    def _revoke(self) -> None:
        deployment, self._deployment = self._deployment, None
        if deployment is not None:
            timeout = deployment.plan.configuration.get(ExecutionOptions.TASK_CANCELLATION_TIMEOUT)
            self._cancellation_timeout_ms = timeout.ms
            deployment.revoke()
            self._letting_go += [*deployment.runners, deployment.writer_runner]

    # ---- from the connections -----------------------------------------------------------------------------------

    def on_frame(self, peer: int, frame: Frame) -> None:
        """Handle a frame from a peer of the current generation."""
        if self._deployment is not None:
            self._deployment.deliver(frame)

    def on_peers_connected(self, generation: Generation) -> None:
        if self._of(generation) is not None:
            self.master.send(Connected(generation, self.index))

    def on_peer_lost(self, peer: int, detail: str) -> None:
        deployment = self._deployment
        if deployment is not None:
            deployment.send(PeerLost(deployment.generation, self.index, peer, detail))

    # ---- what can be seen ---------------------------------------------------------------------------------------

    def status(self, rss_bytes: int) -> SlotStatus:
        deployment = self._deployment
        if deployment is None:
            return SlotStatus(Generation(0, 0), self.index, [], rss_bytes)
        statuses = [r.status() for r in deployment.runners]
        return SlotStatus(deployment.generation, self.index, statuses, rss_bytes, deployment.restoring())

    def on_master_lost(self, detail: str) -> None:
        """Stop everything: the connection to the JobMaster is lost, so nothing of ours may continue."""
        self._revoke()

    def close(self, done: Callable[[], None] = lambda: None) -> None:
        """Release everything; call `done` once no thread of a generation runs any more. The slot ends after this, or
        its process does, so it deletes its copies.
        """

        def on_left() -> None:
            if self.backup is not None:
                self.backup.delete()
            done()

        self._revoke()
        self.links.disconnect()
        self._when_left(on_left)
