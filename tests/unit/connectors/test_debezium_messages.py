"""Change events of Debezium: their rows have kinds, and a bad event is found by itself."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.common import RowKind, Types
from penstock.connectors.messages.decoding import decode_all, decoder_of
from penstock.connectors.messages.encoding import validate
from penstock.datastream.connectors.base import SinkError
from penstock.datastream.formats.json import DebeziumJsonDeserializationSchema, JsonRowSerializationSchema

PRODUCT = Types.ROW_NAMED(["id", "name", "weight"], [Types.INT(), Types.STRING(), Types.DOUBLE()])
SCHEMA = DebeziumJsonDeserializationSchema.builder().type_info(PRODUCT)


def product(number: int, weight: float) -> dict[str, Any]:
    return {"id": number, "name": f"p{number}", "weight": weight}


def event(op: str | None, before: Any, after: Any, indent: int | None = None) -> bytes:
    source = {"connector": "postgresql", "db": "shop", "table": "product", "lsn": 33}
    found = {"before": before, "after": after, "source": source, "op": op, "ts_ms": 1589362330904, "transaction": None}
    return json.dumps(found, indent=indent).encode()


def changes_of(values: list[bytes | None], schema: Any = None) -> tuple[list[tuple[str, int, float]], list[int], Any]:
    schema = schema or SCHEMA.build()
    decoded = decode_all(decoder_of(schema), values)
    rows = schema.get_produced_type().decode(decoded.rows)
    return [(str(row.get_row_kind()), row.id, row.weight) for row in rows], list(decoded.taken), decoded.refused


def test_events_become_rows_of_their_kinds() -> None:
    values: list[bytes | None] = [
        event("r", None, product(1, 0.5)),
        event("c", None, product(2, 1.5)),
        event("u", product(1, 0.5), product(1, 0.75), indent=1),
        event("d", product(2, 1.5), None),
        None,
        event("u", product(1, 0.75), product(1, 0.25)),
    ]
    expected = [
        ("+I", 1, 0.5), ("+I", 2, 1.5), ("-U", 1, 0.5), ("+U", 1, 0.75), ("-D", 2, 1.5), ("-U", 1, 0.75),
        ("+U", 1, 0.25),
    ]  # fmt: skip
    assert changes_of(values) == (expected, [0, 1, 2, 2, 3, 5, 5], {})
    assert changes_of([]) == ([], [], {})
    update = SCHEMA.build().deserialize(values[2] or b"")
    assert [row.get_row_kind() for row in update] == [RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER]


def test_events_with_their_schema_are_read_from_the_payload() -> None:
    wrapped = b'{"schema": {"type": "struct", "fields": []}, "payload": %s}' % event("c", None, product(7, 2.0))
    with_schema = DebeziumJsonDeserializationSchema.builder().type_info(PRODUCT).schema_include().build()
    assert changes_of([wrapped], with_schema) == ([("+I", 7, 2.0)], [0], {})
    assert changes_of([wrapped])[2] == {0: "it is no change event: it has no op"}


def test_a_bad_event_is_found_by_itself() -> None:
    good = event("c", None, product(1, 0.5))
    values: list[bytes | None] = [
        good, event("u", None, product(1, 1.0)), event("d", None, None), event("t", None, None), b"{}", b"[", good,
        event("c", None, None), event("c", None, {"id": "x"}), None, event("u", product(1, 0.5), product(1, 1.0)),
    ]  # fmt: skip
    rows, taken, refused = changes_of(values)
    assert rows == [("+I", 1, 0.5), ("+I", 1, 0.5), ("-U", 1, 0.5), ("+U", 1, 1.0)] and taken == [0, 6, 10, 10]
    assert list(refused) == [1, 2, 3, 4, 5, 7, 8]
    assert "REPLICA IDENTITY FULL" in refused[1] and "REPLICA IDENTITY FULL" in refused[2]
    assert refused[3] == "its op is 't'" and refused[4] == "it is no change event: it has no op"
    assert refused[7] == "it has no after"
    skipping = DebeziumJsonDeserializationSchema.builder().type_info(PRODUCT).ignore_parse_errors().build()
    assert decoder_of(skipping).skips_refused


def test_types_that_are_none_are_refused_when_it_is_built() -> None:
    with pytest.raises(TypeError, match="type_info"):
        DebeziumJsonDeserializationSchema.builder().build()
    with pytest.raises(TypeError, match="field 'before.x'"):
        row_type = Types.ROW_NAMED(["x"], [Types.PICKLED_BYTE_ARRAY()])
        DebeziumJsonDeserializationSchema.builder().type_info(row_type).build()


def test_a_writer_that_knows_no_kinds_refuses_changes() -> None:
    with pytest.raises(SinkError, match="CHANGES OF ROW"):
        validate(JsonRowSerializationSchema.builder().build(), SCHEMA.build().get_produced_type(), "the value")
