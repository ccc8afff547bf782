"""Tests whole jobs with broadcast state, without a JobMaster: what functions see, and what a restore brings back."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from penstock.common.configuration import Configuration
from penstock.common.program.failures import OperatorFailure
from penstock.common.types import Types
from penstock.common.watermark_strategy import TimestampAssigner, WatermarkStrategy
from penstock.datastream import (
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
    OutputTag,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from penstock.datastream.time_domain import TimeDomain
from penstock.graph.job_graph import JobGraph
from penstock.protocol.restore.receivers import uneven_broadcasts
from penstock.protocol.restore.rescale import edges_in_flight
from tests.unit.runtime.jobs.small_job import CommittedRows, SmallJob, graph_of
from tests.unit.runtime.jobs.test_rescaled_jobs import SMALL, TIMEOUTS, Cascade, checkpointed

ROWS = 240
GROUPS = 12
KEYS = 30
RULES = MapStateDescriptor("rules", Types.LONG(), Types.LONG())
WAITING = ListStateDescriptor("waiting", Types.LONG())
ASIDE = OutputTag("aside", Types.LONG())


class WaitForTheRule(KeyedBroadcastProcessFunction):
    """Emits each number once its group has a rule; until then it waits in the state of its key. So every number comes
    out once, whatever comes first, if neither a rule nor its effect on any key is lost or happens twice."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.waiting = runtime_context.get_list_state(WAITING)

    def process_element(self, value: int, ctx: Any) -> Any:
        factor = ctx.get_broadcast_state(RULES).get(ctx.get_current_key() % GROUPS)
        if factor is None:
            self.waiting.add(value)
        else:
            yield value, factor

    def process_broadcast_element(self, value: int, ctx: Any) -> Any:
        rules = ctx.get_broadcast_state(RULES)
        assert value not in rules, f"the rule of group {value} comes twice"
        rules.put(value, value * 10)
        released: list[tuple[int, int]] = []

        def release(key: int, state: Any) -> None:
            if key % GROUPS == value:
                released.extend((waiting, value * 10) for waiting in state.get())
                state.clear()

        ctx.apply_to_keyed_state(WAITING, release)
        yield from released


def numbers(env: StreamExecutionEnvironment, count: int, name: str) -> Any:
    return env.from_source(NumberSequenceSource(0, count - 1), WatermarkStrategy.no_watermarks(), name)


def key_of(value: int) -> int:
    return value % KEYS


def expected() -> list[tuple[int, int]]:
    return [(value, key_of(value) % GROUPS * 10) for value in range(ROWS)]


def waiting(env: StreamExecutionEnvironment, rules_parallelism: int = 1) -> None:
    """One producer of rules, so that each subtask sees them in one order."""
    env.disable_operator_chaining()
    rules = numbers(env, GROUPS, "rules").set_parallelism(rules_parallelism)
    rows = numbers(env, ROWS, "rows").key_by(key_of, Types.LONG())
    rows.connect(rules.broadcast(RULES)).process(WaitForTheRule(), Types.TUPLE([Types.LONG(), Types.LONG()])).sink_to(
        CommittedRows()
    )


@pytest.mark.parametrize("mode", TIMEOUTS)
def test_every_effect_of_a_broadcast_happens_once_over_restores(mode: str) -> None:
    for seed in range(6):
        cascade = Cascade(waiting, seed)
        cascade.start(3)
        for _ in range(3):
            cascade.crash_after(cascade.random.randrange(2, 25), TIMEOUTS[mode])
            cascade.start(3)
        assert sorted(cascade.finish()) == expected()


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 2), (1, 4), (4, 1)])
def test_at_another_parallelism_every_subtask_has_the_broadcast_state(before: int, after: int) -> None:
    """Rescales with nothing in flight: the rules are in the state of all subtasks, and half of the numbers are still to
    come."""
    for seed in range(3):
        cascade = Cascade(waiting, seed)
        job = cascade.start(before)
        job.run(cascade.random.randrange(2, 40))
        done = checkpointed(job, 1, None)
        cascade.rows += done.committed
        cascade.restored = done.metadata
        cascade.start(after)
        assert sorted(cascade.finish()) == expected()


def test_rows_in_flight_go_to_all_receivers_if_these_have_read_the_same() -> None:
    """Rescales only then: where they have not, the job continues at the parallelism that it had."""
    moved = with_rows = kept = 0
    for seed in range(24):
        cascade = Cascade(waiting, seed)
        cascade.start(parallelism := 2)
        for _ in range(3):
            cascade.crash_after(cascade.random.randrange(1, 12), 0)
            metadata = cascade.restored
            assert metadata is not None
            broadcast = {e.name for e in metadata.edges if e.partitioner == "broadcast"}
            if uneven_broadcasts(metadata):
                kept += 1
            else:
                parallelism = cascade.random.randrange(1, 5)
                moved += 1
                with_rows += bool(broadcast & edges_in_flight(metadata))
            cascade.start(parallelism)
        assert sorted(cascade.finish()) == expected()
    assert min(moved, with_rows, kept) > 0


