"""A checkpoint as a DataFrame: how many keys per second Spark counts.

    open_state.py [keys=5000000] [value_bytes=100] [rounds=3] [cores=2]

Writes a savepoint of one operator: `keys` keys, each with a text of `value_bytes` (5,000,000 keys of 100 bytes are half
a gigabyte, 50,000,000 are 5 GB; making them takes about three times as much memory). Then a Spark with `cores` cores
counts the rows of `spark.read.format("penstock-state")`: once to warm up, then `rounds` times. `keys_per_s` is the
median, with all columns; `keys_per_s_of_key_column` reads the key alone; `keys_per_s_as_arrow` reads the same by
`read_checkpoint` in one thread. Prints one line of JSON last.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from measuring import parse_arguments, print_result
from penstock.common import Types
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor
from penstock.savepoints import (
    KeyedStateBootstrapFunction,
    OperatorIdentifier,
    OperatorTransformation,
    SavepointWriter,
)
from penstock.state import read_checkpoint

DEFAULTS = {"keys": "5000000", "value_bytes": "100", "rounds": "3", "cores": "2"}
UID, NAME = "texts", "text"


class One(KeyedStateBootstrapFunction):
    """Declares the state; the table then holds its entries."""

    def open(self, runtime_context: Any) -> None:
        self.text = runtime_context.get_state(ValueStateDescriptor(NAME, Types.STRING()))

    def process_element(self, value: int, ctx: Any) -> None:
        self.text.update("")


def write(directory: Path, keys: int, value_bytes: int) -> str:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    operator = OperatorIdentifier.for_uid(UID)
    declared = OperatorTransformation.bootstrap_with([0]).key_by(lambda key: key).transform(One())
    empty = SavepointWriter.new_savepoint(env, 128).with_operator(operator, declared).write(str(directory / "declared"))
    offsets = np.arange(0, (keys + 1) * value_bytes, value_bytes, dtype=np.int64)
    data = np.resize(np.arange(ord("a"), ord("z") + 1, dtype=np.uint8), keys * value_bytes)
    texts = pa.LargeStringArray.from_buffers(keys, pa.py_buffer(offsets), pa.py_buffer(data))
    table = pa.table({"key": np.arange(keys), "value": texts.cast(pa.string()) if len(data) < 2**31 else texts})
    writer = SavepointWriter.from_existing_savepoint(env, empty)
    return writer.with_keyed_state(operator, NAME, table).write(str(directory / "savepoint"))


def per_second(count: Callable[[], int], keys: int, rounds: int) -> float:
    taken = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        found = count()
        taken.append(time.perf_counter() - start)
        assert found == keys, f"{found} keys were counted, {keys} written"
    return keys / statistics.median(taken[1:])


def main() -> None:
    arguments = parse_arguments(sys.argv[1:], DEFAULTS)
    keys, rounds = arguments.whole("keys"), arguments.whole("rounds")
    with tempfile.TemporaryDirectory() as directory:
        path = write(Path(directory), keys, arguments.whole("value_bytes"))
        stored = sum(file.stat().st_size for file in Path(path).iterdir())
        rows = read_checkpoint(path).keyed_state(UID, NAME)
        as_arrow = per_second(lambda: sum(batch.num_rows for batch in rows.reader()), keys, rounds)
        os.environ["PYSPARK_PYTHON"] = sys.executable
        builder = SparkSession.builder.master(f"local[{arguments.whole('cores')}]")
        spark = builder.config("spark.ui.enabled", "false").getOrCreate()
        frame = spark.read.format("penstock-state").option("path", path).option("uid", UID).option("name", NAME)
        whole = per_second(frame.load().count, keys, rounds)
        of_keys = per_second(frame.option("columns", "key").load().count, keys, rounds)
        spark.stop()
    print_result(
        {
            "keys": keys,
            "stored_bytes": stored,
            "keys_per_s": whole,
            "keys_per_s_of_key_column": of_keys,
            "keys_per_s_as_arrow": as_arrow,
        }
    )


if __name__ == "__main__":
    main()
