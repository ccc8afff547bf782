"""The simulation finds broken rules of state that is restored while its subtask runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest

from penstock.protocol.values.reasons import SubtaskFailureReason
from penstock.runtime.subtask import subtask_runner
from penstock.state.chains import Chain
from penstock.state.first_failure import FirstFailure
from penstock.state.rocksdb.database import Entry
from penstock.state.rocksdb.lazy_state import LazyState, LoadingDatabase
from tests.simulation.finding import assert_found
from tests.simulation.proofs import breaks

Patch = Callable[[Any, str, Any], None]


@breaks("3.11b")
def what_is_missing_is_in_no_savepoint(patch: Patch) -> None:
    patch(LazyState, "at_barrier", lambda self: self.database.scan(self.prefix))


@breaks("3.11c")
def what_is_missing_stays_missing(patch: Patch) -> None:
    """A checkpoint of everything has what is missing, and does not load it."""

    def at_barrier(self: Any) -> Iterator[Entry]:
        there = list(self.database.scan(self.prefix))
        missing = [granule for granule in self._granules if not granule.is_loaded]

        def entries() -> Iterator[Entry]:
            found = list(there)
            for granule in missing:
                keys, values = self._load_run(granule.run)
                if self._overlay is not None:
                    keys, values = self._overridden(granule, self._overlay, keys, values)
                found += zip(keys, values)
            yield from sorted(found)

        return entries()

    patch(LazyState, "at_barrier", at_barrier)


@breaks("3.11e")
def keys_are_read_before_they_are_loaded(patch: Patch) -> None:
    patch(LoadingDatabase, "get", lambda self, key: self._database.get(key))
    patch(LoadingDatabase, "read", lambda self, keys: self._database.read(keys))


@breaks("3.11e")
def later_runs_override_nothing(patch: Patch) -> None:
    patch(LazyState, "_overridden", lambda self, granule, overlay, keys, values: (keys, values))


@breaks("3.11a")
def errors_of_a_load_are_for_the_function_only(patch: Patch) -> None:
    patch(FirstFailure, "noted", lambda self: nullcontext())


@breaks("3.11d")
def chains_begin_with_nothing(patch: Patch) -> None:
    is_worth_naming = Chain.is_worth_naming.fget  # type: ignore[attr-defined]
    patch(Chain, "is_worth_naming", property(lambda self: not self.runs or is_worth_naming(self)))


@breaks("3.6b")
def damage_that_is_found_late_is_a_failure_like_others(patch: Patch) -> None:
    """The job restarts, and finds it again."""
    patch(subtask_runner, "reason_of", lambda error: SubtaskFailureReason.FUNCTION)


LOADING, DAMAGED = "restored-while-it-runs", "damage-is-found-while-the-job-runs"
MUTANTS: list[tuple[Callable[[Patch], None], str, str]] = [
    # (mutant, the scenario that finds it, the violation that it must cause)
    (what_is_missing_is_in_no_savepoint, LOADING, r"^final state of .* rows .*expected|rows seen, \d+ counted"),
    (what_is_missing_stays_missing, LOADING, r"is missing"),
    (keys_are_read_before_they_are_loaded, LOADING, r"rows .*expected"),
    (later_runs_override_nothing, LOADING, r"rows .*expected"),
    (
        errors_of_a_load_are_for_the_function_only,
        "function-catches-the-error-of-a-load",
        r"state was lost or used twice",
    ),
    (chains_begin_with_nothing, "keys-come-and-go-behind-an-empty-state", r"has a chain without a beginning"),
    (damage_that_is_found_late_is_a_failure_like_others, DAMAGED, r"no end after"),
]


@pytest.mark.parametrize(("mutant", "scenario", "violation"), MUTANTS, ids=[m.__name__ for m, _, _ in MUTANTS])
def test_a_broken_rule_is_found(
    mutant: Callable[[Patch], None], scenario: str, violation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch.setattr)
    assert_found(scenario, violation)
