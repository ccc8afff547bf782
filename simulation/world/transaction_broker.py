"""Keeps transactions as Kafka's brokers do, with their answers: `tests/connectors` runs one suite on both."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.connectors.kafka.transactions import End


class Fenced(Exception):
    """Signals that a newer producer has the transactional id."""


@dataclass
class _Producer:
    """Holds the producer of an id. `ended`: how its last transaction has ended; None: it has none, or it is open."""

    epoch: int = -1
    open: list[Any] | None = None
    ended: bool | None = None


@dataclass
class TransactionBroker:
    """Keeps records of open transactions apart from those that readers of committed records see."""

    visible: list[Any] = field(default_factory=list)
    starts_again: int = 0
    """The number of times that an id was used again."""
    _producers: dict[str, _Producer] = field(default_factory=dict)

    def start(self, transactional_id: str) -> int:
        """Start a producer, and return its epoch. The open transaction of the one before is aborted."""
        producer = self._producers.setdefault(transactional_id, _Producer())
        producer.epoch += 1
        self.starts_again += producer.epoch > 0
        producer.open = producer.ended = None
        return producer.epoch

    def write(self, transactional_id: str, epoch: int, records: Sequence[Any]) -> None:
        """Add records to the producer's transaction, which begins with them. Raises `Fenced`."""
        producer = self._producers[transactional_id]
        if epoch != producer.epoch:
            raise Fenced(f"{transactional_id} has epoch {producer.epoch}, not {epoch}")
        producer.open = [*(producer.open or []), *records]
        producer.ended = None

    def end(self, transactional_id: str, epoch: int, *, commits: bool) -> tuple[End, list[Any]]:
        """End the transaction that is open now. Returns the answer, and the records that have become visible."""
        producer = self._producers.get(transactional_id)
        if producer is None:
            return End.UNKNOWN, []
        if epoch != producer.epoch:
            return End.FENCED, []
        if producer.open is not None:
            records, producer.open, producer.ended = producer.open, None, commits
            made_visible = records if commits else []
            self.visible += made_visible
            return End.DONE, made_visible
        return (End.DONE if producer.ended is commits else End.INVALID), []

    def open_ids(self, pattern: re.Pattern[str]) -> list[str]:
        """Return the ids of open transactions."""
        return sorted(
            name for name, producer in self._producers.items() if producer.open is not None and pattern.fullmatch(name)
        )
