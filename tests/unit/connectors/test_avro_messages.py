"""Tests messages of Avro: fastavro reads what we write, we read what it writes, and nothing else is read by chance."""

from __future__ import annotations

import datetime
import io
import json
import sys
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Row, Types
from penstock.connectors.messages.decoding import decode_all, decoder_of
from penstock.connectors.messages.encoding import encoder_of, validate
from penstock.datastream.connectors.base import SinkError
from penstock.datastream.formats.avro import AvroRowDeserializationSchema, AvroRowSerializationSchema

SMALL = {"type": "record", "name": "Small", "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "string"}]}

EVERYTHING = {
    "type": "record",
    "name": "Everything",
    "namespace": "tests",
    "fields": [
        {"name": "yes", "type": "boolean"},
        {"name": "small", "type": "int"},
        {"name": "large", "type": ["null", "long"]},
        {"name": "single", "type": "float"},
        {"name": "number", "type": ["double", "null"]},
        {"name": "data", "type": "bytes"},
        {"name": "text", "type": ["null", "string"]},
        {"name": "colour", "type": {"type": "enum", "name": "Colour", "symbols": ["RED", "GREEN"]}},
        {"name": "again", "type": ["null", "Colour"]},
        {"name": "four", "type": {"type": "fixed", "name": "Four", "size": 4}},
        {"name": "inner", "type": ["null", SMALL]},
        {"name": "numbers", "type": {"type": "array", "items": "long"}},
        {"name": "rows", "type": {"type": "array", "items": ["null", "Small"]}},
        {"name": "map", "type": {"type": "map", "values": {"type": "array", "items": "string"}}},
        {"name": "only", "type": ["int"]},
    ],
}

INT = st.integers(-(2**31), 2**31 - 1)
LONG = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(max_size=6)
SMALL_ROWS = st.fixed_dictionaries({"a": INT, "b": TEXT})
COLOURS = st.sampled_from(["RED", "GREEN"])
RECORDS = st.fixed_dictionaries(
    {
        "yes": st.booleans(),
        "small": INT,
        "large": LONG | st.none(),
        "single": st.floats(width=32, allow_nan=False),
        "number": st.floats(allow_nan=False) | st.none(),
        "data": st.binary(max_size=5),
        "text": TEXT | st.none(),
        "colour": COLOURS,
        "again": COLOURS | st.none(),
        "four": st.binary(min_size=4, max_size=4),
        "inner": SMALL_ROWS | st.none(),
        "numbers": st.lists(LONG, max_size=4),
        "rows": st.lists(SMALL_ROWS | st.none(), max_size=3),
        "map": st.dictionaries(TEXT, st.lists(TEXT, max_size=2), max_size=3),
        "only": INT,
    }
)


def reader(schema: Any) -> AvroRowDeserializationSchema:
    return AvroRowDeserializationSchema(avro_schema_string=json.dumps(schema))


def writer(schema: Any) -> AvroRowSerializationSchema:
    return AvroRowSerializationSchema(avro_schema_string=json.dumps(schema))


def by_fastavro(schema: Any, record: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), record)
    return out.getvalue()


def as_dict(value: Any) -> Any:
    if isinstance(value, Row):
        return {name: as_dict(value[name]) for name in value.get_field_names() or ()}
    return [as_dict(each) for each in value] if isinstance(value, list) else value


def rows_of(schema: AvroRowDeserializationSchema, values: list[bytes | None]) -> tuple[list[Any], dict[int, str]]:
    decoded = decode_all(decoder_of(schema), values)
    assert len(decoded.taken) == decoded.rows.num_rows
    decoded.rows.validate(full=True)
    return [as_dict(row) for row in schema.get_produced_type().decode(decoded.rows)], decoded.refused


@settings(max_examples=120, deadline=None)
@given(st.lists(RECORDS, max_size=6))
def test_what_fastavro_writes_is_read_and_written_again(records: list[dict[str, Any]]) -> None:
    schema = reader(EVERYTHING)
    values: list[bytes | None] = [by_fastavro(EVERYTHING, record) for record in records]
    rows, refused = rows_of(schema, values)
    assert not refused and rows == records
    batch = decode_all(decoder_of(schema), values).rows
    row_type = schema.get_produced_type()
    written = encoder_of(writer(EVERYTHING), row_type)(batch)
    parsed = fastavro.parse_schema(EVERYTHING)
    assert [fastavro.schemaless_reader(io.BytesIO(w or b""), parsed, None) for w in written] == records


