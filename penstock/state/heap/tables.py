"""Keeps the entries of one state in memory, and takes snapshots of them without stopping the stream.

A table has a bucket (a dict) per key group. A snapshot of all takes the buckets as they are: from then on they, and
every object in them, belong to it and never change. The stream works on copies: the first write to a bucket copies the
dict, and the first touch of an entry whose value the user could change, a mere read included, copies the value. So the
thread that encodes a snapshot needs no lock, and sees exactly what was there at the barrier. Without this: `l =
state.value(); l.append(x)` after the barrier changes the snapshot's value.

The copying of a bucket ends as soon as the snapshot has encoded and released it: a bucket that no snapshot holds
belongs to the stream again. Without a snapshot, all this costs is one look at an empty dict.

A snapshot of what has changed since another takes no buckets. Where values cannot be changed in place, the stream notes
each one twice: in the table, and in a dict of what has changed since the newest snapshot. The next snapshot takes that
dict (`ChangedValues`), so the writer looks nothing up in the table: with millions of entries a look there waits for
memory four times, and the stream waits for the interpreter meanwhile.

Of other values a snapshot of changes holds no dict at all (`KeptEntries`). The writer reads an entry from the table,
unless the stream was there first: before the stream touches one of these entries for the first time after the barrier,
it keeps the entry, and continues with a copy of a value that the user could change. So what a snapshot costs depends on
what has changed, not on the size of the state: to copy each dict of five million entries takes a quarter of a second,
again and again. No lock is needed: the stream keeps an entry before it changes it, and the writer looks for what was
kept after it has read the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, repeat
from typing import Any

from penstock.protocol.values.metadata import StateSchema
from penstock.state.backend import StateError
from penstock.state.changes import KeysSince

Bucket = dict[Any, Any]

VALUES_MAX = 250_000
"""If more entries of a state change, values are not noted any more until the next snapshot. The dict costs 100 bytes an
entry, and freeing it at once, if its snapshot is not wanted, some 10 ms."""
_READ_AT_ONCE = 2048
"""The number of entries that are read without giving the interpreter to the stream: to hand it to and fro costs more
than to wait a millisecond for it."""


class _Absent:
    """Takes the place of an entry that does not exist."""


ABSENT = _Absent()


class TableSnapshot:
    """Holds a table's buckets at the barrier. Any thread may call `release` and `release_all`."""

    def __init__(self, buckets: list[Bucket]) -> None:
        self.released = False
        self._buckets: list[Bucket | None] = [*buckets]

    def bucket(self, key_group: int) -> Bucket | None:
        """Return a bucket; None if it has been released."""
        return self._buckets[key_group]

    def __len__(self) -> int:
        return len(self._buckets)

    def release(self, key_group: int) -> None:
        self._buckets[key_group] = None

    def release_all(self) -> None:
        self.released = True
        self._buckets = [None] * len(self._buckets)


class ChangedEntries(dict[Any, int]):
    """Notes which entries have changed since the newest snapshot, each with its key group. `newest`: what each of them
    is now, `ABSENT` if there is none; None: values are not noted.
    """

    __slots__ = ("newest",)

    def __init__(self) -> None:
        super().__init__()
        self.newest: dict[Any, Any] | None = {}

    def clear(self) -> None:
        super().clear()
        if self.newest is not None:
            self.newest.clear()


class ChangedValues:
    """Holds the changed entries of a table at a barrier: the key group of each, and its value; `ABSENT`: it is gone.
    Both must have the same keys in the same order, and the stream must not use them any more. Any thread may call
    `release_all`.
    """

    def __init__(self, key_groups: Mapping[Any, int], values: dict[Any, Any]) -> None:
        assert len(key_groups) == len(values), "a key was noted without its value"
        self._key_groups = key_groups
        self._values = values

    def release_all(self) -> None:
        self._values = {}

    def take(self, entries_max: int) -> Iterator[tuple[list[Any], list[int], list[Any]]]:
        """Yield keys, key groups and values, and keep none. The last come first, because a dict gives them away at
        once, and the memory of some can be used again before the next ones are read.
        """
        values, reversed_groups = self._values, reversed(list(self._key_groups.values()))
        while values:
            entries = list(map(dict.popitem, repeat(values, min(len(values), entries_max))))
            keys, taken = map(list, zip(*entries, strict=True))
            yield keys, list(islice(reversed_groups, len(keys))), taken


