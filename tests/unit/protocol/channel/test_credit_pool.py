"""A gate's channels share its bound: what is in flight does not grow with their number, and nobody waits for ever."""

from __future__ import annotations

from penstock.protocol.channel.credit_pool import WINDOW_ALONE_BYTES, CreditPool, reserved_window
from penstock.protocol.channel.ends import InputChannel, OutputChannel
from penstock.protocol.values.elements import ChannelId
from penstock.protocol.values.frames import Data

BOUND = 16_384
ROW = 600


class Gate:
    """Producers and their consumer, without anything between them. Frames arrive when `receive` says so."""

    def __init__(self, channels: int, bound_bytes: int = BOUND) -> None:
        ids = [ChannelId(0, producer, 0) for producer in range(channels)]
        self.pool = CreditPool(bound_bytes, ids)
        credit_bytes = reserved_window(bound_bytes, channels)
        self.outputs = [OutputChannel(channel, credit_bytes) for channel in ids]
        self.inputs = self.pool.channels

    def emit(self, at: int, rows: int, row_bytes: int = ROW) -> None:
        for _ in range(rows):
            self.outputs[at].enqueue_rows(1, row_bytes, "row")
        self.send(at)

    def send(self, at: int) -> None:
        while isinstance(frame := self.outputs[at].pop(0.0), Data):
            self.inputs[at].receive(frame)
        if (wanted_bytes := self.outputs[at].credit_wanted()) is not None:
            self.inputs[at].want(wanted_bytes)

    def grant(self) -> list[int]:
        """Let the pool grant; return who sends more."""
        granted = [channel.id.producer for channel in self.pool.granted()]
        for at in granted:
            self.outputs[at].grant(self.inputs[at].granted_bytes)
            self.send(at)
        return granted

    def apply(self, at: int) -> None:
        head = self.inputs[at].head()
        assert isinstance(head, Data)
        self.inputs[at].apply_rows(head.rows)
        if (limit_bytes := self.inputs[at].credit_due()) is not None:
            self.outputs[at].grant(limit_bytes)
            self.send(at)

    @property
    def waits(self) -> list[int]:
        return [at for at, channel in enumerate(self.inputs) if channel.head() is not None]

    def bytes_at(self, *positions: int) -> int:
        return sum(self.inputs[at].queued_bytes for at in positions or range(len(self.inputs)))


def test_few_channels_always_have_half_of_the_bound() -> None:
    assert [reserved_window(BOUND, channels) for channels in (1, 2, 8, 9, 4_096)] == [8_192, 4_096, 1_024, 0, 0]
    gate = Gate(2)
    gate.emit(0, 2)
    assert gate.bytes_at(0) == 2 * ROW, "nobody had to ask"
    assert gate.grant() == []


