"""Tests how large states are stored whole while a snapshot writer has nothing else to do."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from penstock.protocol.values.elements import Generation
from penstock.protocol.values.metadata import Segment, StateSchema
from penstock.runtime.checkpoint.consolidations import Consolidated, Consolidations
from penstock.runtime.process.mailbox import Mailbox
from penstock.state.backend import Consolidation, EncodedState, StoredState
from penstock.storage.layout import segment_path
from penstock.storage.memory import MemoryStore
from penstock.storage.store import StoreError

NAME = ("op", "state")


class HandClock:
    """A clock that passes `took_ms` whenever a range is encoded."""

    def __init__(self, took_ms: float = 10.0) -> None:
        self.now_ms = 0.0
        self.took_ms = took_ms

    def monotonic_ms(self) -> float:
        return self.now_ms

    def wall_ms(self) -> int:
        return int(self.now_ms)

    def undisturbed_ms(self) -> float:
        return self.now_ms


class View:
    """A view of a state with three ranges."""

    expected_bytes = 0
    consolidations: Sequence[Consolidation] = ()

    def __init__(self, clock: HandClock, fails_at: int | None = None) -> None:
        self.schemas: list[StateSchema] = []
        self.is_discarded = False
        self._clock = clock
        self._fails_at = fails_at

    def encode(self) -> Iterator[EncodedState | StoredState]:
        for number in range(3):
            self._clock.now_ms += self._clock.took_ms
            if number == self._fails_at:
                raise StoreError("the disk is full")
            yield EncodedState(*NAME, 5, [bytes([number]) * 100])

    def on_stored(self, stored: list[StoredState]) -> None:
        raise AssertionError("it is no checkpoint's")

    def discard(self) -> None:
        self.is_discarded = True


class Told:
    """The chains of a backend, which learn how it ended."""

    def __init__(self) -> None:
        self.ended: list[tuple[Any, int, tuple[StoredState, ...] | None]] = []

    def on_consolidated(self, name: Any, checkpoint_id: int, runs: tuple[StoredState, ...] | None) -> None:
        self.ended.append((name, checkpoint_id, runs))


class Slot:
    def __init__(self, run_apart: Callable[[Callable[[], None]], None] | None = None) -> None:
        self.clock, self.store, self.mailbox, self.told = HandClock(), MemoryStore(), Mailbox(), Told()
        self.consolidations = Consolidations(self.store, self.new_path, self.clock, run_apart)
        self.views: list[View] = []

    def new_path(self, checkpoint_id: int) -> str:
        return segment_path(Generation(0, 1), "driver", 0, checkpoint_id, "x")

    def begin(self, checkpoint_id: int, fails_at: int | None = None) -> None:
        self.views.append(View(self.clock, fails_at))
        self.consolidations.add([Consolidation(NAME, checkpoint_id, self.views[-1], self.told)])

    def write(self) -> int:
        """Write all ranges, as a snapshot writer without mail does. Returns the number of its steps."""
        steps = 0
        while (wait_ms := self.consolidations.wait_ms) is not None:
            self.clock.now_ms += wait_ms
            assert self.consolidations.write_next(self.mailbox)
            self.handle_mail()
            steps += 1
        return steps

    def handle_mail(self) -> None:
        while self.mailbox:
            item = self.mailbox.take()
            assert isinstance(item, Consolidated)
            self.consolidations.on_consolidated(item.writing)


def test_a_state_is_written_range_by_range_to_a_segment_of_its_own() -> None:
    slot = Slot()
    slot.begin(7)
    assert slot.write() == 4, "three ranges, and the end"
    ((name, checkpoint_id, runs),) = slot.told.ended
    assert (name, checkpoint_id) == (NAME, 7) and runs is not None
    path = slot.new_path(7)
    assert [(run.segment, run.offset, run.length_bytes) for run in runs] == [
        (Segment(path, 300), offset, 100) for offset in (0, 100, 200)
    ]
    assert slot.store.get(path) == b"".join(bytes([number]) * 100 for number in range(3))
    assert slot.consolidations.wait_ms is None


def test_as_much_time_as_a_range_takes_is_left_to_the_stream() -> None:
    slot = Slot()
    slot.begin(7)
    assert slot.consolidations.write_next(slot.mailbox)
    assert slot.consolidations.wait_ms == slot.clock.took_ms
    assert not slot.consolidations.write_next(slot.mailbox)
    slot.clock.now_ms += slot.clock.took_ms
    assert slot.consolidations.write_next(slot.mailbox)


def test_the_first_checkpoint_that_names_a_segment_is_told_so_and_no_other() -> None:
    slot = Slot()
    slot.begin(7)
    slot.write()
    segments = [Segment("shared/another", 5), Segment(slot.new_path(7), 300)]
    assert slot.consolidations.take_named(segments) == [slot.new_path(7)]
    assert slot.consolidations.take_named(segments) == []


def test_one_that_cannot_be_stored_is_given_up_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    slot = Slot()
    slot.begin(7, fails_at=1)
    slot.begin(8)
    with caplog.at_level(logging.WARNING):
        slot.write()
    assert "state 'state' could not be stored whole, which is tried again: the disk is full" in caplog.text
    assert [(checkpoint_id, runs is None) for _, checkpoint_id, runs in slot.told.ended] == [(7, True), (8, False)]
    assert slot.views[0].is_discarded and slot.store.list("") == [slot.new_path(8)]


def test_the_end_of_a_generation_waits_for_a_segment_that_is_being_made_durable_and_for_nothing_else() -> None:
    apart: list[Callable[[], None]] = []
    slot = Slot(apart.append)
    slot.begin(7)
    slot.begin(8)
    while not apart:
        slot.clock.now_ms += slot.clock.took_ms
        slot.consolidations.write_next(slot.mailbox)
    slot.consolidations.close()
    assert slot.consolidations.is_storing and slot.views[1].is_discarded
    apart[0]()
    slot.handle_mail()
    assert not slot.consolidations.is_storing


def test_what_is_half_written_at_the_end_of_a_generation_is_removed() -> None:
    slot = Slot()
    slot.begin(7)
    slot.consolidations.write_next(slot.mailbox)
    slot.consolidations.close()
    assert slot.views[0].is_discarded and slot.store.list("") == [] and slot.told.ended == [(NAME, 7, None)]