class KeptEntries:
    """Holds the entries that have changed as they were at a barrier. `buckets`: the table's, by key group, which
    continue to change. `since`: says which keys have changed, each with its key group. Any thread may call
    `release_all`.
    """

    def __init__(self, buckets: Sequence[Bucket], since: KeysSince) -> None:
        self.since = since
        self.released = False
        self.kept: dict[Any, Any] = {}
        """The entries that the stream has touched since, as they were."""
        self._buckets = buckets
        self._newest: Mapping[Any, int] = since.epochs[-1]

    def release_all(self) -> None:
        """Let the stream change entries without keeping them, and free what was kept."""
        self.released = True
        self.kept = {}

    # ---- the stream's thread -------------------------------------------------------------------------------------

    def waits_for(self, key: Any) -> bool:
        """Return whether the stream has to keep an entry before it is touched."""
        if self.released or key in self.kept:
            return False
        return key in self._newest or any(key in epoch for epoch in self.since.epochs)

    def keep(self, key: Any, value: Any) -> None:
        """Keep an entry; `ABSENT`: there is none. The value must not change any more."""
        self.kept[key] = value

    # ---- the writer's thread -------------------------------------------------------------------------------------

    def read(self, keys: Sequence[Any], key_groups: Sequence[int]) -> list[Any]:
        """Return the values at the barrier, `ABSENT` where there was no entry. Until the entries are released, the
        stream changes none of these objects.
        """
        values: list[Any] = []
        for start in range(0, len(keys), _READ_AT_ONCE):
            part = slice(start, start + _READ_AT_ONCE)
            buckets = map(self._buckets.__getitem__, key_groups[part])
            found = list(map(dict.get, buckets, keys[part], repeat(ABSENT)))
            values += map(self.kept.get, keys[part], found)
        return values


