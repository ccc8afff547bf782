"""Restores a subtask from a checkpoint: keyed state, operator parts, time and in-flight data.

At the same parallelism everywhere, and if the job was not draining, a subtask gets back exactly what was its own.
Otherwise `penstock.protocol.restore.rescale` decides who gets what.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.graph.deployment import DeploymentPlan
from penstock.graph.logical import OperatorKind
from penstock.graph.states import key_type
from penstock.operators.calls.async_operator import AsyncOperator
from penstock.operators.event_time.watermark_generators import OldClock
from penstock.protocol.channel.watermark_valve import WATERMARK_MIN_MS
from penstock.protocol.restore import rescale
from penstock.protocol.values.keys import key_group_range
from penstock.protocol.values.metadata import (
    GroupFloor,
    Metadata,
    StateRange,
    SubtaskSnapshot,
)
from penstock.runtime.checkpoint.calls_restore import CallsRestore
from penstock.runtime.checkpoint.in_flight_restore import InFlightRestore
from penstock.runtime.checkpoint.old_subtasks import OldSubtasks
from penstock.runtime.checkpoint.operator_state_restore import restore_operator_state
from penstock.runtime.checkpoint.stored_ranges import stored_states, worth_keeping
from penstock.runtime.subtask.deployed_subtask import DeployedSubtask
from penstock.state.backend import RestoringSubtask, StateBackend, StoredState
from penstock.state.operator_state import OperatorStateBackend
from penstock.storage.local_backup import LocalBackup
from penstock.storage.segments import read_range
from penstock.storage.store import ObjectStore


@dataclass(frozen=True)
class RestoredTime:
    """Holds event time to resume from. `current_ms` is what operators see, `emitted_ms` what has been sent
    downstream, `pauses` the ended pauses of each clock that have been.
    """

    current_ms: int = WATERMARK_MIN_MS
    emitted_ms: int = WATERMARK_MIN_MS
    floors: tuple[GroupFloor, ...] = ()
    idle: bool = False
    pauses: Mapping[int, int] = field(default_factory=dict)


class SubtaskRestore:
    """Restores one subtask. `backup`: where copies are looked for first. `load_apart`: runs work once, next to it."""

    def __init__(
        self,
        plan: DeploymentPlan,
        subtask: DeployedSubtask,
        metadata: Metadata | None,
        store: ObjectStore | None,
        backup: LocalBackup | None = None,
        load_apart: Callable[[Callable[[], None]], None] | None = None,
        recovered_bytes_max: int | None = None,
    ) -> None:
        self._recovered_bytes_max = recovered_bytes_max
        self._plan = plan
        self._subtask = subtask
        self._metadata = metadata
        self._store = store
        self._backup = backup
        self._load_apart = load_apart
        self._old = OldSubtasks(plan.graph, subtask, metadata)

    @property
    def checkpoint_id(self) -> int | None:
        """Return the id of the checkpoint that is restored; None without any."""
        return None if self._metadata is None else self._metadata.checkpoint_id

    def is_dealt_out(self, operator: str) -> bool:
        """Return whether the state of the operator's old subtasks is redistributed, because its vertex has another
        parallelism or another head now.
        """
        old = self._old.vertices.get(operator)
        vertex = self._subtask.vertex
        return old is not None and (old.parallelism != vertex.parallelism or old.operators[0] != vertex.uid)

    @property
    def was_finished(self) -> bool:
        """Return whether the subtask was finished. Partly finished operators continue with what is left of their
        state.
        """
        own, old = self._old.own, self._old.of_head
        return own.finished if own is not None else bool(old) and all(s.finished for s in old)

    # ---- state --------------------------------------------------------------------------------------------------

    def part(self, operator: str, name: str) -> list[bytes]:
        """Return the subtask's items of one part. At another parallelism every item goes to exactly one subtask. Only
        the state of watermark generators goes to all, and each takes what belongs to its splits.
        """
        items = [_items(snapshot, operator, name) for snapshot in self._old.of(operator)]
        if name == "watermarks" and self.is_dealt_out(operator):
            return [item for of_one in items for item in of_one]
        return rescale.redistributed(items, self._subtask.vertex.parallelism, self._subtask.id.subtask)

    def clocks(self, operator: str) -> list[OldClock]:
        """Return the generators of the old subtasks whose time those behind them waited for."""
        return [
            OldClock(WATERMARK_MIN_MS if s.watermark_ms is None else s.watermark_ms, _items(s, operator, "watermarks"))
            for s in rescale.telling(self._old.of(operator))
        ]

    def pending_commits(self, operator: str) -> tuple[bytes, ...]:
        """Return the committables of a sink in the restored checkpoint, of all its subtasks."""
        if self._metadata is None:
            return ()
        own = [c for snapshot in self._metadata.subtasks for c in snapshot.committables]
        return tuple(c.data for c in [*self._metadata.unconfirmed_commits, *own] if c.operator == operator)

    def operator_state(self, backend: OperatorStateBackend) -> None:
        vertex, number = self._subtask.vertex, self._subtask.id.subtask
        for operator in vertex.operators:
            restore_operator_state(backend, operator.uid, self._old.of(operator.uid), vertex.parallelism, number)

    def calls(self, operator: AsyncOperator) -> None:
        """Put the calls of the checkpoint into the operator's queue, and the time of the inputs behind them."""
        graph, vertex, metadata = self._plan.graph, self._subtask.vertex, self._metadata
        if metadata is None:
            return
        old, edges = self._old.of(operator.operator.uid), list(graph.inputs_of(vertex.index))
        producers = {edge.source: graph.vertices[edge.source].operators[-1].name for edge in edges}
        CallsRestore(self._subtask, old, metadata, edges, producers).restore(operator)

    def keyed_state(self, backend: StateBackend) -> None:
        vertex, key_groups = self._subtask.vertex, self._subtask.key_groups
        number = self._subtask.id.subtask
        of_keys = key_type(self._plan.graph, vertex)
        self._report_stored_ranges(backend)
        copied = self._restore_copy(backend, of_keys)
        old = self._old.of_head
        if not old:
            return
        holders = rescale.state_holders(len(old), vertex.parallelism, vertex.max_parallelism, number)
        backend.check_room(self._stored_bytes(holders) - sum(kept.length_bytes for kept in copied))
        for holder in holders:
            snapshot = old[holder]
            for schema in snapshot.schemas:
                backend.restore_schema(schema, self._user_uid(schema.operator), of_keys)
            for kept in (k for k in snapshot.keyed if k not in copied and k.has_some_of(key_groups)):
                backend.restore(kept.operator, kept.name, self._read_state(kept), key_groups)

    def _restore_copy(self, backend: StateBackend, of_keys: str) -> set[StateRange]:
        """Let the backend restore the ranges that it has local copies of, in its own form; return these ranges."""
        metadata, own = self._metadata, self._old.own
        runs: dict[StoredState, StateRange] = {}
        if metadata is not None and own is not None and metadata.job_id == self._plan.job_id:
            segments = metadata.segments
            runs = dict(zip(stored_states(own.keyed, segments, frozenset(range(len(segments)))), own.keyed))

        def read(run: StoredState) -> bytes:
            return self._read_state(runs[run])

        subtask = RestoringSubtask(self._backup, self._subtask.key_groups, of_keys, tuple(runs), read, self._load_apart)
        return {runs[run] for run in backend.restore_copy(subtask)}

    def _read_state(self, kept: StateRange) -> bytes:
        name = f"keyed state '{kept.name}' of operator '{self._operator_name(kept.operator)}'"
        return self._read(kept.segment, kept.offset, kept.length_bytes, kept.crc, name)

    def _stored_bytes(self, holders: Sequence[int]) -> int:
        """Return the least number of bytes in the checkpoint for the subtask's own key groups. The bytes in a part of
        an old subtask's key groups are not known, so only subtasks whose key groups are all ours count.
        """
        vertex, own, old = self._subtask.vertex, set(self._subtask.key_groups), self._old.of_head
        whole = [h for h in holders if own.issuperset(key_group_range(vertex.max_parallelism, len(old), h))]
        return sum(kept.length_bytes for holder in whole for kept in old[holder].keyed)

    def _report_stored_ranges(self, backend: StateBackend) -> None:
        """Report the subtask's own ranges only: named by two subtasks, a third would later restore it twice."""
        metadata, own = self._metadata, self._old.own
        if metadata is not None and own is not None and metadata.job_id == self._plan.job_id:
            worth = worth_keeping((r for s in metadata.subtasks for r in s.keyed), metadata.segments)
            backend.on_restored(metadata.checkpoint_id, stored_states(own.keyed, metadata.segments, worth))

    def _operator_name(self, uid: str) -> str:
        return next((o.name for o in self._subtask.vertex.operators if o.uid == uid), uid)

    def _user_uid(self, uid: str) -> str:
        return next((o.user_uid or "" for o in self._subtask.vertex.operators if o.uid == uid), "")

    # ---- what was in flight, and time ---------------------------------------------------------------------------

    def in_flight(self) -> RestoredTime:
        """Put the in-flight data in front of the gate, and return the time that the subtask resumes at.

        After a rescale that is the time of the gate's channels, layers included. Each key group keeps its old owner's
        time as a floor. A vertex without channels, or with generators of its own, resumes at the minimum that its old
        subtasks had emitted.
        """
        own, vertex = self._old.own, self._subtask.vertex
        rows = InFlightRestore(self._plan, self._subtask, self._old, self._read, self._recovered_bytes_max)
        if not self._old.is_rescaled and own is not None:
            emitted_ms = WATERMARK_MIN_MS if own.watermark_ms is None else own.watermark_ms
            current_ms = emitted_ms if own.current_ms is None else own.current_ms
            rows.restore(current_ms)
            return RestoredTime(current_ms, emitted_ms, tuple(own.floors), own.idle, own.pauses)
        rows.restore(WATERMARK_MIN_MS)
        floors = (
            rescale.floors(self._old.of_head, vertex.max_parallelism, self._subtask.key_groups) if vertex.keyed else []
        )
        old = [found for o in vertex.operators if (found := self._old.of(o.uid))]
        if not self._subtask.gate.channels or vertex.clock is not None:
            said_ms = min((rescale.live_start(of_one).watermark_ms for of_one in old), default=WATERMARK_MIN_MS)
            return RestoredTime(said_ms, said_ms, tuple(floors))
        current_ms = self._subtask.valve.start()
        # Only what all had emitted counts, idle ones too. Without this: timers above it that an idle one has left do
        # not fire before the next watermark.
        said_ms = min((rescale.emitted_by_all(of_one) for of_one in old), default=WATERMARK_MIN_MS)
        if vertex.operators[0].kind is OperatorKind.ASYNC_WAIT:
            # 7.4: the time of the inputs comes behind the calls that an old subtask had begun before.
            current_ms = min(said_ms, current_ms)
        return RestoredTime(current_ms, min(said_ms, current_ms), tuple(floors))

    def _read(self, segment: int, offset: int, length_bytes: int, crc: int, belongs_to: str) -> bytes:
        assert self._metadata is not None and self._store is not None
        path = self._metadata.segments[segment].path
        return read_range(self._store, path, offset, length_bytes, crc, belongs_to, self._backup)


def _items(snapshot: SubtaskSnapshot, operator: str, name: str) -> list[bytes]:
    return next((p.items for p in snapshot.parts if (p.operator, p.name, p.kind) == (operator, name, "")), [])
