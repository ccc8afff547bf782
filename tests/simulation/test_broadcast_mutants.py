"""The simulation finds broken rules of broadcasts and of operator state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.jobmaster import fit
from penstock.operators.operator_state import CheckpointedParts
from penstock.protocol.restore import rescale
from penstock.protocol.restore.rescale import Filter, Share
from penstock.runtime.checkpoint import operator_state_restore, subtask_restore
from tests.simulation.finding import assert_found

Patch = Callable[[Any, str, Any], None]


def receivers_at_different_rows_are_not_noticed(patch: Patch) -> None:
    patch(fit, "uneven_broadcasts", lambda metadata: frozenset())


def what_is_left_of_a_broadcast_goes_to_one_receiver(patch: Patch) -> None:
    shares = rescale.shares

    def to_one(partitioner: str, old: int, new: int, max_parallelism: int, consumer: int) -> list[Share]:
        if partitioner == "broadcast" and old != new:
            return [Share(0, Filter.WHOLE)] if consumer == 0 else []
        return shares(partitioner, old, new, max_parallelism, consumer)

    patch(rescale, "shares", to_one)


def broadcast_state_is_that_of_one_subtask_only(patch: Patch) -> None:
    restore = operator_state_restore.restore_operator_state

    def of_the_old_ones(backend: Any, operator: str, old: Any, new: int, subtask: int) -> None:
        if subtask < len(old):
            restore(backend, operator, old, new, subtask)

    patch(subtask_restore, "restore_operator_state", of_the_old_ones)


def operator_lists_are_not_dealt_out(patch: Patch) -> None:
    patch(operator_state_restore, "_dealt_rows", lambda items, new, subtask: [i for of_one in items for i in of_one])


def state_of_functions_is_not_brought_up_to_date(patch: Patch) -> None:
    patch(CheckpointedParts, "_update", lambda self, checkpoint_id: None)


LOST_OR_TWICE = r"[1-9]\d* (rows lost|too many)|comes twice"
MUTANTS: list[tuple[Callable[[Patch], None], str, str]] = [
    (receivers_at_different_rows_are_not_noticed, "broadcasts-at-another-parallelism", LOST_OR_TWICE),
    (what_is_left_of_a_broadcast_goes_to_one_receiver, "broadcasts-at-another-parallelism", LOST_OR_TWICE),
    (broadcast_state_is_that_of_one_subtask_only, "broadcasts-at-another-parallelism", LOST_OR_TWICE),
    (operator_lists_are_not_dealt_out, "broadcasts-and-operator-state-at-another-parallelism", LOST_OR_TWICE),
    (
        state_of_functions_is_not_brought_up_to_date,
        "broadcasts-and-operator-state-at-another-parallelism",
        LOST_OR_TWICE,
    ),
]


@pytest.mark.parametrize(("mutant", "where", "violation"), MUTANTS, ids=[m.__name__ for m, _, _ in MUTANTS])
def test_a_broken_rule_is_found(
    mutant: Callable[[Patch], None], where: str, violation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch.setattr)
    assert_found(where, violation)
