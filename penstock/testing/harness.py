"""Runs a pipeline in a test: in this process, without Spark and Java, on a clock that the test drives."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from penstock.common.configuration import Configuration
from penstock.common.row_types.type_information import RowTypeError
from penstock.common.time import Duration, Time
from penstock.common.typeinfo import TypeInformation
from penstock.common.types import Types
from penstock.datastream._streams.given_rows import as_rows
from penstock.datastream.data_stream import DataStream
from penstock.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
)
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.graph.compatibility import IncompatibleGraph
from penstock.graph.fit import fitted
from penstock.graph.job_graph import Operator
from penstock.graph.logical import Node
from penstock.operators.event_time.timers import EVENT_TIMERS, PROCESSING_TIMERS
from penstock.protocol.values.metadata import Metadata
from penstock.runtime.subtask.subtask import Subtask
from penstock.state.operator_state import SPLIT
from penstock.storage.memory import MemoryStore
from penstock.testing.driven_clock import DrivenClock
from penstock.testing.fed_source import IDLE, ROW, WATERMARK, Element, FedSource, Feed, Unwrapped, given_time
from penstock.testing.local_job import LocalJob, PickledPlan
from penstock.testing.seen_rows import SeenRows, SeenSink, WithTimestamp

OPTIONS = {
    "execution.buffer-timeout.interval": "0 ms",
    "penstock.parking.enabled": "false",
}
"""Set before the options of a test: rows do not wait for a fuller batch, and no snapshot for a subtask's rest."""


class Input:
    """Represents a stream whose rows, watermarks and end come from the test. Made by `Harness.source`.

    Attributes:
        stream: The `DataStream` to build the pipeline on.
    """

    def __init__(self, harness: Harness, name: str, type_info: TypeInformation | None) -> None:
        self._harness = harness
        self.feed = Feed()
        self._type_info = type_info
        source = harness.environment.from_source(FedSource(self.feed.id), given_time(), name)
        self.stream: DataStream = source.set_parallelism(1).flat_map(Unwrapped(), type_info).set_parallelism(1)

    def push(self, *rows: Any, timestamp: int | None = None) -> None:
        """Give the stream rows, and run until nothing is left to do at this time.

        Args:
            rows: The rows.
            timestamp: Their event time, in milliseconds. None: the clock's time.

        Raises:
            OperatorFailure: A function raises.
            TypeError: A row does not fit the declared type of the stream.
        """
        timestamp_ms = int(self._harness.clock.now_ms) if timestamp is None else timestamp
        self._give([Element(ROW, row, timestamp_ms) for row in self.as_declared(rows)])

    def as_declared(self, rows: Sequence[Any]) -> list[Any]:
        """Return the rows as functions get them from a source of the stream's type: a `Row` for a tuple, say.

        Args:
            rows: The rows, as `from_collection()` takes them.

        Returns:
            The rows.

        Raises:
            TypeError: A row does not fit the declared type of the stream.
        """
        if self._type_info is None:
            return list(rows)
        try:
            encoded = self._type_info.encode(as_rows(rows, self._type_info))
        except RowTypeError as error:
            single = isinstance(rows[0], list) and len(rows) == 1
            hint = "; push(*rows) takes each row as an argument of its own" if single else ""
            raise TypeError(f"push(): {error}{hint}") from None
        return self._type_info.decode(pa.RecordBatch.from_arrays(encoded, schema=self._type_info.schema))

    def watermark(self, timestamp: int) -> None:
        """Let event time reach a watermark, and run what it makes due.

        Args:
            timestamp: The watermark, in milliseconds: no row of this time or before will follow.

        Raises:
            OperatorFailure: A function raises.
        """
        self._give([Element(WATERMARK, None, timestamp)])

    def idle(self) -> None:
        """Let the stream be idle: the watermarks of other streams do not wait for it until its next element."""
        self._give([Element(IDLE, None, int(self._harness.clock.now_ms))])

    def end(self) -> None:
        """End the stream. Time reaches its end when all streams have ended, and all timers of event time fire."""
        self.feed.has_ended = True
        self._give([])

    def _give(self, elements: list[Element]) -> None:
        self.feed.elements += elements
        self.feed.available = len(self.feed.elements)
        self._harness.run()