class StateTable:
    """Holds the entries of one state. `buckets` and `shared` stay the same objects, so that handles may keep them.

    `copied` has the key groups whose buckets a snapshot may hold, each with the keys whose values have been copied
    since, or None while the bucket itself has not been. Without incremental checkpoints they are the `shared` ones,
    else all are: the keys whose entries may have changed since the newest snapshot, and on which therefore no snapshot
    depends any more, are noted in `changed`, with their key groups. `limit` is called when they are more than
    `changed_max`. `copy_value` makes a value the stream's own; None where values cannot be changed: then all writes are
    noted by `note`, and `changed` has the values, too.
    """

    def __init__(
        self,
        schema: StateSchema,
        key_groups: int,
        copy_value: Callable[[Any], Any] | None,
        described: str,
        changed: ChangedEntries | None = None,
        changed_max: int = 0,
        limit: Callable[[], None] = lambda: None,
    ) -> None:
        self.schema = schema
        self.buckets: list[Bucket] = [{} for _ in range(key_groups)]
        self.copied: dict[int, set[Any] | None] = {}
        self.changed: ChangedEntries | None = None
        self._newest: dict[Any, Any] | None = None
        """The values that are noted in `changed`; None: they are not."""
        self.shared: Any = self.copied if changed is None else range(key_groups)
        self._changed_max = changed_max
        self._limit = limit
        self._copy_value = copy_value
        self._described = described
        self._snapshots: list[TableSnapshot] = []
        self._changes: list[KeptEntries] = []
        if changed is not None:
            self.begin_epoch(changed)

    def snapshot(self) -> TableSnapshot:
        """Return all entries as they are now."""
        self._forget_released()
        snapshot = TableSnapshot(self.buckets)
        self._snapshots.append(snapshot)
        for key_group, bucket in enumerate(self.buckets):
            if bucket:
                self.copied[key_group] = None
            else:
                # There is nothing to share with the snapshot, and a new dict costs less than a check at each write.
                self.buckets[key_group] = {}
        return snapshot

    def begin_epoch(self, changed: ChangedEntries) -> dict[Any, Any] | None:
        """Note from now on in `changed` what changes. Return the values that were noted before, one for each key that
        was; they are the caller's. None: values were not noted.
        """
        if self._copy_value is not None:
            changed.newest = None
        noted = self._newest
        if self.changed is not None:
            self.changed.newest = None
        self.changed, self._newest = changed, changed.newest
        return noted

    def snapshot_of(self, since: KeysSince, noted: dict[Any, Any] | None) -> ChangedValues | KeptEntries:
        """Return the entries that have changed as they are now. A new epoch must have begun, without a change yet.
        `noted`: the values of the one before.
        """
        self._forget_released()
        if noted is not None and len(since.epochs) == 1:
            return ChangedValues(since.epochs[0], noted)
        changes = KeptEntries(self.buckets, since)
        self._changes.append(changes)
        return changes

    def _forget_released(self) -> None:
        self._snapshots = [snapshot for snapshot in self._snapshots if not snapshot.released]
        self._changes = [changes for changes in self._changes if not changes.released]

    def own(self, key_group: int, key: Any) -> None:
        """Make an entry the stream's own. Call it for a key group in `shared` before the entry's value is changed or
        returned to a user who can change it.
        """
        if self.changed is None:
            self._separate(key_group, key)
            return
        assert self._copy_value is not None, "a value that cannot be changed in place is not noted by `note`"
        if key not in self.changed:
            self._note_key(self.changed, key_group, key)

    def note(self, key_group: int, key: Any, value: Any) -> None:
        """Record the next value of an entry of a key group in `shared`; `ABSENT`: it is about to be removed."""
        changed = self.changed
        if changed is None:
            self._separate(key_group, key)
            return
        newest = self._newest
        if newest is None:
            if key not in changed:
                self._note_key(changed, key_group, key)
            return
        newest[key] = value
        if len(newest) > len(changed):  # takes less time than to look for the key once more
            self._note_key(changed, key_group, key)
            if len(newest) > VALUES_MAX:
                self._newest = changed.newest = None

    def _note_key(self, changed: ChangedEntries, key_group: int, key: Any) -> None:
        if self.copied or self._changes:
            self._separate(key_group, key)
        changed[key] = key_group
        if len(changed) > self._changed_max:
            self._limit()

    def _separate(self, key_group: int, key: Any) -> None:
        """Let no snapshot depend on an entry of the table."""
        is_shared = key_group in self.copied and self._separate_bucket(key_group, key)
        waiting = self._waiting_for(key) if self._changes else ()
        if not is_shared and not waiting:
            return
        bucket = self.buckets[key_group]
        value = own_value = bucket.get(key, ABSENT)
        if value is not ABSENT and self._copy_value is not None:
            own_value = self._copy_of(key, value, self._copy_value)
        for changes in waiting:
            changes.keep(key, value)
        if own_value is not value:
            bucket[key] = own_value
        if is_shared and (copied := self.copied[key_group]) is not None:
            copied.add(key)

    def _waiting_for(self, key: Any) -> list[KeptEntries]:
        """Return the snapshots of changes that need an entry as it is."""
        if self._changes[0].released:
            self._forget_released()
        return [changes for changes in self._changes if changes.waits_for(key)]

    def _separate_bucket(self, key_group: int, key: Any) -> bool:
        """Copy a bucket that a snapshot holds. Return whether it may still hold the value of an entry."""
        copied = self.copied[key_group]
        if copied is not None and key in copied:
            return False
        if all(s.bucket(key_group) is None for s in self._snapshots):
            del self.copied[key_group]
            return False
        if copied is None:
            self.buckets[key_group] = dict(self.buckets[key_group])
            if self._copy_value is None:
                del self.copied[key_group]
                return False
            self.copied[key_group] = set()
        return True

    def _copy_of(self, key: Any, value: Any, copy_value: Callable[[Any], Any]) -> Any:
        # 8.1: the first touch of an entry that is not written yet copies it.
        try:
            return copy_value(value)
        except Exception as error:
            raise StateError(
                f"{self._described}: the value of key {key!r:.80} can be neither pickled nor copied, so it cannot be "
                f"part of a checkpoint: {error}"
            ) from error
