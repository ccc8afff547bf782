"""Tests windows with triggers, of the clock and of counts: beside Flink's rules written down with dictionaries, with
snapshots and restores between any two events, in every backend.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from penstock.common import Duration, Types, WatermarkStrategy
from penstock.common.configuration import Configuration
from penstock.common.program.failures import OperatorFailure
from penstock.common.serializer import TypeSerializer
from penstock.common.time import Time
from penstock.connectors.memory.collection import CollectionSource
from penstock.datastream import (
    AggregateFunction,
    DataStream,
    OutputTag,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
)
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from penstock.datastream.window import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountEvictor,
    CountSlidingWindowAssigner,
    CountTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    Evictor,
    GlobalWindows,
    MergingWindowAssigner,
    NeverTrigger,
    ProcessingTimeSessionWindows,
    ProcessingTimeTrigger,
    PurgingTrigger,
    SessionWindowTimeGapExtractor,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TimeEvictor,
    TimeWindow,
    TimeWindowSerializer,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    Window,
    WindowAssigner,
)
from penstock.operators.windows.triggered_windows import TriggeredWindowOperator
from penstock.state.reading.checkpoint import read_checkpoint
from tests.unit.operators.windows.test_own_windows import keyed_by_user
from tests.unit.operators.windows.test_sessions import Summed
from tests.unit.operators.windows.window_harness import WindowHarness
from tests.unit.runtime.jobs.small_job import CommittedRows
from tests.unit.state.backends import Backends, encoded
from tests.unit.state.reading.jobs import StoredJob

END = 2**63 - 1
LONG = Types.LONG()
EVENT = Types.TUPLE([LONG, LONG])
"""Key and number."""
Row = tuple[int, int]


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment(Configuration({"parallelism.default": 1}))


@pytest.fixture(params=["hashmap", "rocksdb-without-cache"])
def backends(request: pytest.FixtureRequest, tmp_path: Any) -> Any:
    made = Backends(request.param, tmp_path)
    yield made
    made.close()


def events(env: StreamExecutionEnvironment) -> DataStream:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda row, _: row[1])
    return env.from_source(CollectionSource([], EVENT), strategy, "events")


def keyed(env: StreamExecutionEnvironment) -> Any:
    return events(env).key_by(lambda row: row[0], LONG)


def shown(window: Any) -> Any:
    return (window.start, window.end) if isinstance(window, TimeWindow) else repr(window)


class Listed(ProcessWindowFunction[Any, Any, int, Any]):
    """Emits the key, the window and its rows' numbers."""

    def process(self, key: int, context: Any, elements: Any) -> Any:
        yield key, shown(context.window()), sorted(row[1] for row in elements)


class Numbers(AggregateFunction):
    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: Any, accumulator: list[int]) -> list[int]:
        return [*accumulator, value[1]]

    def get_result(self, accumulator: list[int]) -> list[int]:
        return sorted(accumulator)

    def merge(self, acc_a: list[int], acc_b: list[int]) -> list[int]:
        return acc_a + acc_b


class Result(ProcessWindowFunction[Any, Any, int, Any]):
    def process(self, key: int, context: Any, elements: Any) -> Any:
        (numbers,) = elements
        yield key, shown(context.window()), numbers


# ---- beside Flink's rules -------------------------------------------------------------------------------------------


