"""Tests Avro with the framing of a schema registry, against a real HTTP server that speaks its requests."""

from __future__ import annotations

import io
import json
import pickle
import threading
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Types
from penstock.connectors.formats.avro import schema_registry
from penstock.connectors.formats.avro.avro_types import AvroSchema
from penstock.connectors.formats.avro.schema_registry import RegistryError, RegistrySettings, SchemaRegistry
from penstock.connectors.messages.decoding import decode_all, decoder_of
from penstock.connectors.messages.encoding import encoder_of, validate
from penstock.datastream.connectors.base import SinkError, SourceError
from penstock.datastream.formats.avro import (
    ConfluentRegistryAvroDeserializationSchema,
    ConfluentRegistryAvroSerializationSchema,
)
from tools.schema_registry import RegistryServer

ROW = Types.ROW_NAMED(["id", "item"], [Types.LONG(), Types.STRING()])
FAST = {"retries.wait.ms": "1", "retries.max.wait.ms": "2"}


def record(*fields: Any, name: str = "Order") -> str:
    return json.dumps({"type": "record", "name": name, "fields": [{"name": n, "type": t, **m} for n, t, m in fields]})


ORDER = record(("id", "long", {}), ("item", ["null", "string"], {}))


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with RegistryServer() as server:
        yield server


def framed(registry: RegistryServer, schema: str, value: dict[str, Any]) -> bytes:
    schema_id = registry.register("orders-value", {"schema": schema})
    out = io.BytesIO()
    out.write(b"\0" + schema_id.to_bytes(4, "big"))
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(schema)), value)
    return out.getvalue()


def reader(url: str, schema: str = ORDER, **configs: str) -> ConfluentRegistryAvroDeserializationSchema:
    found = ConfluentRegistryAvroDeserializationSchema.for_generic(schema, url, {**FAST, **configs})
    return pickle.loads(pickle.dumps(found))  # type: ignore[no-any-return]


def writer(url: str, **configs: str) -> ConfluentRegistryAvroSerializationSchema:
    found = ConfluentRegistryAvroSerializationSchema.for_generic("orders-value", ORDER, url, {**FAST, **configs})
    return pickle.loads(pickle.dumps(found))  # type: ignore[no-any-return]


def rows_of(schema: Any, values: list[bytes | None]) -> tuple[list[Any], dict[int, str]]:
    decoded = decode_all(decoder_of(schema), values)
    return [row.to_tuple() for row in schema.get_produced_type().decode(decoded.rows)], decoded.refused


def test_schemas_are_asked_for_once_and_older_ones_are_read_by_avros_rules(registry: RegistryServer) -> None:
    old = record(("item", "string", {}), ("id", "int", {}), ("gone", "double", {}))
    new = record(("id", "long", {}), ("item", ["null", "string"], {"default": None}), ("count", "int", {"default": 7}))
    values: list[bytes | None] = []
    for number in range(6):
        if number % 3 == 2:
            values.append(framed(registry, old, {"id": number, "item": f"old {number}", "gone": 0.5}))
        else:
            values.append(framed(registry, ORDER, {"id": number, "item": f"row {number}"}))
    expected = [(n, f"{'old' if n % 3 == 2 else 'row'} {n}") for n in range(6)]
    assert rows_of(reader(registry.url), values) == (expected, {})
    assert registry.requests == ["GET /schemas/ids/1", "GET /schemas/ids/2"]
    assert rows_of(reader(registry.url, new), values) == ([(*row, 7) for row in expected], {})
    schema = reader(registry.url)
    assert schema.deserialize(values[0] or b"").to_tuple() == (0, "row 0")


def test_what_is_written_is_read_by_others_and_registered_once(registry: RegistryServer) -> None:
    rows = [(1, "a"), (2, None)]
    batch = pa.RecordBatch.from_arrays(ROW.encode(rows), schema=ROW.schema)
    schema = writer(registry.url)
    validate(schema, ROW, "the value")
    encode = encoder_of(schema, ROW)
    values = encode(batch)
    assert encode(batch) == values and registry.requests == ["POST /subjects/orders-value/versions"]
    parsed = fastavro.parse_schema(json.loads(registry.schemas[1]["schema"]))
    for value, row in zip(values, rows, strict=True):
        assert value is not None and value[:5] == b"\0\0\0\0\x01"
        assert fastavro.schemaless_reader(io.BytesIO(value[5:]), parsed, None) == {"id": row[0], "item": row[1]}
    assert rows_of(reader(registry.url), values) == (rows, {})
    known = writer(registry.url, **{"auto.register.schemas": "false"})
    assert known.serialize((1, "a")) == values[0] and registry.requests[-1] == "POST /subjects/orders-value"
    with pytest.raises(SinkError, match="field 'id' is STRING in the stream"):
        validate(schema, Types.ROW_NAMED(["id", "item"], [Types.STRING(), Types.STRING()]), "the value")


