"""Writes, finds and reads the entries of a job's log. `penstock.protocol.log.publication` decides who may append."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from penstock.protocol.values.log_entries import CheckpointEntry, Ended, Fence, LogEntry
from penstock.storage.layout import LOG_FOLDER, LogName, log_path, parse
from penstock.storage.sealed import DamagedObject, seal, unseal
from penstock.storage.store import ObjectExists, ObjectMissing, ObjectStore, StoreError

KIND = "log-entry"
FORMAT_VERSION = 1

LOOKS_MAX = 10
"""The number of times that a reader looks again at a log that a driver shortens meanwhile."""

T = TypeVar("T")
Entry = Fence | CheckpointEntry | Ended
_DECODER: msgspec.json.Decoder[Entry] = msgspec.json.Decoder(Entry)


def encode_entry(entry: LogEntry) -> bytes:
    return seal(KIND, FORMAT_VERSION, msgspec.json.encode(entry) + b"\n")


def decode_entry(data: bytes, name: str) -> Entry:
    """Decode an entry. `name` is its path, for messages. Raises `DamagedObject` and `NewerFormat`."""
    body = unseal(KIND, FORMAT_VERSION, data, name)
    try:
        return _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DamagedObject(f"{name} is not an entry of a job's log: {error}") from None


def append(store: ObjectStore, entry: Entry) -> Entry:
    """Write the entry at its position and return what is there afterwards: this entry, or the one that was there first.
    "Already exists" may be our own earlier attempt, so the object is read back. Raises `StoreError` if it is unknown
    what is there: keep everything and ask again.
    """
    try:
        store.create(log_path(entry.sequence), encode_entry(entry))
    except ObjectExists:
        return read_entry(store, entry.sequence)
    return entry


def read_entry(store: ObjectStore, sequence: int) -> Entry:
    """Read an entry. Raises `ObjectMissing` if the log is shorter."""
    path = log_path(sequence)
    entry = decode_entry(store.get(path), path)
    if entry.sequence != sequence:
        raise DamagedObject(f"{path} holds the entry of position {entry.sequence}: it was copied or renamed")
    return entry


def log_length(store: ObjectStore) -> int:
    """Return the first free position, as far as the store shows it now. Raises `DamagedObject` if an entry is missing
    that the log counts.
    """
    return _bounds(store)[1]


def read_log(store: ObjectStore, first: int = 0) -> list[Entry]:
    """Return all entries that the log counts, from position `first` on, in order. Raises as `log_length`."""
    for _ in range(LOOKS_MAX):
        base, end = _bounds(store)
        try:
            return [read_entry(store, sequence) for sequence in range(max(base, first), end)]
        except ObjectMissing as error:
            missing = error
    raise missing


def look_at_log(store: ObjectStore, look: Callable[[list[Entry]], T]) -> T:
    """Return the result of `look` for a log that the caller does not own.

    A driver may continue meanwhile, and delete the checkpoint that was the newest a moment ago. So if `look` fails, and
    the log has grown, it is called again. Raises what `read_log` and `look` raise.
    """
    for _ in range(LOOKS_MAX):
        log = read_log(store)
        try:
            return look(log)
        except StoreError as error:
            if log_length(store) == (log[-1].sequence + 1 if log else 0):
                raise
            failed = error
    raise failed


def newest_checkpoint(store: ObjectStore, below: int | None = None) -> CheckpointEntry | None:
    """Return the newest checkpoint at a position smaller than `below`, or in the whole log; None if there is none."""
    checkpoints = [entry for entry in read_log(store) if isinstance(entry, CheckpointEntry)]
    return next((e for e in reversed(checkpoints) if below is None or e.sequence < below), None)


def _bounds(store: ObjectStore) -> tuple[int, int]:
    """Return the positions from which the log counts, and at which it ends. Objects below the first are no part of it,
    even if they still exist.
    """
    missing = 0
    for _ in range(LOOKS_MAX):
        found = {name.sequence for path in store.list(LOG_FOLDER) if isinstance(name := parse(path), LogName)}
        end = _first_free(store, max(found, default=-1) + 1)
        if end == 0:
            return 0, 0
        try:
            base = read_entry(store, end - 1).base
        except ObjectMissing:
            continue
        counted = range(base, max(found, default=-1) + 1)
        missing = next((sequence for sequence in counted if sequence not in found), -1)
        if missing < 0:
            return base, end
    raise DamagedObject(f"{log_path(missing)} is missing from the job's log, which has entries up to {end - 1}")


def _first_free(store: ObjectStore, sequence: int) -> int:
    """Return the first free position from `sequence` on: a listing may be older than the entries."""
    while True:
        try:
            store.size(log_path(sequence))
        except ObjectMissing:
            return sequence
        sequence += 1
