"""Tests one channel, both ends and a wire that urgent frames run ahead on. Whatever the order of queueing, sending,
turning, receiving and applying, and however checkpoints overlap: what both ends capture for a checkpoint is exactly
[applied, emitted), each element once, in order, with the content that it had when the producer's number was fixed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.protocol.channel.captured import Captured
from penstock.protocol.channel.ends import InputChannel, OutputChannel, Overtaken
from penstock.protocol.values.elements import Barrier, ChannelId, Idle, Watermark
from penstock.protocol.values.frames import AlignedBarrier, Data, Event, UrgentBarrier
from tests.unit.protocol.channel.wire import Wire

CHANNEL = ChannelId(0, 0, 0)


def elements_of(captured: Captured) -> list[tuple[int, Any]]:
    found = [(n, event) for n, event in captured.events]
    for first, rows, skip, payload in captured.rows:
        assert skip >= 0 and skip + rows <= len(payload), "rows that the payload does not have"
        found += [(first + i, payload[skip + i]) for i in range(rows)]
    return found


@dataclass
class Cut:
    """One checkpoint of the channel, as it comes together."""

    emitted: int
    truth: list[Any]
    applied: int | None = None
    parts: list[tuple[int, Any]] = field(default_factory=list)
    producer_done: bool = False
    consumer_done: bool = False


class ChannelMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.out = OutputChannel(CHANNEL, 4_000)
        self.into = InputChannel(CHANNEL, 4_000)
        self.wire = Wire()
        self.truth: list[Any] = []
        self.seen: list[Any] = []
        self.cuts: dict[int, Cut] = {}
        self.given_up: set[int] = set()
        self.newest = 0
        self.newest_applied = 0
        self.verified = 0

    # ---- the producer -------------------------------------------------------------------------------------------

    @rule(rows=st.integers(1, 5))
    def enqueue_rows(self, rows: int) -> None:
        values = [f"row {len(self.truth) + i}" for i in range(rows)]
        self.out.enqueue_rows(rows, 512 + rows * 100, values)
        self.truth += values
        assert self.out.emitted == len(self.truth)

    @rule(watermark=st.booleans())
    def enqueue_event(self, watermark: bool) -> None:
        event = Watermark(len(self.seen) + len(self.truth)) if watermark else Idle()
        before = self.out.emitted
        self.out.enqueue_event(event)
        if self.out.emitted == before:
            assert isinstance(self.truth[-1], Watermark), "only watermarks merge"
            self.truth[-1] = event
        else:
            self.truth.append(event)

    @rule()
    def pop(self) -> None:
        frame = self.out.pop(0.0)
        if frame is None:
            return
        if isinstance(frame, Data):
            values = [v for payload in frame.payload for v in payload]
            assert len(values) == frame.rows
            frame = Data(frame.channel, frame.first, frame.rows, frame.size_bytes, values)
        if isinstance(frame, AlignedBarrier):
            self._producer_done(frame.barrier.checkpoint_id, Captured())
        self.wire.put(frame)

    def _offer(self, timeout_ms: int | None) -> Barrier:
        self.newest += 1
        self.cuts[self.newest] = Cut(self.out.emitted, list(self.truth))
        return Barrier(self.newest, timeout_ms)

    @rule(timeout_ms=st.sampled_from([None, 100]))
    def checkpoint_aligned(self, timeout_ms: int | None) -> None:
        self.out.enqueue_barrier(self._offer(timeout_ms), 0.0)

    @rule()
    def checkpoint_unaligned(self) -> None:
        barrier = self._offer(0)
        overtaken = self.out.overtake(barrier)
        assert overtaken[-1].barrier is barrier
        self._send_overtaken(overtaken)

    @rule(data=st.data())
    def turn(self, data: st.DataObject) -> None:
        if self.cuts:
            self._send_overtaken(self.out.turn(data.draw(st.sampled_from(sorted(self.cuts)))))

    def _send_overtaken(self, overtaken: list[Overtaken]) -> None:
        ids = [o.barrier.checkpoint_id for o in overtaken]
        assert ids == sorted(ids), "barriers never pass each other"
        for barrier, frame, captured in overtaken:
            if frame is None:
                assert barrier.alignment_timeout_ms is None
                self._give_up(barrier.checkpoint_id)
                continue
            assert frame.emitted == self.cuts[barrier.checkpoint_id].emitted
            self._producer_done(barrier.checkpoint_id, captured)
            self.wire.put(frame)

    def _producer_done(self, checkpoint_id: int, captured: Captured) -> None:
        cut = self.cuts[checkpoint_id]
        assert not cut.producer_done, "a second barrier of one checkpoint"
        cut.producer_done = True
        cut.parts += elements_of(captured)
        self._verify(checkpoint_id)

    # ---- the consumer -------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.wire) > 0)
    @rule()
    def receive(self) -> None:
        frame = self.wire.take()
        match frame:
            case Data() | Event():
                for checkpoint_id in self.into.receive(frame):
                    self._consumer_done(checkpoint_id)
            case AlignedBarrier(_, position, barrier):
                self.into.receive_barrier(frame)
                checkpoint_id = barrier.checkpoint_id
                if self._is_late(checkpoint_id):
                    self.into.take_out_barrier(checkpoint_id)
                elif checkpoint_id in self.into.windows:
                    self.into.take_out_barrier(checkpoint_id)
                    self._limit(checkpoint_id, position)
            case UrgentBarrier(_, _, handed, barrier):
                if barrier.checkpoint_id in self.into.windows:
                    self._limit(barrier.checkpoint_id, handed)
                elif not self._is_late(barrier.checkpoint_id):
                    self._snapshot(barrier.checkpoint_id, handed)

    def _is_late(self, checkpoint_id: int) -> bool:
        """Handled in growing order: an older one than the newest snapshot is declined."""
        late = checkpoint_id in self.given_up or (
            checkpoint_id <= self.newest_applied and checkpoint_id not in self.into.windows
        )
        if late:
            self._give_up(checkpoint_id)
        return late

    def _standing(self) -> dict[int, int]:
        return {e.barrier.checkpoint_id: e.position for e in self.into.queue if isinstance(e, AlignedBarrier)}

    def _snapshot(self, checkpoint_id: int, until: int | None) -> None:
        """Older barriers that stand in the queue are turned first, in order."""
        for older, position in sorted(self._standing().items()):
            if older < checkpoint_id:
                if self.cuts[older].applied is None and older > self.newest_applied and older not in self.given_up:
                    self.into.take_out_barrier(older)
                    self._open(older, position)
                else:
                    self.into.take_out_barrier(older)
        self._open(checkpoint_id, until)

    def _open(self, checkpoint_id: int, until: int | None) -> None:
        self.newest_applied = checkpoint_id
        self.cuts[checkpoint_id].applied = self.into.applied
        if self.into.open_window(checkpoint_id, until):
            self._consumer_done(checkpoint_id)

    @rule(data=st.data())
    def another_channel_starts_it(self, data: st.DataObject) -> None:
        waiting = [i for i in self.cuts if i > self.newest_applied and i not in self.given_up]
        if not waiting:
            return
        checkpoint_id = data.draw(st.sampled_from(sorted(waiting)))
        position = self._standing().get(checkpoint_id)
        if position is not None:
            self.into.take_out_barrier(checkpoint_id)
        self._snapshot(checkpoint_id, position)

    def _limit(self, checkpoint_id: int, until: int) -> None:
        if self.into.limit_window(checkpoint_id, until):
            self._consumer_done(checkpoint_id)

    @rule(rows=st.integers(1, 4))
    def apply(self, rows: int) -> None:
        head = self.into.head()
        match head:
            case Data():
                rows = min(rows, head.rows - self.into.head_skip)
                at = self.into.head_skip
                self.seen += head.payload[at : at + rows]
                self.into.apply_rows(rows)
            case Event():
                self.seen.append(self.into.apply_event())
            case AlignedBarrier(_, position, barrier):
                self.into.pass_barrier()
                assert position == self.into.applied
                if not self._is_late(barrier.checkpoint_id):
                    self.newest_applied = barrier.checkpoint_id
                    self.cuts[barrier.checkpoint_id].applied = self.into.applied
                    self._consumer_done(barrier.checkpoint_id, Captured())
        assert self.into.applied == len(self.seen)
        limit_bytes = self.into.credit_due()
        if limit_bytes is not None:
            self.out.grant(limit_bytes)

    def _consumer_done(self, checkpoint_id: int, captured: Captured | None = None) -> None:
        if captured is None:
            captured = self.into.take_window(checkpoint_id)
        cut = self.cuts[checkpoint_id]
        assert not cut.consumer_done
        cut.consumer_done = True
        cut.parts = elements_of(captured) + cut.parts
        self._verify(checkpoint_id)

    # ---- ends ---------------------------------------------------------------------------------------------------

    def _give_up(self, checkpoint_id: int) -> None:
        self.given_up.add(checkpoint_id)
        self.into.discard_window(checkpoint_id)

    @rule(data=st.data(), at_producer=st.booleans(), at_consumer=st.booleans())
    def the_coordinator_ends_it(self, data: st.DataObject, at_producer: bool, at_consumer: bool) -> None:
        if not self.cuts:
            return
        checkpoint_id = data.draw(st.sampled_from(sorted(self.cuts)))
        self.given_up.add(checkpoint_id)
        if at_producer:
            self.out.drop_barrier(checkpoint_id)
        if at_consumer:
            self.into.take_out_barrier(checkpoint_id)
            self.into.discard_window(checkpoint_id)

    def _verify(self, checkpoint_id: int) -> None:
        cut = self.cuts[checkpoint_id]
        if not (cut.producer_done and cut.consumer_done) or checkpoint_id in self.given_up:
            return
        assert cut.applied is not None and cut.applied <= cut.emitted
        inside = [(n, v) for n, v in cut.parts if cut.applied <= n < cut.emitted]
        expected = [(n, cut.truth[n]) for n in range(cut.applied, cut.emitted)]
        assert sorted(inside, key=lambda e: e[0]) == expected
        self.verified += 1

    @invariant()
    def what_is_seen_is_what_was_sent(self) -> None:
        assert self.seen == self.truth[: len(self.seen)]

    @invariant()
    def bytes_are_counted(self) -> None:
        assert self.out.queued_bytes == sum(e.size_bytes for e in self.out.queue if isinstance(e, Data))
        assert self.into.queued_bytes == sum(e.size_bytes for e in self.into.queue if isinstance(e, Data))

    def teardown(self) -> None:
        """Everything moves in the end: no credit is missing, no window stays open, no checkpoint incomplete."""
        for _ in range(10_000):
            before = (len(self.out.queue), len(self.wire), len(self.into.queue))
            self.pop()
            if len(self.wire):
                self.receive()
            self.apply(1_000)
            if before == (0, 0, 0):
                break
        assert self.seen == self.truth, "rows wait for credit that never comes"
        for checkpoint_id, cut in self.cuts.items():
            if checkpoint_id not in self.given_up:
                assert cut.producer_done and cut.consumer_done, f"checkpoint {checkpoint_id} is stuck"
        assert not any(i not in self.given_up for i in self.into.windows)


TestOneChannel = ChannelMachine.TestCase
TestOneChannel.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