def test_a_schema_that_must_be_registered_already_is_refused_if_it_is_not(registry: RegistryServer) -> None:
    known = writer(registry.url, **{"auto.register.schemas": "false"})
    with pytest.raises(
        SinkError, match=r"refused to find the schema of subject 'orders-value': 404 .*Schema not found"
    ):
        validate(known, ROW, "the value")


def test_schemas_may_refer_to_others(registry: RegistryServer) -> None:
    item = record(("name", "string", {}), name="Item")
    whole = record(("id", "long", {}), ("item", "Item", {}))
    registry.register("item", {"schema": item})
    references = [{"name": "Item", "subject": "item", "version": 1}]
    schema_id = registry.register("orders-value", {"schema": whole, "references": references})
    value = b"\0" + schema_id.to_bytes(4, "big") + b"\x02\x02x"
    ours = record(("id", "long", {}), ("item", json.loads(item), {}))
    rows, refused = rows_of(reader(registry.url, ours), [value])
    assert not refused and rows[0][0] == 1 and rows[0][1].name == "x"


def test_a_bad_record_is_found_by_itself(registry: RegistryServer) -> None:
    good = framed(registry, ORDER, {"id": 1, "item": "a"})
    text_id = registry.register("text-value", {"schema": "{}", "schemaType": "JSON"})
    other = framed(registry, record(("text", "string", {}), name="Order"), {"text": "x"})
    values: list[bytes | None] = [
        good, b"\x01" + good[1:], good[:3], good[:-1], b"\0\0\0\0\x63x", b"\0" + text_id.to_bytes(4, "big"), other,
        None, good + b"\0", good, b"\0\0\0\0\x63y",
    ]  # fmt: skip
    rows, refused = rows_of(reader(registry.url), values)
    assert rows == [(1, "a"), (1, "a")]
    assert {index: reason.partition(":")[0] for index, reason in refused.items() if index not in (4, 10)} == {
        1: "it does not begin with a zero byte and the id of a schema, as of a schema registry",
        2: "it does not begin with a zero byte and the id of a schema, as of a schema registry",
        3: "field 'item'",
        5: "schema 2 of the registry is of JSON, not of Avro",
        6: "it is cut off, or a record of schema 3 of the registry is none of the source's",
        8: "it is cut off, or of another schema",
    }
    assert refused[4] == refused[10] == f"the schema registry at {registry.url} has no schema 99"
    assert registry.requests.count("GET /schemas/ids/99") == 1, "what is unknown is not asked for by each record"


# ---- faults ---------------------------------------------------------------------------------------------------------


def test_a_registry_that_fails_for_a_while_is_asked_again(registry: RegistryServer) -> None:
    value = framed(registry, ORDER, {"id": 1, "item": "a"})
    registry.failures = [(500, {"error_code": 50002, "message": "leader is away"}), (200, b"<html>"), (429, {})]
    assert rows_of(reader(registry.url), [value]) == ([(1, "a")], {})
    assert len(registry.requests) == 4


def test_a_registry_that_is_down_is_named_and_comes_back(registry: RegistryServer) -> None:
    value = framed(registry, ORDER, {"id": 1, "item": "a"})
    schema = reader(registry.url, **{"max.retries": "1"})
    decoder = decoder_of(schema)
    registry.stop()
    expected = rf"the schema registry at {registry.url} did not return schema 1, tried 2 times: .*refused.*max.retries"
    with pytest.raises(SourceError, match=expected):
        decode_all(decoder, [value])
    with pytest.raises(SourceError, match="did not answer, tried 2 times"):
        decoder.check()
    with pytest.raises(SinkError, match="did not register a schema for subject 'orders-value'"):
        validate(writer(registry.url), ROW, "the value")
    registry.start()
    decoder.check()
    assert decode_all(decoder, [value]).rows.num_rows == 1


