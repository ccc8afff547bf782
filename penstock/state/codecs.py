"""Encodes entries of a state as Arrow batches.

A batch has the columns of the values' type, the keys in their canonical encoding, and the key groups, so that a restore
at another parallelism takes its share without decoding the rest. A run of batches is one Arrow IPC stream, whose schema
has metadata that says how the state was declared.
"""

from __future__ import annotations

import copy
import pickle
import re
import struct
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.row_types.composite_types import ListType, MapType
from penstock.common.row_types.scalar_types import PICKLED
from penstock.common.typeinfo import KEY_COLUMN, KEY_GROUP_COLUMN, TypeInformation
from penstock.protocol.values.key_encoding import UnsupportedKey, encode
from penstock.protocol.values.keys import KeyDecoder
from penstock.protocol.values.metadata import StateSchema
from penstock.state.backend import StateError
from penstock.state.ttl import StampedType, TimeToLive
from penstock.state.unpickling import decoded

_STRING_HEADER = struct.Struct("<cI")
_SCHEMA_METADATA = b"penstock.state"
_DELETED_METADATA = b"penstock.state.deleted"
_DEFAULT_OPTIONS = pa.ipc.IpcWriteOptions()
"""Passed, because without any pyarrow looks into the process's environment for them, for each stream."""

_END_OF_STREAM_BYTES = 8

Entry = tuple[Any, int, Any]
"""(key, key group, value)"""


@dataclass(frozen=True)
class StateCodec:
    """Describes the stored and the in-memory form of a state's values. `copy_value`: see `StateTable`; None if values
    cannot change. `changeable`: whether the user can change what a handle returns. `ttl`: when entries expire; None:
    never.
    """

    kind: str
    type: TypeInformation
    copy_value: Callable[[Any], Any] | None
    changeable: bool
    ttl: TimeToLive | None = None

    @cached_property
    def stored_type(self) -> TypeInformation:
        """Return the type of stored entries: values, or values with the times of their last use."""
        return self.type if self.ttl is None else StampedType(self.type, self.kind)

    @property
    def name(self) -> str:
        return self.type.text


def codec_of(descriptor: Any) -> StateCodec:
    """Return the codec of a descriptor of `penstock.datastream.state`. A type of None means pickles."""
    kind = descriptor.kind
    value_type = descriptor.type_info or PICKLED
    changeable = value_type.freeze is not None
    ttl = TimeToLive.of(descriptor.ttl_config)
    if kind == "list":
        return StateCodec(kind, ListType(value_type), independent if changeable else list, changeable, ttl)
    if kind == "map":
        map_type = MapType(descriptor.key_type_info or PICKLED, value_type)
        return StateCodec(kind, map_type, independent if changeable else dict, changeable, ttl)
    if kind in ("value", "reducing", "aggregating"):
        return StateCodec(kind, value_type, independent if changeable else None, changeable, ttl)
    raise StateError(f"state '{descriptor.name}' is of an unknown kind: {kind!r}")


def stream_schema(schema: StateSchema, type: TypeInformation) -> pa.Schema:
    fields = [*type.schema, pa.field(KEY_COLUMN, pa.binary()), pa.field(KEY_GROUP_COLUMN, pa.uint16())]
    return pa.schema(fields, metadata=declared_metadata(schema))


def deleted_schema(schema: StateSchema) -> pa.Schema:
    """Return the schema of a run of keys that have no entry any more."""
    fields = [pa.field(KEY_COLUMN, pa.binary()), pa.field(KEY_GROUP_COLUMN, pa.uint16())]
    return pa.schema(fields, metadata=deleted_metadata(schema))


def declared_metadata(schema: StateSchema) -> dict[bytes, bytes]:
    """Return the metadata that `read_stream` returns as `declared`."""
    return {_SCHEMA_METADATA: f"{schema.kind} {schema.codec}".encode()}


def deleted_metadata(schema: StateSchema) -> dict[bytes, bytes]:
    """Return the metadata of a run of deleted keys."""
    return {**declared_metadata(schema), _DELETED_METADATA: b"1"}


def encode_batch(
    codec: StateCodec, schema: pa.Schema, keys: list[Any], key_groups: np.ndarray[Any, Any], values: list[Any]
) -> pa.RecordBatch:
    """Encode entries. `key_groups`: the key groups of the keys, as uint16; the batch keeps the array, so it must not
    change. Raises `RowTypeError` for a value that does not fit, `UnsupportedKey` for a key.
    """
    groups = pa.Array.from_buffers(pa.uint16(), len(key_groups), [None, pa.py_buffer(key_groups)])
    arrays = [*codec.stored_type.encode(values), encode_keys(keys), groups]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def encode_keys(keys: list[Any]) -> pa.Array:
    """Return each key's `keys.encode` as a binary column; integers and strings take a shortcut."""
    kinds = set(map(type, keys))
    if kinds == {int}:
        try:
            return _encoded_integers(np.array(keys, dtype="<i8"))
        except OverflowError:
            pass  # some need more than 64 bits
    if kinds == {str}:
        pack, data = _STRING_HEADER.pack, []
        for key in keys:
            text = key.encode("utf-8", "surrogatepass")
            data.append(pack(b"s", len(text)) + text)
        return pa.array(data, pa.binary())
    return pa.array(list(map(encode, keys)), pa.binary())


