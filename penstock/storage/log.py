"""The objects of a job's log: how an entry is written, found and read. Who may append is `protocol.publication`'s."""

from __future__ import annotations

import msgspec

from penstock.protocol.log_entries import CheckpointEntry, Ended, Fence
from penstock.storage.layout import LOG_FOLDER, LogName, log_path, parse
from penstock.storage.sealed import DamagedObject, seal, unseal
from penstock.storage.store import ObjectExists, ObjectMissing, ObjectStore

KIND = "log-entry"
FORMAT_VERSION = 1

Entry = Fence | CheckpointEntry | Ended
_DECODER: msgspec.json.Decoder[Entry] = msgspec.json.Decoder(Entry)


def encode_entry(entry: Entry) -> bytes:
    return seal(KIND, FORMAT_VERSION, msgspec.json.encode(entry) + b"\n")


def decode_entry(data: bytes, name: str) -> Entry:
    """`name` is what messages call it, a path. Raises `DamagedObject` and `NewerFormat`."""
    body = unseal(KIND, FORMAT_VERSION, data, name)
    try:
        return _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DamagedObject(f"{name} is not an entry of a job's log: {error}") from None


def append(store: ObjectStore, entry: Entry) -> Entry:
    """Puts the entry at its position and returns what stands there afterwards: this entry, or the one of whoever was
    first. "Already exists" may be our own earlier try, so what is there is read back. Raises `StoreError` where
    nobody knows what stands there: keep everything and ask again."""
    try:
        store.create(log_path(entry.sequence), encode_entry(entry))
    except ObjectExists:
        return read_entry(store, entry.sequence)
    return entry


def read_entry(store: ObjectStore, sequence: int) -> Entry:
    """Raises `ObjectMissing` where the log is shorter."""
    path = log_path(sequence)
    entry = decode_entry(store.get(path), path)
    if entry.sequence != sequence:
        raise DamagedObject(f"{path} holds the entry of position {entry.sequence}: it was copied or renamed")
    return entry


def log_length(store: ObjectStore) -> int:
    """The first free position, as far as the store shows it now. Raises `DamagedObject` where an earlier one is
    missing."""
    found = sorted(name.sequence for path in store.list(LOG_FOLDER) if isinstance(name := parse(path), LogName))
    if found and found[-1] != len(found) - 1:
        missing = next(i for i, sequence in enumerate(found) if i != sequence)
        raise DamagedObject(f"{log_path(missing)} is missing from the job's log, which has entries up to {found[-1]}")
    length = len(found)
    while True:
        # A listing may be older than the entries.
        try:
            store.size(log_path(length))
        except ObjectMissing:
            return length
        length += 1


def read_log(store: ObjectStore, first: int = 0) -> list[Entry]:
    """All entries from position `first` on, in order."""
    return [read_entry(store, sequence) for sequence in range(first, log_length(store))]


def newest_checkpoint(store: ObjectStore, below: int) -> CheckpointEntry | None:
    """The newest checkpoint at a position smaller than `below`; None where there is none."""
    for sequence in range(below - 1, -1, -1):
        entry = read_entry(store, sequence)
        if isinstance(entry, CheckpointEntry):
            return entry
    return None