@settings(max_examples=120, deadline=None)
@given(st.lists(RECORDS.map(lambda record: by_fastavro(EVERYTHING, record)), min_size=1, max_size=3), st.data())
def test_what_is_no_record_is_refused_or_read_alike_by_fastavro(values: list[bytes], data: st.DataObject) -> None:
    """Messages are cut, and bytes of them changed: a record must not borrow what its neighbour begins with."""
    at = data.draw(st.integers(0, len(values) - 1))
    value = bytearray(values[at])
    if data.draw(st.booleans()):
        del value[data.draw(st.integers(0, len(value) - 1)) :]
    else:
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    changed: list[bytes | None] = [*values]
    changed[at] = bytes(value)
    rows, refused = rows_of(reader(EVERYTHING), changed)
    parsed = fastavro.parse_schema(EVERYTHING)
    expected = []
    for index, each in enumerate(changed):
        if index in refused:
            assert index == at
            continue
        stream = io.BytesIO(each or b"")
        expected.append(fastavro.schemaless_reader(stream, parsed, None))
        assert stream.tell() == len(each or b"")
    assert repr(rows) == repr(expected)


def test_arrays_in_several_blocks_with_sizes_are_read() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "l", "type": {"type": "array", "items": "long"}}]}
    blocks = b"\x04\x02\x04" + b"\x01\x02\x06" + b"\x00"  # two elements; one, with its size in bytes; the end
    rows, refused = rows_of(reader(schema), [blocks, b"\x00", b"\x02\x10\x00"])
    assert not refused and rows == [{"l": [1, 2, 3]}, {"l": []}, {"l": [8]}]


def test_logical_types_are_dates_times_and_decimals() -> None:
    logical = {
        "d": {"type": "int", "logicalType": "date"},
        "tm": {"type": "int", "logicalType": "time-millis"},
        "tu": {"type": "long", "logicalType": "time-micros"},
        "sm": {"type": "long", "logicalType": "timestamp-millis"},
        "su": ["null", {"type": "long", "logicalType": "timestamp-micros"}],
        "dec": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        "fix": {"type": "fixed", "name": "F", "size": 5, "logicalType": "decimal", "precision": 9, "scale": 3},
        "id": {"type": "string", "logicalType": "uuid"},
    }
    schema = {"type": "record", "name": "R", "fields": [{"name": n, "type": t} for n, t in logical.items()]}
    stamp = datetime.datetime(1969, 12, 31, 23, 59, 58, 123_000)
    utc = stamp.replace(tzinfo=datetime.UTC)
    record = {
        "d": stamp.date(), "tm": stamp.time(), "tu": stamp.time(), "sm": utc, "su": utc,
        "dec": Decimal("-1.50"), "fix": Decimal("0.005"), "id": "9f0ee2e2-5c4b-4f6e-8f27-0f9b4a1de0aa",
    }  # fmt: skip
    value = by_fastavro(schema, record)
    rows, refused = rows_of(reader(schema), [value])
    assert not refused and rows == [{**record, "sm": stamp, "su": stamp}]
    batch = decode_all(decoder_of(reader(schema)), [value]).rows
    assert encoder_of(writer(schema), reader(schema).get_produced_type())(batch) == [value]
    late = by_fastavro({**schema, "fields": [{"name": "d", "type": "int"}]}, {"d": 1})
    only = {**schema, "fields": [{"name": "d", "type": {"type": "int", "logicalType": "time-millis"}}]}
    assert rows_of(reader(only), [late])[1] == {}
    assert rows_of(reader(only), [by_fastavro({**only, "fields": [{"name": "d", "type": "int"}]}, {"d": -1})])[1] == {
        0: "field 'd': a time-millis is not within a day"
    }


