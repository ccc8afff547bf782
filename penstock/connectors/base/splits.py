"""Encodes splits as JSON, and hands out a fixed set of them."""

from __future__ import annotations

import json
from typing import Any

from penstock.connectors.base.source import SplitEnumerator


def encode_split(split: Any) -> bytes:
    """Encode a split as JSON with sorted keys: equal splits are equal bytes, readable in a checkpoint's metadata.

    Args:
        split: A value of JSON's types.

    Returns:
        The bytes.
    """
    return json.dumps(split, sort_keys=True, separators=(",", ":")).encode()


def decode_split(data: bytes) -> Any:
    """Decode the result of `encode_split`.

    Args:
        data: The bytes.

    Returns:
        The split.
    """
    return json.loads(data)


class FixedSplitEnumerator(SplitEnumerator):
    """Hands out a set of splits that is known from the start, in order, one per request.

    With `owner_field`, a subtask first gets the split whose field names it. Otherwise endless splits would pile up on
    the subtask that asks first, whose reader never asks again, and the others would have none.
    """

    def __init__(self, splits: list[bytes], owner_field: str | None = None) -> None:
        self._splits = list(splits)
        self._owner_field = owner_field

    @classmethod
    def restored(cls, snapshot: bytes, owner_field: str | None = None) -> FixedSplitEnumerator:
        """Make the enumerator of a snapshot.

        Args:
            snapshot: What `snapshot` returned.
            owner_field: The field of a split that names the subtask which gets it first.

        Returns:
            The enumerator.
        """
        return cls([encode_split(split) for split in decode_split(snapshot)], owner_field)

    def next_splits(self, subtask: int) -> list[bytes] | None:
        if not self._splits:
            return None
        return [self._splits.pop(self._index_for(subtask))]

    def return_splits(self, splits: list[bytes]) -> None:
        self._splits = list(splits) + self._splits

    def snapshot(self) -> bytes:
        return encode_split([decode_split(split) for split in self._splits])

    def _index_for(self, subtask: int) -> int:
        if self._owner_field is not None:
            for index, split in enumerate(self._splits):
                if decode_split(split).get(self._owner_field) == subtask:
                    return index
        return 0
