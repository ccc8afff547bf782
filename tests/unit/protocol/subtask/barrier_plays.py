"""Plays a script of barriers and rows against one subtask, and records what it applied and answered.

A play is a list of words, in the order of arrival. Every row is applied at once, unless the play says `hold`.

    b0          a row on channel 0; it is called r0, r1, ... in the order of the play
    B(7,0)      an aligned barrier of checkpoint 7 on channel 0, in its place; it turns after the play's timeout, if any
    U(7,0)      the same unaligned: ahead of the rows `late` on its way, if any
    C(7,0)      the producer of channel 0 has declined 7
    X7          the coordinator says that 7 is over
    late2:0     the producer of channel 0 has handed over two rows that an urgent barrier will overtake
    +50         50 ms pass
    hold, go    rows are not applied, and are again
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from penstock.protocol.values.elements import Barrier, ChannelId
from penstock.protocol.values.frames import AlignedBarrier, CancelBarrier, Data, UrgentBarrier
from tests.unit.protocol.subtask.driven_subtask import DrivenSubtask, SetClock

_WORD = re.compile(r"([BUC])\((\d+),(\d+)\)|b(\d+)|X(\d+)|late(\d+):(\d+)|\+(\d+)|(hold)|(go)")


@dataclass
class Play:
    channels: int
    timeout_ms: int | None = None
    clock: SetClock = field(default_factory=SetClock)
    applied: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ids = [ChannelId(0, p, 0) for p in range(self.channels)]
        self.subtask = DrivenSubtask(self.ids, [], self.clock)
        self.sent = [0] * self.channels
        self.on_the_way: list[list[Data]] = [[] for _ in self.ids]
        self.rows = 0
        self.holds = False
        self.triggered_ms: dict[int, float] = {}

    def run(self, script: str) -> Play:
        for word in script.split():
            found = _WORD.fullmatch(word)
            assert found, word
            kind, checkpoint_id, channel, row, over, late, late_on, ms, hold, go = found.groups()
            if kind:
                self._barrier(kind, int(checkpoint_id), int(channel))
            elif row:
                self.subtask.receive(self._row(int(row)))
            elif over:
                self.subtask.end(int(over))
            elif late:
                self.on_the_way[int(late_on)] += [self._row(int(late_on)) for _ in range(int(late))]
            elif ms:
                self.clock.now_ms += float(ms)
                self.subtask.on_time()
            elif hold or go:
                self.holds = bool(hold)
            self._apply_all()
        return self

    def _row(self, channel: int) -> Data:
        frame = Data(self.ids[channel], self.sent[channel], 1, 100, [f"r{self.rows}"])
        self.rows += 1
        self.sent[channel] += 1
        return frame

    def _barrier(self, kind: str, checkpoint_id: int, channel: int) -> None:
        at = self.ids[channel]
        triggered_ms = self.triggered_ms.setdefault(checkpoint_id, self.clock.now_ms)
        age_ms = self.clock.now_ms - triggered_ms
        match kind:
            case "B":
                barrier = Barrier(checkpoint_id, self.timeout_ms, age_ms)
                self.subtask.receive(AlignedBarrier(at, self.sent[channel], barrier))
            case "U":
                barrier = Barrier(checkpoint_id, self.timeout_ms or 0, age_ms)
                self.subtask.receive(UrgentBarrier(at, self.sent[channel], self.sent[channel], barrier))
                for frame in self.on_the_way[channel]:
                    self.subtask.receive(frame)
                self.on_the_way[channel].clear()
            case "C":
                self.subtask.receive(CancelBarrier(at, checkpoint_id))

    def _apply_all(self) -> None:
        moved = not self.holds
        while moved:
            moved = False
            for channel in range(self.channels):
                while self.subtask.inputs[channel].head() is not None:
                    moved = True
                    row = self.subtask.apply(channel)
                    if row is not None:
                        self.applied.append(row)

    # ---- what can be seen ---------------------------------------------------------------------------------------

    @property
    def log(self) -> str:
        """For example "unaligned 1, decline 2"."""
        return ", ".join(self.subtask.log)

    def in_flight(self, checkpoint_id: int) -> set[str]:
        captured = self.subtask.acknowledged[checkpoint_id].captured
        return {row for rows in captured.values() for _, row in rows}

    @property
    def acknowledged(self) -> list[int]:
        return list(self.subtask.acknowledged)

    @property
    def reasons(self) -> dict[int, str]:
        return self.subtask.declined


def play(channels: int, script: str, timeout_ms: int | None = None) -> Play:
    return Play(channels, timeout_ms).run(script)
