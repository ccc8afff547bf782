"""Runs the examples in the docstrings of public names: each must declare what it shows without an error."""

from __future__ import annotations

import datetime
import re
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import penstock.common
import penstock.datastream
from penstock.common import Types, WatermarkStrategy
from penstock.common.options import CheckpointingOptions
from penstock.connectors.generators.rate import RateLimiterStrategy
from penstock.datastream import StreamExecutionEnvironment, state, window
from penstock.datastream.columnar import count, max_, mean, min_, sum_
from penstock.datastream.connectors import datagen, file_system, kafka
from penstock.datastream.connectors.hybrid_source import HybridSource
from penstock.datastream.formats import avro, csv, json
from tests.unit.test_public_docs import NAMES, section


def examples() -> list[Any]:
    found = {name.doc: path for path, name in NAMES.items() if section(name.doc, "Example")}
    return [pytest.param(section(doc, "Example"), id=path.removeprefix("penstock.")) for doc, path in found.items()]


class Budget(penstock.datastream.KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> None:
        return None


class Convert(penstock.datastream.KeyedCoProcessFunction):
    def process_element1(self, value: Any, ctx: Any) -> None:
        return None

    def process_element2(self, value: Any, ctx: Any) -> None:
        return None


class Limit(penstock.datastream.BroadcastProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> None:
        return None

    def process_broadcast_element(self, value: Any, ctx: Any) -> None:
        return None


class States:
    """A runtime context that gives the descriptor back."""

    def __getattr__(self, name: str) -> Any:
        assert hasattr(penstock.datastream.RuntimeContext, name)
        return lambda descriptor: descriptor


class Model:
    def predict(self, column: pa.Array) -> np.ndarray:
        return np.zeros(len(column))


class Itself:
    """`self` in the examples of functions."""


def names_of(*modules: Any) -> dict[str, Any]:
    return {name: getattr(module, name) for module in modules for name in module.__all__}


def surroundings(env: StreamExecutionEnvironment, directory: Path) -> dict[str, Any]:
    """Return what the examples take for granted: imports, an environment, streams and paths."""
    order_type = Types.ROW_NAMED(
        ["user", "amount", "rate", "day", "time", "currency", "shop", "features", "customer"],
        [
            Types.STRING(),
            Types.DOUBLE(),
            Types.DOUBLE(),
            Types.STRING(),
            Types.LONG(),
            Types.STRING(),
            Types.STRING(),
            Types.DOUBLE(),
            Types.STRING(),
        ],
    )
    orders = env.from_collection([], order_type)
    timed = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("time")
    assigner = penstock.datastream.TumblingEventTimeWindows.of(penstock.common.Duration.of_minutes(1))
    sink = file_system.FileSink.for_parquet(str(directory / "out"))
    csv_schema = csv.CsvSchema.builder().add_string_column("user").add_number_column("time").build()
    return {
        **names_of(penstock.common, penstock.datastream, state, window, file_system, avro, csv, json, kafka),
        "HybridSource": HybridSource, "kafka_source": file_system.FileSource.for_parquet(str(directory / "in")),
        "BatchGeneratorSource": datagen.BatchGeneratorSource, "DataGeneratorSource": datagen.DataGeneratorSource,
        "RateLimiterStrategy": RateLimiterStrategy, "CheckpointingOptions": CheckpointingOptions,
        "count": count, "max_": max_, "mean": mean, "min_": min_, "sum_": sum_, "np": np, "pa": pa, "pc": pc,
        "env": env, "stream": orders, "orders": orders, "rates": orders, "visits": orders,
        "pairs": env.from_collection([], Types.TUPLE([Types.STRING(), Types.LONG()])),
        "numbers": env.from_collection([], Types.LONG()),
        "lines": env.from_collection([], Types.STRING()), "keyed": orders.key_by(lambda row: row["user"]),
        "add": lambda a, b: a, "assigner": assigner, "strategy": timed, "sink": sink, "output_type": order_type,
        "Budget": Budget, "Convert": Convert, "Limit": Limit, "model": Model(), "self": Itself(),
        "runtime_context": States(),
        "path": str(directory / "in"), "schema": csv_schema, "datetime": datetime,
    }  # fmt: skip


@pytest.mark.usefixtures("executor")
@pytest.mark.parametrize("example", examples())
def test_an_example_runs(
    example: str, env: StreamExecutionEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_DYNAMIC_OPTIONS", '{"execution.target": "instant"}')
    (tmp_path / "in").mkdir()
    rows = pa.table({"user": ["a"], "amount": [1.5], "time": [0]})
    pq.write_table(rows, tmp_path / "in" / "part.parquet")
    # Paths of the examples do not exist here.
    code = re.sub(r'"/(?:data|logs)/[^"]*"', "path", textwrap.dedent(example))
    exec(compile(code, "example", "exec"), surroundings(env, tmp_path))
