"""Tests that the simulation finds broken rules of who deletes the rows that were written before the slots start."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from penstock.protocol.driver import ending
from penstock.protocol.driver.row_folders import Release, released_at_end, released_folders
from simulation.jobs import stored_rows
from simulation.jobs.stored_rows import StoredRows
from tests.simulation.finding import assert_found
from tests.simulation.proofs import breaks

Patch = Callable[[Any, str, Any], None]


@breaks("11.23a")
def who_has_not_run_the_job_deletes_all_folders(patch: Patch) -> None:
    """Take a job that restores nothing for one of which nothing is needed, whoever owns its log."""

    def released(log_is_ended: bool, keeps_checkpoints: bool, may_begin_again: bool, has_run: bool) -> Release:
        decided = released_at_end(log_is_ended, keeps_checkpoints, may_begin_again, has_run)
        return Release.ALL if decided is Release.OWN else decided

    patch(ending, "released_at_end", released)


@breaks("11.23b")
def folders_go_with_those_of_the_same_operator(patch: Patch) -> None:
    """Delete all folders of an operator whose folder is released, whoever has written them."""

    def released(release: Release, own: Iterable[str], all_of_job: Callable[[], Iterable[str]]) -> list[str]:
        uids = {name.rpartition("-")[0] for name in released_folders(release, own, all_of_job)}
        return [name for name in all_of_job() if name.rpartition("-")[0] in uids]

    patch(stored_rows, "released_folders", released)


@breaks("11.23c")
def a_driver_takes_its_own_folder_along(patch: Patch) -> None:
    """Delete what the driver has written at its end, although its checkpoints may name that."""
    end = StoredRows.end

    def ends(self: Any, outcome: Any) -> None:
        end(self, outcome)
        self._remove(Release.OWN)

    patch(StoredRows, "end", ends)


GONE = r"data-frames/\S+ is deleted, but a checkpoint|rows in \S+ have been deleted"
MUTANTS = [
    (who_has_not_run_the_job_deletes_all_folders, "storage-fails-before-the-log-is-owned", GONE),
    (who_has_not_run_the_job_deletes_all_folders, "suspended-before-the-log-is-owned", GONE),
    (folders_go_with_those_of_the_same_operator, "two-starts-write-the-rows", GONE),
    (a_driver_takes_its_own_folder_along, "fenced-driver-has-written-the-rows", GONE),
]


@pytest.mark.parametrize(("mutant", "scenario", "violation"), MUTANTS, ids=[f"{m[0].__name__}-{m[1]}" for m in MUTANTS])
def test_a_broken_rule_is_found(
    monkeypatch: pytest.MonkeyPatch, mutant: Callable[[Patch], None], scenario: str, violation: str
) -> None:
    mutant(monkeypatch.setattr)
    assert_found(scenario, violation)
