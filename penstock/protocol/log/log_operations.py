"""Defines the operations that a conversation with the job's log asks of the store, and their answers. See
`publication`.

    operation        answers
    ListLog          list of positions | Unknown (what was created before the list began is in it)
    ListMetadata     list of checkpoint ids that have a `_metadata` | Unknown
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
    pass


@dataclass(frozen=True)
class ListMetadata:
    pass


@dataclass(frozen=True)
class ReadEntry:
    sequence: int


@dataclass(frozen=True)
class AppendEntry:
    entry: LogEntry


@dataclass(frozen=True)
class CreateMetadata:
    path: str
    data: bytes


@dataclass(frozen=True)
class ReadMetadata:
    """Read metadata. `crc` is the checksum in the log; None if no log entry names the object."""

    path: str
    crc: int | None = None


@dataclass(frozen=True)
class Wait:
    delay_ms: float


Operation = ListLog | ListMetadata | ReadEntry | AppendEntry | CreateMetadata | ReadMetadata | Wait


# ---- answers ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Done:
    pass


@dataclass(frozen=True)
class Exists:
    pass


@dataclass(frozen=True)
class Missing:
    pass


@dataclass(frozen=True)
class Damaged:
    """Reports a damaged object: truncated, flipped bits, another format. `detail` names the file and what is wrong with
    it.
    """

    detail: str


@dataclass(frozen=True)
class Refused:
    detail: str


@dataclass(frozen=True)
class Gone:
    detail: str


@dataclass(frozen=True)
class Unknown:
    detail: str


T = TypeVar("T")
Conversation = Generator[Operation, Any, T]