class FlinkWindows:
    """Does as Flink's WindowOperator does, with dictionaries. Emits (key, window, numbers) and late rows."""

    def __init__(self, assigner: Any, trigger: Any, lateness_ms: int) -> None:
        self.assigner = assigner
        self.trigger = trigger
        self.lateness_ms = lateness_ms
        self.watermark_ms = -(2**63)
        self.now_ms = 0
        self.contents: dict[Any, dict[Any, list[int]]] = defaultdict(dict)
        self.timers: set[tuple[bool, int, int, Any]] = set()
        """(of event time, time, key, window)"""
        self.state: dict[Any, Any] = {}
        self.found: list[Any] = []
        self.late: list[Any] = []

    def over_at(self, window: Any) -> int:
        last = window.max_timestamp()
        return int(min(last + self.lateness_ms, END) if self.assigner.is_event_time() else last)

    def is_late(self, window: Any) -> bool:
        return bool(self.assigner.is_event_time()) and self.over_at(window) <= self.watermark_ms

    def add(self, key: int, row: Row, timestamp_ms: int) -> None:
        is_late = True
        for window in self.assigner.assign_windows(row, timestamp_ms, _Context(self, key, None)):
            if isinstance(self.assigner, MergingWindowAssigner):
                window = self.merged(key, window)
            if self.is_late(window):
                self.contents[key].pop(window, None)
                continue
            is_late = False
            self.contents[key].setdefault(window, []).append(row[1])
            context = _Context(self, key, window)
            self.act(key, window, self.trigger.on_element(row, timestamp_ms, window, context))
            if self.over_at(window) < END:
                self.timers.add((self.assigner.is_event_time(), self.over_at(window), key, window))
        if is_late and self.assigner.is_event_time() and timestamp_ms + self.lateness_ms <= self.watermark_ms:
            self.late.append(row)

    def merged(self, key: int, window: Any) -> Any:
        merges: list[tuple[set[Any], Any]] = []

        class Callback(MergingWindowAssigner.MergeCallback[Any]):
            def merge(self, to_be_merged: Any, merge_result: Any) -> None:
                merges.append((set(to_be_merged), merge_result))

        known = self.contents[key]
        self.assigner.merge_windows([*known, window], Callback())
        becomes = window
        for members, result in merges:
            if window in members:
                becomes = result
            old = [w for w in known if w in members]
            if not old or old == [result]:
                continue
            rows = [n for w in old for n in known.pop(w)]
            known[result] = rows
            gone = [w for w in old if w != result]
            self.trigger.on_merge(result, _Context(self, key, result, gone))
            for w in gone:
                self.trigger.clear(w, _Context(self, key, w))
                self.timers.discard((self.assigner.is_event_time(), self.over_at(w), key, w))
        return becomes

    def act(self, key: int, window: Any, result: TriggerResult) -> None:
        rows = self.contents[key].get(window, [])
        if result.is_fire() and rows:
            self.found.append((key, shown(window), sorted(rows)))
        if result.is_purge():
            rows.clear()

    def fire(self, is_event: bool, now_ms: int) -> None:
        if is_event:
            self.watermark_ms = now_ms
        else:
            self.now_ms = now_ms
        while due := sorted((t for t in self.timers if t[0] is is_event and t[1] <= now_ms), key=lambda t: t[1]):
            timer = due[0]
            self.timers.discard(timer)
            self.on_timer(*timer)

    def on_timer(self, is_event: bool, time_ms: int, key: int, window: Any) -> None:
        if isinstance(self.assigner, MergingWindowAssigner) and window not in self.contents[key]:
            return
        method = self.trigger.on_event_time if is_event else self.trigger.on_processing_time
        self.act(key, window, method(time_ms, window, _Context(self, key, window)))
        if is_event is self.assigner.is_event_time() and time_ms == self.over_at(window) < END:
            self.contents[key].pop(window, None)
            self.trigger.clear(window, _Context(self, key, window))


class _State:
    def __init__(self, kept: dict[Any, Any], at: Any, reduce: Any) -> None:
        self.kept, self.at, self.reduce = kept, at, reduce

    def get(self) -> Any:
        return self.kept.get(self.at)

    value = get

    def add(self, value: Any) -> None:
        self.kept[self.at] = self.reduce(self.kept[self.at], value) if self.at in self.kept else value

    def update(self, value: Any) -> None:
        self.kept[self.at] = value

    def clear(self) -> None:
        self.kept.pop(self.at, None)


class _Context(Trigger.OnMergeContext):
    def __init__(self, windows: FlinkWindows, key: int, window: Any, merged: Any = ()) -> None:
        self.windows, self.key, self.window, self.merged = windows, key, window, merged

    def get_current_processing_time(self) -> int:
        return self.windows.now_ms

    def get_current_watermark(self) -> int:
        return self.windows.watermark_ms

    def get_metric_group(self) -> Any:
        raise NotImplementedError

    def get_runtime_context(self) -> Any:
        return self

    def get_state(self, descriptor: Any) -> Any:
        return _State(self.windows.state, (descriptor.get_name(), self.key), None)

    def register_event_time_timer(self, time: int) -> None:
        self.windows.timers.add((True, time, self.key, self.window))

    def register_processing_time_timer(self, time: int) -> None:
        self.windows.timers.add((False, time, self.key, self.window))

    def delete_event_time_timer(self, time: int) -> None:
        self.windows.timers.discard((True, time, self.key, self.window))

    def delete_processing_time_timer(self, time: int) -> None:
        self.windows.timers.discard((False, time, self.key, self.window))

    def get_partitioned_state(self, state_descriptor: Any) -> Any:
        return self._state(state_descriptor, self.window)

    def _state(self, descriptor: Any, window: Any) -> _State:
        reduce = descriptor.get_reduce_function()
        return _State(self.windows.state, (descriptor.get_name(), self.key, window), reduce)

    def merge_partitioned_state(self, state_descriptor: Any) -> None:
        for other in self.merged:
            state = self._state(state_descriptor, other)
            value = state.get()
            state.clear()
            if value is not None:
                self.get_partitioned_state(state_descriptor).add(value)


