"""Encodes splits, and the state of an enumerator, with the number of the source that they belong to.

Sources count from 1. What they encode themselves is embedded as JSON if that gives the same bytes back, so that it can
be read in a checkpoint's metadata; else as base64.
"""

from __future__ import annotations

import base64
from typing import Any

from penstock.connectors.base import SourceError, decode_split, encode_split

_SOURCE, _JSON, _BYTES, _END, _IS_READ, _IS_LAST = "source", "is", "base64", "ends", "is_read", "is_last"


def with_number(number: int, data: bytes, is_read: bool = False) -> bytes:
    """Return `data`, which a source has encoded, with the number of that source.

    Args:
        number: The source, from 1.
        data: A split, or the state of an enumerator.
        is_read: True for a split of a source that has been read to its end: nobody reads it, but its source may want to
            report its position outside the job.

    Returns:
        JSON.
    """
    try:
        found = decode_split(data)
        is_json = encode_split(found) == data
    except ValueError:
        is_json = False
    kept = {_JSON: found} if is_json else {_BYTES: base64.b64encode(data).decode()}
    return encode_split({_SOURCE: number, **kept, **({_IS_READ: True} if is_read else {})})


def is_read(data: bytes) -> bool:
    """Return whether a split is of a source that has been read to its end.

    Args:
        data: What `with_number` or `end_of` returned.

    Returns:
        True or False.
    """
    found: Any = decode_split(data)
    return isinstance(found, dict) and bool(found.get(_IS_READ))


def end_of(number: int) -> bytes:
    """Return the mark that a reader gets instead of a split: the source has no more splits for it.

    Args:
        number: The source, from 1.

    Returns:
        JSON.
    """
    return encode_split({_SOURCE: number, _END: True})


def last_from(number: int) -> bytes:
    """Return the mark that a reader gets instead of a split: the last source is read, and has no split for it now.

    Args:
        number: The last source, from 1.

    Returns:
        JSON.
    """
    return encode_split({_SOURCE: number, _IS_LAST: True})


def is_last(data: bytes) -> bool:
    """Return whether the last source is read from now on.

    Args:
        data: What a function of this module returned.

    Returns:
        True for what `last_from` returned.
    """
    found: Any = decode_split(data)
    return isinstance(found, dict) and bool(found.get(_IS_LAST))


def take_number(data: bytes) -> tuple[int, bytes | None]:
    """Return the number of a source, and what that source has encoded; None for the mark of its end.

    Args:
        data: What `with_number` or `end_of` returned.

    Returns:
        The number, from 1, and the bytes.

    Raises:
        SourceError: Neither has made `data`.
    """
    try:
        found: Any = decode_split(data)
        number = int(found[_SOURCE])
        if _END in found:
            return number, None
        return number, encode_split(found[_JSON]) if _JSON in found else base64.b64decode(found[_BYTES])
    except (ValueError, KeyError, TypeError):
        raise SourceError(
            f"the state {data[:200]!r} is not of a HybridSource: the checkpoint was taken with another source in its "
            "place. Use that source, or start without its state (allow it to be dropped, or change the source's uid)"
        ) from None
