"""Checks that a keyed state is written back by the table that it is shown as, for keys of every type."""

from __future__ import annotations

import tempfile
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Types
from penstock.common.row_types.columns import ColumnType
from penstock.datastream.state import ValueStateDescriptor
from penstock.protocol.values.key_encoding import encode
from penstock.savepoints import (
    KeyedStateBootstrapFunction,
    OperatorIdentifier,
    OperatorTransformation,
    SavepointWriter,
)
from penstock.state import read_checkpoint
from penstock.state.backend import StateError
from penstock.storage.metadata_file import encode_metadata
from tests.unit.savepoints.jobs import environment

USERS = OperatorIdentifier.for_uid("users")
PICKLED = Types.PICKLED_BYTE_ARRAY()
VIENNA = ZoneInfo("Europe/Vienna")


class Remember(KeyedStateBootstrapFunction):
    def open(self, runtime_context: Any) -> None:
        self.number = runtime_context.get_state(ValueStateDescriptor("number", Types.LONG()))

    def process_element(self, row: Any, ctx: Any) -> None:
        self.number.update(row[1])
        ctx.timer_service().register_event_time_timer(row[1])


def made(directory: Path, keys: list[Any], declared: ColumnType | None = None) -> str:
    rows = [(key, number) for number, key in enumerate(keys)]
    transformation = OperatorTransformation.bootstrap_with(rows).key_by(lambda row: row[0]).transform(Remember())
    path = SavepointWriter.new_savepoint(environment(), 16).with_operator(USERS, transformation).write(str(directory))
    if declared is not None:
        metadata = read_checkpoint(path).metadata
        vertices = [msgspec.structs.replace(vertex, key_type=declared.text) for vertex in metadata.vertices]
        changed = msgspec.structs.replace(metadata, vertices=vertices)
        (directory / "_metadata").write_bytes(encode_metadata(changed))
    return path


def entries(path: str) -> dict[bytes, Any]:
    return {encode(key): value for key, value in read_checkpoint(path).keyed_state("users", "number").entries()}


def assert_written_back(directory: Path, path: str, key_type: ColumnType | None = None) -> pa.Table:
    """Write the state back by its own table, which has been in a Parquet file, and return the table."""
    table = read_checkpoint(path).keyed_state("users", "number", key_type).table()
    pq.write_table(table, directory / "table.parquet")
    stored = pq.read_table(directory / "table.parquet")
    writer = SavepointWriter.from_existing_savepoint(environment(3), path)
    written = writer.with_keyed_state(USERS, "number", stored, key_type).write(str(directory / "written"))
    assert entries(written) == entries(path)
    again = read_checkpoint(written).keyed_state("users", "number", key_type).table()
    assert len(again) == len(table) == len(entries(path))
    return table


SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "ints": st.integers(-(2**63), 2**63 - 1),
    "big": st.integers(-(2**200), 2**200),
    "floats": st.floats(),
    "texts": st.text(),
    "surrogates": st.text(st.characters()),
    "bytes": st.binary(),
    "truths": st.booleans(),
    "decimals": st.decimals(allow_nan=False),
    "short decimals": st.decimals(-1000, 1000, places=2),
    "dates": st.dates(),
    "datetimes": st.datetimes(),
    "instants": st.datetimes(timezones=st.just(UTC), min_value=datetime(2, 1, 1)),
    "times": st.times(),
    "durations": st.timedeltas(),
    "uuids": st.uuids(),
}
ANY = st.one_of(*SCALARS.values())


def composite(of: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    optional = st.none() | of
    return st.one_of(
        st.tuples(optional, optional), st.tuples(of, st.integers()), st.frozensets(of, max_size=3), st.just(()),
        st.lists(of, max_size=3).map(tuple), st.tuples(st.tuples(of, of), st.text()),
    )  # fmt: skip


KINDS = [*SCALARS.values(), *map(composite, SCALARS.values()), ANY, composite(ANY)]


@given(st.data())
@settings(max_examples=120, deadline=None)
def test_a_table_writes_back_the_keys_that_it_shows(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(KINDS))
    keys = data.draw(st.lists(kind, min_size=1, max_size=12))
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        path = made(directory / "made", keys)
        try:
            table = read_checkpoint(path).keyed_state("users", "number").table()
        except StateError as error:
            assert "state 'number' of operator 'users'" in str(error) and "PICKLED_BYTE_ARRAY" in str(error)
            assert_written_back(directory, path, PICKLED)
            return
        assert len(table) == len(entries(path))
        assert_written_back(directory, path)


DECLARED: dict[str, tuple[ColumnType, list[Any]]] = {
    "double": (Types.DOUBLE(), [0.5, 1.0, -0.0, 2.0**70, 1e-300, float("nan"), float("inf"), 7]),
    "float": (Types.FLOAT(), [0.1, 1.0, 3]),
    "boolean": (Types.BOOLEAN(), [True, False]),
    "int": (Types.INT(), [1, -5]),
    "big_int": (Types.BIG_INT(), [1, 2**70, -(2**70)]),
    "big_dec": (Types.BIG_DEC(), [Decimal("0.1"), Decimal(1), Decimal("0.5"), Decimal("1e40"), 0.1]),
    "decimal": (
        Types.DECIMAL(10, 2),
        [Decimal("0.10"), Decimal("1.5"), Decimal(1), 7, Decimal("-3.25"), Decimal("1e3")],
    ),
    "decimal of 38 digits": (Types.DECIMAL(38, 38), [Decimal("0." + "9" * 38), Decimal(0), Decimal("0.5")]),
    "instant": (
        Types.INSTANT(),
        [datetime(1, 1, 1, tzinfo=UTC), datetime(2024, 10, 27, 2, 30, tzinfo=VIENNA, fold=1)],
    ),
    "date": (Types.SQL_DATE(), [date(1, 1, 1), date(2024, 2, 29)]),
    "time": (Types.SQL_TIME(), [time(1, 2, 3, 4)]),
    "timestamp": (Types.SQL_TIMESTAMP(), [datetime(1, 1, 1), datetime(2024, 2, 29, 1, 2, 3, 4)]),
    "bytes": (Types.PRIMITIVE_ARRAY(Types.BYTE()), [b"", b"\xff", b"abc"]),
    "string": (Types.STRING(), ["", "ü", "5"]),
    "tuple": (
        Types.TUPLE([Types.DOUBLE(), Types.BOOLEAN(), Types.BIG_DEC(), Types.STRING()]),
        [(1, True, Decimal(2), None), (0.5, False, Decimal("0.1"), "x"), (None, None, None, "")],
    ),
    "nested": (
        Types.TUPLE([Types.TUPLE([Types.FLOAT(), Types.LONG()]), Types.LIST(Types.DOUBLE())]),
        [((0.1, 1), (1.0, 2.5)), ((1.0, 2), ())],
    ),
    "tuple of decimals": (
        Types.TUPLE([Types.DECIMAL(10, 2), Types.LIST(Types.DECIMAL(5, 1)), Types.INSTANT()]),
        [(Decimal("0.5"), (Decimal("2.5"), Decimal(1)), None), (None, (), datetime(2024, 1, 1, tzinfo=UTC))],
    ),
    "row": (Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.DOUBLE()]), [(1, 0.5), (2, 1.0)]),
    "pickled": (PICKLED, [1, "a", (1, 2), (1,)]),
    "tuple of pickles": (Types.TUPLE([PICKLED, Types.LONG()]), [(UUID(int=5), 1), (UUID(int=6), 2)]),
}