def _encoded_integers(keys: np.ndarray[Any, Any]) -> pa.Array:
    width = 9
    data = np.empty((len(keys), width), dtype=np.uint8)
    data[:, 0] = ord("i")
    data[:, 1:] = keys.view(np.uint8).reshape(-1, 8)
    offsets = np.arange(0, (len(keys) + 1) * width, width, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), len(keys), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def described_failure(error: Exception, described: str, keys: list[Any]) -> StateError:
    """Return the user's error for a batch that cannot be encoded: the state, the key, and why."""
    index = getattr(error, "row_index", None)
    key = f" of key {keys[index]!r:.80}" if index is not None and not isinstance(error, UnsupportedKey) else ""
    told = re.sub(r"^row [0-9]+", "its value", str(error))
    return StateError(f"{described}: an entry{key} cannot be written: {told}")


def write_stream(schema: pa.Schema, batches: Sequence[pa.RecordBatch]) -> memoryview:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=_DEFAULT_OPTIONS) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return memoryview(sink.getvalue()).cast("B")


class StreamMemory:
    """Encodes streams of entries in the same memory, one after the other: getting new memory from the system costs more
    than filling it.
    """

    def __init__(self) -> None:
        self._memory = np.empty(0, np.uint8)

    def write(self, schema: pa.Schema, batches: Sequence[pa.RecordBatch]) -> memoryview:
        """Return a stream, which is valid until the next call."""
        size_bytes = schema.serialize().size + sum(map(pa.ipc.get_record_batch_size, batches)) + _END_OF_STREAM_BYTES
        if len(self._memory) < size_bytes:
            self._memory = np.empty(size_bytes, np.uint8)
        sink = pa.FixedSizeBufferWriter(pa.py_buffer(self._memory))
        with pa.ipc.new_stream(sink, schema, options=_DEFAULT_OPTIONS) as writer:
            for batch in batches:
                writer.write_batch(batch)
        return self._memory.data[: sink.tell()]


@dataclass(frozen=True)
class RestoredRun:
    """Holds the entries of one stored stream for the requested key groups. `declared`: "<kind> <codec>". Runs of one
    state follow each other in time: a later one overrides an earlier one. If `deletes`, the run has only the keys of
    entries that earlier runs may have, and that are gone.
    """

    declared: str
    schema: pa.Schema
    batches: Sequence[pa.RecordBatch]
    deletes: bool = False


def read_stream(data: bytes, key_groups: range) -> RestoredRun:
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        schema = reader.schema
        batches = [kept for batch in reader if (kept := _of_key_groups(batch, key_groups)).num_rows]
    return RestoredRun(declared_by(schema), schema, batches, _DELETED_METADATA in (schema.metadata or {}))


def declared_by(schema: pa.Schema) -> str:
    """Return the declaration of the state of a stored batch: "<kind> <codec>"; "" if it does not say."""
    stored: bytes = (schema.metadata or {}).get(_SCHEMA_METADATA, b"")
    return stored.decode()


def _of_key_groups(batch: pa.RecordBatch, key_groups: range) -> pa.RecordBatch:
    groups = batch.column(KEY_GROUP_COLUMN)
    least, most = pc.min(groups).as_py(), pc.max(groups).as_py()
    if least is None or (least in key_groups and most in key_groups):
        return batch
    numbers = groups.to_numpy()
    return batch.filter(pa.array((numbers >= key_groups.start) & (numbers < key_groups.stop)))


def decode_keys(batch: pa.RecordBatch, decoder: KeyDecoder) -> Iterator[tuple[Any, int]]:
    """Return (key, key group) of each entry."""
    keys = decoder.decode(batch.column(KEY_COLUMN).to_pylist())
    return zip(keys, batch.column(KEY_GROUP_COLUMN).to_pylist(), strict=True)


def decode_batch(batch: pa.RecordBatch, type: TypeInformation, decoder: KeyDecoder, described: str) -> Iterator[Entry]:
    """Return the entries. `described`: the state, for messages. Raises `StateError` if a value cannot be unpickled."""
    keys = decoder.decode(batch.column(KEY_COLUMN).to_pylist())
    groups = batch.column(KEY_GROUP_COLUMN).to_pylist()
    return zip(keys, groups, decoded(type, batch, described), strict=True)


_UNCHANGEABLE = frozenset({type(None), bool, int, float, complex, str, bytes})


def independent(value: Any) -> Any:
    """Return a copy that shares nothing changeable with `value`. Raises what pickling and copying raise."""
    kind = type(value)
    if kind in _UNCHANGEABLE or (kind is tuple and all(type(item) in _UNCHANGEABLE for item in value)):
        return value
    try:
        return pickle.loads(pickle.dumps(value, 5))
    except Exception:
        # Classes of the user's main program exist in a slot only by value, so pickle does not find them by name.
        return copy.deepcopy(value)
