"""Opens a subtask: restores what it had, creates its reader, writer and functions, and puts its parts together."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, Callable

from penstock.common.options import StateBackendOptions
from penstock.common.program.failures import USER_ERRORS, OperatorFailure
from penstock.common.settings.checkpoint_settings import concurrent_checkpoints_max
from penstock.connectors.base import ReaderContext, SinkWriter, SourceReader, WriterContext
from penstock.graph.job_graph import Operator
from penstock.graph.logical import OperatorKind
from penstock.graph.states import REDUCED_STATE
from penstock.operators.batches import row_type
from penstock.operators.calls.async_operator import AsyncOperator
from penstock.operators.calls.held_clock import HeldClock
from penstock.operators.checkpointed_parts import CheckpointedParts
from penstock.operators.columns.columnar_chain import ColumnarChain
from penstock.operators.columns.columnar_functions import columnar_operators
from penstock.operators.event_time.progress import EventTime
from penstock.operators.event_time.subtask_clock import SubtaskClock, clock_number
from penstock.operators.event_time.timers import EndingTimers, Timers
from penstock.operators.event_time.watermark_generators import WHOLE_INPUT, WatermarkGenerators
from penstock.operators.rows.chain import Chain
from penstock.operators.rows.creation import create_row_operator
from penstock.operators.rows.element import CurrentElement
from penstock.operators.rows.subtask_runtime_context import SubtaskRuntimeContext
from penstock.operators.user_metrics import UserMetrics
from penstock.protocol.values.elements import InBandEvent
from penstock.protocol.values.messages import Printed, SplitsRequested, WatermarkReport
from penstock.runtime.checkpoint.subtask_checkpoints import SubtaskCheckpoints
from penstock.runtime.checkpoint.subtask_restore import RestoredTime, SubtaskRestore
from penstock.runtime.output.chain_output import ChainOutput
from penstock.runtime.subtask.batch_work import BatchWork
from penstock.runtime.subtask.call_work import CallWork
from penstock.runtime.subtask.column_work import ColumnWork
from penstock.runtime.subtask.deployed_subtask import DeployedSubtask
from penstock.runtime.subtask.feeds import GateFeed, SourceFeed
from penstock.runtime.subtask.parking import Parking
from penstock.runtime.subtask.row_work import RowWork
from penstock.runtime.subtask.slot_resources import SlotResources
from penstock.runtime.subtask.snapshot_source import SnapshotSource
from penstock.runtime.subtask.source_alignment import SourceAlignment
from penstock.runtime.subtask.subtask import Subtask
from penstock.runtime.subtask.work import AppliedRows, Work
from penstock.state.backend import KeyedStateBackend, StateError
from penstock.state.choice import columnar_backend
from penstock.state.columnar.columnar_backend import ColumnarBackend
from penstock.state.operator_state import OperatorStateBackend

_ENDS = (OperatorKind.SOURCE, OperatorKind.TIMESTAMPS, OperatorKind.SINK)


class SubtaskOpening:
    """Opens one subtask, in its thread. What was opened is closed again if a later part fails."""

    def __init__(self, shared: SlotResources, deployed: DeployedSubtask, restore: SubtaskRestore) -> None:
        self._shared = shared
        self._plan = shared.plan
        self._settings = shared.settings
        self._clock = shared.clock
        self._generation = shared.generation
        self._deployed = deployed
        self._restore = restore
        self._vertex = deployed.vertex
        self._metrics = UserMetrics(shared.clock.monotonic_ms)

    def open(self) -> Subtask:
        """Return the subtask. Raises `OperatorFailure` where user code fails."""
        with ExitStack() as on_failure:
            subtask = self._open(on_failure)
            on_failure.pop_all()
        return subtask

    def _open(self, on_failure: ExitStack) -> Subtask:
        restore, deployed = self._restore, self._deployed
        restored = restore.in_flight()
        time = EventTime()
        time.restore(restored.current_ms, restored.emitted_ms, restored.floors)
        backend = self._backend()
        if backend is not None:
            on_failure.callback(backend.revoke)
            self._restore_keyed_state(backend)
        operators = self._vertex.operators
        user_uids = {o.uid: o.user_uid for o in operators if o.user_uid is not None}
        operator_state = OperatorStateBackend({o.uid: o.name for o in operators}, user_uids)
        on_failure.callback(operator_state.revoke)
        restore.operator_state(operator_state)
        checkpointed = CheckpointedParts(operator_state, restore.checkpoint_id)
        reader = self._reader()
        if reader is not None:
            on_failure.callback(_quietly, reader.close)
        writer = self._writer()
        if writer is not None:
            on_failure.callback(_quietly, writer.close)
        tail = self._vertex.operators[-1]
        overdraft_bytes_max = self._settings.overdraft_bytes_max
        output = ChainOutput(tail, deployed.partitions, writer, overdraft_bytes_max, self._clock)
        generation = self._watermark_generation(reader, time)
        work = self._work(backend, output, time, generation, operator_state, checkpointed)
        on_failure.callback(_quietly, work.close)

        event_time = self._event_time(work, output, time, generation, restored)
        feed = self._feed(reader, work, output, event_time)
        parts = SnapshotSource(feed, work, output, event_time, backend, checkpointed, self._metrics)
        checkpointed.initialize(self._vertex.operators[0], reader)
        checkpointed.initialize(tail, writer)
        if isinstance(work, CallWork):
            # Before `open`: a program that refuses what the checkpoint holds connects to nothing.
            self._restore_calls(work)
        work.chain.open()
        parking = Parking(self._settings.parking_ms_max)
        checkpoints = SubtaskCheckpoints(deployed, parts, parking, self._shared)
        return Subtask(deployed, parts, checkpoints, parking, self._shared)

    def _restore_keyed_state(self, backend: KeyedStateBackend | ColumnarBackend[Any]) -> None:
        try:
            self._restore.keyed_state(backend)
        except StateError as error:
            raise OperatorFailure(self._vertex.operators[0].name, error) from error

    def _restore_calls(self, work: CallWork) -> None:
        try:
            self._restore.calls(work.operator)
        except StateError as error:
            raise OperatorFailure(self._vertex.operators[0].name, error) from error
        work.restored(self._deployed.valve.start())

    # ---- restored parts -----------------------------------------------------------------------------------------

    def _backend(self) -> KeyedStateBackend | ColumnarBackend[Any] | None:
        names = {o.uid: o.name for o in self._vertex.operators}
        if not self._vertex.columnar:
            keyed = self._vertex.operators[0].kind.keyed
            if not keyed:
                return None
            configuration, groups = self._plan.configuration, self._vertex.max_parallelism
            return self._shared.row_backend(configuration, groups, names, self._clock.wall_ms, self._shared.limits)
        if any(o.kind.columnar and o.kind.keyed for o in self._vertex.operators):
            configuration = self._plan.configuration
            if self._settings.is_batch and self._vertex.operators[0].kind is OperatorKind.AGGREGATE_COLUMNS:
                configuration = configuration.copy().set(StateBackendOptions.STATE_BACKEND, "hashmap")
            return columnar_backend(configuration, names, self._shared.limits)
        return None

    def _reader(self) -> SourceReader | None:
        head = self._vertex.operators[0]
        if head.kind is not OperatorKind.SOURCE or self._restore.was_finished:
            return None
        metrics = self._metrics.group(head.name)
        context = ReaderContext(self._deployed.id.subtask, self._vertex.parallelism, head.name, metrics)
        reader: SourceReader = _guarded(head, lambda: head.function.create_reader(context))
        if splits := self._restore.part(head.uid, "splits"):
            _guarded(head, lambda: reader.add_splits(splits))
        return reader

    def _writer(self) -> SinkWriter | None:
        tail, plan, generation, index = self._vertex.operators[-1], self._plan, self._generation, self._deployed.id[1]
        if tail.kind is not OperatorKind.SINK:
            return None
        context = WriterContext(
            subtask=index,
            parallelism=self._vertex.parallelism,
            operator_name=tail.name,
            operator_uid=tail.uid,
            incarnation=f"{plan.incarnation}{generation.counter}",
            checkpointing=plan.checkpointing,
            input_type=tail.input_type,
            job_id=plan.job_id if plan.storage_root is not None else "",
            generation=(generation.fence, generation.counter),
            pending=self._restore.pending_commits(tail.uid),
            concurrent_checkpoints=concurrent_checkpoints_max(plan.configuration),
            metrics=self._metrics.group(tail.name),
            emit=lambda lines: self._shared.send(Printed(self._shared.slot, index, list(lines))),
        )
        items = self._restore.part(tail.uid, "writer")
        writer: SinkWriter = _guarded(tail, lambda: tail.function.create_writer(context, items))
        return writer

    def _watermark_generation(self, reader: SourceReader | None, time: EventTime) -> WatermarkGenerators | None:
        """Return the vertex's own generators, if it has any. What is known of a split goes where the split goes."""
        clock, restore = self._vertex.clock, self._restore
        if clock is None:
            return None
        rows = row_type(clock.output_type if clock.kind is OperatorKind.SOURCE else clock.input_type)
        interval_ms, queued = self._settings.watermark_interval_ms, tuple if reader is None else reader.queued_splits
        generation = WatermarkGenerators(clock, rows, interval_ms, self._clock.monotonic_ms, queued)
        dealt_out, is_source = restore.is_dealt_out(clock.uid), self._vertex.is_source
        in_hand = reader.splits_in_hand() if reader is not None else []
        items = restore.part(clock.uid, "watermarks")
        generation.restore(items, time.emitted_ms, in_hand if dealt_out else None)
        waited_for = in_hand if is_source else [WHOLE_INPUT]
        generation.wait_for(waited_for)
        if dealt_out and waited_for == [WHOLE_INPUT]:
            generation.continue_from(restore.clocks(clock.uid))
        return generation

    # ---- the chain ----------------------------------------------------------------------------------------------

    def _work(
        self,
        backend: KeyedStateBackend | ColumnarBackend[Any] | None,
        output: ChainOutput,
        time: EventTime,
        generation: WatermarkGenerators | None,
        operator_state: OperatorStateBackend,
        checkpointed: CheckpointedParts,
    ) -> RowWork | ColumnWork:
        on_disk = isinstance(backend, ColumnarBackend) and backend.is_on_disk
        slice_ms = self._settings.slice_on_disk_ms if on_disk else self._settings.slice_ms
        applied = AppliedRows(output, slice_ms, self._deployed.gate.applied)
        if self._vertex.columnar:
            assert backend is None or isinstance(backend, ColumnarBackend)
            operators = columnar_operators(self._vertex, backend, self._shared.limits, self._settings.is_batch)
            columns = ColumnarChain(self._vertex, operators, self._clock.monotonic_ms)
            columns.set_time(time.current_ms, time.floors())
            return ColumnWork(columns, output, applied, generation, time, self._clock)
        assert not isinstance(backend, ColumnarBackend)
        head_kind = self._vertex.operators[0].kind
        if self._settings.is_batch and (backend is not None or head_kind is OperatorKind.BROADCAST_PROCESS):
            return self._batch_work(backend, output, applied, time, operator_state, checkpointed)
        rows = self._chain(backend, output, time, operator_state, checkpointed)
        if isinstance(head := rows.head, AsyncOperator):
            head.start(
                self._shared.new_calls, self._deployed.mailbox.wake, self._deployed.name, self._deployed.id.subtask
            )
            return CallWork(head, rows, output, applied, self._clock, self._settings.slice_ms)
        return RowWork(rows, output, applied, generation, self._clock, self._settings.slice_ms)

    def _batch_work(
        self,
        backend: KeyedStateBackend | None,
        output: ChainOutput,
        applied: AppliedRows,
        time: EventTime,
        operator_state: OperatorStateBackend,
        checkpointed: CheckpointedParts,
    ) -> BatchWork:
        """Return the work of a chain that holds its rows until their input has ended."""
        key_time, head = time if backend is None else EventTime(), self._vertex.operators[0]
        rows = self._chain(backend, output, key_time, operator_state, checkpointed)
        reduced = (head.uid, REDUCED_STATE) if head.kind is OperatorKind.REDUCE else None
        is_timed = any(edge.timestamped for edge in self._deployed.gate.edge_of)
        slice_ms = self._settings.slice_ms
        return BatchWork(rows, output, applied, self._clock, slice_ms, time, key_time, backend, reduced, is_timed)

    def _chain(
        self,
        backend: KeyedStateBackend | None,
        output: ChainOutput,
        time: EventTime,
        operator_state: OperatorStateBackend,
        checkpointed: CheckpointedParts,
    ) -> Chain:
        vertex, element, wall_ms = self._vertex, CurrentElement(), self._clock.wall_ms
        kind = EndingTimers if self._settings.is_batch else Timers
        timers = None if backend is None else kind(vertex.operators[0].uid, backend, time, wall_ms)
        context = SubtaskRuntimeContext(
            vertex,
            self._deployed.id.subtask,
            self._plan,
            backend,
            self._generation.counter,
            time,
            element,
            wall_ms,
            timers,
            operator_state=operator_state,
            metrics=self._metrics,
        )
        functions = [
            create_row_operator(o, context.for_operator(o), self._settings.is_batch)
            for o in vertex.operators
            if o.kind not in _ENDS
        ]
        for function in functions:
            checkpointed.initialize(function.operator, function.operator.function, function.context)
        side_edges = [p.edge for p in output.partitions if p.edge.side_output is not None]
        return Chain(
            vertex,
            functions,
            output.emit,
            output.has_room,
            output.may_overdraw,
            backend.set_current_key if backend is not None else None,
            self._settings.object_reuse,
            self._clock.monotonic_ms,
            element,
            timers,
            side_types={str(edge.side_output): edge.type for edge in side_edges},
            stamps=functions[-1].operator.timestamped and bool(output.partitions),
            state=None if backend is None else backend.slices,
            limits=self._shared.limits,
        )

    # ---- the whole ----------------------------------------------------------------------------------------------

    def _event_time(
        self,
        work: Work,
        output: ChainOutput,
        time: EventTime,
        generation: WatermarkGenerators | None,
        restored: RestoredTime,
    ) -> SubtaskClock:
        clock, deployed = self._vertex.clock, self._deployed
        arguments = (
            deployed.valve,
            time,
            generation,
            self._vertex.operators[-1].timestamped,
            restored.idle,
            partial(_emit_behind_rows, work, output),
            self._clock.monotonic_ms,
            0 if clock is None else clock_number(clock.uid, deployed.id.subtask),
            restored.pauses,
            self._settings.is_batch,
        )
        if not isinstance(work, CallWork):
            return SubtaskClock(*arguments)
        work.event_time = HeldClock(work.operator.queue, *arguments)
        return work.event_time

    def _feed(
        self, reader: SourceReader | None, work: Work, output: ChainOutput, event_time: SubtaskClock
    ) -> SourceFeed | GateFeed:
        shared, deployed = self._shared, self._deployed
        if not self._vertex.is_source:
            return GateFeed(deployed, event_time, work.keyed)
        request = SplitsRequested(shared.generation, shared.slot, deployed.id)
        source, alignment = self._vertex.operators[0], self._alignment(event_time)
        kept = self._restore.part(source.uid, "splits") if reader is None else []
        return SourceFeed(
            source, reader, output, event_time, self._clock, lambda: shared.send(request), alignment, kept
        )

    def _alignment(self, event_time: SubtaskClock) -> SourceAlignment | None:
        shared, strategy = self._shared, self._vertex.operators[0].watermark_strategy
        generators, subtask = event_time.generation, self._deployed.id
        if strategy is None or strategy.alignment is None or generators is None:
            return None

        def report(watermark_ms: int | None) -> None:
            shared.send(WatermarkReport(shared.generation, shared.slot, subtask, watermark_ms))

        return SourceAlignment(generators, self._clock, report, strategy.alignment.update_interval.ms)


def _emit_behind_rows(work: Work, output: ChainOutput, event: InBandEvent) -> None:
    """Emit an event behind all rows that came before it, those held for a user's batch included."""
    # 5.6: held rows leave before the event.
    work.flush_held()
    output.emit_event(event)


def _guarded(operator: Operator, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except USER_ERRORS as error:
        raise OperatorFailure(operator.name, error) from error


def _quietly(close: Callable[[], None]) -> None:
    """Close a part that was opened before another one failed: the first failure is the one to report."""
    with suppress(Exception):
        close()