class GapOfKey(SessionWindowTimeGapExtractor):
    def extract(self, element: Any) -> int:
        return 4 + 3 * int(element[0])


class Parity(WindowAssigner[Any, Any]):
    """Windows of a program's own, of a class of its own."""

    def assign_windows(self, element: Any, timestamp: int, context: Any) -> Any:
        return [Class(f"{element[1] % 2}"), Class("all")]

    def get_default_trigger(self, env: Any) -> Any:
        return CountTrigger.of(3)

    def get_window_serializer(self) -> Any:
        return ClassSerializer()

    def is_event_time(self) -> bool:
        return False


class Class(Window):
    def __init__(self, name: str) -> None:
        self.name = name

    def max_timestamp(self) -> int:
        return END

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Class) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"Class({self.name})"


class ClassSerializer(TypeSerializer[Class]):
    def serialize(self, element: Class, stream: Any) -> None:
        stream.write(element.name.encode())

    def deserialize(self, stream: Any) -> Class:
        return Class(stream.read().decode())


class MergingPairs(MergingWindowAssigner[Any, TimeWindow]):
    """Merges windows only where they overlap by half: some that touch stay apart."""

    def assign_windows(self, element: Any, timestamp: int, context: Any) -> Any:
        return [TimeWindow(timestamp, timestamp + 10)]

    def merge_windows(self, windows: Any, callback: Any) -> None:
        ordered = sorted(set(windows))
        merged: list[list[TimeWindow]] = []
        for window in ordered:
            if merged and window.start + 5 <= merged[-1][-1].end:
                merged[-1].append(window)
            else:
                merged.append([window])
        for members in merged:
            if len(members) > 1:
                callback.merge(members, TimeWindow(members[0].start, max(w.end for w in members)))

    def get_default_trigger(self, env: Any) -> Any:
        return EventTimeTrigger.create()

    def get_window_serializer(self) -> Any:
        return TimeWindowSerializer()

    def is_event_time(self) -> bool:
        return True


class Once(Trigger[Any, Any]):
    """Fires a window when it has rows of at least 50 together, and at its end; then it removes the rows."""

    def __init__(self) -> None:
        self.sum = ReducingStateDescriptor("sum", lambda a, b: a + b, LONG)

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> TriggerResult:
        state = ctx.get_partitioned_state(self.sum)
        state.add(element[1] % 40)
        ctx.register_event_time_timer(window.max_timestamp())
        return TriggerResult.FIRE_AND_PURGE if state.get() >= 50 else TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.FIRE_AND_PURGE if time == window.max_timestamp() else TriggerResult.PURGE

    def on_processing_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Any, ctx: Any) -> None:
        ctx.merge_partitioned_state(self.sum)
        ctx.register_event_time_timer(window.max_timestamp())

    def clear(self, window: Any, ctx: Any) -> None:
        ctx.get_partitioned_state(self.sum).clear()
        ctx.delete_event_time_timer(window.max_timestamp())


def _sliding() -> Any:
    return SlidingEventTimeWindows(20, 5, 2)


