"""Tests messages in columns: what is decoded whole is what is decoded one by one."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import ByteArraySchema, DeserializationSchema, SimpleStringSchema, Types
from penstock.common.row_types.type_information import TypeInformation
from penstock.connectors.messages.decoding import decode_all, decoder_of
from penstock.connectors.messages.encoding import encoder_of, validate
from penstock.datastream.connectors.base import SinkError
from penstock.datastream.formats.json import JsonRowDeserializationSchema, JsonRowSerializationSchema

ORDER = Types.ROW_NAMED(["id", "item"], [Types.LONG(), Types.STRING()])
JSON = JsonRowDeserializationSchema.builder().type_info(ORDER)


class Doubled(DeserializationSchema):
    """A user's schema, which refuses what is no number."""

    def deserialize(self, message: bytes) -> Any:
        return 2 * int(message)

    def get_produced_type(self) -> TypeInformation:
        return Types.LONG()


def rows_of(schema: DeserializationSchema, values: list[bytes | None]) -> tuple[list[Any], dict[int, str]]:
    decoder = decoder_of(schema)
    decoded = decode_all(decoder, values)
    assert len(decoded.taken) == decoded.rows.num_rows
    assert decoder.produced_type is not None
    return decoder.produced_type.decode(decoded.rows), decoded.refused


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(st.integers(-9, 99).map(lambda n: str(n).encode()), st.sampled_from([b"x", b"", None])), max_size=20
    )
)
def test_what_cannot_be_decoded_is_found_among_the_rest(values: list[bytes | None]) -> None:
    rows, refused = rows_of(Doubled(), values)
    good = [int(v) for v in values if v is not None and v not in (b"x", b"")]
    assert rows == [2 * n for n in good]
    assert sorted(refused) == [at for at, value in enumerate(values) if value in (b"x", b"")]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(-(2**40), 2**40), st.text(max_size=5)), max_size=12), st.sampled_from([None, 1]))
def test_json_rows_are_read_as_they_are_written(rows: list[tuple[int, str]], indent: int | None) -> None:
    values: list[bytes | None] = [json.dumps({"id": n, "item": t}, indent=indent).encode() for n, t in rows]
    found, refused = rows_of(JSON.build(), values)
    assert not refused and [(row.id, row.item) for row in found] == rows
    batch = pa.RecordBatch.from_arrays(ORDER.encode(rows), schema=ORDER.schema)
    written = encoder_of(JsonRowSerializationSchema.builder().build(), ORDER)(batch)
    assert [tuple(json.loads(text or b"").values()) for text in written] == rows


def test_a_line_feed_inside_a_string_is_refused_and_one_outside_is_white_space() -> None:
    rows, refused = rows_of(JSON.build(), [b'{"id":\n1}', b'{"id": 2, "item": "a\nb"}', b'{"id": 3}'])
    assert [row.id for row in rows] == [1, 3] and list(refused) == [1]


def test_missing_fields_are_null_or_refused() -> None:
    values: list[bytes | None] = [b'{"id": 1}', b'{"id": null, "item": null}']
    assert [(r.id, r.item) for r in rows_of(JSON.build(), values)[0]] == [(1, None), (None, None)]
    strict = JsonRowDeserializationSchema.builder().type_info(ORDER).fail_on_missing_field().build()
    rows, refused = rows_of(strict, values)
    assert len(rows) == 1 and refused == {0: "it has no field 'item'"}


def test_text_that_is_no_utf8_is_refused_and_other_charsets_are_read() -> None:
    rows, refused = rows_of(SimpleStringSchema(), ["ü".encode(), b"\xff", None])
    assert rows == ["ü", None] and refused == {1: "it is not UTF-8"}
    assert rows_of(SimpleStringSchema("latin-1"), [b"\xff"])[0] == ["ÿ"]
    assert rows_of(ByteArraySchema(), [b"\xff", None])[0] == [b"\xff", None]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda b: b.build(), "type_info"),
        (lambda b: b.type_info(Types.STRING()).build(), "ROW_NAMED"),
        (lambda b: b.type_info(ORDER).fail_on_missing_field().ignore_parse_errors().build(), "exclude each other"),
        (lambda b: b.type_info(Types.ROW_NAMED(["a"], [Types.PICKLED_BYTE_ARRAY()])).build(), "field 'a'"),
    ],
)
def test_schemas_of_json_rows_that_cannot_be(build: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        build(JsonRowDeserializationSchema.builder())


def test_single_messages_by_hand() -> None:
    schema = JSON.build()
    assert schema.deserialize(b'{"id": 7, "item": "x"}').item == "x"
    with pytest.raises(ValueError, match="field 'id'"):
        schema.deserialize(b'{"id": "seven"}')
    written = JsonRowSerializationSchema.builder().with_type_info(ORDER).build().serialize((7, "x"))
    assert json.loads(written) == {"id": 7, "item": "x"}


def test_a_serializer_of_another_type_is_refused_by_name() -> None:
    with pytest.raises(SinkError, match="the value is written by SimpleStringSchema"):
        validate(SimpleStringSchema(), Types.LONG(), "the value")
    with pytest.raises(SinkError, match="the key is written by ByteArraySchema"):
        validate(ByteArraySchema(), Types.STRING(), "the key")
    with pytest.raises(SinkError, match="without a declared type"):
        validate(JsonRowSerializationSchema.builder().build(), None, "the value")
