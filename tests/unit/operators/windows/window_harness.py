"""Runs the operator of windows over rows, or of an interval join, without a job.

Rows, watermarks and the clock come when the test says, and the operator is restored from a snapshot wherever it likes.
"""

from __future__ import annotations

import pickle
from typing import Any

import cloudpickle

from penstock.connectors.memory.discard import DiscardingSink
from penstock.datastream import DataStream
from penstock.graph.deployment import DeploymentPlan
from penstock.graph.logical import OperatorKind
from penstock.operators.event_time.progress import EventTime
from penstock.operators.event_time.timers import Timers
from penstock.operators.rows.creation import create_row_operator
from penstock.operators.rows.element import CurrentElement, SideRow
from penstock.operators.rows.subtask_runtime_context import SubtaskRuntimeContext
from penstock.protocol.values.elements import WATERMARK_MAX_MS
from tests.unit.state.backends import KEY_GROUPS, Backends, encoded

Emitted = tuple[Any, int | None]
"""A row, a `SideRow` as (tag, row), and its timestamp."""


class WindowHarness:
    def __init__(self, stream: DataStream, backends: Backends) -> None:
        stream.sink_to(DiscardingSink())
        graph = stream.get_execution_environment().get_job_graph()
        kinds = OperatorKind.WINDOW, OperatorKind.KEYED_CO_PROCESS
        (self._vertex,) = (v for v in graph.vertices if v.operators[0].kind in kinds)
        self._backends = backends
        self.watermark_ms: int | None = None
        self._now_ms = 0
        self.late_rows = 0
        self._start(backends.new())

    def _start(self, backend: Any) -> None:
        self._backend = backend
        self._time = EventTime()
        if self.watermark_ms is not None:
            self._time.restore(self.watermark_ms, self.watermark_ms, ())
        self._element = CurrentElement()
        operator = pickle.loads(cloudpickle.dumps(self._vertex.operators[0]))
        vertex = self._vertex
        self._timers = Timers(operator.uid, backend, self._time, lambda: self._now_ms)
        plan = DeploymentPlan("job", None, None, "inc", None, False)  # type: ignore[arg-type]
        context = SubtaskRuntimeContext(
            vertex,
            0,
            plan,
            backend,
            0,
            self._time,
            self._element,
            lambda: self._now_ms,
            self._timers,
            vertex.operators[0],
        )
        self.operator = create_row_operator(operator, context)
        self.operator.open()

    def restore(self) -> None:
        """Take a snapshot, and continue from it."""
        self._backend.slices.settle()
        runs = encoded(self._backend)
        self.late_rows += self.operator.late_rows
        self.operator.close()
        self._start(self._backends.restored(runs))

    def add(self, key: int, row: Any, timestamp_ms: int | None = None, side: int = 0) -> list[Emitted]:
        self._backend.set_current_key(key, key % KEY_GROUPS)
        self._element.timestamp_ms = timestamp_ms
        return self._collected(self.operator.pipe_input(iter([row]), side))

    def watermark(self, time_ms: int) -> list[Emitted]:
        self.watermark_ms = time_ms
        self._time.advance(time_ms)
        found = self._collected(self.operator.fire(self._due(event=True)))
        self._time.emitted_ms = self._time.current_ms
        return found

    def end(self) -> list[Emitted]:
        """Let the data end."""
        return self.watermark(WATERMARK_MAX_MS)

    def clock(self, now_ms: int) -> list[Emitted]:
        self._now_ms = self._backends.now_ms = now_ms
        return self._collected(self.operator.fire(self._due(event=False)))

    def _due(self, event: bool) -> Any:
        take = self._timers.take_event if event else self._timers.take_processing
        while (timer := take()) is not None:
            self._element.event_timer = event
            self._element.timestamp_ms = timer.timestamp_ms if event else None
            yield timer

    def _collected(self, rows: Any) -> list[Emitted]:
        found = []
        for row in rows:
            made = (row.tag, row.value) if isinstance(row, SideRow) else row
            found.append((made, self._element.timestamp_ms))
        self._backend.slices.settle()
        return found

    def is_empty(self) -> bool:
        """Return whether no state is left of any key, but for the number of its rows."""
        self._backend.slices.settle()
        return not [run.name for run in encoded(self._backend) if run.entries and not run.name.endswith("assigner")]
