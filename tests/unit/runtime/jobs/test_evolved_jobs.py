"""Tests whole jobs without a JobMaster whose declared types change between two generations: state survives, in
whichever backend, and what does not fit is refused by the driver where the graph says it, else by the subtasks before a
row is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Row, Time
from penstock.common.configuration import Configuration
from penstock.common.program.failures import OperatorFailure
from penstock.common.types import Types
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream import BroadcastProcessFunction, KeyedProcessFunction, RuntimeContext
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.graph.compatibility import IncompatibleGraph
from penstock.graph.fit import fitted
from penstock.graph.job_graph import JobGraph
from penstock.protocol.values.metadata import Metadata
from penstock.state.backend import StateSchemaError
from penstock.storage.memory import MemoryStore
from penstock.storage.store import ObjectStore
from tests.unit.runtime.jobs.small_job import CommittedRows, SmallJob, graph_of
from tests.unit.runtime.jobs.test_rescaled_jobs import (
    KEYS,
    ROWS,
    SMALL,
    Build,
    Cascade,
    check_rows,
    checkpointed,
    numbers,
)

LONG, INT, STRING, DOUBLE = Types.LONG(), Types.INT(), Types.STRING(), Types.DOUBLE()


class Positions(KeyedProcessFunction):
    """Counts in one field of a row, and leaves the others as they are."""

    def __init__(self, declared: Any) -> None:
        self.declared = declared

    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", self.declared))

    def process_element(self, value: int, ctx: Any) -> Any:
        row = self.seen.value() or Row(**dict.fromkeys(self.declared.field_names, None))
        position = row["count"] or 0
        row["count"] = position + 1
        self.seen.update(row)
        yield (ctx.get_current_key(), position, value)


def row_of(**fields: Any) -> Any:
    return Types.ROW_NAMED(list(fields), list(fields.values()))


def counting(declared: Any) -> Build:
    def build(env: Any) -> None:
        keyed = numbers(env).key_by(lambda x: x % KEYS, LONG)
        keyed.process(Positions(declared)).uid("positions").sink_to(CommittedRows()).uid("rows")

    return build


GENERATIONS: list[tuple[str, Any]] = [
    ("hashmap", row_of(count=Types.SHORT(), spare=STRING)),
    ("rocksdb", row_of(added=DOUBLE, count=INT)),
    ("rocksdb", row_of(added=DOUBLE, count=LONG)),
    ("hashmap", row_of(count=LONG)),
]


@pytest.mark.parametrize("parallelism", [(2, 2, 2, 2), (2, 3, 1, 2)])
@pytest.mark.parametrize("incremental", [True, False])
def test_a_job_counts_on_while_its_types_change(
    parallelism: tuple[int, ...], incremental: bool, tmp_path: Path
) -> None:
    cascade = Cascade(counting(GENERATIONS[0][1]), seed=len(parallelism))
    cascade.options = {**SMALL, "io.tmp.dirs": str(tmp_path)}
    for (backend, declared), slots in zip(GENERATIONS, parallelism):
        cascade.build = counting(declared)
        cascade.options |= {"state.backend.type": backend, "execution.checkpointing.incremental": str(incremental)}
        job = cascade.start(slots)
        if cascade.restored is not None:
            fitted(cascade.graph(slots), cascade.restored, False)
        if declared is not GENERATIONS[-1][1]:
            job.names_predecessors = incremental
            cascade.crash_after(12, 0)
    check_rows("keyed", cascade.finish(), splits=2)
    assert cascade.in_flight


# ---- refused ----------------------------------------------------------------------------------------------------


class Rules(BroadcastProcessFunction):
    def __init__(self, descriptor: MapStateDescriptor) -> None:
        self.descriptor = descriptor

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        ctx.get_broadcast_state(self.descriptor).put(value, value)
        return ()


def keyed_by(selector: Callable[[int], Any], key_type: Any) -> Build:
    def build(env: Any) -> None:
        keyed = numbers(env).key_by(selector, key_type)
        keyed.process(Positions(row_of(count=LONG))).uid("positions").sink_to(CommittedRows()).uid("rows")

    return build


def reducing(result: Any) -> Build:
    def build(env: Any) -> None:
        mapped = numbers(env).map(lambda x: (x,), Types.TUPLE([result])).uid("mapped")
        mapped.key_by(lambda row: 0, LONG).reduce(lambda a, b: b).uid("newest").sink_to(CommittedRows()).uid("rows")

    return build


def windows(of: Any) -> Build:
    def build(env: Any) -> None:
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda x, _: x)
        source = env.from_source(NumberSequenceSource(0, ROWS - 1), strategy, "numbers")
        rows = source.map(lambda x: Row(n=x), row_of(n=of)).uid("mapped").key_by(lambda row: 0, LONG)
        folded = rows.window(TumblingEventTimeWindows.of(Time.hours(1))).reduce(lambda a, b: b).uid("windows")
        folded.sink_to(CommittedRows()).uid("rows")

    return build


def broadcast(values: Any) -> Build:
    def build(env: Any) -> None:
        descriptor = MapStateDescriptor("rules", LONG, values)
        rules = numbers(env, "rules").uid("rules").broadcast(descriptor)
        numbers(env).uid("numbers").connect(rules).process(Rules(descriptor)).uid("ruled").sink_to(CommittedRows()).uid(
            "rows"
        )

    return build


def run_to_checkpoint(build: Build, store: ObjectStore | None = None) -> Metadata:
    """Let the job read all, so that nothing is in flight and state has entries."""
    job = SmallJob(graph_of(build), Configuration(SMALL), store or MemoryStore())
    job.rest()
    return checkpointed(job, 1, None).metadata


WAY_OUT = "fields may be added and removed, and numbers widened"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            keyed_by(lambda x: x % KEYS, LONG),
            keyed_by(lambda x: str(x), STRING),
            "operator 'Keyed Process' (uid 'positions') was keyed by LONG, now by STRING, and its state belongs to "
            "keys of the former type, so it would never be found: declare the key as before",
        ),
        (
            keyed_by(lambda x: (x % KEYS, x % 2), Types.TUPLE([LONG, LONG])),
            keyed_by(lambda x: (x % KEYS, "a"), Types.TUPLE([LONG, STRING])),
            "(uid 'positions') was keyed by TUPLE(LONG, LONG), now by TUPLE(LONG, STRING)",
        ),
        (
            reducing(LONG),
            reducing(STRING),
            "operator 'Keyed Reduce' (uid 'newest'): what it keeps for each key was TUPLE(LONG), now TUPLE(STRING): "
            f"field 'f0' was LONG, which cannot become STRING; {WAY_OUT}",
        ),
        (
            windows(LONG),
            windows(INT),
            "(uid 'windows'): what its windows keep was MAP(LONG, ROW(n LONG)), now MAP(LONG, ROW(n INT)): field "
            f"'(value).n' was LONG, which cannot become INT; {WAY_OUT}",
        ),
        (
            broadcast(LONG),
            broadcast(STRING),
            "(uid 'ruled'): broadcast state 'rules' was MAP(LONG, LONG), now MAP(LONG, STRING): the map's values were "
            f"LONG, which cannot become STRING; {WAY_OUT}",
        ),
    ],
)
def test_the_driver_refuses_what_the_graph_says(old: Build, new: Build, told: str) -> None:
    metadata = run_to_checkpoint(old)
    fitted(graph_of(old), metadata, False)
    with pytest.raises(IncompatibleGraph) as refused:
        fitted(graph_of(new), metadata, False)
    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (keyed_by(lambda x: x % KEYS, INT), keyed_by(lambda x: x % KEYS, LONG)),
        (keyed_by(lambda x: (x % KEYS, 1), Types.TUPLE([INT, LONG])), keyed_by(lambda x: (x, 1), None)),
        (reducing(INT), reducing(LONG)),
        (windows(INT), windows(LONG)),
        (broadcast(INT), broadcast(LONG)),
    ],
)
def test_the_driver_lets_through_what_survives(old: Build, new: Build) -> None:
    fitted(graph_of(new), run_to_checkpoint(old), False)


def test_a_key_may_change_while_no_state_has_one() -> None:
    def build(selector: Callable[[int], Any], key_type: Any) -> JobGraph:
        def made(env: Any) -> None:
            numbers(env).key_by(selector, key_type).process(Stateless()).uid("p").sink_to(CommittedRows()).uid("r")

        return graph_of(made)

    job = SmallJob(build(lambda x: x, LONG), Configuration(SMALL))
    job.rest()
    fitted(build(str, STRING), checkpointed(job, 1, None).metadata, False)


class Stateless(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value


@pytest.mark.parametrize(
    ("selector", "declared", "told"),
    [
        (lambda x: str(x), LONG, r"has the key '\d+' \(str\), but key_by\(\) declares LONG now"),
        (lambda x: x, STRING, r"has the key \d+ \(int\), but key_by\(\) declares STRING now"),
        (lambda x: (x, 1), LONG, r"has the key \(\d+, 1\) \(tuple\), but key_by\(\) declares LONG now"),
    ],
)
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_subtasks_refuse_stored_keys_of_another_type(
    selector: Any, declared: Any, told: str, backend: str, tmp_path: Path
) -> None:
    """The job before has not said what type they are."""
    store, options = (
        MemoryStore(),
        Configuration({**SMALL, "state.backend.type": backend, "io.tmp.dirs": str(tmp_path)}),
    )
    metadata = run_to_checkpoint(keyed_by(selector, None), store)
    graph = graph_of(keyed_by(lambda x: x, declared))
    fitted(graph, metadata, False)
    with pytest.raises(OperatorFailure) as refused:
        SmallJob(graph, options, store, restored=metadata)
    assert isinstance(refused.value.error, StateSchemaError)
    assert re.search(rf"state 'seen' of operator 'Keyed Process' \(uid 'positions'\) {told}", str(refused.value))
    assert "declare the key as before, or give the operator another uid" in str(refused.value)


def test_subtasks_refuse_what_functions_declare_before_a_row_is_read() -> None:
    store = MemoryStore()
    metadata = run_to_checkpoint(counting(row_of(count=LONG)), store)
    graph = graph_of(counting(row_of(count=INT)))
    fitted(graph, metadata, False)
    with pytest.raises(OperatorFailure) as refused:
        SmallJob(graph, Configuration(SMALL), store, restored=metadata)
    assert isinstance(refused.value.error, StateSchemaError)
    assert str(refused.value).startswith(
        "operator 'Keyed Process': state 'seen' of operator 'Keyed Process' (uid 'positions') is declared as value "
        "state of ROW(count INT), but in the checkpoint that is being restored it is value state of ROW(count LONG): "
        f"field 'count' was LONG, which cannot become INT; {WAY_OUT}"
    )