CASES: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "tumbling, count": (lambda: TumblingEventTimeWindows(15, -4), lambda: CountTrigger.of(3)),
    "sliding, purged count": (_sliding, lambda: PurgingTrigger.of(CountTrigger.of(2))),
    "sliding, purged event time": (_sliding, lambda: PurgingTrigger.of(EventTimeTrigger.create())),
    "sliding, continuous": (_sliding, lambda: ContinuousEventTimeTrigger.of(Time.milliseconds(7))),
    "sessions, continuous": (lambda: EventTimeSessionWindows(7), lambda: ContinuousEventTimeTrigger(10)),
    "sessions, count": (lambda: EventTimeSessionWindows(7), lambda: CountTrigger(3)),
    "sessions, purged": (
        lambda: EventTimeSessionWindows.with_dynamic_gap(GapOfKey()),
        lambda: PurgingTrigger(EventTimeTrigger()),
    ),
    "sessions, own": (lambda: EventTimeSessionWindows(9), Once),
    "tumbling, own": (lambda: TumblingEventTimeWindows(25), Once),
    "merged by half": (MergingPairs, EventTimeTrigger),
    "tumbling, clock": (lambda: TumblingEventTimeWindows(25), lambda: ContinuousProcessingTimeTrigger(6)),
    "global, count": (GlobalWindows, lambda: CountTrigger.of(4)),
    "global, never": (GlobalWindows, NeverTrigger),
    "global, clock": (
        GlobalWindows.create,
        lambda: PurgingTrigger.of(ContinuousProcessingTimeTrigger.of(Duration.of_millis(9))),
    ),
    "clock": (lambda: TumblingProcessingTimeWindows(10, 3), ProcessingTimeTrigger),
    "clock, sliding": (lambda: SlidingProcessingTimeWindows(12, 4, -1), ProcessingTimeTrigger.create),
    "clock, continuous": (lambda: SlidingProcessingTimeWindows(12, 6), lambda: ContinuousProcessingTimeTrigger(4)),
    "clock, sessions": (lambda: ProcessingTimeSessionWindows(5), ProcessingTimeTrigger),
    "clock, dynamic": (lambda: ProcessingTimeSessionWindows.with_dynamic_gap(GapOfKey()), ProcessingTimeTrigger),
    "clock, sessions, count": (lambda: ProcessingTimeSessionWindows(5), lambda: CountTrigger(2)),
    "count, sliding": (lambda: CountSlidingWindowAssigner.of(5, 2), lambda: CountTrigger(5)),
    "own classes": (Parity, lambda: CountTrigger.of(3)),
}


ROUNDS = [(case, lateness, folds) for case in CASES for lateness, folds in ((0, False), (12, True))]


@pytest.mark.parametrize(("case", "lateness_ms", "folds"), ROUNDS)
def test_windows_do_as_flink_does(
    env: StreamExecutionEnvironment, backends: Backends, case: str, lateness_ms: int, folds: bool
) -> None:
    assigner, trigger = (make() for make in CASES[case])
    lateness_ms *= assigner.is_event_time()
    random = Random(f"{case} {lateness_ms} {folds} {backends.kind}")
    flink = FlinkWindows(assigner, trigger, lateness_ms)
    windows = keyed(env).window(assigner).trigger(trigger).allowed_lateness(lateness_ms)
    windows = windows.side_output_late_data(OutputTag("late"))
    stream = windows.aggregate(Numbers(), Result()) if folds else windows.process(Listed())
    stream.get_side_output(OutputTag("late")).print()
    harness = WindowHarness(stream, backends)
    assert isinstance(harness.operator, TriggeredWindowOperator) or case == "none"
    found: list[Any] = []
    now_ms = reached_ms = 0
    for _ in range(160):
        draw = random.random()
        if draw < 0.6:
            key, timestamp_ms = random.randrange(3), max(0, reached_ms + random.randrange(-25, 30))
            row = key, timestamp_ms
            found += harness.add(key, row, timestamp_ms)
            flink.add(key, row, timestamp_ms)
        elif draw < 0.75:
            reached_ms += random.randrange(1, 9)
            found += harness.watermark(reached_ms)
            flink.fire(True, reached_ms)
        elif draw < 0.9:
            now_ms += random.randrange(1, 5)
            found += harness.clock(now_ms)
            flink.fire(False, now_ms)
        else:
            harness.restore()
    rows = [row for row, _ in found]
    late = [row[1] for row in rows if row[0] == "late"]
    assert sorted(map(repr, late)) == sorted(map(repr, flink.late))
    assert sorted(map(repr, (row for row in rows if row[0] != "late"))) == sorted(map(repr, flink.found))
    assert case in ("global, never",) or flink.found


def kinds_of_state() -> list[Any]:
    class Total(AggregateFunction):
        def create_accumulator(self) -> Any:
            return 0, 0

        def add(self, value: Any, accumulator: Any) -> Any:
            return accumulator[0] + value, accumulator[1] + 1

        def get_result(self, accumulator: Any) -> Any:
            return accumulator[0]

        def merge(self, acc_a: Any, acc_b: Any) -> Any:
            return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]

    found: list[Any] = []
    for ttl in (None, StateTtlConfig.new_builder(Duration.of_days(1)).build()):
        descriptors = [
            AggregatingStateDescriptor("total", Total(), Types.TUPLE([LONG, LONG])),
            ReducingStateDescriptor("sum", lambda a, b: a + b, LONG),
            ListStateDescriptor("all", LONG),
        ]
        for descriptor in descriptors:
            if ttl is not None:
                descriptor.enable_time_to_live(ttl)
            found.append(descriptor)
    return found