def test_the_next_address_is_asked_where_one_is_down(registry: RegistryServer) -> None:
    value = framed(registry, ORDER, {"id": 1, "item": "a"})
    schema = reader(f"http://127.0.0.1:1, {registry.url}/", **{"max.retries": "0"})
    assert rows_of(schema, [value]) == ([(1, "a")], {})


def test_a_registry_that_does_not_answer_is_not_waited_for_without_end(registry: RegistryServer) -> None:
    never = threading.Event()
    registry.failures = [lambda: (200, {}) if never.wait(30) else (500, {})]
    schema = reader(registry.url, **{"max.retries": "0", "http.read.timeout.ms": "100"})
    with pytest.raises(SourceError, match="did not answer, tried 1 times: timed out"):
        decoder_of(schema).check()
    never.set()


def test_users_are_authenticated_and_their_passwords_never_shown(registry: RegistryServer) -> None:
    registry.user = "ann:s3cret"
    value = framed(registry, ORDER, {"id": 1, "item": "a"})
    address = registry.url.removeprefix("http://")
    for schema in (
        reader(registry.url, **{"basic.auth.credentials.source": "USER_INFO", "basic.auth.user.info": "ann:s3cret"}),
        reader(registry.url, **{"schema.registry.basic.auth.user.info": "ann:s3cret"}),
        reader(f"http://ann:s3cret@{address}"),
    ):
        assert rows_of(schema, [value]) == ([(1, "a")], {})
        assert "s3cret" not in repr(schema._settings) and "s3cret" not in schema._settings.name
    wrong = decoder_of(reader(f"http://ann:s4cret@{address}"))
    before = len(registry.requests)
    with pytest.raises(
        RegistryError, match=r"refused to answer: 401 .*Unauthorized. Check basic.auth.user.info"
    ) as told:
        wrong.check()
    assert "s4cret" not in str(told.value) and len(registry.requests) == before + 1, "a refusal is not asked again"
    token = reader(registry.url, **{"bearer.auth.token": "t0ken"})
    assert token._settings.headers()["Authorization"] == "Bearer t0ken"


def test_credentials_follow_no_redirect(registry: RegistryServer) -> None:
    with RegistryServer() as other:
        registry.failures = [(302, {"message": f"{other.url}/schemas/types"})]
        with pytest.raises(RegistryError, match="302"):
            decoder_of(reader(registry.url, **{"basic.auth.user.info": "ann:s3cret"})).check()
        assert other.requests == []


