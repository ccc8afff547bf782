"""Groups the resources that all subtasks of a slot share in one generation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Callable, Mapping

from penstock.common.clock import Clock
from penstock.common.configuration import Configuration
from penstock.common.limits import USUAL, Limits
from penstock.graph.deployment import DeploymentPlan
from penstock.operators.calls.call_runner import NewCallRunner
from penstock.protocol.values.elements import Generation, SubtaskId
from penstock.protocol.values.frames import Frame
from penstock.protocol.values.messages import Message
from penstock.protocol.values.reasons import FailureReason
from penstock.runtime.checkpoint.snapshot_writer import SnapshotWriter
from penstock.runtime.process.call_threads import new_call_runner
from penstock.runtime.subtask.subtask_settings import SubtaskSettings
from penstock.state.backend import KeyedStateBackend
from penstock.state.choice import row_backend
from penstock.storage.local_backup import LocalBackup

RowBackend = Callable[[Configuration, int, Mapping[str, str], Callable[[], int], Limits], KeyedStateBackend]
"""(options, max parallelism, operator names by uid, wall clock, limits) -> the keyed state of row functions"""


@dataclass(frozen=True)
class SlotResources:
    """Holds the resources that subtasks share in a slot. `send_frame(slot, frame)`, `send(message)` and `decline` drop
    what a revoked generation sends. `row_backend` makes the keyed state of row functions. `backup`: copies on the local
    disk. `run_apart` runs work once, next to the subtasks. `new_calls` makes the runners of calls of slow services.
    """

    plan: DeploymentPlan
    generation: Generation
    slot: int
    clock: Clock
    writer: SnapshotWriter
    send_frame: Callable[[int, Frame], None]
    send: Callable[[Message], None]
    decline: Callable[[SubtaskId, int, FailureReason], None]
    row_backend: RowBackend = row_backend
    backup: LocalBackup | None = None
    run_apart: Callable[[Callable[[], None]], None] | None = None
    limits: Limits = USUAL
    new_calls: NewCallRunner = new_call_runner
    settings: SubtaskSettings = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", SubtaskSettings.of(self.plan.configuration))