class Output:
    """Represents the rows that a stream has emitted, each once over restarts. Made by `Harness.output`."""

    def __init__(self, harness: Harness, stream: DataStream) -> None:
        self.seen = SeenRows()
        self._taken = 0
        timed = stream.process(WithTimestamp()).set_parallelism(1).start_new_chain()
        timed.sink_to(SeenSink(self.seen.id)).set_parallelism(1)

    @property
    def rows(self) -> list[Any]:
        """Return all rows, in the order in which they came."""
        return [row for row, _ in self.seen.rows]

    @property
    def timed_rows(self) -> list[tuple[Any, int | None]]:
        """Return all rows as (row, timestamp in milliseconds); None if the stream has no event time."""
        return list(self.seen.rows)

    def take(self) -> list[Any]:
        """Return the rows since the last call."""
        self._taken, first = len(self.seen.rows), min(self._taken, len(self.seen.rows))
        return self.rows[first:]


class Harness:
    """Runs a pipeline in a test.

    Declare the pipeline on the streams of `source`, name its `output`, then push rows. Everything that is due at this
    time has happened when a method returns. Functions run in their real operators, with real checkpoints.

    Example:
        with Harness() as harness:
            words = harness.source(Types.STRING())
            counts = harness.output(words.stream.key_by(lambda word: word).process(Count(), Types.LONG()))
            words.push("a", "b", "a")
            assert counts.take() == [1, 1, 2]

    Args:
        parallelism: The number of subtasks of operators that set none.
        start: The clock's time at the beginning, in milliseconds.
        options: Options of the job, by key. An unknown key raises `OptionError`.
    """

    __test__ = False

    def __init__(self, parallelism: int = 1, start: int = 0, options: dict[str, Any] | None = None) -> None:
        configuration = Configuration()
        for key, value in {**OPTIONS, **(options or {})}.items():
            configuration.set_string(key, str(value))
        configuration.validate()
        self.environment = StreamExecutionEnvironment(configuration)
        self.environment.set_parallelism(parallelism)
        self.environment._declared.is_used = True
        self.clock = DrivenClock(start)
        self._inputs: list[Input] = []
        self._outputs: list[Output] = []
        self._store = MemoryStore()
        self._job: LocalJob | None = None
        self._plan: PickledPlan | None = None
        self._unset: list[Node] | None = None
        """The operators that set no parallelism; None before the first start."""
        self._checkpoints: list[Metadata] = []
        self._attempts = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # ---- the pipeline -------------------------------------------------------------------------------------------

    def source(self, type_info: TypeInformation | None = None, name: str = "") -> Input:
        """Add a stream that the test feeds. It runs in one subtask.

        Args:
            type_info: The type of the rows, made by `Types`; None: they are pickled.
            name: The name of the stream, for errors.

        Returns:
            The input; its `stream` is where the pipeline begins.

        Raises:
            RuntimeError: The pipeline runs already.
        """
        self._refuse_running("source()")
        made = Input(self, name or f"input {len(self._inputs)}", type_info)
        self._inputs.append(made)
        return made

    def output(self, stream: DataStream) -> Output:
        """Collect the rows of a stream, or of a side output: `harness.output(stream.get_side_output(tag))`.

        Args:
            stream: The stream.

        Returns:
            The output.

        Raises:
            RuntimeError: The pipeline runs already.
        """
        self._refuse_running("output()")
        made = Output(self, stream)
        self._outputs.append(made)
        return made

    def _refuse_running(self, method: str) -> None:
        if self._job is not None:
            raise RuntimeError(f"{method} after the pipeline has begun to run: declare it before the first push()")

    def run(self) -> None:
        """Run until nothing is left to do at this time. Starts the pipeline; the methods that give it something do so.

        Raises:
            OperatorFailure: A function raises.
        """
        self.job.run()

    @property
    def job(self) -> LocalJob:
        """Return the running job, for what the other methods do not show."""
        if self._job is None:
            self._start(None)
        assert self._job is not None
        return self._job

    def _start(self, restored: Metadata | None) -> None:
        plan = self._planned()
        number, self._attempts = self._attempts, self._attempts + 1
        self._job = LocalJob(plan, self._store, self.clock, restored, number)

    def _planned(self) -> PickledPlan:
        if self._plan is None:
            self._plan = PickledPlan(self.environment.get_job_graph("test"), self.environment.get_configuration())
            if self._unset is None:
                self._unset = [node for node in self.environment._graph.nodes if node.parallelism is None]
        return self._plan

    # ---- time ---------------------------------------------------------------------------------------------------

    @property
    def processing_time(self) -> int:
        """Return the clock's time, in milliseconds."""
        return self.clock.wall_ms()

    def advance(self, by: int | Duration | Time) -> None:
        """Let time pass. Timers of processing time, calls and timeouts come in their order, each at its own time.

        Args:
            by: The time, in milliseconds or as a Duration.

        Raises:
            OperatorFailure: A function raises.
            ValueError: The time is negative.
        """
        by_ms = by.to_millis() if isinstance(by, Duration) else by.to_milliseconds() if isinstance(by, Time) else by
        if by_ms < 0:
            raise ValueError(f"time does not run backwards, got {by_ms} ms")
        end_ms = self.clock.now_ms + by_ms
        self.run()
        while (next_ms := self.job.next_ms()) is not None and next_ms <= end_ms:
            self.clock.now_ms = max(self.clock.now_ms, next_ms)
            self.run()
        self.clock.now_ms = end_ms
        self.run()

    def set_processing_time(self, timestamp: int) -> None:
        """Let time pass until the clock shows a time.

        Args:
            timestamp: The time, in milliseconds.

        Raises:
            OperatorFailure: A function raises.
            ValueError: The clock shows a later time.
        """
        self.advance(timestamp - self.processing_time)

    def watermark(self, timestamp: int) -> None:
        """Let all inputs that have not ended reach a watermark.

        Args:
            timestamp: The watermark, in milliseconds.

        Raises:
            OperatorFailure: A function raises.
        """
        for given in self._inputs:
            if not given.feed.has_ended:
                given.watermark(timestamp)

    def end(self) -> None:
        """End all inputs, let calls that are under way take their time, and run to the end of the job.

        Raises:
            OperatorFailure: A function raises.
            RuntimeError: The job does not end: it waits for something that never comes.
        """
        for given in self._inputs:
            given.end()
        while not self.job.has_ended:
            next_ms = self.job.next_ms()
            if next_ms is None:
                raise RuntimeError("the job does not end, and nothing is due")
            self.clock.now_ms = max(self.clock.now_ms, next_ms)
            self.run()

    # ---- what can be seen ---------------------------------------------------------------------------------------

    def state(self, stream: DataStream, descriptor: StateDescriptor) -> dict[Any, Any]:
        """Return the keyed state of the operator that emits a stream.

        Args:
            stream: What `process(...)`, `map(...)` and others returned.
            descriptor: The descriptor of the state, as the function has it.

        Returns:
            The value of each key that has one: a list for list state, a dict for map state.

        Raises:
            ValueError: The stream is not that of a keyed function.
        """
        found: dict[Any, Any] = {}
        for subtask, operator in self._subtasks_of(stream):
            backend: Any = subtask.parts.backend
            if backend is None:
                raise ValueError(f"operator '{operator.name}' has no keyed state: its stream is not keyed")
            handle = backend.state(operator.uid, descriptor)
            for key, key_group in list(backend.keys_of(operator.uid, descriptor.get_name())):
                backend.set_current_key(key, key_group)
                content = _content(handle, descriptor)
                if content is not None and content != [] and content != {}:  # it may have expired
                    found[key] = content
            backend.clear_current_key()
            backend.slices.settle()
        return found

    def operator_state(self, stream: DataStream, descriptor: StateDescriptor) -> Any:
        """Return state that belongs to no key: a list of all subtasks, or broadcast state.

        Args:
            stream: What `process(...)`, `map(...)` and others returned.
            descriptor: A `ListStateDescriptor` as the function gives it to `get_list_state`, or the
                `MapStateDescriptor` of broadcast state.

        Returns:
            A list for list state, a dict for broadcast state.
        """
        found = [(s.parts.checkpointed.backend, operator.uid) for s, operator in self._subtasks_of(stream)]
        if isinstance(descriptor, MapStateDescriptor):
            backend, uid = found[0]  # the same in all subtasks
            return dict(backend.broadcast_state(uid, descriptor).items())
        return [value for backend, uid in found for value in backend.list_state(uid, descriptor, SPLIT).get()]

    def event_time_timers(self, stream: DataStream) -> list[tuple[int, Any]]:
        """Return the registered timers of event time of the operator that emits a stream.

        Args:
            stream: What `process(...)` returned.

        Returns:
            (time in milliseconds, key), the earliest first.
        """
        return self._timers(stream, EVENT_TIMERS)

    def processing_time_timers(self, stream: DataStream) -> list[tuple[int, Any]]:
        """Return the registered timers of processing time of the operator that emits a stream.

        Args:
            stream: What `process(...)` returned.

        Returns:
            (time in milliseconds, key), the earliest first.
        """
        return self._timers(stream, PROCESSING_TIMERS)

    def _timers(self, stream: DataStream, name: str) -> list[tuple[int, Any]]:
        registered = self.state(stream, MapStateDescriptor(name, Types.LONG(), Types.BOOLEAN()))
        return sorted(((at_ms, key) for key, times in registered.items() for at_ms in times), key=lambda t: t[0])

    def _subtasks_of(self, stream: DataStream) -> list[tuple[Subtask, Operator]]:
        job, node = self.job, stream._node_for("state")
        for vertex in job.graph.vertices:
            for operator in vertex.operators:
                if operator.function is node.function and operator.name == node.name:
                    return [(s, operator) for id, s in job.subtasks.items() if id.vertex == vertex.index]
        raise ValueError(f"operator '{node.name}' is not in the pipeline")

    # ---- checkpoints --------------------------------------------------------------------------------------------

    def checkpoint(self, unaligned: bool = False, may_wait: bool = False) -> int:
        """Take a checkpoint.

        Args:
            unaligned: True if its barriers pass rows in flight.
            may_wait: True to let time pass where aligned barriers wait behind a slow call.

        Returns:
            The checkpoint's id, for `restart`.

        Raises:
            OperatorFailure: A function raises, or state cannot be stored.
            RuntimeError: Barriers wait behind a slow call.
        """
        id = len(self._checkpoints) + 1
        self._checkpoints.append(self.job.checkpoint(id, 0 if unaligned else None, may_wait))
        return id

    @property
    def newest_checkpoint(self) -> Metadata:
        """Return the metadata of the newest checkpoint."""
        return self._checkpoints[-1]

    def restart(self, checkpoint: int | None = None, parallelism: int | None = None) -> None:
        """Crash, and restore from a checkpoint: all functions are new, and what came after the checkpoint comes again.

        Args:
            checkpoint: The checkpoint's id; None: the newest, or the beginning if there is none.
            parallelism: The number of subtasks of operators that set none; None: as before.

        Raises:
            OperatorFailure: A function raises.
            ValueError: There is no such checkpoint.
        """
        self.begin_again(checkpoint, parallelism)
        self.run()

    def begin_again(self, checkpoint: int | None = None, parallelism: int | None = None) -> None:
        """Restart without running anything yet.

        Args:
            checkpoint: As in `restart`.
            parallelism: As in `restart`.

        Raises:
            OperatorFailure: A function raises.
            ValueError: There is no such checkpoint.
            IncompatibleGraph: The checkpoint is unaligned, and has rows in flight between operators that are chained at
                this parallelism.
        """
        id = len(self._checkpoints) if checkpoint is None else checkpoint
        if not 0 <= id <= len(self._checkpoints) or (checkpoint is not None and id == 0):
            raise ValueError(f"there is no checkpoint {id}; there are {len(self._checkpoints)}")
        if parallelism is not None and parallelism != self.environment.get_parallelism():
            self._change_parallelism(parallelism, self._checkpoints[id - 1] if id else None)
        self.crash()
        for output in self._outputs:
            output.seen.go_back_to(id or None)
        self._start(self._checkpoints[id - 1] if id else None)

    def _change_parallelism(self, parallelism: int, restored: Metadata | None) -> None:
        old_plan, before = self._planned(), self.environment.get_parallelism()
        self._set_parallelism(parallelism)
        plan = self._planned()
        try:
            if restored is not None:
                fitted(plan.graph, restored, False)
        except IncompatibleGraph:
            self._set_parallelism(before)
            self._plan = old_plan
            raise

    def _set_parallelism(self, parallelism: int) -> None:
        self.environment.set_parallelism(parallelism)
        # The environment's is for operators that are declared later.
        for node in self._unset or ():
            node.parallelism = parallelism
        self._plan = None

    def crash(self) -> None:
        """End the job's attempt without storing anything, as the loss of its processes does."""
        if self._job is not None:
            self._job.close()
            self._job = None

    def close(self) -> None:
        """End the job, and close its functions."""
        self.crash()
        for given in self._inputs:
            given.feed.close()
        for output in self._outputs:
            output.seen.close()


def _content(handle: Any, descriptor: StateDescriptor) -> Any:
    if isinstance(descriptor, MapStateDescriptor):
        return dict(handle.items())
    if isinstance(descriptor, ListStateDescriptor):
        return list(handle.get())
    return handle.value() if hasattr(handle, "value") else handle.get()
