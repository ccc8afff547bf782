"""Rules about the end of a generation in the middle of a step are broken one at a time, and are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.runtime.process import slot
from penstock.runtime.process.slot_deployment import SlotDeployment
from penstock.runtime.subtask.subtask_runner import SubtaskRunner, WriterRunner
from penstock.state.heap.hash_map import HashMapStateBackend
from tests.simulation.finding import assert_found
from tests.simulation.proofs import breaks

Patch = Callable[[Any, str, Any], None]


@breaks("12.2")
def messages_of_a_revoked_generation_leave(patch: Patch) -> None:
    patch(SlotDeployment, "send", lambda self, message: self._ports.master.send(message))


@breaks("12.2")
def frames_of_a_revoked_generation_leave(patch: Patch) -> None:
    def send_frame(self: Any, number: int, frame: Any) -> None:
        if number == self._slot:
            self.deliver(frame)
        else:
            self._ports.links.send(number, frame)

    patch(SlotDeployment, "_send_frame", send_frame)


@breaks("12.2")
def left_is_said_before_the_step_is_over(patch: Patch) -> None:
    """The slot waits for the runners of its writer only."""
    revoke = slot.Slot._revoke

    def hasty(self: Any) -> None:
        revoke(self)
        self._letting_go = [r for r in self._letting_go if isinstance(r, WriterRunner)]

    patch(slot.Slot, "_revoke", hasty)


@breaks("12.2")
def the_writer_is_not_waited_for(patch: Patch) -> None:
    revoke = slot.Slot._revoke

    def hasty(self: Any) -> None:
        revoke(self)
        self._letting_go = [r for r in self._letting_go if isinstance(r, SubtaskRunner)]

    patch(slot.Slot, "_revoke", hasty)


@breaks("12.2")
def the_writer_goes_on_with_what_it_has(patch: Patch) -> None:
    """It ends with its generation only when its mail is done, and is not waited for."""
    the_writer_is_not_waited_for(patch)
    step = WriterRunner.step
    patch(WriterRunner, "step", lambda self: 0 if self._writer.step() else step(self))


@breaks("12.2")
def handles_of_state_outlive_their_generation(patch: Patch) -> None:
    patch(HashMapStateBackend, "revoke", lambda self: None)


@breaks("12.2")
def a_slot_forgets_whom_it_waits_for(patch: Patch) -> None:
    """Two calls wait for the threads of one generation; the second finds none."""

    def when_left(self: Any, done: Any) -> None:
        runners, self._letting_go = self._letting_go, []
        self._scheduler.when_done(runners, self._cancellation_timeout_ms, done)

    patch(slot.Slot, "_when_left", when_left)


MUTANTS: list[tuple[Callable[[Patch], None], str]] = [
    # (mutant, the violation that it must cause)
    (messages_of_a_revoked_generation_leave, r"of generation \(\d+, \d+\) leaves after the end of that"),
    (
        frames_of_a_revoked_generation_leave,
        r"(Data|Event|Credit\w+|\w+Barrier) of generation .* leaves after the end",
    ),
    (left_is_said_before_the_step_is_over, r"\(\d+/\d+\) runs in generation .*, which the process has left"),
    (the_writer_is_not_waited_for, r"snapshot writer runs in generation .*, which the process has left"),
    (the_writer_goes_on_with_what_it_has, r"snapshot writer runs in generation .*, which the process has left"),
    (handles_of_state_outlive_their_generation, r"a handle of state works after the process has left"),
]


@pytest.mark.parametrize(("mutant", "violation"), MUTANTS, ids=[m.__name__ for m, _ in MUTANTS])
def test_a_broken_rule_is_found(
    mutant: Callable[[Patch], None], violation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch.setattr)
    assert_found("generation-ends-inside-a-step", violation)


def test_a_slot_that_leaves_waits_for_what_it_has_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    a_slot_forgets_whom_it_waits_for(monkeypatch.setattr)
    violation = r"runs in generation .*, which the process has left|a handle of state works"
    assert_found("slot-leaves-during-a-release", violation)
