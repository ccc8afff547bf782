"""The simulation finds a driver that takes its own suspension for the silence of others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.protocol.driver import patience
from penstock.protocol.driver.lifecycle import Lifecycle
from penstock.protocol.driver.slots import SlotProcesses
from tests.simulation.finding import assert_found
from tests.simulation.proofs import breaks

Patch = Callable[[Any, str, Any], None]


@breaks("12.12b")
def slots_are_silent_while_their_driver_is_suspended(patch: Patch) -> None:
    patch(SlotProcesses, "excuse_own_pause", lambda self, now_ms: None)


@breaks("12.12a")
def slots_do_not_register_while_their_driver_is_suspended(patch: Patch) -> None:
    patch(Lifecycle, "_excuse_own_pause", lambda self, now_ms: None)


@breaks("12.12c")
def a_commit_takes_as_long_as_its_driver_is_suspended(patch: Patch) -> None:
    patch(patience, "LATE_MS_MAX", float("inf"))


MUTANTS: list[tuple[Callable[[Patch], None], str]] = [
    # (mutant, the violation that it must cause)
    (slots_are_silent_while_their_driver_is_suspended, r"restarts, although only the driver was suspended"),
    (slots_do_not_register_while_their_driver_is_suspended, r"registered within"),
    (a_commit_takes_as_long_as_its_driver_is_suspended, r"has not finished committing"),
]


@pytest.mark.parametrize(("mutant", "violation"), MUTANTS, ids=[m.__name__ for m, _ in MUTANTS])
def test_a_broken_rule_is_found(
    mutant: Callable[[Patch], None], violation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch.setattr)
    assert_found("driver-is-suspended", violation)