@pytest.mark.parametrize(
    ("url", "configs", "message"),
    [
        ("localhost:8081", {}, "is at http://host:port"),
        ("http://r", {"schema.registry.ssl.truststore.location": "x"}, "'ssl.truststore.location' .* not known"),
        ("http://r", {"max.retries": "many"}, "'max.retries' .* whole number"),
    ],
)
def test_settings_that_mean_nothing_are_refused(url: str, configs: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RegistrySettings.of(url, configs)


def test_files_of_keys_that_are_not_there_are_named(registry: RegistryServer) -> None:
    settings = RegistrySettings.of(registry.url, {"ssl.ca.location": "/nowhere/ca.pem"})
    with pytest.raises(RegistryError, match=r"files of ssl.\* .* cannot be read"):
        SchemaRegistry(settings).check()


def test_an_unknown_schema_is_asked_for_again_later(registry: RegistryServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_registry, "UNKNOWN_FOR_S", 0.0)
    decoder = decoder_of(reader(registry.url))
    assert list(decode_all(decoder, [b"\0\0\0\0\x01\x02\x00"]).refused) == [0]
    framed(registry, ORDER, {"id": 1, "item": None})
    assert decode_all(decoder, [b"\0\0\0\0\x01\x02\x00"]).rows.num_rows == 1


# ---- fields that a schema has and its older records have not --------------------------------------------------------

PRIMITIVES: list[tuple[Any, Any]] = [
    ("boolean", True), ("int", -7), ("long", 1 << 40), ("float", 1.5), ("double", 2), ("string", "\u00e9"),
    ("bytes", "\u0000\u00ff"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}, "\u00ff\u0038"),
    (
        {"type": "fixed", "name": "Amount", "size": 4, "logicalType": "decimal", "precision": 9, "scale": 3},
        "\0\0\u0001\u00f4",
    ),
    ({"type": "fixed", "name": "Hash", "size": 2}, "\u00c3\u00a9"),
    ({"type": "fixed", "name": "Span", "size": 12, "logicalType": "duration"}, "\0" * 11 + "\u0080"),
    ({"type": "string", "logicalType": "uuid"}, "6ba7b810-9dad-11d1-80b4-00c04fd430c8"),
    ({"type": "int", "logicalType": "date"}, 19000),
    ({"type": "int", "logicalType": "time-millis"}, 1000),
    ({"type": "long", "logicalType": "time-micros"}, 1001),
    ({"type": "long", "logicalType": "timestamp-millis"}, 1_600_000_000_001),
    ({"type": "long", "logicalType": "timestamp-micros"}, -1),
    ({"type": "long", "logicalType": "timestamp-nanos"}, 1_600_000_000_000_000_001),
    ({"type": "long", "logicalType": "local-timestamp-millis"}, 5),
    ({"type": "long", "logicalType": "local-timestamp-micros"}, 6),
    ({"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}, "BLUE"),
]  # fmt: skip
"""Types of Avro's specification, each with a default as JSON has it."""


def nested(inner: st.SearchStrategy[tuple[Any, Any]]) -> st.SearchStrategy[tuple[Any, Any]]:
    def record_of(pair: tuple[Any, Any]) -> list[tuple[Any, Any]]:
        fields = [{"name": "x", "type": pair[0], "default": pair[1]}, {"name": "y", "type": ["null", "long"]}]
        whole = {"type": "record", "name": f"R{abs(hash(json.dumps(pair))) % 10**9}", "fields": fields}
        return [(whole, {"x": pair[1], "y": None}), (whole, {"y": None})]

    return st.one_of(
        inner.map(lambda p: ({"type": "array", "items": p[0]}, [p[1], p[1]])),
        inner.map(lambda p: ({"type": "map", "values": p[0]}, {"k": p[1]})),
        inner.map(lambda p: (p[0] if isinstance(p[0], list) else ["null", p[0]], None)).filter(
            lambda p: "null" in p[0]
        ),
        inner.map(lambda p: p if isinstance(p[0], list) else ([p[0], "null"], p[1])),
        inner.flatmap(lambda p: st.sampled_from(record_of(p))),
    )


@given(st.recursive(st.sampled_from(PRIMITIVES), nested, max_leaves=3))
@settings(max_examples=150, deadline=None)
def test_an_added_field_of_any_type_has_its_default_in_older_records(added: tuple[Any, Any]) -> None:
    """The oracle: a record of the new schema in which the default is written, as fastavro writes it."""
    kind, default = added
    old, new = record(("id", "long", {})), record(("id", "long", {}), ("added", kind, {"default": default}))
    with RegistryServer() as registry:
        older = framed(registry, old, {"id": 1})
        schema_id = registry.register("orders-value", {"schema": new})
        out = io.BytesIO()
        physical = AvroSchema(new).physical
        fastavro.schemaless_writer(out, physical, {"id": 1, "added": physical["fields"][1]["default"]})
        newer = b"\0" + schema_id.to_bytes(4, "big") + out.getvalue()
        rows, refused = rows_of(reader(registry.url, new), [older, newer])
    assert not refused and len(rows) == 2 and rows[0] == rows[1]
    if not isinstance(kind, str) and kind == PRIMITIVES[7][0]:
        assert rows[0][1] == Decimal("-2.00")


@pytest.mark.parametrize(
    ("written", "ours"),
    [
        ({"type": "long", "logicalType": "timestamp-millis"}, {"type": "long", "logicalType": "timestamp-micros"}),
        ({"type": "int", "logicalType": "time-millis"}, {"type": "long", "logicalType": "time-micros"}),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 4},
        ),
    ],
)
def test_numbers_of_another_unit_or_scale_are_refused(registry: RegistryServer, written: Any, ours: Any) -> None:
    """By Avro's rules they are read as if they were of ours: another time, another amount."""
    value = framed(registry, record(("at", json.loads(json.dumps(written)), {})), {"at": _raw(written)})
    rows, refused = rows_of(reader(registry.url, record(("at", ours, {}))), [value])
    assert not rows and "field 'at' was written as" in refused[0]


def _raw(kind: Any) -> Any:
    return Decimal("1.50") if kind["type"] == "bytes" else 1000
