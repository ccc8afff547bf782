"""Implements the handles of state whose entries expire, as Flink's TTL states do.

An entry is (time of its last use, value); a list has such a pair per element, and a map one per entry. A read that
finds an entry expired removes it, and returns it for the last time if the state returns what has expired. Of a list
only the whole is removed, when all of its elements have expired.
"""

from __future__ import annotations

from typing import Any, Callable, Iterable, Iterator

from penstock.common.row_types.named_rows import reducing
from penstock.state.heap.handles import CurrentKey, EntryTable, Handle, refuse_none
from penstock.state.ttl import TimeToLive, WallClock

Stamped = tuple[int, Any]
"""(time of the last use in ms, value)"""


class ExpiringHandle(Handle):
    """Accesses entries that expire. `accesses` counts the calls since the last clean-up."""

    __slots__ = ("_ttl_ms", "_updates_on_read", "_returns_expired", "_wall_ms", "accesses")

    def __init__(
        self, table: EntryTable, at: CurrentKey, changeable: bool, ttl: TimeToLive, wall_ms: WallClock
    ) -> None:
        super().__init__(table, at, changeable)
        self._ttl_ms = ttl.ttl_ms
        self._updates_on_read = ttl.updates_on_read
        self._returns_expired = ttl.returns_expired
        self._wall_ms = wall_ms
        self.accesses = 0

    def _read(self) -> Stamped | None:
        """Return the entry, of a state with one value per key, if the user may see it."""
        # 8.4: a read that prolongs an entry's life is a change, so its time is stored.
        self.accesses += 1
        kept: Stamped | None = self._peek()
        if kept is None:
            return None
        now_ms = self._wall_ms()
        if kept[0] + self._ttl_ms <= now_ms:
            self.clear()
            return kept if self._returns_expired else None
        if self._updates_on_read and kept[0] != now_ms:
            self._put((now_ms, kept[1]))
        return kept

    def _to_change(self, now_ms: int) -> Any:
        """Return the value that an addition changes; None if there is none."""
        self.accesses += 1
        kept: Stamped | None = self._peek()
        if kept is None or (kept[0] + self._ttl_ms <= now_ms and not self._returns_expired):
            return None
        return kept[1]


class ExpiringValueHandle(ExpiringHandle):
    __slots__ = ()

    def value(self) -> Any:
        kept = self._read()
        return None if kept is None else kept[1]

    def update(self, value: Any) -> None:
        """Set the value; None clears it, as in Flink."""
        if value is None:
            self.clear()
            return
        self.accesses += 1
        self._put((self._wall_ms(), value))


class ExpiringReducingHandle(ExpiringHandle):
    __slots__ = ("_reduce",)

    def __init__(
        self,
        table: EntryTable,
        at: CurrentKey,
        changeable: bool,
        ttl: TimeToLive,
        wall_ms: WallClock,
        reduce: Callable[[Any, Any], Any],
    ) -> None:
        super().__init__(table, at, changeable, ttl, wall_ms)
        self._reduce = reduce

    def get(self) -> Any:
        kept = self._read()
        return None if kept is None else kept[1]

    def add(self, value: Any) -> None:
        now_ms = self._wall_ms()
        before = self._to_change(now_ms)
        self._put((now_ms, value if before is None else self._reduce(before, value)))


class ExpiringAggregatingHandle(ExpiringHandle):
    __slots__ = ("_function",)

    def __init__(
        self, table: EntryTable, at: CurrentKey, changeable: bool, ttl: TimeToLive, wall_ms: WallClock, function: Any
    ) -> None:
        super().__init__(table, at, changeable, ttl, wall_ms)
        self._function = function

    def get(self) -> Any:
        kept = self._read()
        return None if kept is None else self._function.get_result(kept[1])

    def add(self, value: Any) -> None:
        now_ms = self._wall_ms()
        accumulator = self._to_change(now_ms)
        if accumulator is None:
            accumulator = self._function.create_accumulator()
        self._put((now_ms, self._function.add(value, accumulator)))

    def accumulator(self) -> Any:
        """Return the accumulator itself; None if there is none, or it has expired."""
        return self._to_change(self._wall_ms())

    def merge(self, accumulator: Any) -> None:
        """Merge another accumulator into that of the current key. The result was used now."""
        now_ms = self._wall_ms()
        before = self._to_change(now_ms)
        self._put((now_ms, accumulator if before is None else self._function.merge(before, accumulator)))


