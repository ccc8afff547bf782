"""Defines the operations that a conversation with the job's log asks of the store, and their answers. See
`publication`.

    operation        answers
    ListLog          list of positions | Unknown (it has every entry that was created before it began)
    ListMetadata     list of checkpoint ids that have a folder for `_metadata` | Unknown
    ReadEntry        LogEntry | Missing | Unknown
    AppendEntry      Done | Exists | Refused | Unknown (create if absent)
    CreateMetadata   Done | Exists | Unknown          (create if absent)
    ReadMetadata     Metadata | Missing | Damaged | Unknown
    Wait             anything, after that time

`Refused`: it was not carried out, for certain (a full disk). `Unknown` is a time-out, a lost reply or any other
failure: the operation may have been carried out or not, or be carried out later. Every operation may be answered by
`Gone`, too: the job's directory was removed.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from penstock.protocol.values.log_entries import LogEntry


@dataclass(frozen=True)
class ListLog:
    """List the positions of the log's entries."""


@dataclass(frozen=True)
class ListMetadata:
    """List the ids of checkpoints that have metadata, canonical or not."""


@dataclass(frozen=True)
class ReadEntry:
    """Read the entry at a position."""

    sequence: int


@dataclass(frozen=True)
class AppendEntry:
    """Create the entry at its position, if nothing is there."""

    entry: LogEntry


@dataclass(frozen=True)
class CreateMetadata:
    """Create a checkpoint's metadata, if nothing is there."""

    path: str
    data: bytes


@dataclass(frozen=True)
class ReadMetadata:
    """Read metadata. `crc` is the checksum in the log; None if no log entry names the object."""

    path: str
    crc: int | None = None


@dataclass(frozen=True)
class Wait:
    """Continue the conversation after that time."""

    delay_ms: float


Operation = ListLog | ListMetadata | ReadEntry | AppendEntry | CreateMetadata | ReadMetadata | Wait


# ---- answers ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Done:
    """Reports that the object was created."""


@dataclass(frozen=True)
class Exists:
    """Reports that an object was there: whose it is has to be read."""


@dataclass(frozen=True)
class Missing:
    """Reports that there is no such object."""


@dataclass(frozen=True)
class Damaged:
    """Reports a damaged object: truncated, flipped bits, another format. `detail` names the file and what is wrong with
    it.
    """

    detail: str


@dataclass(frozen=True)
class Refused:
    """Reports that nothing was created, for certain."""

    detail: str


@dataclass(frozen=True)
class Gone:
    """Reports that the job's directory was removed."""

    detail: str


@dataclass(frozen=True)
class Unknown:
    """Reports that nothing is known: the operation may have been done, or may be done later."""

    detail: str


T = TypeVar("T")
Conversation = Generator[Operation, Any, T]
