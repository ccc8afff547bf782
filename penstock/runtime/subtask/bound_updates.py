"""Fits the windows and queues of a subtask to what it consumes and emits, now and then."""

from __future__ import annotations

from penstock.runtime.input.input_gate import InputGate
from penstock.runtime.output.chain_output import ChainOutput
from penstock.runtime.subtask.active_clock import ActiveClock


class BoundUpdates:
    """Updates the bounds of a gate and an output every `period_ms`, by rates of active time (`pace`)."""

    def __init__(self, gate: InputGate, output: ChainOutput, pace: ActiveClock, period_ms: float) -> None:
        self._gate = gate
        self._output = output
        self._pace = pace
        self._period_ms = period_ms
        self._due_ms = 0.0

    def on_time(self, now_ms: float) -> None:
        if now_ms < self._due_ms:
            return
        # A bound that has just grown is likely too small still, so that it is looked at sooner.
        active_ms = self._pace.now_ms()
        grown = self._gate.resize(active_ms) | self._output.resize(active_ms)
        self._due_ms = now_ms + max(self._period_ms / (4 if grown else 1), 1.0)
