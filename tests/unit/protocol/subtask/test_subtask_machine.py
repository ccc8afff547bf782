"""Tests the shipped machine of a subtask: what waits for a row, its table, its story, and that broken rules are
found.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from penstock.common.program.failures import describe
from penstock.protocol.channel.ends import InputChannel, ProtocolError
from penstock.protocol.machine import IllegalEvent, Story, step
from penstock.protocol.subtask.barrier_handler import TABLE, AlignmentState
from penstock.protocol.subtask.cut import Cut
from penstock.protocol.subtask.effects import BarrierReached
from penstock.protocol.values.elements import Barrier, ChannelId, Generation
from penstock.protocol.values.frames import AlignedBarrier, Data, UrgentBarrier
from penstock.protocol.values.messages import CheckpointEnded
from tests.properties.test_barriers import GraphMachine
from tests.unit.protocol.subtask.driven_subtask import DrivenSubtask, SetClock

IDS = [ChannelId(0, 0, 0), ChannelId(0, 1, 0)]
OUT = [ChannelId(1, 0, 0)]


def subtask() -> DrivenSubtask:
    return DrivenSubtask(IDS, OUT, SetClock())


# ---- a snapshot lies between two rows -------------------------------------------------------------------------------


def test_a_snapshot_waits_for_the_rest_of_a_row_and_so_does_what_follows_it() -> None:
    driven = subtask()
    driven.is_in_a_row = True
    driven.receive(UrgentBarrier(IDS[0], 0, 0, Barrier(1, 0)))
    driven.receive(Data(IDS[1], 0, 1, 100, ["late"]))
    driven.receive(UrgentBarrier(IDS[1], 1, 1, Barrier(1, 0)))
    assert driven.log == [] and driven.machine.waits_for_row and not driven.sent
    driven.emit("the rest of the row")
    driven.finish_row()
    assert driven.log == ["unaligned 1"] and not driven.machine.waits_for_row
    part = driven.acknowledged[1]
    assert part.emitted == {OUT[0]: 1} and part.captured[OUT[0]] == [(0, "the rest of the row")]
    assert part.captured[IDS[1]] == [(0, "late")]


def test_two_snapshots_wait_for_the_same_row() -> None:
    driven = subtask()
    driven.is_in_a_row = True
    for checkpoint_id in (1, 2):
        for channel in IDS:
            driven.receive(UrgentBarrier(channel, 0, 0, Barrier(checkpoint_id, 0)))
    driven.finish_row()
    assert driven.log == ["unaligned 1", "unaligned 2"] and list(driven.acknowledged) == [1, 2]


# ---- the table ------------------------------------------------------------------------------------------------------


def test_an_event_that_the_table_does_not_have_names_machine_state_and_event() -> None:
    driven = subtask()
    driven.receive(UrgentBarrier(IDS[0], 0, 0, Barrier(7, 0)))
    with pytest.raises(IllegalEvent, match="alignment of checkpoint 7 is capturing, and the event 'reached'"):
        driven.handle(BarrierReached(0, Barrier(7, 0)))


@pytest.mark.parametrize(
    ("event", "error"),
    [(BarrierReached(0, Barrier(31, 0)), IllegalEvent), (UrgentBarrier(IDS[0], 0, 0, Barrier(31, 0)), ProtocolError)],
)
def test_the_traceback_of_an_illegal_event_shows_the_newest_events(event: Any, error: type[Exception]) -> None:
    driven = subtask()
    for checkpoint_id in range(1, 31):
        driven.handle(CheckpointEnded(Generation(0, 1), checkpoint_id, True))
    driven.receive(UrgentBarrier(IDS[0], 0, 0, Barrier(31, 0)))
    with pytest.raises(error) as caught:
        driven.handle(event)
    assert "\n" not in str(caught.value), "the summary of a failure is one line"
    told = describe(caught.value)
    assert "UrgentBarrier 31 (channel 0[0->0])  unknown → capturing" in told
    assert "CheckpointEnded 30" in told and "CheckpointEnded 5 " not in told, "few enough to be read"


def test_a_transition_that_the_table_does_not_name_is_refused() -> None:
    with pytest.raises(IllegalEvent, match="must not lead to 'waiting'"):
        states = iter([AlignmentState.COLLECTING_ALIGNED, AlignmentState.WAITING])
        step(TABLE, Story(), "cancel", "", 0.0, lambda: next(states), list)


def test_the_document_shows_the_table_of_the_code() -> None:
    tables = (Path(__file__).resolve().parents[4] / "docs/internals/tables.md").read_text(encoding="utf-8")
    assert TABLE.markdown() in tables, f"put this into docs/internals/tables.md:\n\n{TABLE.markdown()}"


# ---- the story ------------------------------------------------------------------------------------------------------


def test_the_story_tells_each_event_with_its_cause() -> None:
    driven = subtask()
    driven.receive(AlignedBarrier(IDS[0], 0, Barrier(3, 50)))
    driven.apply(0)
    driven.clock.now_ms = 50.0
    driven.on_time()
    driven.receive(UrgentBarrier(IDS[1], 0, 0, Barrier(3, 50)))
    told = driven.machine.story.text().splitlines()
    assert [line.split("  ")[1:] for line in told] == [
        ["AlignedBarrier 3 (channel 0[0->0])", "unknown → waiting"],
        ["BarrierReached 3 (the rows before it are applied)", "waiting → aligning"],
        ["TimePassed (an alignment timeout)", ": FinishRow"],
        ["RowFinished (the chain is between two rows)", ": SendFrame, TakeSnapshot"],
        ["UrgentBarrier 3 (channel 0[1->0])", "capturing → ended: CloseCapture"],
    ]


# ---- broken on purpose ----------------------------------------------------------------------------------------------


def windows_do_not_keep_a_capture_open(patch: Callable[[Any, str, Any], None]) -> None:
    patch(Cut, "is_closed", property(lambda self: not (self.barriers_missing or self.outputs_open)))


def waiting_outputs_do_not_keep_a_capture_open(patch: Callable[[Any, str, Any], None]) -> None:
    patch(Cut, "is_closed", property(lambda self: not (self.windows_open or self.barriers_missing)))


def a_capture_never_closes(patch: Callable[[Any, str, Any], None]) -> None:
    patch(Cut, "is_closed", property(lambda self: False))


def rows_of_a_closed_window_are_dropped(patch: Callable[[Any, str, Any], None]) -> None:
    patch(Cut, "stores", property(lambda self: False))


def windows_end_at_the_arrival_of_the_barrier(patch: Callable[[Any, str, Any], None]) -> None:
    limit = InputChannel.limit_window

    def limited(self: Any, checkpoint_id: int, until: int) -> bool:
        return limit(self, checkpoint_id, min(until, max(self.received, self.windows[checkpoint_id].start)))

    patch(InputChannel, "limit_window", limited)


@pytest.mark.parametrize(
    "mutant",
    [
        windows_do_not_keep_a_capture_open, waiting_outputs_do_not_keep_a_capture_open, a_capture_never_closes,
        rows_of_a_closed_window_are_dropped, windows_end_at_the_arrival_of_the_barrier,
    ],
    ids=lambda mutant: mutant.__name__,
)  # fmt: skip
def test_the_property_finds_a_broken_closing_rule(
    mutant: Callable[[Callable[[Any, str, Any], None]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch.setattr)
    quickly = settings(
        max_examples=400,
        stateful_step_count=60,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
    )
    with pytest.raises((AssertionError, ExceptionGroup)):
        run_state_machine_as_test(GraphMachine, settings=quickly)
