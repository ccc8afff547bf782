"""Keeps recovered in-flight data, which belongs to the consumer: layers at its gate that come before anything live.

A layer is the interval of one old channel. Its rows are read when the subtask restores, not later, so that damage is
found before the job runs, and the old segments can be deleted. A large part of them waits on the local disk
(`penstock.operators.disk_batches`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from penstock.protocol.channel.captured import Captured, CapturedRows
from penstock.protocol.values.elements import InBandEvent


@dataclass(frozen=True, slots=True)
class RecoveredRows:
    """Holds rows [first, first + rows) of a layer. `payload`: a batch, or its place on the local disk."""

    first: int
    rows: int
    payload: Any


@dataclass(frozen=True, slots=True)
class RecoveredEvent:
    """Holds the in-band event that is element `number` of a layer."""

    number: int
    event: InBandEvent


class Layer:
    """Holds the unread part of [first, end) of the old channel (edge, producer, consumer). `channel` is the index of
    the gate's input channel that continues it; `edge` the stable name.

    `virtual`: the virtual channel of the watermark valve that its events belong to, where parallelism had changed;
    None: they belong to the live channel. A layer of which only a part came here was renumbered from 0.
    """

    def __init__(
        self,
        edge: str,
        producer: int,
        consumer: int,
        channel: int,
        first: int,
        end: int,
        elements: list[RecoveredRows | RecoveredEvent],
        virtual: int | None = None,
    ) -> None:
        self.edge = edge
        self.producer = producer
        self.consumer = consumer
        self.channel = channel
        self.end = end
        self.applied = first
        self.virtual = virtual
        self._elements = deque(elements)
        self._head_taken = 0

    @property
    def read(self) -> bool:
        return not self._elements

    def head(self) -> RecoveredRows | RecoveredEvent:
        return self._elements[0]

    @property
    def head_skip(self) -> int:
        return self._head_taken

    def apply_rows(self, rows: int) -> None:
        head = self._elements[0]
        assert isinstance(head, RecoveredRows)
        self._head_taken += rows
        self.applied += rows
        if self._head_taken == head.rows:
            self._elements.popleft()
            self._head_taken = 0

    def apply_event(self) -> InBandEvent:
        head = self._elements.popleft()
        assert isinstance(head, RecoveredEvent)
        self.applied += 1
        return head.event

    def unread(self) -> Captured:
        """Return the layer's capture for a checkpoint at this moment."""
        captured = Captured()
        skip = self._head_taken
        for element in self._elements:
            if isinstance(element, RecoveredEvent):
                captured.events.append((element.number, element.event))
            else:
                captured.rows.append(CapturedRows(element.first + skip, element.rows - skip, skip, element.payload))
                skip = 0
        return captured
