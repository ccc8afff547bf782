"""Tests what savepoints refuse, and how they say it: nothing is left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from penstock.common import Types
from penstock.datastream.state import ValueStateDescriptor
from penstock.protocol.values.metadata import FORMAT_VERSION
from penstock.savepoints import (
    OperatorIdentifier,
    OperatorTransformation,
    SavepointError,
    SavepointReader,
    SavepointWriter,
)
from penstock.state import read_checkpoint
from penstock.state.backend import StateError, StateSchemaError
from penstock.storage.metadata_file import encode_metadata
from penstock.storage.segments import DamagedRange
from penstock.storage.store import StoreError
from tests.unit.savepoints.jobs import (
    Bootstrap,
    ReadEverything,
    environment,
    half,
    totals,
)
from tests.unit.state.reading.jobs import StoredJob, aggregates, keyed, stored, with_rules

# ---- errors -------------------------------------------------------------------------------------------------------


def test_operators_that_are_not_there_or_there_already(tmp_path: Path) -> None:
    path, _ = half(tmp_path / "job")
    writer = SavepointWriter.from_existing_savepoint(environment(), path)
    uid = OperatorIdentifier.for_uid
    with pytest.raises(SavepointError, match="no operator 'no'; there are 'numbers', 'totals', 'sink'"):
        writer.remove_operator(uid("no"))
    with pytest.raises(SavepointError, match="no operator 'no'"):
        writer.change_operator_identifier(uid("no"), uid("other"))
    with pytest.raises(SavepointError, match="has an operator 'sink' already"):
        writer.change_operator_identifier(uid("totals"), uid("sink"))
    made = OperatorTransformation.bootstrap_with([]).key_by(lambda r: r).transform(Bootstrap())
    with pytest.raises(SavepointError, match=r"an operator 'totals' already: call remove_operator\(\) before"):
        writer.with_operator(uid("totals"), made)
    with pytest.raises(SavepointError, match="operator 'totals' has no keyed state 'no'; there are 'last', 'total'"):
        writer.with_keyed_state(uid("totals"), "no", pa.table({}))
    with pytest.raises(SavepointError, match="holds a checkpoint or savepoint already"):
        writer.write(path)


def test_rows_in_flight_keep_their_operators(tmp_path: Path) -> None:
    job = StoredJob(tmp_path / "job", totals())
    job.run(3)
    path = job.checkpoint(1, 0)
    job.close()
    writer = SavepointWriter.from_existing_savepoint(environment(), path)
    with pytest.raises(
        SavepointError, match=r"'totals' cannot be removed: rows were in flight from '.*' to '.*'.*--aligned"
    ):
        writer.remove_operator(OperatorIdentifier.for_uid("totals"))


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ({"key": [1], "other": [2]}, "no column 'value', but key, other"),
        ({"key": [1], "value": ["x"]}, "holds LONG, but the table's column 'value' is string"),
        ({"key": [1, 1], "value": [1, 2]}, "a key more than once"),
        ({"key": [1, 2], "value": [1, None]}, "the table has nulls"),
    ],
)
def test_tables_that_do_not_fit_leave_nothing_behind(tmp_path: Path, table: dict[str, Any], told: str) -> None:
    path, _ = half(tmp_path / "job")
    writer = SavepointWriter.from_existing_savepoint(environment(), path)
    writer.with_keyed_state(OperatorIdentifier.for_uid("totals"), "total", pa.table(table))
    with pytest.raises(StateError, match=f"state 'total' of operator '.*{told}"):
        writer.write(str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


def test_a_row_that_makes_no_state_is_named(tmp_path: Path) -> None:
    operator = OperatorIdentifier.for_uid("totals")
    for rows, told in (
        ([(1, 2), (2, "x")], r"row 1 \(\(2, 'x'\)\) made no state"),
        ([(None, 1)], "row 0 .*must not be None"),
    ):
        made = OperatorTransformation.bootstrap_with(rows).key_by(lambda r: r[0]).transform(Bootstrap())
        with pytest.raises(StateError, match=f"operator 'totals': {told}"):
            SavepointWriter.new_savepoint(environment()).with_operator(operator, made).write(str(tmp_path / "new"))


def test_a_function_that_declares_state_otherwise_or_reads_what_is_not_there(tmp_path: Path) -> None:
    path = stored(tmp_path / "job", keyed)

    class Otherwise(ReadEverything):
        descriptor = ValueStateDescriptor("sum", Types.STRING())

        def open(self, runtime_context: Any) -> None:
            runtime_context.get_state(self.descriptor)

    class Nothing(Otherwise):
        descriptor = ValueStateDescriptor("nothing", Types.STRING())

    reader = SavepointReader.read(environment(), path)
    with pytest.raises(StateSchemaError, match="'sum' of operator 'everything' is declared as value state of STRING"):
        list(reader.read_keyed_state("everything", Otherwise()))
    with pytest.raises(StateError, match="operator 'everything' has no keyed state 'nothing'; there are 'sum'"):
        list(reader.read_keyed_state("everything", Nothing()))


def test_damage_and_newer_formats_are_named_and_nothing_is_left(tmp_path: Path) -> None:
    path, _ = half(tmp_path / "job")
    metadata = read_checkpoint(path).metadata
    segment = tmp_path / "job" / metadata.segments[0].path
    segment.write_bytes(bytes(segment.stat().st_size))
    with pytest.raises(DamagedRange, match="state 'total'.*its checksum does not match"):
        SavepointWriter.from_existing_savepoint(environment(), path).write(str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()
    segment.unlink()
    with pytest.raises(DamagedRange, match="the segment is missing"):
        SavepointWriter.from_existing_savepoint(environment(), path).write(str(tmp_path / "new"))
    newer = msgspec.structs.replace(metadata, format_version=FORMAT_VERSION + 1)
    (tmp_path / "job" / "chk-2" / "_metadata").write_bytes(encode_metadata(newer))
    with pytest.raises(StoreError, match="has format version"):
        SavepointWriter.from_existing_savepoint(environment(), path)


def test_built_in_aggregates_are_copied_and_not_replaced(tmp_path: Path) -> None:
    path = stored(tmp_path / "job", aggregates)
    writer = SavepointWriter.from_existing_savepoint(environment(), path)
    written = writer.write(str(tmp_path / "copy"))
    found = [read_checkpoint(p).keyed_state("totals", "_aggregates").table() for p in (path, written)]
    assert found[0] == found[1] and len(found[0])
    writer.with_keyed_state(OperatorIdentifier.for_uid("totals"), "_aggregates", found[0])
    with pytest.raises(StateError, match="which is not replaced by a table"):
        writer.write(str(tmp_path / "other"))


def test_broadcast_state_is_read(tmp_path: Path) -> None:
    path = stored(tmp_path / "job", with_rules, turns=400)
    found = SavepointReader.read(environment(), path).read_broadcast_state(
        "ruled", "rules", Types.STRING(), Types.LONG()
    )
    assert found == {f"rule {i}": i for i in (1, 2, 3)}
