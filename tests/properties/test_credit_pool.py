"""Tests that, whatever producers emit, in whatever order frames arrive and rows are applied, with whatever blocked
meanwhile and however the bound changes: what is at a gate is bounded, and everything emitted is applied at last.
"""

from __future__ import annotations

from collections import deque

from hypothesis import assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.protocol.channel.credit_pool import (
    BOUNDS_WHILE_BLOCKED,
    TURNS_PER_BOUND,
    WINDOW_ALONE_BYTES,
    CreditPool,
    reserved_window,
)
from penstock.protocol.channel.ends import OutputChannel
from penstock.protocol.values.elements import ChannelId
from penstock.protocol.values.frames import CreditLimit, CreditWanted, Data

ROW_BYTES_MAX = 3_000
places = st.integers(0, 10**6)
bounds = st.integers(1, 20_000) | st.integers(WINDOW_ALONE_BYTES, 4 * WINDOW_ALONE_BYTES)


class GateMachine(RuleBasedStateMachine):
    @initialize(channels=st.integers(1, 40), bound_bytes=bounds)
    def start(self, channels: int, bound_bytes: int) -> None:
        ids = [ChannelId(0, producer, 0) for producer in range(channels)]
        self.pool = CreditPool(bound_bytes, ids)
        self.bound_bytes_max = bound_bytes
        credit_bytes = reserved_window(bound_bytes, channels)
        self.outputs = [OutputChannel(channel, credit_bytes) for channel in ids]
        self.inputs = self.pool.channels
        self.wires: list[deque[Data | CreditWanted]] = [deque() for _ in ids]
        self.back: list[deque[CreditLimit]] = [deque() for _ in ids]

    def _send(self, at: int) -> None:
        out, wire = self.outputs[at], self.wires[at]
        while (frame := out.pop(0.0)) is not None:
            assert isinstance(frame, Data)
            wire.append(frame)
        if (wanted_bytes := out.credit_wanted()) is not None:
            wire.append(CreditWanted(out.id, wanted_bytes))

    @rule(place=places, sizes=st.lists(st.integers(1, ROW_BYTES_MAX), min_size=1, max_size=20))
    def emit(self, place: int, sizes: list[int]) -> None:
        at = place % len(self.outputs)
        for size_bytes in sizes:
            self.outputs[at].enqueue_rows(1, size_bytes, "row")
        self._send(at)

    @rule(size_bytes=st.integers(1, ROW_BYTES_MAX), rows=st.integers(1, 4))
    def emit_everywhere(self, size_bytes: int, rows: int) -> None:
        for at in range(len(self.outputs)):
            for _ in range(rows):
                self.outputs[at].enqueue_rows(1, size_bytes, "row")
            self._send(at)

    @rule(place=places)
    def arrive(self, place: int) -> None:
        self._arrive(place % len(self.inputs))

    def _arrive(self, at: int) -> bool:
        if not self.wires[at]:
            return False
        match self.wires[at].popleft():
            case Data() as frame:
                self.inputs[at].receive(frame)
            case CreditWanted(_, wanted_bytes):
                self.inputs[at].want(wanted_bytes)
        return True

    @rule(place=places)
    def apply(self, place: int) -> None:
        self._apply(place % len(self.inputs))

    def _apply(self, at: int) -> bool:
        into = self.inputs[at]
        head = into.head()
        if not isinstance(head, Data):
            return False
        into.apply_rows(1)
        if (limit_bytes := into.credit_due()) is not None:
            self.back[at].append(CreditLimit(into.id, limit_bytes))
        return True

    @rule()
    def grant(self) -> None:
        self._grant()

    def _grant(self) -> bool:
        granted = self.pool.granted()
        for channel in granted:
            self.back[channel.id.producer].append(CreditLimit(channel.id, channel.granted_bytes))
        return bool(granted)

    @rule(place=places)
    def be_granted(self, place: int) -> None:
        self._be_granted(place % len(self.outputs))

    def _be_granted(self, at: int) -> bool:
        if not self.back[at]:
            return False
        self.outputs[at].grant(self.back[at].popleft().limit_bytes)
        self._send(at)
        return True

    @rule(place=places, checkpoint_id=st.integers(1, 2))
    def block(self, place: int, checkpoint_id: int) -> None:
        self.inputs[place % len(self.inputs)].block(checkpoint_id)

    @rule(place=places, checkpoint_id=st.integers(1, 2))
    def unblock(self, place: int, checkpoint_id: int) -> None:
        self.inputs[place % len(self.inputs)].unblock(checkpoint_id)

    @rule(bound_bytes=bounds)
    def resize(self, bound_bytes: int) -> None:
        assume(bound_bytes)
        self.pool.resize(bound_bytes)
        self.bound_bytes_max = max(self.bound_bytes_max, bound_bytes)

    @rule()
    def settle(self) -> None:
        """Let all that can happen do so, with nothing blocked: nobody waits for ever."""
        for channel in self.inputs:
            channel.unblock(1)
            channel.unblock(2)
        everybody = range(len(self.inputs))
        going_on = True
        while going_on:
            going_on = self._grant()
            for at in everybody:
                going_on |= self._arrive(at) | self._be_granted(at) | self._apply(at)
        assert not any(out.queue for out in self.outputs), "rows wait, and nothing will ever happen again"
        assert [c.applied for c in self.inputs] == [out.emitted for out in self.outputs]

    @invariant()
    def what_is_in_flight_is_bounded(self) -> None:
        if not hasattr(self, "pool"):
            return
        sent = sum(out.sent_bytes - into.applied_bytes for out, into in zip(self.outputs, self.inputs, strict=True))
        bound_bytes = self.bound_bytes_max * (1 + BOUNDS_WHILE_BLOCKED)
        reserved = [r for r in (reserved_window(self.bound_bytes_max, len(self.inputs)),) if r] * len(self.inputs)
        # Each channel that is in the middle of a turn may exceed its credit by a row, and so may each reserved window.
        rows = (1 + BOUNDS_WHILE_BLOCKED) * (TURNS_PER_BOUND + 1) + len(reserved)
        assert sent <= bound_bytes + sum(reserved) + rows * ROW_BYTES_MAX


TestGate = GateMachine.TestCase
TestGate.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