def test_a_refused_message_says_why() -> None:
    good = by_fastavro(SMALL, {"a": 1, "b": "x"})
    rows, refused = rows_of(reader(SMALL), [good, good[:-1], good + b"\0", b"", None, b"\x02\x02\xff", b"\xff" * 12])
    assert rows == [{"a": 1, "b": "x"}]
    assert refused == {
        1: "field 'b': it is cut off, or of another schema",
        2: "it is cut off, or of another schema: there are bytes behind its last field",
        3: "field 'a': it is cut off, or of another schema",
        5: "field 'b': a string is not UTF-8",
        6: "field 'a': it is cut off, or of another schema: a number is longer than 64 bits",
    }
    with pytest.raises(ValueError, match="field 'b': it is cut off"):
        reader(SMALL).deserialize(good[:-1])
    assert as_dict(reader(SMALL).deserialize(good)) == {"a": 1, "b": "x"}


def test_fields_are_written_by_name_or_position() -> None:
    value = by_fastavro(SMALL, {"a": 7, "b": "x"})
    swapped = Types.ROW_NAMED(["b", "a"], [Types.STRING(), Types.SHORT()])
    batch = pa.RecordBatch.from_arrays(swapped.encode([("x", 7)]), schema=swapped.schema)
    assert encoder_of(writer(SMALL), swapped)(batch) == [value]
    pair = Types.TUPLE([Types.INT(), Types.STRING()])
    batch = pa.RecordBatch.from_arrays(pair.encode([(7, "x")]), schema=pair.schema)
    assert encoder_of(writer(SMALL), pair)(batch) == [value]
    assert writer(SMALL).serialize((7, "x")) == value


def test_what_cannot_be_written_is_named() -> None:
    named = Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.STRING()])
    with pytest.raises(SinkError, match="field 'a' is LONG in the stream, which Avro's type int cannot be"):
        validate(writer(SMALL), named, "the value")
    with pytest.raises(SinkError, match="a row has 1 fields, the Avro record 2"):
        validate(writer(SMALL), Types.ROW_NAMED(["a"], [Types.INT()]), "the value")
    with pytest.raises(SinkError, match="the stream's rows are of no declared type"):
        validate(writer(SMALL), None, "the value")
    with pytest.raises(SinkError, match="field 'b' is null in a row, but Avro's type string is not a union with null"):
        writer(SMALL).serialize((1, None))
    enum = {"type": "record", "name": "R", "fields": [{"name": "c", "type": EVERYTHING["fields"][7]["type"]}]}  # type: ignore[index]
    with pytest.raises(SinkError, match="field 'c' is 'BLUE', which is no symbol of Avro's enum: RED, GREEN"):
        writer(enum).serialize(("BLUE",))


@pytest.mark.parametrize(
    ("schema", "error", "message"),
    [
        ("long", TypeError, "rows of Avro are records"),
        ({"type": "record", "name": "R", "fields": []}, TypeError, "a record without fields"),
        (
            {"type": "record", "name": "R", "fields": [{"name": "x", "type": ["int", "string"]}]},
            TypeError,
            "field 'x' is a union of int, string: only unions of null",
        ),
        (
            {"type": "record", "name": "R", "fields": [{"name": "x", "type": ["null", "R"]}]},
            TypeError,
            "field 'x' is a record 'R' inside of itself",
        ),
        ({"type": "record", "name": "R", "fields": [{"name": "x", "type": "null"}]}, TypeError, "field 'x'.*'null'"),
        (
            {"type": "record", "name": "R", "fields": [{"name": "x", "type": "lang"}]},
            ValueError,
            "no Avro schema.*lang",
        ),
    ],
)
def test_a_schema_that_is_no_row_is_refused_when_it_is_built(schema: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        reader(schema)


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TypeError, match="avro_schema_string"):
        AvroRowDeserializationSchema()
    with pytest.raises(TypeError, match="class of Java"):
        AvroRowSerializationSchema(record_class="org.example.Order")
    with pytest.raises(ValueError, match="no Avro schema.*It begins: '{'"):
        AvroRowDeserializationSchema(avro_schema_string="{")
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(ImportError, match=r"Avro's library is not installed .*pip install 'penstock\[avro\]'"):
        reader(SMALL)
