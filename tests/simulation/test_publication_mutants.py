"""The simulation finds a step that is missing behind a published checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.protocol.driver.published_checkpoints import FOLLOWS, Follow, PublishedKind
from tests.simulation.finding import assert_found
from tests.simulation.proofs import breaks

SetItem = Callable[[Any, Any, Any], None]


def without(kind: PublishedKind, missing: Follow) -> tuple[Follow, ...]:
    """Return the row of a kind of checkpoint without one step."""
    return tuple(step for step in FOLLOWS[kind] if step is not missing)


@breaks("11.10a")
def output_of_a_published_checkpoint_is_not_committed(patch: SetItem) -> None:
    patch(FOLLOWS, PublishedKind.CHECKPOINT, without(PublishedKind.CHECKPOINT, Follow.COMMIT))


@breaks("11.10a")
def commits_that_failed_stay_behind_the_final_checkpoint(patch: SetItem) -> None:
    patch(FOLLOWS, PublishedKind.FINAL, without(PublishedKind.FINAL, Follow.RETRY_COMMITS))


@breaks("3.6c")
def restarts_take_an_older_checkpoint(patch: SetItem) -> None:
    patch(FOLLOWS, PublishedKind.CHECKPOINT, without(PublishedKind.CHECKPOINT, Follow.RESTORE_FROM))


MUTANTS: list[tuple[Callable[[SetItem], None], str, str]] = [
    # (mutant, the schedule, the violation that it must cause)
    (output_of_a_published_checkpoint_is_not_committed, "driver-killed-before-commit", r"[1-9]\d* rows lost"),
    (
        commits_that_failed_stay_behind_the_final_checkpoint,
        "commit-fails-before-the-final-checkpoint",
        r"no end after|rows lost",
    ),
    (restarts_take_an_older_checkpoint, "checkpoint-needs-all-its-slots", r"[1-9]\d* too many"),
]


@pytest.mark.parametrize(("mutant", "scenario", "violation"), MUTANTS, ids=[m.__name__ for m, _, _ in MUTANTS])
def test_a_missing_step_is_found(
    mutant: Callable[[SetItem], None], scenario: str, violation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch.setitem)
    assert_found(scenario, violation)