class FiresAt(Once):
    """Fires when the numbers of a window are 100 together, kept as the descriptor says."""

    def __init__(self, descriptor: Any) -> None:
        self.sum = descriptor

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> TriggerResult:
        state = ctx.get_partitioned_state(self.sum)
        state.add(element[1])
        got = state.get()
        return TriggerResult.FIRE if (got if isinstance(got, int) else sum(got)) >= 100 else TriggerResult.CONTINUE


@pytest.mark.parametrize("descriptor", kinds_of_state(), ids=repr)
def test_state_of_triggers_is_merged_with_their_windows(
    env: StreamExecutionEnvironment, backends: Backends, descriptor: Any
) -> None:
    stream = keyed(env).window(EventTimeSessionWindows(10)).trigger(FiresAt(descriptor)).process(Listed())
    harness = WindowHarness(stream, backends)
    assert harness.add(1, (1, 30), 0) + harness.add(1, (1, 31), 20) + harness.add(2, (2, 5), 0) == []
    harness.restore()
    assert harness.add(1, (1, 39), 10) == [((1, (0, 30), [30, 31, 39]), 29)]
    assert harness.end() == [((2, (0, 10), [5]), 9), ((1, (0, 30), [30, 31, 39]), 29)]
    assert harness.is_empty()


# ---- evictors -------------------------------------------------------------------------------------------------------


class WithoutOdd(Evictor[Any, Any]):
    """Removes odd numbers, before or after."""

    def __init__(self, after: bool) -> None:
        self.after = after

    def _evict(self, elements: Any, window: Any, context: Any) -> None:
        assert context.get_current_watermark() <= END and window.max_timestamp() == END
        elements[:] = [element for element in elements if element.get_value()[1] % 2 == 0]

    def evict_before(self, elements: Any, size: int, window: Any, evictor_context: Any) -> None:
        assert size == len(elements)
        if not self.after:
            self._evict(elements, window, evictor_context)

    def evict_after(self, elements: Any, size: int, window: Any, evictor_context: Any) -> None:
        if self.after:
            self._evict(elements, window, evictor_context)


EVICTED: dict[str, tuple[Any, list[list[int]]]] = {
    "last two": (CountEvictor.of(2), [[0], [0, 1], [1, 4], [4, 5], [5, 9]]),
    "two stay": (CountEvictor.of(2, True), [[0], [0, 1], [0, 1, 4], [1, 4, 5], [4, 5, 9]]),
    "time": (TimeEvictor.of(Time.milliseconds(4)), [[0], [0, 1], [1, 4], [4, 5], [9]]),
    "time, after": (TimeEvictor.of(Duration.of_millis(4), True), [[0], [0, 1], [0, 1, 4], [1, 4, 5], [4, 5, 9]]),
    "even": (WithoutOdd(False), [[0], [0], [0, 4], [0, 4], [0, 4]]),
    "even stay": (WithoutOdd(True), [[0], [0, 1], [0, 4], [0, 4, 5], [0, 4, 9]]),
}


@pytest.mark.parametrize("folds", [False, True])
@pytest.mark.parametrize("case", EVICTED)
def test_evictors_remove_rows_when_a_window_fires(
    env: StreamExecutionEnvironment, backends: Backends, case: str, folds: bool
) -> None:
    evictor, expected = EVICTED[case]
    windows = keyed(env).window(GlobalWindows.create()).trigger(CountTrigger.of(1)).evictor(evictor)
    harness = WindowHarness(windows.aggregate(Numbers(), Result()) if folds else windows.process(Listed()), backends)
    found = []
    for number in (0, 1, 4, 5, 9):
        found += [row[2] for row, _ in harness.add(1, (1, number), number)]
        harness.restore()
    assert found == expected


def test_an_evictor_in_windows_that_are_merged(env: StreamExecutionEnvironment, backends: Backends) -> None:
    windows = keyed(env).window(EventTimeSessionWindows(5)).evictor(CountEvictor.of(2))
    harness = WindowHarness(windows.reduce(lambda a, b: (a[0], a[1] + b[1])), backends)
    for number in (1, 9, 5):
        assert harness.add(1, (1, number), number) == []
        harness.restore()
    assert harness.end() == [((1, 9 + 5), 13)] and harness.is_empty()


