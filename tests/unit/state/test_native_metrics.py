"""Tests the figures that RocksDB has of itself, by Flink's option names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.common.configuration import Configuration
from penstock.common.options import OptionError, RocksDBNativeMetricOptions
from penstock.common.options.rocksdb_metrics import NATIVE_METRICS
from penstock.common.types import Types
from penstock.datastream.state import ValueStateDescriptor
from penstock.state.choice import columnar_backend, row_backend
from penstock.state.row_backend import RowStateBackend
from tests.unit.state.backends import KEY_GROUPS, NAMES

LONG = ValueStateDescriptor("count", Types.LONG())


def backend(directory: Path, *metrics: str) -> RowStateBackend[Any]:
    options = {f"state.backend.rocksdb.metrics.{name}": "true" for name in metrics}
    where = {"state.backend.type": "rocksdb", "state.backend.rocksdb.localdir": str(directory)}
    made = row_backend(Configuration(where | options), KEY_GROUPS, NAMES)
    assert isinstance(made, RowStateBackend)
    return made


def write(made: RowStateBackend[Any], keys: int) -> None:
    handle = made.state("op", LONG)
    for key in range(keys):
        made.set_current_key(key, key % KEY_GROUPS)
        handle.update(key)
    made.snapshot()


def test_every_figure_of_flink_has_a_value(tmp_path: Path) -> None:
    made = backend(tmp_path, *(metric.name for metric in NATIVE_METRICS))
    write(made, 3000)
    found = made.metrics()
    assert set(found) == {shown for metric in NATIVE_METRICS for shown in metric.shown}
    assert 3000 <= found["rocksdb.estimate-num-keys"] <= 3001
    assert found["rocksdb.block-cache-capacity"] == 256 * 1024 * 1024
    assert found["rocksdb.bytes_written"] > 3000 * 10
    assert found["rocksdb.num-files-at-level0"] == 0 and "rocksdb.num-files-at-level6" in found
    made.revoke()
    assert made.metrics() == {}


def test_only_what_is_asked_for_is_read(tmp_path: Path) -> None:
    made = backend(tmp_path, "estimate-num-keys", "compaction-read-bytes")
    assert set(made.metrics()) == {"rocksdb.estimate-num-keys", "rocksdb.compact_read_bytes"}
    made.revoke()
    silent = backend(tmp_path)
    assert silent.metrics() == {}
    silent.revoke()


def test_columnar_state_on_disk_has_them_and_state_in_memory_has_none(tmp_path: Path) -> None:
    options = {
        "state.backend.type": "rocksdb",
        "state.backend.rocksdb.localdir": str(tmp_path),
        "state.backend.rocksdb.metrics.num-snapshots": "true",
    }
    columns = columnar_backend(Configuration(options), NAMES)
    assert columns.metrics() == {"rocksdb.num-snapshots": 0}
    columns.revoke()
    in_memory = options | {"state.backend.type": "hashmap"}
    assert row_backend(Configuration(in_memory), KEY_GROUPS, NAMES).metrics() == {}
    assert columnar_backend(Configuration(in_memory), NAMES).metrics() == {}


def test_options_are_known_by_flinks_names() -> None:
    assert (
        vars(RocksDBNativeMetricOptions)["ESTIMATE_NUM_KEYS"].key == "state.backend.rocksdb.metrics.estimate-num-keys"
    )
    foreign = Configuration({"state.backend.rocksdb.metrics.column-family-as-variable": "true"})
    foreign.validate()
    with pytest.raises(OptionError, match=r"did you mean state\.backend\.rocksdb\.metrics\.estimate-num-keys"):
        Configuration({"state.backend.rocksdb.metrics.estimate-num-kys": "true"}).validate()