def test_windows_that_hold_several_frames_have_the_whole_bound_and_nobody_asks() -> None:
    bound_bytes = 3 * WINDOW_ALONE_BYTES
    assert [reserved_window(bound_bytes, channels) for channels in (1, 3, 4)] == [
        bound_bytes,
        WINDOW_ALONE_BYTES,
        bound_bytes // 8,
    ]
    gate = Gate(3, bound_bytes)
    gate.emit(0, 10 * bound_bytes // ROW)
    assert WINDOW_ALONE_BYTES <= gate.bytes_at(0) < WINDOW_ALONE_BYTES + ROW
    assert gate.grant() == [], "its window is all it gets"
    gate.inputs[0].block(1)
    gate.grant()
    assert gate.bytes_at(0) > WINDOW_ALONE_BYTES, "a blocked one gets more, so that its producer can serve others"


def test_a_channel_without_a_window_gets_the_one_that_a_larger_bound_has_room_for() -> None:
    gate = Gate(9)
    gate.emit(0, 1_000)
    assert gate.bytes_at(0) == 0
    gate.pool.resize(9 * WINDOW_ALONE_BYTES)
    gate.grant()
    assert gate.bytes_at(0) >= WINDOW_ALONE_BYTES


def test_what_is_at_a_gate_does_not_grow_with_its_channels() -> None:
    held = {}
    for channels in (2, 64, 1_000):
        gate = Gate(channels)
        for at in range(channels):
            gate.emit(at, 100)
        while gate.grant():
            pass
        held[channels] = gate.bytes_at()
    assert all(BOUND // 2 < bytes_held <= BOUND + 9 * ROW for bytes_held in held.values()), held


def test_everybody_who_waits_has_a_turn() -> None:
    gate = Gate(64)
    for at in range(64):
        gate.emit(at, 10)
    seen = set()
    while gate.grant() or gate.waits:
        seen |= set(gate.waits)
        for at in gate.waits:
            gate.apply(at)
    assert seen == set(range(64))
    assert [channel.applied for channel in gate.inputs] == [10] * 64


def test_a_channel_with_most_of_the_rows_gets_most_of_the_credit() -> None:
    gate = Gate(64)
    gate.emit(5, 1_000)
    for at in (1, 2, 3):
        gate.emit(at, 1)
    while gate.grant():
        pass
    assert gate.bytes_at(1, 2, 3) == 3 * ROW
    assert gate.bytes_at(5) >= BOUND - 4 * ROW, "64 equal shares would let it have one row"


def test_a_row_that_is_larger_than_the_bound_passes_alone() -> None:
    gate = Gate(64)
    for at in range(64):
        gate.emit(at, 1, row_bytes=10 * BOUND)
    for done in range(64):
        while gate.grant():
            pass
        assert 0 < gate.bytes_at() <= 8 * 10 * BOUND, "as many as have their turns at once, not as many as there are"
        gate.apply(gate.waits[0])
        assert sum(channel.applied for channel in gate.inputs) == done + 1


def test_after_a_row_larger_than_its_credit_more_is_granted() -> None:
    """Without this: the producer believes that the consumer knows of its rows, and the consumer that it has enough."""
    gate = Gate(64)
    gate.emit(0, 1, row_bytes=5 * BOUND)
    gate.grant()
    gate.apply(0)
    gate.emit(0, 1)
    gate.grant()
    assert gate.bytes_at(0) == ROW


def test_blocked_channels_do_not_use_up_what_the_others_need() -> None:
    gate = Gate(64)
    gate.emit(0, 1_000)
    gate.grant()
    gate.inputs[0].block(1)
    gate.emit(1, 1)
    gate.grant()
    assert gate.bytes_at(1) == ROW, "its barrier is behind it"
    while gate.grant():
        pass
    assert BOUND < gate.bytes_at(0) <= 2 * BOUND + ROW, "and a blocked one may fill two bounds"
    gate.inputs[0].unblock(1)
    gate.emit(2, 1)
    assert gate.grant() == [], "the bound is used up until that has been applied"
    while gate.bytes_at(0) > BOUND - 3 * ROW:
        gate.apply(0)
    assert 2 in gate.grant()


def test_a_bound_that_shrinks_takes_nothing_back_and_grants_less() -> None:
    gate = Gate(64)
    gate.emit(0, 1_000)
    while gate.grant():
        pass
    gate.pool.resize(BOUND // 4)
    while gate.bytes_at(0) > BOUND // 3:
        gate.apply(0)
        assert gate.grant() == [] or gate.bytes_at(0) <= BOUND // 3
    while gate.bytes_at(0) > BOUND // 8:
        gate.apply(0)
    assert gate.grant() == [0]


def test_repeated_and_late_reports_are_harmless() -> None:
    channel: InputChannel = Gate(64).inputs[0]
    channel.want(700)
    channel.want(300)
    assert channel.wanted_bytes == 700


def test_a_gate_expects_rows_that_are_reported_and_have_not_come() -> None:
    gate = Gate(2)
    assert not gate.pool.expects_rows
    gate.emit(0, 20)
    assert gate.pool.expects_rows, "more than the window lets pass"
    while gate.outputs[0].queued_bytes:
        gate.grant()
        for at in gate.waits:
            gate.apply(at)
    assert not gate.pool.expects_rows, "all have come"


def test_a_gate_does_not_wait_for_rows_of_a_blocked_channel() -> None:
    gate = Gate(2)
    gate.inputs[0].block(1)
    gate.emit(0, 60)
    assert gate.inputs[0].wanted_bytes > gate.inputs[0].received_bytes
    assert not gate.pool.expects_rows, "the alignment ends first"
    gate.inputs[0].unblock(1)
    assert gate.pool.expects_rows