class ExpiringListHandle(ExpiringHandle):
    __slots__ = ()

    def get(self) -> list[Any]:
        """Return a list that belongs to the user; [] if there is none."""
        self.accesses += 1
        items: list[Stamped] | None = self._peek()
        if items is None:
            return []
        now_ms, ttl_ms = self._wall_ms(), self._ttl_ms
        unexpired = [item for item in items if item[0] + ttl_ms > now_ms]
        if not unexpired:
            self.clear()
        elif self._updates_on_read:
            self._writable()[self._at.key] = [(now_ms, value) for _, value in unexpired]
        return [value for _, value in (items if self._returns_expired else unexpired)]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get())

    def add(self, value: Any) -> None:
        self._extend([value])

    def add_all(self, values: Iterable[Any]) -> None:
        self._extend(list(values))

    def update(self, values: Iterable[Any]) -> None:
        self.accesses += 1
        values = list(values)
        refuse_none(values)
        if values:
            now_ms = self._wall_ms()
            self._writable()[self._at.key] = [(now_ms, value) for value in values]
        else:
            self.clear()

    def _extend(self, values: list[Any]) -> None:
        self.accesses += 1
        refuse_none(values)
        if not values:
            return
        now_ms = self._wall_ms()
        bucket = self._writable()
        bucket.setdefault(self._at.key, []).extend([(now_ms, value) for value in values])


class ExpiringMapHandle(ExpiringHandle):
    __slots__ = ()

    def get(self, key: Any) -> Any:
        kept = self._read_entry(key)
        return None if kept is None else kept[1]

    def _read_entry(self, key: Any) -> Stamped | None:
        self.accesses += 1
        items: dict[Any, Stamped] | None = self._peek()
        kept = None if items is None else items.get(key)
        if kept is None:
            return None
        now_ms = self._wall_ms()
        if kept[0] + self._ttl_ms <= now_ms:
            self._remove([key])
            return kept if self._returns_expired else None
        if self._updates_on_read and kept[0] != now_ms:
            self._writable()[self._at.key][key] = (now_ms, kept[1])
        return kept

    def put(self, key: Any, value: Any) -> None:
        self.accesses += 1
        now_ms = self._wall_ms()
        self._writable().setdefault(self._at.key, {})[key] = (now_ms, value)

    def put_all(self, dict_value: Any) -> None:
        """Put a dict, or pairs of key and value."""
        self.accesses += 1
        now_ms = self._wall_ms()
        items = {key: (now_ms, value) for key, value in dict(dict_value).items()}
        if items:
            self._writable().setdefault(self._at.key, {}).update(items)

    def remove(self, key: Any) -> None:
        self.accesses += 1
        items = self._buckets[self._at.key_group].get(self._at.key)
        if items is not None and key in items:
            self._remove([key])

    def _remove(self, keys: list[Any]) -> None:
        bucket = self._writable()
        items = bucket[self._at.key]
        for key in keys:
            del items[key]
        if not items:
            del bucket[self._at.key]

    def contains(self, key: Any) -> bool:
        return self._read_entry(key) is not None

    def items(self) -> list[tuple[Any, Any]]:
        """Return the entries that the user may see. As in Flink, reading them removes the expired ones."""
        self.accesses += 1
        kept: dict[Any, Stamped] | None = self._peek()
        if kept is None:
            return []
        now_ms, ttl_ms = self._wall_ms(), self._ttl_ms
        expired = [key for key, (stamp, _) in kept.items() if stamp + ttl_ms <= now_ms]
        gone = () if self._returns_expired else frozenset(expired)
        found = [(key, value) for key, (_, value) in kept.items() if key not in gone]
        has_unexpired = len(expired) < len(kept)
        if expired:
            self._remove(expired)
        if self._updates_on_read and has_unexpired:
            items = self._writable()[self._at.key]
            for key, (_, value) in items.items():
                items[key] = (now_ms, value)
        return found

    def keys(self) -> list[Any]:
        return [key for key, _ in self.items()]

    def values(self) -> list[Any]:
        return [value for _, value in self.items()]

    def is_empty(self) -> bool:
        """Return whether there is no entry that the user may see. It prolongs no life."""
        kept = self._buckets[self._at.key_group].get(self._at.key)
        if kept is None or self._returns_expired:
            return kept is None
        now_ms, ttl_ms = self._wall_ms(), self._ttl_ms
        return all(stamp + ttl_ms <= now_ms for stamp, _ in kept.values())

    def __getitem__(self, key: Any) -> Any:
        return self.get(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.put(key, value)

    def __delitem__(self, key: Any) -> None:
        self.remove(key)

    def __contains__(self, key: Any) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.keys())


def expiring_handle(
    descriptor: Any, table: EntryTable, at: CurrentKey, changeable: bool, ttl: TimeToLive, wall_ms: WallClock
) -> ExpiringHandle:
    """Return the handle of a state whose entries expire."""
    match table.schema.kind:
        case "value":
            return ExpiringValueHandle(table, at, changeable, ttl, wall_ms)
        case "list":
            return ExpiringListHandle(table, at, changeable, ttl, wall_ms)
        case "map":
            return ExpiringMapHandle(table, at, changeable, ttl, wall_ms)
        case "reducing":
            reduce = reducing(descriptor.get_reduce_function(), descriptor.type_info)
            return ExpiringReducingHandle(table, at, changeable, ttl, wall_ms, reduce)
        case _:
            return ExpiringAggregatingHandle(table, at, changeable, ttl, wall_ms, descriptor.get_agg_function())
