"""The simulation finds broken rules of rows that are given up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from penstock.graph import fit
from penstock.jobmaster import job_recovery
from penstock.protocol.restore import given_up
from tests.simulation.finding import assert_found
from tests.simulation.proofs import breaks

Patch = Callable[[Any, str, Any], None]


@breaks("3.12a")
def events_are_given_up_with_the_rows(patch: Patch) -> None:
    patch(given_up, "_numbered", lambda events, first, end: [])


@breaks("3.12c")
def rows_that_are_given_up_come_back(patch: Patch) -> None:
    patch(job_recovery, "without_channel_state", lambda metadata, give_up: (metadata, None))


@breaks("3.12b")
def channels_keep_the_numbers_of_given_up_rows(patch: Patch) -> None:
    """Let a consumer's cut stay what it was, next to a producer that begins again."""
    replace = msgspec.structs.replace

    def as_applied(changed: Any, **what: Any) -> Any:
        return replace(changed, **{name: value for name, value in what.items() if name != "applied"})

    patch(msgspec.structs, "replace", as_applied)


@breaks("3.12d")
def receivers_keep_their_own_broadcast_state(patch: Patch) -> None:
    patch(fit, "with_state_of_one", lambda metadata, unequal: metadata)


MUTANTS: list[tuple[Callable[[Patch], None], str, str]] = [
    (events_are_given_up_with_the_rows, "a-pause-ends-among-rows-that-are-given-up", r"is late: the watermark is"),
    (rows_that_are_given_up_come_back, "rows-in-flight-are-given-up", r"[1-9]\d* too many"),
    (
        channels_keep_the_numbers_of_given_up_rows,
        "a-pause-ends-among-rows-that-are-given-up",
        r"is late: the watermark is",
    ),
    (receivers_keep_their_own_broadcast_state, "receivers-differ-when-rows-are-given-up", r"[1-9]\d* rows lost"),
]


@pytest.mark.parametrize(("mutant", "where", "violation"), MUTANTS, ids=[m.__name__ for m, _, _ in MUTANTS])
def test_a_broken_rule_is_found(
    mutant: Callable[[Patch], None], where: str, violation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch.setattr)
    assert_found(where, violation)