def test_an_evictor_may_leave_nothing(env: StreamExecutionEnvironment, backends: Backends) -> None:
    windows = keyed(env).window(GlobalWindows.create()).trigger(CountTrigger.of(1)).evictor(WithoutOdd(False))
    harness = WindowHarness(windows.reduce(lambda a, b: (a[0], a[1] + b[1])), backends)
    assert harness.add(1, (1, 3), 0) == [] and harness.add(1, (1, 4), 0) == [((1, 4), 0)]
    wrong: Any
    for wrong, told in ((CountEvictor, "was given the class CountEvictor"), (3, "takes an Evictor, e.g. ")):
        with pytest.raises(TypeError, match=told):
            keyed(env).window(GlobalWindows.create()).evictor(wrong)
    for make in (lambda: CountEvictor.of(0), lambda: TimeEvictor.of(Time.milliseconds(0))):
        with pytest.raises(ValueError, match="above 0|more than 0"):
            make()


# ---- the end of the data --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("assigner", "expected"),
    [
        (TumblingProcessingTimeWindows(10), [((1, (0, 10), [7, 8]), 9), ((1, (10, 20), [9]), 19)]),
        (
            SlidingProcessingTimeWindows(10, 5),
            [((1, (-5, 5), [7]), 4), ((1, (0, 10), [7, 8]), 9), ((1, (5, 15), [8, 9]), 14), ((1, (10, 20), [9]), 19)],
        ),
        (ProcessingTimeSessionWindows(8), [((1, (0, 20), [7, 8, 9]), 19)]),
        (
            ProcessingTimeSessionWindows(5),
            [((1, (0, 5), [7]), 4), ((1, (6, 11), [8]), 10), ((1, (12, 17), [9]), 16)],
        ),
    ],
)
def test_windows_of_the_clock_end_by_the_clock_or_with_the_data(
    env: StreamExecutionEnvironment, backends: Backends, assigner: Any, expected: list[Any]
) -> None:
    harness = WindowHarness(keyed(env).window(assigner).process(Listed()), backends)
    found = harness.add(1, (1, 7)) + harness.clock(6) + harness.add(1, (1, 8)) + harness.clock(12)
    harness.restore()
    found += harness.add(1, (1, 9)) + harness.clock(13)
    assert found == expected[: len(found)]
    harness.restore()
    assert found + harness.end() == expected
    assert harness.is_empty()
    # A job that is resumed from a drained savepoint begins again.
    harness.watermark_ms = None
    harness.restore()
    assert harness.add(1, (1, 4)) == [] and len(harness.end()) >= 1


def test_a_trigger_without_end_fires_once_more_with_the_end_of_the_data(
    env: StreamExecutionEnvironment, backends: Backends
) -> None:
    trigger = ContinuousProcessingTimeTrigger.of(Duration.of_millis(10))
    harness = WindowHarness(keyed(env).window(GlobalWindows.create()).trigger(trigger).process(Listed()), backends)
    assert harness.add(1, (1, 7)) == []
    assert [row for row, _ in harness.clock(10)] == [(1, "GlobalWindow", [7])]
    harness.add(1, (1, 8))
    assert [row for row, _ in harness.end()] == [(1, "GlobalWindow", [7, 8])]


class EndsWithTheData(Trigger[Any, Any]):
    """Fires with the end of the data. Its timers of the clock do nothing."""

    def __init__(self, deletes_at: int | None = None) -> None:
        self.deletes_at = deletes_at

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> TriggerResult:
        ctx.register_event_time_timer(window.max_timestamp())
        ctx.register_processing_time_timer(10)
        if self.deletes_at == 0:
            ctx.delete_processing_time_timer(10)
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.FIRE

    def on_merge(self, window: Any, ctx: Any) -> None: ...

    def clear(self, window: Any, ctx: Any) -> None: ...


@pytest.mark.parametrize("deletes_at", [None, 0])
def test_a_timer_of_the_end_of_time_outlives_those_of_the_clock(
    env: StreamExecutionEnvironment, backends: Backends, deletes_at: int | None
) -> None:
    windows = keyed(env).window(GlobalWindows.create()).trigger(EndsWithTheData(deletes_at))
    harness = WindowHarness(windows.process(Listed()), backends)
    assert harness.add(1, (1, 7)) == [] and harness.clock(10) == []
    harness.restore()
    assert [row for row, _ in harness.end()] == [(1, "GlobalWindow", [7])]


