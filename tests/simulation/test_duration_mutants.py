"""Rules that bound how long checkpoints and draining take are broken one at a time, and are found in calm runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from penstock.protocol.channel.ends import OutputChannel
from penstock.protocol.subtask import barrier_handler
from penstock.protocol.subtask.barrier_handler import BarrierHandler
from penstock.protocol.subtask.drain_gate import DrainGate, Stage
from penstock.protocol.subtask.subtask_machine import SubtaskMachine
from penstock.protocol.values.frames import AlignedBarrier, CreditLimit, CreditWanted
from penstock.runtime.subtask.subtask import StepResult, Subtask
from tests.simulation.finding import assert_found
from tests.simulation.proofs import breaks

Patch = Callable[[Any, str, Any], None]


@breaks("2.5")
def the_timeout_is_ignored_at_the_input(patch: Patch) -> None:
    patch(barrier_handler._Alignment, "is_overdue", lambda self, now_ms: False)


@breaks("2.5")
def the_timeout_is_ignored_at_the_output(patch: Patch) -> None:
    patch(SubtaskMachine, "_turn_outputs", lambda self, now_ms: [])


@breaks("2.5")
def the_timeout_starts_again_at_each_vertex(patch: Patch) -> None:
    snapshot = BarrierHandler._snapshot

    def young(self: Any, *arguments: Any) -> Any:
        effect = snapshot(self, *arguments)
        return msgspec.structs.replace(effect, barrier=msgspec.structs.replace(effect.barrier, age_ms=0.0))

    patch(BarrierHandler, "_snapshot", young)


@breaks("2.5")
def barriers_do_not_grow_older_in_output_queues(patch: Patch) -> None:
    pop = OutputChannel.pop

    def young(self: Any, now_ms: float, joined_bytes: int = 0) -> Any:
        head = self.queue[0] if self.queue else None
        frame = pop(self, now_ms, joined_bytes)
        return head if isinstance(frame, AlignedBarrier) else frame

    patch(OutputChannel, "pop", young)


@breaks("4.4")
def outputs_block_inside_a_slice(patch: Patch) -> None:
    """Once a slice has begun it waits for room until it is finished, and only credit is looked at meanwhile."""
    step = Subtask.step

    def blocked(self: Any, now_ms: float) -> StepResult:
        if not self.work.unfinished:
            return step(self, now_ms)
        mail, others = self.mailbox.mail, []
        while mail:
            item = self.mailbox.take()
            if isinstance(item, CreditLimit | CreditWanted):
                self.deployed.on_credit(item)
            else:
                others.append(item)
        mail.extend(others)
        self.work.resume()
        self.output.flush(now_ms, idle=True)
        waits = self.work.unfinished and not self.output.has_room()
        return StepResult(not waits, None if waits else 0, waits)

    patch(Subtask, "step", blocked)


@breaks("3.4b")
def a_release_waits_for_a_checkpoint_that_has_ended(patch: Patch) -> None:
    """Hold until the coordinator says that the checkpoint is over, too."""

    def on_release(self: Any, is_last: bool, checkpoints: Any) -> None:
        if self._stage is not Stage.OVER:
            self._next.append((Stage.OVER if is_last else Stage.RELEASED, set(checkpoints)))
            self._follow()

    patch(DrainGate, "on_release", on_release)


TOOK = r"^checkpoint \d+ took \d+ ms though nothing is wrong"
MUTANTS: list[tuple[Callable[[Patch], None], str, str]] = [
    # (mutant, schedule, the violation that it must cause)
    (the_timeout_is_ignored_at_the_input, "checkpoints-under-pressure-are-quick", TOOK),
    (the_timeout_is_ignored_at_the_output, "checkpoints-under-pressure-are-quick", TOOK),
    (the_timeout_starts_again_at_each_vertex, "one-timeout-on-the-whole-way", TOOK),
    (barriers_do_not_grow_older_in_output_queues, "one-timeout-on-the-whole-way", TOOK),
    (outputs_block_inside_a_slice, "no-room-in-the-middle-of-a-slice", TOOK),
    (a_release_waits_for_a_checkpoint_that_has_ended, "drain-during-a-checkpoint", r"^draining took \d+ ms"),
]


@pytest.mark.parametrize(("mutant", "schedule", "violation"), MUTANTS, ids=[m.__name__ for m, _, _ in MUTANTS])
def test_a_broken_rule_is_found(
    mutant: Callable[[Patch], None], schedule: str, violation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch.setattr)
    assert_found(schedule, violation)
