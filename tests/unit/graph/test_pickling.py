"""Searches a graph for what cannot be pickled: the error names the user's variable and operator."""

from __future__ import annotations

import pickle
import threading
from dataclasses import dataclass
from typing import Any

import pytest

from penstock.common import Configuration, WatermarkStrategy
from penstock.datastream.window import TimeWindow
from penstock.graph.builder import build_job_graph
from penstock.graph.declared_functions import WindowSpec
from penstock.graph.job_graph import JobGraph
from penstock.graph.logical import Input, LogicalGraph, Node, OperatorKind, Partitioner, PartitionerKind
from penstock.graph.pickling import UnpicklableFunction, dumps
from penstock.operators.windows.assigners.tumbling import Tumbling

LOCK = threading.Lock()


class Enricher:
    def __init__(self, connections: Any) -> None:
        self.connections = connections

    def map(self, value: Any) -> Any:
        return value

    def uses_global(self, value: Any) -> Any:
        return LOCK


class Slotted:
    __slots__ = ("client",)

    def __init__(self) -> None:
        self.client = threading.Lock()

    def __call__(self, value: Any) -> Any:
        return value

    def __reduce_ex__(self, protocol: Any) -> Any:
        return Slotted._made, (self.client,)

    @staticmethod
    def _made(client: Any) -> Slotted:
        return Slotted()


def graph_of(function: Any, key_selector: Any = abs, custom: Any = None) -> JobGraph:
    graph = LogicalGraph()
    source = graph.add(Node(0, OperatorKind.SOURCE, "events", None, [], None))
    kind = PartitionerKind.CUSTOM if custom else PartitionerKind.HASH
    partitioner = Partitioner(kind, key_selector, custom=custom)
    graph.add(Node(1, OperatorKind.MAP, "enrich", function, [Input(source, partitioner)], None))
    return build_job_graph(graph, Configuration(), "job")


def closure() -> Any:
    lock = threading.Lock()
    config = {"retries": 3, "lock": [1, lock]}

    def enrich(value: Any) -> Any:
        return config, value

    return enrich


def default_argument() -> Any:
    return lambda value, lock=threading.Lock(): value


def by_value(function: Any) -> Any:
    """Pickle a function as if it were defined in the main program, so that its global variables travel with it."""
    import types

    return types.FunctionType(function.__code__, {"LOCK": LOCK, "helper": None, "__name__": "__main__"}, "enrich")


def uses_global(value: Any) -> Any:
    def inner() -> Any:
        return LOCK

    return inner()


@pytest.mark.parametrize(
    "function, variable",
    [
        (closure(), "item 1 of entry 'lock' of closure variable 'config'"),
        (default_argument(), "a default argument"),
        (by_value(uses_global), "global variable 'LOCK'"),
        (Enricher({"db": threading.Lock()}), "entry 'db' of attribute 'connections'"),
        (Enricher(closure()).map, "item 1 of entry 'lock' of closure variable 'config' of attribute 'connections' of "
                                  "the object of the method map()"),
        (Slotted(), "attribute 'client'"),
    ],
    ids=["closure", "default", "global", "attribute", "method", "slots"],
)  # fmt: skip
def test_the_variable_is_named(function: Any, variable: str) -> None:
    with pytest.raises(UnpicklableFunction) as refused:
        dumps(graph_of(function))
    text = str(refused.value)
    assert refused.value.operator == "enrich" and refused.value.variable == variable
    assert text.startswith("operator 'enrich' (") and f"{variable} is a _thread.lock" in text and "open()" in text


def test_selectors_and_partitioners_are_named_by_their_edge() -> None:
    with pytest.raises(UnpicklableFunction, match="the key selector of the hash edge from 'events' to 'enrich'"):
        dumps(graph_of(None, key_selector=closure()))
    with pytest.raises(UnpicklableFunction, match="the partitioner of the custom edge from 'events' to 'enrich'"):
        dumps(graph_of(None, custom=closure()))


@dataclass
class Plan:
    graph: JobGraph
    secret: Any = None


def test_a_plan_that_holds_a_graph_is_searched_too() -> None:
    with pytest.raises(UnpicklableFunction, match="closure variable 'config'"):
        dumps(Plan(graph_of(closure())))
    with pytest.raises(UnpicklableFunction, match="Plan cannot be pickled"):
        dumps(Plan(graph_of(None), threading.Lock()))


def test_what_can_be_pickled_comes_back() -> None:
    offset = 3
    copy = pickle.loads(dumps(Plan(graph_of(lambda value: value + offset))))
    assert copy.graph.vertices[1].operators[0].function(4) == 7
    assert copy.graph.edges[0].partitioner.kind is PartitionerKind.HASH


def test_a_value_that_holds_itself_ends_the_search() -> None:
    loop: dict[str, Any] = {"lock": threading.Lock()}
    loop["again"] = loop

    def enrich(value: Any) -> Any:
        return loop

    with pytest.raises(UnpicklableFunction, match="entry 'lock' of closure variable 'loop'"):
        dumps(graph_of(enrich))


def test_the_parts_of_strategies_and_windows_are_named() -> None:
    graph = LogicalGraph()
    monotonous = WatermarkStrategy.for_monotonous_timestamps()
    enrich = closure()
    strategy = monotonous.with_timestamp_assigner(lambda value, _: enrich(value))
    source = graph.add(Node(0, OperatorKind.SOURCE, "events", None, [], None, watermark_strategy=strategy))
    with pytest.raises(UnpicklableFunction, match="^the timestamp assigner of operator 'events' .*'config'"):
        dumps(build_job_graph(graph, Configuration(), "job"))

    source.watermark_strategy = monotonous.with_timestamp_column("at")
    clock = graph.add(Node(1, OperatorKind.TIMESTAMPS, "clock", None, [Input(source)], None))
    clock.function = WatermarkStrategy.for_generator(closure()).with_timestamp_column("at")
    with pytest.raises(UnpicklableFunction, match="^the watermark generator of operator 'clock' .*'config'"):
        dumps(build_job_graph(graph, Configuration(), "job"))

    clock.function = monotonous
    keyed = Input(clock, Partitioner(PartitionerKind.HASH, abs))
    spec = WindowSpec(Tumbling(10), 0, None, Enricher(None), None, Enricher(threading.Lock()), None, TimeWindow)
    graph.add(Node(2, OperatorKind.WINDOW, "hourly", spec, [keyed], None))
    with pytest.raises(UnpicklableFunction, match="^the window function of operator 'hourly' .*'connections'"):
        dumps(build_job_graph(graph, Configuration(), "job"))
