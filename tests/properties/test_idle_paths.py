"""Tests idleness where a clock's elements come on several paths: no row is late because a path is slower than others.

A clock says rows, watermarks and pauses to two layers of subtasks, each with all those of the layer before as inputs.
Another one is ahead, and is idle. Channels deliver in any order between each other. The rows of the clock lie beyond
its watermarks, and those behind a pause beyond that of the other one, too. So none may be late.
"""

from __future__ import annotations

from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.operators.event_time.progress import EventTime
from penstock.operators.event_time.subtask_clock import SubtaskClock
from penstock.protocol.channel.watermark_valve import WatermarkValve
from penstock.protocol.values.elements import Active, Idle, InBandEvent, Pauses, Watermark

WIDTH = 3
Row = int
"""The time of a row."""


class Middle:
    """A subtask without generators: passes rows to one subtask of the next layer, and time to all. A row waits for a
    timer at its own time.
    """

    def __init__(self, outputs: list[deque[Row | InBandEvent]]) -> None:
        self.inputs: list[deque[Row | InBandEvent]] = []
        self.outputs = outputs
        self.held: list[Row] = []
        self.valve = WatermarkValve(0)
        self.clock = SubtaskClock(self.valve, EventTime(), None, bool(outputs), False, self.emit, lambda: 0.0)

    def connect(self) -> deque[Row | InBandEvent]:
        self.inputs.append(deque())
        self.valve.restore([*self.valve.times(), *WatermarkValve(1).times()])
        return self.inputs[-1]

    def emit(self, event: InBandEvent) -> None:
        for output in self.outputs:
            output.append(event)

    def take(self, channel: int) -> None:
        element = self.inputs[channel].popleft()
        if isinstance(element, Row):
            assert element > self.clock.time.current_ms, f"a row of {element} is late at {self.clock.time.current_ms}"
            self.held.append(element)
            return
        self.clock.on_inputs(self.valve.on_event(channel, element))
        while self.clock.time.behind:
            due = sorted(row for row in self.held if row <= self.clock.time.current_ms)
            self.held = [row for row in self.held if row not in due]
            for row in due if self.outputs else ():
                self.outputs[row % len(self.outputs)].append(row)
            self.clock.emit_watermark()

    def restart(self) -> None:
        """Restore time from a snapshot, with the elements that are in flight."""
        old, times = self.clock, self.valve.times()
        self.valve = WatermarkValve(len(self.inputs))
        self.valve.restore(times, old.time.current_ms, old.said_pauses)
        emits = bool(self.outputs)
        self.clock = SubtaskClock(
            self.valve, old.time, None, emits, old.said_idle, self.emit, lambda: 0.0, 0, old.said_pauses
        )


AHEAD_MS = 60


def graph() -> tuple[list[Middle], list[deque[Row | InBandEvent]]]:
    """Return the subtasks of both layers, and the clock's outputs."""
    last = [Middle([]) for _ in range(WIDTH)]
    first = [Middle([consumer.connect() for consumer in last]) for _ in range(WIDTH)]
    for subtask in first:
        subtask.connect().extend([Watermark(AHEAD_MS), Pauses(8, 0), Idle()])
    return [*first, *last], [subtask.connect() for subtask in first]


class Clock:
    """Emits as a source's subtask with generators does."""

    def __init__(self, outputs: list[deque[Row | InBandEvent]]) -> None:
        self.outputs = outputs
        self.time_ms = self.pauses = 0
        self.is_idle = False

    def emit(self, event: InBandEvent) -> None:
        for output in self.outputs:
            output.append(event)

    def row(self, ahead_ms: int) -> None:
        if self.is_idle:
            self.is_idle, self.pauses = False, self.pauses + 1
            self.time_ms = max(self.time_ms, AHEAD_MS)
            self.emit(Active())
            self.emit(Pauses(7, self.pauses))
        row = self.time_ms + ahead_ms
        self.outputs[row // 3 % len(self.outputs)].append(row)

    def watermark(self, ahead_ms: int) -> None:
        if not self.is_idle:
            self.time_ms += ahead_ms
            self.emit(Watermark(self.time_ms))

    def idle(self) -> None:
        if not self.is_idle:
            if not self.pauses:
                self.emit(Pauses(7, 0))
            self.is_idle = True
            self.emit(Idle())


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["row", "watermark"]), st.integers(1, 20)),
        st.tuples(st.just("idle"), st.just(0)),
        st.tuples(st.just("restart"), st.integers(0, 2 * WIDTH - 1)),
        st.tuples(st.just("take"), st.integers(0, 10**6)),
        st.tuples(st.just("take all but"), st.integers(0, WIDTH - 1)),
    ),
    max_size=120,
)


@settings(max_examples=2000)
@given(STEPS)
def test_no_row_is_late_behind_a_slow_path(steps: list[tuple[str, int]]) -> None:
    subtasks, outputs = graph()
    clock = Clock(outputs)

    def deliver(but: int | None = None) -> None:
        while waiting := [(s, i) for s in subtasks if s is not (None if but is None else subtasks[but])
                          for i, channel in enumerate(s.inputs) if channel]:  # fmt: skip
            subtask, channel = waiting[0]
            subtask.take(channel)

    for what, number in steps:
        match what:
            case "row":
                clock.row(number)
            case "watermark":
                clock.watermark(number)
            case "idle":
                clock.idle()
            case "restart":
                subtasks[number].restart()
            case "take all but":
                deliver(number)
            case _:
                if waiting := [(s, i) for s in subtasks for i, channel in enumerate(s.inputs) if channel]:
                    subtask, channel = waiting[number % len(waiting)]
                    subtask.take(channel)
    clock.idle()
    deliver()
    reached = {subtask.clock.time.current_ms for subtask in subtasks}
    assert reached == {subtasks[0].clock.time.current_ms}, "nothing holds time back once all is read"
    assert all(subtask.valve.is_idle for subtask in subtasks)