def test_the_number_of_producers_may_change_whatever_the_receivers_have_read() -> None:
    class MoreProducers(Cascade):
        def graph(self, parallelism: int) -> JobGraph:
            return graph_of(lambda env: waiting(env, parallelism), 3)

    uneven = 0
    for seed in range(8):
        cascade = MoreProducers(waiting, seed)
        cascade.start(1)
        for producers in (3, 2):
            cascade.crash_after(cascade.random.randrange(2, 12), 0)
            assert cascade.restored is not None
            uneven += bool(uneven_broadcasts(cascade.restored))
            cascade.start(producers)
        assert sorted(cascade.finish()) == expected()
    assert uneven


class Seen(BroadcastProcessFunction):
    """Says what its contexts say."""

    def process_element(self, value: int, ctx: Any) -> Any:
        state = ctx.get_broadcast_state(RULES)
        yield "row", value, ctx.timestamp(), ctx.current_watermark() < 10**15, sorted(state.items())
        yield ASIDE, value

    def process_broadcast_element(self, value: int, ctx: Any) -> Any:
        ctx.get_broadcast_state(RULES)[value] = value
        assert ctx.current_processing_time() > 0
        yield "rule", value, ctx.timestamp(), ctx.current_watermark() < 10**15, []


def test_what_a_function_without_keys_sees() -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        env.disable_operator_chaining()
        rules, rows = numbers(env, 3, "rules"), numbers(env, 8, "rows")
        made = rows.connect(rules.broadcast(RULES)).process(Seen())
        made.sink_to(CommittedRows())
        made.get_side_output(ASIDE).sink_to(CommittedRows())

    job = SmallJob(graph_of(build, 2), order=Random(1))
    job.rest()
    rows = checkpointed(job, 1, None).committed
    assert sorted(row for row in rows if isinstance(row, int)) == list(range(8))
    rows = [row for row in rows if not isinstance(row, int)]
    assert Counter(row[:4] for row in rows) == Counter(
        [("row", value, -(2**63), True) for value in range(8)]
        + 2 * [("rule", value, -(2**63), True) for value in range(3)]
    )
    assert all(entries == [(value, value) for value, _ in entries] for *_, entries in rows)
    job.close()


class Timed(KeyedBroadcastProcessFunction):
    def process_element(self, value: int, ctx: Any) -> Any:
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 5)
        return None

    def process_broadcast_element(self, value: int, ctx: Any) -> Any:
        ctx.get_broadcast_state(RULES)[value] = ctx.current_watermark()

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        assert ctx.time_domain() is TimeDomain.EVENT_TIME and ctx.timestamp() == timestamp
        assert timestamp <= ctx.current_watermark()
        yield timestamp, ctx.get_current_key(), len(list(ctx.get_broadcast_state(RULES)))


class AtItsNumber(TimestampAssigner):
    def extract_timestamp(self, value: int, record_timestamp: int) -> int:
        return value


def test_timers_fire_beside_a_broadcast_whose_watermarks_hold_them_back() -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        env.disable_operator_chaining()
        timed = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(AtItsNumber())
        rules = env.from_source(NumberSequenceSource(0, 2), timed, "rules").set_parallelism(1)
        rows = env.from_source(NumberSequenceSource(0, 39), timed, "rows").key_by(key_of, Types.LONG())
        rows.connect(rules.broadcast(RULES)).process(Timed()).sink_to(CommittedRows())

    cascade = Cascade(build, 5)
    cascade.start(2)
    for _ in range(2):
        cascade.crash_after(cascade.random.randrange(2, 15), 0)
        cascade.start(2)
    rows = cascade.finish()
    assert sorted((timestamp, key) for timestamp, key, _ in rows) == [(n + 5, key_of(n)) for n in range(40)]
    assert {rules for timestamp, _, rules in rows if timestamp > 2} == {3}


class Wrong(KeyedBroadcastProcessFunction):
    """Does what is not allowed, as `what` says."""

    def __init__(self, what: str) -> None:
        self.what = what

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: int, ctx: Any) -> Any:
        state = ctx.get_broadcast_state(RULES)
        if self.what == "change":
            state.put(1, 1)
        elif self.what == "other":
            ctx.get_broadcast_state(MapStateDescriptor("others"))

    def process_broadcast_element(self, value: int, ctx: Any) -> Any:
        if self.what == "keyed":
            self.count.update(1)
        elif self.what == "apply":
            ctx.apply_to_keyed_state(ValueStateDescriptor("count", Types.LONG()), None)


@pytest.mark.parametrize("what, says", [
    ("change", "'rules' of operator 'Co-Process-Broadcast-Keyed' can only be read here"),
    ("other", "asks for broadcast state 'others', but broadcast.. was given descriptors of 'rules' only"),
    ("keyed", "nor in process_broadcast_element .there, call ctx.apply_to_keyed_state"),
    ("apply", "takes a callable .key, state., got None"),
])  # fmt: skip
def test_what_a_function_may_not_do_is_refused_by_name(what: str, says: str) -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        rows = numbers(env, 40, "rows").key_by(key_of, Types.LONG())
        rows.connect(numbers(env, 4, "rules").broadcast(RULES)).process(Wrong(what)).sink_to(CommittedRows())

    job = SmallJob(graph_of(build, 2), Configuration(SMALL))
    with pytest.raises(OperatorFailure, match=says):
        job.rest()
    job.close()
