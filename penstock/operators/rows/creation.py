"""Maps each kind of row operator to the class that runs it."""

from __future__ import annotations

from penstock.datastream._streams.join_functions import IntervalJoined
from penstock.datastream.window import MergingWindowAssigner
from penstock.graph.declared_functions import AnyWindowSpec, TriggeredWindowSpec, WindowSpec
from penstock.graph.job_graph import Operator
from penstock.graph.logical import OperatorKind
from penstock.operators.calls.async_operator import AsyncOperator
from penstock.operators.joins.interval_join import IntervalJoinOperator
from penstock.operators.rows.broadcast_operator import BroadcastProcessOperator
from penstock.operators.rows.row_functions import (
    CoFlatMapOperator,
    CoMapOperator,
    CoProcessOperator,
    FilterOperator,
    FinalReduceOperator,
    FlatMapOperator,
    MapOperator,
    ProcessOperator,
    ReduceOperator,
    RowOperator,
)
from penstock.operators.rows.subtask_runtime_context import SubtaskRuntimeContext
from penstock.operators.windows.assigners.assigner import MergingAssigner
from penstock.operators.windows.evicted_windows import EvictingMergingWindowOperator, EvictingWindowOperator
from penstock.operators.windows.merging_windows import MergingWindowOperator
from penstock.operators.windows.row_windows import WindowOperator
from penstock.operators.windows.triggered_merging_windows import TriggeredMergingWindowOperator
from penstock.operators.windows.triggered_windows import TriggeredWindowOperator

_OPERATORS: dict[OperatorKind, type[RowOperator]] = {
    OperatorKind.MAP: MapOperator,
    OperatorKind.FILTER: FilterOperator,
    OperatorKind.FLAT_MAP: FlatMapOperator,
    OperatorKind.PROCESS: ProcessOperator,
    OperatorKind.KEYED_PROCESS: ProcessOperator,
    OperatorKind.REDUCE: ReduceOperator,
    OperatorKind.ASYNC_WAIT: AsyncOperator,
    OperatorKind.CO_MAP: CoMapOperator,
    OperatorKind.CO_FLAT_MAP: CoFlatMapOperator,
    OperatorKind.CO_PROCESS: CoProcessOperator,
    OperatorKind.KEYED_CO_PROCESS: CoProcessOperator,
    OperatorKind.BROADCAST_PROCESS: BroadcastProcessOperator,
    OperatorKind.KEYED_BROADCAST_PROCESS: BroadcastProcessOperator,
}


def create_row_operator(operator: Operator, context: SubtaskRuntimeContext, is_batch: bool = False) -> RowOperator:
    """Return the object that runs an operator. `is_batch`: a reduce emits only the results of whole keys."""
    if operator.kind is OperatorKind.REDUCE and is_batch:
        return FinalReduceOperator(operator, context)
    if operator.kind is OperatorKind.WINDOW:
        return _window_operator(operator.function)(operator, context)
    if isinstance(operator.function, IntervalJoined):
        return IntervalJoinOperator(operator, context)
    return _OPERATORS[operator.kind](operator, context)


def _window_operator(spec: AnyWindowSpec) -> type[RowOperator]:
    if isinstance(spec, TriggeredWindowSpec):
        is_merging = isinstance(spec.assigner, MergingWindowAssigner)
        if spec.evictor is not None:
            return EvictingMergingWindowOperator if is_merging else EvictingWindowOperator
        return TriggeredMergingWindowOperator if is_merging else TriggeredWindowOperator
    assert isinstance(spec, WindowSpec)
    return MergingWindowOperator if isinstance(spec.assigner, MergingAssigner) else WindowOperator
