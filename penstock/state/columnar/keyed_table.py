"""Declares the interface of tables of keyed state to columnar operators."""

from __future__ import annotations

from typing import Iterator, Protocol, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.state.columnar.column_table import Found
from penstock.state.columnar.slot_arrays import Array, Slots
from penstock.state.columnar.table_keys import KeyRows


class KeyedTable(Protocol):
    """Holds a slot for each key, its key and its values in arrays. Of a table on disk a slot is valid until the next
    `find_or_insert`, and the arrays hold the keys that were used lately.
    """

    def rows(self, arrays: Sequence[pa.Array]) -> list[KeyRows]:
        """Return the key columns of a batch, as `find_or_insert` takes them. They must have no nulls."""

    def find_or_insert(self, keys: list[KeyRows], key_groups: npt.NDArray[np.uint16]) -> Found: ...

    @property
    def values(self) -> list[Array]:
        """Return the arrays of the value columns, to be indexed by slots. Do not keep them across `find_or_insert`."""

    @property
    def slots_end(self) -> int:
        """Return the number that all slots are below."""

    def touch(self, slots: Slots) -> None:
        """Note that values of these slots are about to be written. Slots may repeat."""

    def after_write(self, slots: Slots, columns: Sequence[int]) -> None:
        """Note that values of these columns and slots have been written."""

    def settle(self) -> None:
        """Write pending changes. Call it after a slice."""

    def keys_of(self, slots: Slots) -> list[pa.Array]:
        """Return key columns, in Arrow's types."""

    def key_groups_of(self, slots: Slots) -> npt.NDArray[np.uint16]: ...

    def remove(self, slots: Slots) -> None:
        """Remove live slots, each once."""

    def largest(self, column: int) -> int:
        """Return a bound of the absolute values of a column of whole numbers; 2^63 if finding one costs much."""

    def all_true(self, column: int) -> bool:
        """Return whether a column of booleans was restored without a False. Call it before rows come."""


class WindowTable(KeyedTable, Protocol):
    """Holds windows by their starts, which are the last key column, on disk: it finds the slots of a window."""

    def starts(self) -> Iterator[int]:
        """Yield the starts of all windows."""

    def slots_of_window(self, start: int, slots_max: int) -> Iterator[Slots]:
        """Yield the slots of a window in groups. Each may be removed before the next is asked for."""
