"""The simulation finds broken rules of whoever reads the job's log, and of what a list of it proves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from penstock.protocol.log.job_log import JobLog
from penstock.protocol.log.log_operations import ListLog
from penstock.protocol.log.publication import Publication
from tests.simulation.finding import assert_found
from tests.simulation.proofs import breaks

Patch = Callable[[Any, str, Any], None]


@breaks("11.6")
def an_entry_that_a_list_lacks_counts(patch: Patch) -> None:
    counts = JobLog._counts

    def hasty(self: Any, entry: Any) -> Any:
        positions = yield from self.ask_until_known(ListLog())
        if entry.sequence > max(positions, default=-1):
            return True
        return (yield from counts(self, entry))

    patch(JobLog, "_counts", hasty)


@breaks("11.1b")
def own_entries_are_those_of_others(patch: Patch) -> None:
    """Take whatever is found at a position for another driver's."""
    append = JobLog._append

    def suspicious(self: Any, entry: Any, gives_up: bool = False) -> Any:
        talk, answer = append(self, entry, gives_up), None
        try:
            while True:
                answer = yield talk.send(answer)
                if answer == entry:
                    answer = msgspec.structs.replace(answer, incarnation="another")
        except StopIteration as end:
            return end.value

    patch(JobLog, "_append", suspicious)


@breaks("11.2")
def what_is_restored_is_read_before_the_fence(patch: Patch) -> None:
    """Restore the newest checkpoint of the log as it was listed before the fence was put."""
    append_fence, read_below = JobLog._append_fence, Publication._read_below

    def noting(self: Any, fence_at: Any, newest: Any, resume: bool) -> Any:
        self.listed = -1 if newest is None else newest.sequence
        return append_fence(self, fence_at, newest, resume)

    def below_what_was_listed(self: Any, fence: Any) -> Any:
        taken = yield from read_below(self, msgspec.structs.replace(fence, sequence=self.log.listed + 1))
        return replace(taken, fence=fence.sequence)

    patch(JobLog, "_append_fence", noting)
    patch(Publication, "_read_below", below_what_was_listed)


@breaks("11.5c")
def the_first_position_needs_no_list(patch: Patch) -> None:
    """Believe that nobody has run a job before whose first position could be created."""
    counts = JobLog._counts

    def believed(self: Any, entry: Any) -> Any:
        is_counted = yield from counts(self, entry)
        self._lost_by = None if entry.sequence == 0 else self._lost_by
        return is_counted or entry.sequence == 0

    patch(JobLog, "_counts", believed)


@breaks("11.7")
def a_reader_does_not_look_for_a_newer_owner(patch: Patch) -> None:
    def check_ours(self: Any) -> Any:
        return
        yield

    patch(JobLog, "check_ours", check_ours)


MUTANTS: list[tuple[Callable[[Patch], None], str, str]] = [
    # (mutant, schedule, the violation that it must cause)
    (
        an_entry_that_a_list_lacks_counts,
        "list-lacks-the-newest-entry",
        r"is committed, but no checkpoint in the log says so|may name what \d+ has, which is not in the log",
    ),
    (own_entries_are_those_of_others, "reply-of-the-log-is-lost", r"ended FAILED: .*(taken over by|has a log already)"),
    (
        what_is_restored_is_read_before_the_fence,
        "old-driver-publishes-before-the-fence",
        r"is committed again after its writer|[1-9]\d* too many",
    ),
    (the_first_position_needs_no_list, "two-fresh-starts", r"deploys a job whose log it has not got"),
    (
        a_reader_does_not_look_for_a_newer_owner,
        "driver-is-fenced-while-it-reads-the-log",
        r"was fenced, and says something else: entry \d+ of the job's log cannot be read",
    ),
]


@pytest.mark.parametrize(("mutant", "where", "violation"), MUTANTS, ids=[mutant.__name__ for mutant, _, _ in MUTANTS])
def test_a_broken_rule_is_found(
    mutant: Callable[[Patch], None], where: str, violation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch.setattr)
    assert_found(where, violation)
