"""Tests the machines of a job's recovery, commits and end, event by event; and every table, as the document shows
it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocol.driver import (
    adaptive_scaling,
    commit_order,
    ending,
    lifecycle,
    published_checkpoints,
    recovery,
    rescaling,
)
from penstock.protocol.driver.commit_order import CommitOrder, CommitState
from penstock.protocol.driver.coordinator import COORDINATOR_TABLE
from penstock.protocol.driver.driver_effects import FailureCause
from penstock.protocol.driver.ending import Ending, EndingState, Holdings
from penstock.protocol.driver.pending_checkpoints import CHECKPOINT_TABLE
from penstock.protocol.driver.recovery import Files, Recovery, RecoveryState
from penstock.protocol.driver.row_folders import Release, released_folders
from penstock.protocol.log import publication
from penstock.protocol.machine import Cell, IllegalEvent, MachineState, Table
from penstock.protocol.subtask import barrier_handler
from penstock.protocol.values.metadata import Committable
from tools.diagrams import DIAGRAMS, diagram, renewed

ROOT = Path(__file__).resolve().parents[4]
A, B = Committable("sink", b"a"), Committable("sink", b"b")


def names(effects: list[Any]) -> list[str]:
    return [type(effect).__name__ for effect in effects]


# ---- tables ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "table",
    [
        barrier_handler.TABLE,
        CHECKPOINT_TABLE,
        COORDINATOR_TABLE,
        lifecycle.TABLE,
        recovery.TABLE,
        commit_order.TABLE,
        ending.TABLE,
        rescaling.TABLE,
        adaptive_scaling.TABLE,
        publication.TABLE,
    ],
)
def test_the_document_shows_the_tables_of_the_code(table: Table[Any]) -> None:
    tables = (ROOT / "docs/internals/tables.md").read_text(encoding="utf-8")
    assert table.markdown() in tables, f"put this into docs/internals/tables.md:\n\n{table.markdown()}"


def test_the_document_shows_what_follows_a_published_checkpoint() -> None:
    rows = published_checkpoints.markdown()
    tables = (ROOT / "docs/internals/tables.md").read_text(encoding="utf-8")
    assert rows in tables, f"put this into docs/internals/tables.md:\n\n{rows}"


@pytest.mark.parametrize("page", DIAGRAMS)
def test_the_pages_show_the_tables_as_diagrams(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert renewed(text, DIAGRAMS[page]) == text, "run: python -m tools.diagrams"


def test_a_diagram_has_an_arrow_for_each_change_of_state() -> None:
    drawn = diagram(CHECKPOINT_TABLE).splitlines()
    assert "    triggered --> publishing : acknowledged" in drawn
    (aborts,) = (line for line in drawn if "triggered --> aborted" in line)
    assert aborts.endswith(
        "declined<br/>trigger failed<br/>expired<br/>generation ended<br/>newer, or the final one, published"
    )
    assert not any("publishing --> publishing" in line for line in drawn), "nothing changes"
    assert {"    published --> [*]", "    aborted --> [*]"} < set(drawn)
    rescale = diagram(rescaling.TABLE)
    assert 'state "gathering slots" as gathering_slots' in rescale and "[*]" in rescale and "--> [*]" not in rescale


def test_an_arrow_to_the_end_is_left_out_if_its_events_lead_there_through_another_state() -> None:
    drawn = diagram(lifecycle.TABLE)
    assert "running --> ending : " in drawn and "ending --> ended : " in drawn and "running --> ended" not in drawn
    drawn = diagram(barrier_handler.TABLE)
    assert "waiting --> capturing : " in drawn and "waiting --> ended : " in drawn, "only that is reached by a cancel"


@pytest.mark.parametrize(("event", "state"), [("came; went", "two"), ("<b>", "two"), ("came", "note"), ("came", "a:b")])
def test_a_name_that_means_something_else_in_a_diagram_is_refused(event: str, state: str) -> None:
    """Mermaid would cut off what is behind the semicolon, and show no picture for the state."""
    make: Any = MachineState
    one, two = make("States", {"ONE": "one", "TWO": state})
    with pytest.raises(ValueError, match="means something else in a diagram"):
        diagram(Table("a machine", {event: {one: Cell("go", (two,)), two: Cell("stay", (two,))}}))


def test_a_page_without_a_place_for_its_diagram_is_refused() -> None:
    with pytest.raises(ValueError, match="<!-- diagram: a rescale -->"):
        renewed("no block\n", {"a rescale": rescaling.TABLE})


# ---- commits --------------------------------------------------------------------------------------------------------


def test_commits_go_one_after_the_other_in_the_order_of_the_log() -> None:
    order = CommitOrder(60_000.0)
    assert order.handle(commit_order.Added(0, ()), 0.0) == [commit_order.Confirm(0)], "nothing to commit"
    assert order.handle(commit_order.Added(1, (A,)), 0.0) == [commit_order.Commit((A,))]
    assert order.handle(commit_order.Added(2, ()), 0.0) == []
    assert order.handle(commit_order.Added(3, (B,)), 0.0) == []
    assert order.unconfirmed == [A, B]
    assert order.handle(commit_order.Committed(), 0.0) == [
        commit_order.Confirm(1),
        commit_order.Confirm(2),
        commit_order.Commit((B,)),
    ]
    assert order.handle(commit_order.Committed(), 0.0) == [commit_order.Confirm(3), commit_order.NotifyIdle()]
    assert order.unconfirmed == [] and order.next_deadline_ms() is None


def test_a_refused_commit_stays_at_the_head_until_it_is_retried() -> None:
    order = CommitOrder(60_000.0)
    order.handle(commit_order.Added(1, (A,)), 0.0)
    assert names(order.handle(commit_order.Refused(FailureCause("full")), 0.0)) == ["ReportRefusal", "NotifyIdle"]
    assert order.handle(commit_order.Added(2, (B,)), 0.0) == [], "nothing overtakes it"
    assert order.handle(commit_order.Retried(), 0.0) == [commit_order.Commit((A,))]
    assert order.handle(commit_order.Retried(), 0.0) == [], "it is under way"


def test_a_commit_that_does_not_return_is_told_of_once_and_fails_once() -> None:
    order = CommitOrder(60_000.0)
    order.handle(commit_order.Added(1, (A,)), 1_000.0)
    assert time_passes(order, commit_order.TimePassed(), 31_000.0) == [commit_order.WarnOfDelay(30_000.0)]
    assert time_passes(order, commit_order.TimePassed(), 60_999.0) == []
    assert time_passes(order, commit_order.TimePassed(), 61_000.0) == [commit_order.FailForDelay(60_000.0)]
    assert order.next_deadline_ms() is None and order.state is CommitState.COMMITTING


def time_passes(machine: CommitOrder | Ending, event: Any, until_ms: float) -> list[Any]:
    """Tell a machine of the time whenever it wants to know it. Returns all that it then does."""
    done: list[Any] = []
    while (at_ms := machine.next_deadline_ms()) is not None and at_ms <= until_ms:
        done += machine.handle(event, at_ms)
    return done


@pytest.mark.parametrize("slept_to_ms", [2_900.0, 9_000.0])
def test_a_driver_that_was_suspended_gives_a_commit_its_time_again(slept_to_ms: float) -> None:
    order = CommitOrder(2_000.0)
    order.handle(commit_order.Added(1, (A,)), 1_000.0)
    assert order.handle(commit_order.TimePassed(), slept_to_ms) == []
    due_ms = slept_to_ms + 1_750.0
    assert time_passes(order, commit_order.TimePassed(), due_ms - 1.0) == []
    assert time_passes(order, commit_order.TimePassed(), due_ms) == [commit_order.FailForDelay(due_ms - 1_000.0)]


def test_an_answer_that_nobody_waits_for_is_illegal() -> None:
    with pytest.raises(IllegalEvent, match="the order of commits is idle, and the event 'Committed'"):
        CommitOrder(60_000.0).handle(commit_order.Committed(), 0.0)


# ---- the end --------------------------------------------------------------------------------------------------------


def holdings(**changed: Any) -> Holdings:
    facts: dict[str, Any] = {
        "owns_log": True, "keeps_everything": False, "has_run": True, "keeps_checkpoints": True,
        "had_checkpoints": True, "has_retained": lambda: True,
    }  # fmt: skip
    return Holdings(**(facts | changed))


def ended(settled: Holdings, state: str = "CANCELED") -> Ending:
    machine = Ending()
    assert names(machine.handle(ending.SlotsGone(state, None), 0.0)) == ["ReleaseSlots", "AwaitPublications"]
    assert names(machine.handle(ending.NothingPublishing(), 0.0)) == ["AwaitCommits"]
    machine.handle(ending.CommitsIdle(settled), 0.0)
    return machine


def test_the_log_is_ended_then_what_is_not_kept_is_deleted_then_the_newest_is_looked_for() -> None:
    machine = ended(holdings())
    assert machine.state is EndingState.LOGGING
    assert names(machine.handle(ending.LogEnded(None), 0.0)) == ["DeleteAndSweep"]
    assert names(machine.handle(ending.Swept(), 0.0)) == ["LookForNewest"]
    assert machine.handle(ending.NewestLookedFor(is_gone=False), 0.0) == [
        ending.Finish("CANCELED", None, True, Release.NOTHING)
    ]


@pytest.mark.parametrize("why", [{"keeps_everything": True}, {"has_run": False}])
def test_a_job_that_keeps_everything_writes_nothing_and_asks_whose_the_log_is(why: dict[str, bool]) -> None:
    machine = ended(holdings(**why))
    assert machine.state is EndingState.CHECKING
    assert names(machine.handle(ending.LogChecked(None), 0.0)) == ["LookForNewest"]


def test_a_driver_that_was_fenced_while_it_failed_says_that() -> None:
    machine = Ending()
    machine.handle(ending.SlotsGone("FAILED", "chk-3 is missing"), 0.0)
    machine.handle(ending.NothingPublishing(), 0.0)
    machine.handle(ending.CommitsIdle(holdings(keeps_everything=True, has_retained=lambda: False)), 0.0)
    assert machine.handle(ending.LogChecked("taken over by d2"), 0.0) == [
        ending.Finish("FAILED", "taken over by d2", False, Release.NOTHING)
    ]


@pytest.mark.parametrize(
    ("state", "settled", "released"),
    [
        ("FINISHED", {"keeps_checkpoints": False}, Release.ALL),
        ("CANCELED", {"keeps_checkpoints": False}, Release.ALL),
        # The next driver starts it from scratch, and may have written its rows already.
        ("FAILED", {"keeps_checkpoints": False, "had_checkpoints": False}, Release.OWN),
        ("FINISHED", {"keeps_checkpoints": False, "had_checkpoints": False}, Release.ALL),
        ("CANCELED", {"keeps_checkpoints": True}, Release.NOTHING),
    ],
)
def test_the_end_of_the_log_releases_folders_of_rows(state: str, settled: dict[str, bool], released: Release) -> None:
    machine = ended(holdings(**settled, has_retained=lambda: settled["keeps_checkpoints"]), state)
    machine.handle(ending.LogEnded(None), 0.0)
    effects = machine.handle(ending.Swept(), 0.0)
    if machine.state is EndingState.LOOKING:
        effects = machine.handle(ending.NewestLookedFor(is_gone=False), 0.0)
    assert [effect.releases for effect in effects if isinstance(effect, ending.Finish)] == [released]


@pytest.mark.parametrize(("has_run", "released"), [(False, Release.OWN), (True, Release.NOTHING)])
@pytest.mark.parametrize("keeps", [False, True])
def test_a_driver_without_the_log_releases_at_most_what_it_has_written(
    has_run: bool, released: Release, keeps: bool
) -> None:
    machine = Ending()
    machine.handle(ending.SlotsGone("CANCELED", None), 0.0)
    machine.handle(ending.NothingPublishing(), 0.0)
    settled = holdings(owns_log=False, has_run=has_run, keeps_everything=keeps)
    [finish] = machine.handle(ending.CommitsIdle(settled), 0.0)
    assert isinstance(finish, ending.Finish) and finish.releases is released


def test_no_folder_is_listed_that_nobody_may_delete() -> None:
    def all_of_job() -> list[str]:
        raise AssertionError("not asked for")

    assert released_folders(Release.OWN, ["a-1"], all_of_job) == ["a-1"]
    assert released_folders(Release.NOTHING, ["a-1"], all_of_job) == []
    assert released_folders(Release.ALL, ["a-1"], lambda: ["a-1", "a-2"]) == ["a-1", "a-2"]


def test_a_driver_without_the_log_keeps_and_advises_nothing() -> None:
    assert ended(holdings(owns_log=False)).state is EndingState.ENDED


def test_an_end_that_another_driver_forestalled_deletes_nothing() -> None:
    machine = ended(holdings())
    assert names(machine.handle(ending.LogEnded("taken over by d2"), 0.0)) == ["WarnOfLoss", "Finish"]


def test_a_storage_that_does_not_answer_ends_the_wait_and_what_comes_later_is_ignored() -> None:
    machine = ended(holdings())
    assert time_passes(machine, ending.TimePassed(), ending.STORAGE_TIMEOUT_MS - 1.0) == []
    assert names(time_passes(machine, ending.TimePassed(), ending.STORAGE_TIMEOUT_MS)) == ["WarnOfSilence", "Finish"]
    assert machine.handle(ending.LogEnded(None), 0.0) == []


def test_a_driver_that_was_suspended_gives_the_storage_its_time_again() -> None:
    machine = ended(holdings())
    assert machine.handle(ending.TimePassed(), 70_000.0) == []
    assert machine.handle(ending.LogEnded(None), 70_000.0) != []


def test_final_commits_are_tried_five_times_with_a_pause() -> None:
    machine, again = Ending(), FailureCause("busy")
    for attempt in range(1, ending.FINAL_COMMIT_ATTEMPTS_MAX):
        assert names(machine.handle(ending.FinalCommitRefused(again), attempt * 10_000.0)) == ["WarnOfRefusal"]
        at_ms = machine.next_deadline_ms()
        assert at_ms == attempt * 10_000.0 + ending.FINAL_COMMIT_PAUSE_MS
        assert names(machine.handle(ending.TimePassed(), at_ms)) == ["RetryFinalCommits"]
    assert machine.handle(ending.FinalCommitRefused(again), 0.0) == [ending.GiveUpFinalCommits(5, again)]
    never = FailureCause("no such table", restartable=False)
    assert Ending().handle(ending.FinalCommitRefused(never), 0.0) == [ending.GiveUpFinalCommits(1, never)]


# ---- recovery -------------------------------------------------------------------------------------------------------


def resting() -> Recovery:
    machine = Recovery()
    machine.handle(recovery.Begun(True, None), 0.0)
    machine.handle(recovery.StoreOpened(), 0.0)
    assert machine.handle(recovery.LogTaken(False), 0.0) == [recovery.Prepared()]
    return machine


def test_the_first_time_the_jobs_own_checkpoint_goes_before_the_start() -> None:
    machine = Recovery()
    assert machine.handle(recovery.Begun(True, "/other/chk-3"), 0.0) == [recovery.OpenDirectory()]
    assert machine.handle(recovery.StoreOpened(), 0.0) == [recovery.TakeOverLog()]
    assert machine.handle(recovery.LogTaken(True, restored_from="/other/chk-3"), 0.0) == [recovery.FitCheckpoint()]
    assert machine.handle(recovery.Fitted(False, True, True), 0.0) == [
        recovery.QueueCommits(False),
        recovery.CheckFiles(1),
    ]
    assert names(machine.handle(recovery.FilesChecked(1, Files.COMPLETE), 0.0)) == ["KeepEverything", "Prepared"]


@pytest.mark.parametrize(
    ("taken", "effect"),
    [
        (recovery.LogTaken(False), recovery.Prepared()),
        (recovery.LogTaken(False, restored_from="/other/chk-3"), recovery.ReadStart("/other/chk-3")),
        (recovery.LogTaken(False, ended="FINISHED"), recovery.AbandonEnded("FINISHED")),
        (recovery.LogTaken(False, ended="CANCELED", had_checkpoints=True), recovery.AbandonEnded("CANCELED")),
        (recovery.LogTaken(False, ended="CANCELED"), recovery.Prepared()),
    ],
)
def test_what_the_log_says_decides(taken: recovery.LogTaken, effect: recovery.Effect) -> None:
    machine = Recovery()
    machine.handle(recovery.Begun(True, None), 0.0)
    machine.handle(recovery.StoreOpened(), 0.0)
    assert machine.handle(taken, 0.0) == [effect]


def test_a_final_checkpoint_needs_no_slot_but_another_jobs_does() -> None:
    for is_own, effects in ((True, ["QueueCommits"]), (False, ["QueueCommits", "Prepared"])):
        machine = Recovery()
        machine.handle(recovery.Begun(False, "/other/chk-3"), 0.0)
        assert names(machine.handle(recovery.StartRead("it is old"), 0.0)) == ["Warn", "Claim", "FitCheckpoint"]
        assert names(machine.handle(recovery.Fitted(True, is_own, False), 0.0)) == effects


def test_a_driver_that_lost_the_log_abandons_and_deletes_nothing() -> None:
    machine = Recovery()
    machine.handle(recovery.Begun(True, None), 0.0)
    machine.handle(recovery.StoreOpened(), 0.0)
    assert names(machine.handle(recovery.Refused("taken over", lost_log=True), 0.0)) == ["LoseLog", "Abandon"]


def test_a_restart_waits_for_publications_and_an_older_one_is_ignored() -> None:
    machine = resting()
    assert machine.handle(recovery.Begun(True, None), 0.0) == [recovery.AwaitPublications(2)]
    machine.handle(recovery.Superseded(), 0.0)
    assert machine.handle(recovery.Begun(True, None), 0.0) == [recovery.AwaitPublications(4)]
    assert machine.handle(recovery.PublicationsIdle(2, True, True), 0.0) == []
    assert names(machine.handle(recovery.PublicationsIdle(4, True, True), 0.0)) == ["RetryCommits", "CheckFiles"]
    machine.handle(recovery.Superseded(), 0.0)
    assert machine.handle(recovery.FilesChecked(4, Files.COMPLETE), 0.0) == []


@pytest.mark.parametrize(
    ("files", "effect"), [(Files.DAMAGED, "Abandon"), (Files.REMOVED, "Abandon"), (Files.UNREACHABLE, "Fail")]
)
def test_only_what_cannot_be_reached_now_is_tried_again(files: Files, effect: str) -> None:
    machine = resting()
    machine.handle(recovery.Begun(True, None), 0.0)
    machine.handle(recovery.PublicationsIdle(2, True, True), 0.0)
    assert names(machine.handle(recovery.FilesChecked(2, files, "detail"), 0.0)) == ["KeepEverything", effect]
    assert machine.state is RecoveryState.RESTING


# ---- any order of events --------------------------------------------------------------------------------------------

EVENTS: list[recovery.Event] = [
    recovery.Begun(True, None), recovery.Begun(False, "x/chk-1"), recovery.Superseded(), recovery.Refused("no"),
    recovery.StoreOpened(), recovery.LogTaken(True), recovery.LogTaken(False), recovery.StartRead(None),
    recovery.Fitted(True, True, True), recovery.Fitted(False, True, True),
    *(recovery.PublicationsIdle(n, True, True) for n in range(1, 5)),
    *(recovery.FilesChecked(n, files) for n in range(1, 5) for files in Files),
]  # fmt: skip


@given(st.lists(st.sampled_from(EVENTS), max_size=30))
def test_whatever_comes_a_recovery_asks_once_and_lets_deploy_once(events: list[recovery.Event]) -> None:
    """Reports exactly one outcome of a recovery that was begun, unless it was superseded."""
    machine, begun, told = Recovery(), 0, 0
    for event in events:
        try:
            effects = machine.handle(event, 0.0)
        except IllegalEvent:
            continue
        begun += isinstance(event, recovery.Begun)
        told += sum(isinstance(e, (recovery.Prepared, recovery.Fail, recovery.Abandon)) for e in effects)
        assert told <= begun
