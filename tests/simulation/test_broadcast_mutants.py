"""The simulation finds broken rules of broadcasts and of operator state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from penstock.graph import fit
from penstock.jobmaster.generations import JobDrain
from penstock.jobmaster.rescales import Rescales
from penstock.operators.checkpointed_parts import CheckpointedParts
from penstock.protocol.driver.coordinator import CheckpointCoordinator
from penstock.protocol.driver.rescaling import Rescaling
from penstock.protocol.restore import rescale
from penstock.protocol.restore.drain_phases import Draining
from penstock.protocol.restore.rescale import Filter, Share
from penstock.runtime.checkpoint import operator_state_restore, subtask_restore
from tests.simulation.finding import assert_found
from tests.simulation.proofs import breaks

Patch = Callable[[Any, str, Any], None]


@breaks("6.1")
def receivers_at_different_rows_are_not_noticed(patch: Patch) -> None:
    patch(fit, "uneven_broadcasts", lambda metadata: frozenset())


@breaks("6.1")
def what_is_left_of_a_broadcast_goes_to_one_receiver(patch: Patch) -> None:
    shares = rescale.shares

    def to_one(partitioner: str, old: int, new: int, max_parallelism: int, consumer: int) -> list[Share]:
        if partitioner == "broadcast" and old != new:
            return [Share(0, Filter.WHOLE)] if consumer == 0 else []
        return shares(partitioner, old, new, max_parallelism, consumer)

    patch(rescale, "shares", to_one)


@breaks("6.1")
def broadcast_state_is_that_of_one_subtask_only(patch: Patch) -> None:
    restore = operator_state_restore.restore_operator_state

    def of_the_old_ones(backend: Any, operator: str, old: Any, new: int, subtask: int) -> None:
        if subtask < len(old):
            restore(backend, operator, old, new, subtask)

    patch(subtask_restore, "restore_operator_state", of_the_old_ones)


@breaks("6.2")
def operator_lists_are_not_dealt_out(patch: Patch) -> None:
    patch(operator_state_restore, "_dealt_rows", lambda items, new, subtask: [i for of_one in items for i in of_one])


@breaks("6.2")
def union_lists_are_dealt_out(patch: Patch) -> None:
    patch(operator_state_restore, "UNION", "no kind of state")


@breaks("6.2")
def state_of_functions_is_not_brought_up_to_date(patch: Patch) -> None:
    patch(CheckpointedParts, "_update", lambda self, parts, checkpoint_id: None)


@breaks("6.3b")
def sources_emit_while_receivers_differ(patch: Patch) -> None:
    begin = Draining.__init__
    patch(Draining, "__init__", lambda self, parallelism, edges, holds_sources=False: begin(self, parallelism, edges))


@breaks("6.3a")
def the_second_step_never_comes(patch: Patch) -> None:
    def hold_only(self: Any, graph: Any, is_own: bool = False) -> None:
        self._job.holds_sources = True

    patch(Rescales, "continue_as", hold_only)


@breaks("6.3a")
def the_second_step_does_not_wait_for_receivers(patch: Patch) -> None:
    patch(JobDrain, "is_drained", property(lambda self: True))
    patch(Rescales, "_is_aligned", property(lambda self: False))


@breaks("6.3c")
def a_failed_checkpoint_gives_up_the_second_step(patch: Patch) -> None:
    not_taken = Rescaling.on_not_taken

    def give_up(self: Any, *arguments: Any) -> Any:
        self.current = replace(self.current, is_restore=False)
        return not_taken(self, *arguments)

    patch(Rescaling, "on_not_taken", give_up)


@breaks("6.3d")
def held_sources_are_asked_to_end(patch: Patch) -> None:
    running = CheckpointCoordinator.on_running
    patch(CheckpointCoordinator, "on_running", lambda self, *arguments: running(self, *arguments[:5]))


NEVER_ENDS = r"no end after|nothing will ever happen"
LOST_OR_TWICE = r"[1-9]\d* (rows lost|too many)|comes twice"
MUTANTS: list[tuple[Callable[[Patch], None], str, str]] = [
    (receivers_at_different_rows_are_not_noticed, "broadcasts-at-another-parallelism", LOST_OR_TWICE),
    (what_is_left_of_a_broadcast_goes_to_one_receiver, "broadcasts-at-another-parallelism", LOST_OR_TWICE),
    (broadcast_state_is_that_of_one_subtask_only, "broadcasts-at-another-parallelism", LOST_OR_TWICE),
    (operator_lists_are_not_dealt_out, "broadcasts-and-operator-state-at-another-parallelism", LOST_OR_TWICE),
    (union_lists_are_dealt_out, "union-lists-at-another-parallelism", LOST_OR_TWICE),
    (
        state_of_functions_is_not_brought_up_to_date,
        "broadcasts-and-operator-state-at-another-parallelism",
        LOST_OR_TWICE,
    ),
    (sources_emit_while_receivers_differ, "receivers-read-the-same-rows-first", r"a source emits rows before"),
    (the_second_step_never_comes, "receivers-read-the-same-rows-first", NEVER_ENDS),
    (
        the_second_step_does_not_wait_for_receivers,
        "receivers-read-the-same-rows-first",
        r"cannot be restored at the parallelism that it is to have",
    ),
    (a_failed_checkpoint_gives_up_the_second_step, "checkpoint-between-the-steps-expires", NEVER_ENDS),
    (held_sources_are_asked_to_end, "drain-is-ordered-while-sources-are-held", NEVER_ENDS),
]


@pytest.mark.parametrize(("mutant", "where", "violation"), MUTANTS, ids=[m.__name__ for m, _, _ in MUTANTS])
def test_a_broken_rule_is_found(
    mutant: Callable[[Patch], None], where: str, violation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch.setattr)
    assert_found(where, violation)