class FiresAtOneOfTwo(EndsWithTheData):
    """Fires at the first of two times of the clock, and takes its timers of event time back."""

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> TriggerResult:
        ctx.register_event_time_timer(window.max_timestamp())
        for time in (10, 20):
            ctx.register_processing_time_timer(time)
        ctx.delete_event_time_timer(window.max_timestamp())
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        ctx.delete_processing_time_timer(20)
        return TriggerResult.FIRE


def test_a_timer_that_another_one_deletes_does_not_fire_with_the_end_of_the_data(
    env: StreamExecutionEnvironment, backends: Backends
) -> None:
    windows = keyed(env).window(GlobalWindows.create()).trigger(FiresAtOneOfTwo())
    harness = WindowHarness(windows.process(Listed()), backends)
    assert harness.add(1, (1, 7)) == []
    harness.restore()
    assert [row for row, _ in harness.end()] == [(1, "GlobalWindow", [7])]


# ---- counts ---------------------------------------------------------------------------------------------------------


class Remembers(ProcessWindowFunction[Any, Any, int, Any]):
    """Emits the window's numbers, and how often this window and this key have fired."""

    def process(self, key: int, context: Any, elements: Any) -> Any:
        assert context.current_processing_time() == 0
        numbers = [row[1] for row in elements]
        counts = []
        for store in (context.window_state(), context.global_state()):
            state = store.get_state(ValueStateDescriptor("count", LONG))
            state.update((state.value() or 0) + 1)
            counts.append(state.value())
        yield shown(context.window()), numbers, *counts

    def clear(self, context: Any) -> None:
        context.window_state().get_state(ValueStateDescriptor("count", LONG)).clear()


@pytest.mark.parametrize("folds", [False, True])
def test_count_windows_emit_when_they_are_full_and_keep_nothing_then(
    env: StreamExecutionEnvironment, backends: Backends, folds: bool
) -> None:
    windows = keyed(env).count_window(3)
    stream = windows.reduce(lambda a, b: (a[0], a[1] + b[1]), Remembers()) if folds else windows.process(Remembers())
    harness = WindowHarness(stream, backends)
    found = []
    for number in range(7):
        found += harness.add(1, (1, number), 100 + number)
        harness.restore()
    first, second = ([3], [12]) if folds else ([0, 1, 2], [3, 4, 5])
    assert found == [(("CountWindow(id=0)", first, 1, 1), 102), (("CountWindow(id=1)", second, 1, 2), 105)]
    assert harness.end() == []  # as in Flink: there is no result of fewer rows
    names = sorted(name for name in names_with_entries(harness))
    assert names == ["_window/_trigger/count", "_window_contents", "count", "tumble-count-assigner"]
    for number in (7, 8):
        harness.add(1, (1, number))
    assert "_window_contents" not in names_with_entries(harness) and "_window/count" not in names_with_entries(harness)


def names_with_entries(harness: WindowHarness) -> list[str]:
    return [run.name for run in encoded(harness._backend) if run.entries]


@pytest.mark.parametrize(("size", "slide"), [(3, 2), (2, 3), (5, 1), (4, 4)])
def test_sliding_count_windows_hold_as_many_rows_as_they_say(
    env: StreamExecutionEnvironment, backends: Backends, size: int, slide: int
) -> None:
    harness = WindowHarness(keyed(env).count_window(size, slide).process(Remembers()), backends)
    found = [row[1] for number in range(20) for row, _ in harness.add(1, (1, number))]
    assert found == [list(range(start, start + size)) for start in range(0, 20, slide) if start + size <= 20]


# ---- what is declared -----------------------------------------------------------------------------------------------


class NotMerging(Once):
    def can_merge(self) -> bool:
        return False


class TwoArguments(Once):
    def on_element(self, element: Any, ctx: Any) -> TriggerResult:  # type: ignore[override]
        return TriggerResult.CONTINUE


class Silent(Once):
    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> TriggerResult:
        return None  # type: ignore[return-value]


class NoSerializer(Parity):
    def get_window_serializer(self) -> Any:
        return "bytes"