@pytest.mark.parametrize("name", DECLARED)
def test_declared_keys_are_shown_and_written_back_as_declared(tmp_path: Path, name: str) -> None:
    declared, keys = DECLARED[name]
    path = made(tmp_path / "made", keys, declared)
    if name == "pickled":
        assert_written_back(tmp_path, path, PICKLED)
        return
    table = assert_written_back(tmp_path, path)
    if name != "tuple of pickles":
        timers = read_checkpoint(path).timers("users")[0].table()
        assert sorted(map(repr, timers.column("key").to_pylist())) == sorted(map(repr, table.column("key").to_pylist()))
    if name == "double":
        assert table.schema.field("key").type == pa.float64()
        assert {0.5, 1.0, 7.0, 2.0**70} <= set(table.column("key").to_pylist())
    if name == "boolean":
        assert set(table.column("key").to_pylist()) == {True, False}


def test_numbers_of_several_types_are_shown_without_loss(tmp_path: Path) -> None:
    path = made(tmp_path / "floats", [0.5, 1, 2.25])
    table = read_checkpoint(path).keyed_state("users", "number").table()
    assert sorted(table.column("key").to_pylist()) == [0.5, 1.0, 2.25]
    path = made(tmp_path / "large", [0.5, 2**63 - 1])
    with pytest.raises(StateError, match=r"the key 9223372036854775807 \(int\) is no .*Types.BIG_DEC"):
        read_checkpoint(path).keyed_state("users", "number").table()
    assert_written_back(tmp_path, path, Types.BIG_DEC())


def test_a_text_that_stands_for_no_key_is_refused_by_name(tmp_path: Path) -> None:
    path = made(tmp_path / "made", [UUID(int=number) for number in range(5)])
    told = "state 'number' of operator 'users': the column 'key' is string, but the keys of the state are string, UUID"
    for type in (pa.string(), pa.large_string()):
        table = pa.table({"key": pa.array(["nobody"], type), "value": [1]})
        writer = SavepointWriter.from_existing_savepoint(environment(), path)
        with pytest.raises(StateError, match=told.replace("is string", f"is {type}")):
            writer.with_keyed_state(USERS, "number", table).write(str(tmp_path / "new"))
    path = made(tmp_path / "declared", [0.5, 1.5], Types.DOUBLE())
    writer = SavepointWriter.from_existing_savepoint(environment(), path)
    table = pa.table({"key": ["0.5"], "value": [1]})
    with pytest.raises(StateError, match="column 'key' is string, but the keys of the state are double"):
        writer.with_keyed_state(USERS, "number", table).write(str(tmp_path / "new"))


def test_keys_of_other_widths_and_of_dictionaries_are_the_same_keys(tmp_path: Path) -> None:
    path = made(tmp_path / "made", [1, 2, 3])
    numbers = pa.array([1, 2, 3])
    columns = [*(numbers.cast(type) for type in (pa.int8(), pa.uint32(), pa.float64())), numbers.dictionary_encode()]
    for number, column in enumerate(columns):
        table = pa.table({"key": column, "value": [0, 1, 2]})
        writer = SavepointWriter.from_existing_savepoint(environment(), path)
        assert entries(writer.with_keyed_state(USERS, "number", table).write(str(tmp_path / f"{number}"))) == {
            encode(key): key - 1 for key in (1, 2, 3)
        }


def test_keys_outside_of_what_a_column_holds_are_refused_by_name(tmp_path: Path) -> None:
    path = made(tmp_path / "made", [timedelta.max])
    with pytest.raises(StateError, match=r"the key datetime.timedelta\(.*\) is no timedelta"):
        read_checkpoint(path).keyed_state("users", "number").table()
    assert_written_back(tmp_path, path, PICKLED)
