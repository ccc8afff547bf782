"""Checks that restored keys are of the type that the program declares: others would never be found."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from penstock.common.typeinfo import KEY_COLUMN
from penstock.protocol.values.keys import KeyDecoder
from penstock.state.backend import StateSchemaError

OF_WINDOW = "_window/"
"""The prefix of the names of states that functions keep per window. Their keys are (key, window): the window's start,
or another value that names it.
"""
OF_TRIGGER = f"{OF_WINDOW}_trigger/"
"""The prefix of the names of states that triggers keep per window."""

_TAGS = {"LONG": b"i", "STRING": b"s"}
"""The first byte of the encodings of keys (`penstock.protocol.values.key_encoding`), for the types whose keys have
columns of their own. Keys of others are not compared with what is declared while the job runs, so neither are they
here."""


def check_keys(batches: Iterable[pa.RecordBatch], key_type: str, described: str) -> None:
    """Raise `StateSchemaError` for a key that is not of the declared type (as text)."""
    tag = _TAGS.get(key_type)
    if tag is None:
        return
    for batch in batches:
        if KEY_COLUMN not in batch.schema.names:
            return
        keys = batch.column(KEY_COLUMN)
        if (other := _first_other(keys, tag[0])) is not None:
            key = KeyDecoder().decode([keys[other].as_py()])[0]
            raise StateSchemaError(
                f"{described} has the key {key!r:.80} ({type(key).__name__}), but key_by() declares {key_type} now, so "
                "it would never be found: declare the key as before, or give the operator another uid, or write a "
                "savepoint with other keys (SavepointWriter)"
            )


def _first_other(keys: pa.Array, tag: int) -> int | None:
    """Return the index of the first key whose encoding does not begin with `tag`; None: all do."""
    _, offsets, data = keys.buffers()
    starts = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys)]
    others = np.frombuffer(data, np.uint8)[starts] != tag
    return int(others.argmax()) if others.any() else None
