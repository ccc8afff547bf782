"""Defines the entries of a job's log: one object per entry, at consecutive positions, each created if absent.

`penstock.protocol.log.publication` decides who may append, and handles the loss of a position; how entries are
stored is in `penstock.storage.log`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class LogEntry(msgspec.Struct, frozen=True, tag=True):
    """Holds the common fields of all entries: `sequence`, its position in the log from 0, and `incarnation`, random per
    driver.

    Every kind of entry has a `base`, too: the log counts from that position, and whatever lies below may be deleted.
    Only a checkpoint's entry raises it, to its own position at most. And each has `claimed`: the checkpoint or
    savepoint of another job that this job owns, and has not deleted yet. See `PROTOCOL.md`.
    """

    sequence: int
    incarnation: str

    @property
    def base(self) -> int:
        """Return the position from which the log counts: a field of each kind of entry, behind its required ones."""
        raise NotImplementedError

    @property
    def claimed(self) -> str | None:
        """Return the path of the claimed checkpoint or savepoint: a field, too."""
        raise NotImplementedError


class Fence(LogEntry, frozen=True, tag=True):
    """Records that a driver has taken over: drivers with earlier entries have lost the job. `wall_ms`, `host`, `pid`
    and `job_name` are for messages and lists, never for a decision.
    """

    wall_ms: int
    host: str
    pid: int
    restored_from: str | None = None
    """The checkpoint of another job that this job started from: what it restores as long as it has none of its own."""
    base: int = 0
    claimed: str | None = None
    job_name: str = ""


class CheckpointEntry(LogEntry, frozen=True, tag=True):
    """Makes a checkpoint canonical from the moment this entry exists; its `_metadata` is durable before.

    (`fence`, `counter`) is the generation that took it. `path` is that of its `_metadata`, relative to the job's
    directory, `metadata_crc` the CRC-32 of that object's bytes. `retained` names the `_metadata` of every checkpoint
    that is kept from here on, oldest first, this one included; whatever an earlier entry retained and this one does
    not may be deleted now. `is_final`: the job ends with it, nothing restarts below it. `savepoint`: the directory of
    the savepoint that the job was stopped with. The log names it longer than the metadata, which the job's end deletes.
    """

    fence: int
    counter: int
    checkpoint_id: int
    path: str
    metadata_crc: int
    retained: list[str]
    is_final: bool = False
    base: int = 0
    claimed: str | None = None
    savepoint: str | None = None


class Ended(LogEntry, frozen=True, tag=True):
    """Records that the driver has ended the job: `state` is FINISHED, CANCELED or FAILED. Everything that `retained`
    does not name may be deleted; a later driver that takes over finds only what it names. `job_name`: for lists of
    jobs, which find it here when no metadata is left.
    """

    state: str
    retained: list[str]
    base: int = 0
    claimed: str | None = None
    job_name: str = ""


def stopped_with(log: Sequence[LogEntry]) -> str | None:
    """Return the savepoint that a job was stopped with; None: it was not. `log`: its entries, in order."""
    return next((entry.savepoint for entry in reversed(log) if isinstance(entry, CheckpointEntry)), None)