def test_wrong_declarations_are_refused_where_they_are_made(env: StreamExecutionEnvironment) -> None:
    windows = keyed(env).window(EventTimeSessionWindows(5))
    with pytest.raises(TypeError, match=r"trigger\(\) was given the class NeverTrigger; make a trigger"):
        windows.trigger(NeverTrigger)
    with pytest.raises(TypeError, match=r"trigger\(\) takes a Trigger, e.g. CountTrigger.of\(10\); got 5"):
        windows.trigger(5)
    with pytest.raises(TypeError, match=r"EventTimeSessionWindows\(5 ms\) merges windows, and NotMerging does not"):
        windows.trigger(NotMerging())
    with pytest.raises(TypeError, match="NeverTrigger does not"):
        windows.trigger(NeverTrigger())
    with pytest.raises(TypeError, match=r"Trigger calls .*TwoArguments.on_element with"):
        windows.trigger(TwoArguments())
    with pytest.raises(TypeError, match=r"get_window_serializer\(\) returns a TypeSerializer, .* got 'bytes'"):
        keyed(env).window(NoSerializer()).process(Listed())
    with pytest.raises(TypeError, match=r"window_all\(\) takes a window assigner"):
        events(env).window_all("hour")  # type: ignore[arg-type]
    for size, slide in ((0, 0), (-1, 0), (2, -1), (1.5, 0)):
        with pytest.raises(ValueError, match="of a count window is a whole number of rows above 0"):
            keyed(env).count_window(size, slide)
    for wrong in (lambda: CountTrigger.of(0), lambda: ContinuousEventTimeTrigger.of(Time.milliseconds(0))):
        with pytest.raises(ValueError, match="above 0|more than 0"):
            wrong()
    with pytest.raises(TypeError, match=r"PurgingTrigger takes a Trigger"):
        PurgingTrigger.of(EventTimeTrigger)  # type: ignore[arg-type]
    with pytest.warns(UserWarning, match=r"allowed_lateness\(\) has no effect on TumblingProcessingTimeWindows"):
        keyed(env).window(TumblingProcessingTimeWindows(5)).allowed_lateness(7).process(Listed())
    with pytest.warns(UserWarning, match="GlobalWindows without a trigger emit nothing"):
        keyed(env).window(GlobalWindows()).process(Listed())


def test_a_trigger_that_says_nothing_is_named(env: StreamExecutionEnvironment, backends: Backends) -> None:
    harness = WindowHarness(
        keyed(env).window(TumblingEventTimeWindows(5)).trigger(Silent()).process(Listed()), backends
    )
    with pytest.raises(OperatorFailure, match=r"Silent.on_element\(\) returns a TriggerResult, it returned None"):
        harness.add(1, (1, 2), 2)
    with pytest.raises(OperatorFailure, match="a row without event time cannot be in a window"):
        harness.add(1, (1, 2))


def test_windows_of_the_clock_and_of_counts_need_no_event_time(env: StreamExecutionEnvironment) -> None:
    plain = env.from_collection([(1, 2)], EVENT)
    plain.key_by(lambda row: row[0]).window(TumblingProcessingTimeWindows(5)).process(Listed()).print()
    plain.key_by(lambda row: row[0]).count_window(2).process(Listed()).print()
    env.get_job_graph()


# ---- what checkpoints say of them -----------------------------------------------------------------------------------


READ: dict[str, tuple[Any, Any]] = {
    "sessions": (lambda: EventTimeSessionWindows(10**6), pa.int64()),
    "tumbling": (lambda: TumblingProcessingTimeWindows(10**6), pa.int64()),
    "rows": (GlobalWindows, pa.int64()),
    "classes": (Parity, pa.binary()),
}


@pytest.mark.parametrize("kind", READ)
def test_a_reader_of_state_finds_the_windows_and_the_state_of_their_triggers(kind: str, tmp_path: Any) -> None:
    make, start_type = READ[kind]

    def build(env: StreamExecutionEnvironment) -> None:
        windows = keyed_by_user(env, by_column=False).window(make()).trigger(CountTrigger.of(10**6))
        windows.process(Summed(), Types.TUPLE([LONG, LONG, LONG, LONG, LONG])).uid("windows").sink_to(CommittedRows())

    job = StoredJob(tmp_path / "job", build)
    for _ in range(12):
        job.run(1)
        job.clock.now_ms += 1.0
    checkpoint = read_checkpoint(job.checkpoint(1))
    job.close()
    table = checkpoint.windows("windows").table()
    assert table.num_rows and table.schema.field("window_start").type == start_type
    counted = checkpoint.keyed_state("windows", "_window/_trigger/count").table()
    assert sum(counted.column("value").to_pylist()) == sum(map(len, table.column("value").to_pylist()))
    if kind in ("sessions", "tumbling"):
        bounds = zip(table.column("window_start").to_pylist(), table.column("window_end").to_pylist())
        assert all(end - start >= 10**6 for start, end in bounds)
