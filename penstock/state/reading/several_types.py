"""Reads a state that one checkpoint holds in several types: some subtasks have not asked for it since it changed."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pyarrow as pa

from penstock.common.row_types.type_evolution import IncompatibleType, evolution
from penstock.common.row_types.type_texts import parse_type
from penstock.protocol.values.metadata import StateSchema
from penstock.state.backend import StateError, StateSchemaError
from penstock.state.codecs import declared_by
from penstock.state.evolution import evolution_of


def common_schema(schemas: Sequence[StateSchema]) -> StateSchema:
    """Return the schema of a state that several subtasks have declared: with a time to live if it has one in any of
    them, and of the type that all others become by a restore. If there is none, it is the first one's.
    """
    codecs = list(dict.fromkeys(schema.codec for schema in schemas))
    codec = next((each for each in codecs if all(_becomes(other, each) for other in codecs)), codecs[0])
    return msgspec.structs.replace(schemas[0], codec=codec, expires=any(schema.expires for schema in schemas))


def _becomes(stored: str, declared: str) -> bool:
    if stored == declared:
        return True
    before, now = parse_type(stored), parse_type(declared)
    if before is None or now is None:
        return False
    try:
        evolution(before, now)
    except IncompatibleType:
        return False
    return True


def in_schema(batch: pa.RecordBatch, schema: StateSchema, described: str) -> pa.RecordBatch:
    """Return a stored batch in the type of the schema. Raises `StateError` if it does not become that."""
    stored = declared_by(batch.schema)
    if stored in ("", f"{schema.kind} {schema.codec}"):
        return batch
    kind, _, codec = stored.partition(" ")
    told = f"{described} is stored in several types: {schema.kind} state of {schema.codec}, and {kind} state of {codec}"
    way_out = (
        "read it in the type of your program (SavepointReader.read_keyed_state), or start the job, which converts it, "
        "and take a savepoint"
    )
    declared = parse_type(schema.codec)
    if kind != schema.kind or declared is None:
        raise StateError(f"{told}; {way_out}")
    try:
        return evolution_of(told, codec, declared).converted(batch)
    except StateSchemaError as error:
        raise StateError(f"{error}; {way_out}") from None
