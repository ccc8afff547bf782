"""Rules that bound how long checkpoints and draining take are broken one at a time, and are found in calm runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from penstock.protocol.subtask.barrier_handler import BarrierHandler
from penstock.runtime.checkpoint.subtask_checkpoints import SubtaskCheckpoints
from penstock.runtime.input.drain_gate import Stage, SubtaskDraining
from penstock.runtime.output.result_partition import ResultPartition
from tests.simulation.finding import assert_found

Patch = Callable[[Any, str, Any], None]


def the_timeout_is_ignored_at_the_input(patch: Patch) -> None:
    patch(BarrierHandler, "_turn_if_due", lambda self, alignment, now_ms: [])


def the_timeout_is_ignored_at_the_output(patch: Patch) -> None:
    patch(SubtaskCheckpoints, "on_time", lambda self, now_ms: self._carry_out(self._handler.on_time(now_ms)))


def the_timeout_starts_again_at_each_vertex(patch: Patch) -> None:
    snapshot = BarrierHandler._snapshot

    def young(self: Any, *arguments: Any) -> Any:
        effect = snapshot(self, *arguments)
        return msgspec.structs.replace(effect, barrier=msgspec.structs.replace(effect.barrier, age_ms=0.0))

    patch(BarrierHandler, "_snapshot", young)


def barriers_do_not_grow_older_in_output_queues(patch: Patch) -> None:
    patch(ResultPartition, "_aged", lambda self, frame: frame)


def a_release_waits_for_a_checkpoint_that_has_ended(patch: Patch) -> None:
    """Until the coordinator says that the checkpoint is over, too."""

    def on_release(self: Any, is_last: bool, checkpoints: Any) -> None:
        if self._stage is not Stage.OVER:
            self._next.append((Stage.OVER if is_last else Stage.RELEASED, set(checkpoints)))
            self._follow()

    patch(SubtaskDraining, "on_release", on_release)


TOOK = r"^checkpoint \d+ took \d+ ms though nothing is wrong"
MUTANTS: list[tuple[Callable[[Patch], None], str, str]] = [
    # (mutant, schedule, the violation that it must cause)
    (the_timeout_is_ignored_at_the_input, "checkpoints-under-pressure-are-quick", TOOK),
    (the_timeout_is_ignored_at_the_output, "checkpoints-under-pressure-are-quick", TOOK),
    (the_timeout_starts_again_at_each_vertex, "one-timeout-on-the-whole-way", TOOK),
    (barriers_do_not_grow_older_in_output_queues, "one-timeout-on-the-whole-way", TOOK),
    (a_release_waits_for_a_checkpoint_that_has_ended, "drain-beside-a-checkpoint", r"^draining took \d+ ms"),
]


@pytest.mark.parametrize(("mutant", "schedule", "violation"), MUTANTS, ids=[m.__name__ for m, _, _ in MUTANTS])
def test_a_broken_rule_is_found(
    mutant: Callable[[Patch], None], schedule: str, violation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch.setattr)
    assert_found(schedule, violation)
