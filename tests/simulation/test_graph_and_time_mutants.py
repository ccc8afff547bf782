"""The simulation finds broken rules of changed graphs, idleness and timers, by the violation that each must cause."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from penstock.graph import fit
from penstock.operators.event_time import idleness, progress
from penstock.operators.joins import interval_join
from penstock.operators.windows import (
    column_windows,
    merging_windows,
    row_windows,
    triggered_merging_windows,
    triggered_windows,
    window_timers,
)
from penstock.operators.windows.assigners.sliding import Sliding
from penstock.protocol.restore import rescale
from penstock.protocol.values.metadata import ChannelTime
from penstock.runtime.checkpoint import subtask_restore as restore
from penstock.runtime.checkpoint.in_flight_restore import InFlightRestore
from penstock.runtime.subtask import source_alignment
from tests.simulation.finding import assert_found
from tests.simulation.proofs import breaks

Patch = Callable[[Any, str, Any], None]


# ---- changed graphs -------------------------------------------------------------------------------------------------


@breaks("3.7")
def rows_on_vanished_edges_are_dropped(patch: Patch) -> None:
    patch(fit, "edges_in_flight", lambda metadata: frozenset())


@breaks("3.7")
def new_edges_start_at_the_furthest_producer(patch: Patch) -> None:
    def furthest(self: Any, edge: Any) -> ChannelTime:
        told = [s.watermark_ms for s in self._old.metadata.subtasks if s.watermark_ms is not None]
        return ChannelTime(max(told, default=-(2**63)))

    patch(InFlightRestore, "_start_of_new_edge", furthest)


@breaks("3.7")
def parts_are_looked_for_in_the_vertex_of_the_head(patch: Patch) -> None:
    part = restore.SubtaskRestore.part

    def of_head(self: Any, operator: str, name: str) -> Any:
        return part(self, operator, name) if operator in self._snapshots_of_head_operators() else []

    def operators(self: Any) -> Any:
        old = self._old.vertices.get(self._subtask.vertex.uid)
        return [] if old is None else old.operators

    patch(restore.SubtaskRestore, "_snapshots_of_head_operators", operators)
    patch(restore.SubtaskRestore, "part", of_head)


# ---- idleness -------------------------------------------------------------------------------------------------------


@breaks("10.4a")
def a_split_is_idle_only_when_all_are_quiet(patch: Patch) -> None:
    patch(idleness.IdleTimers, "is_silent", lambda self, split: self.all_quiet)


@breaks("10.4b")
def idle_timers_count_the_time_of_draining(patch: Patch) -> None:
    made = idleness.IdleTimers.__init__

    def counts_at_once(self: Any, timeout_ms: float, monotonic_ms: Any) -> None:
        made(self, timeout_ms, monotonic_ms)
        self._counted_until_ms = monotonic_ms()

    patch(idleness.IdleTimers, "__init__", counts_at_once)
    patch(idleness.IdleTimers, "pause", lambda self: None)


@breaks("10.4a")
def restores_forget_that_idle_was_said(patch: Patch) -> None:
    in_flight = restore.SubtaskRestore.in_flight
    patch(restore.SubtaskRestore, "in_flight", lambda self: replace(in_flight(self), idle=False))


# ---- floors ---------------------------------------------------------------------------------------------------------


@breaks("5.3")
def a_restart_forgets_the_floors(patch: Patch) -> None:
    in_flight = restore.SubtaskRestore.in_flight

    def forgets(self: Any) -> Any:
        found = in_flight(self)
        return found if self._old.is_rescaled else replace(found, floors=())

    patch(restore.SubtaskRestore, "in_flight", forgets)


@breaks("5.3")
def floors_are_in_no_snapshot(patch: Patch) -> None:
    patch(progress.EventTime, "floors", lambda self: [])


@breaks("5.3")
def the_next_rescale_forgets_the_floors(patch: Patch) -> None:
    floors = rescale.floors

    def of_owners(old: Any, max_parallelism: int, key_groups: range) -> Any:
        return floors([msgspec.structs.replace(s, floors=[]) for s in old], max_parallelism, key_groups)

    patch(rescale, "floors", of_owners)


@breaks("5.3")
def floors_end_when_any_time_is_reached(patch: Patch) -> None:
    advance = progress.EventTime.advance

    def forgets(self: Any, watermark_ms: int) -> None:
        if watermark_ms > self.current_ms:
            self._floors = {}
        advance(self, watermark_ms)

    patch(progress.EventTime, "advance", forgets)


@breaks("5.3")
def windows_of_rows_know_no_floors(patch: Patch) -> None:
    def of_subtask(self: Any) -> int:
        return int(self._time.current_ms)

    pipe = row_windows.WindowOperator.pipe

    def without(self: Any, rows: Any) -> Any:
        patch(self.context, "current_watermark_ms", lambda: of_subtask(self.context))
        return pipe(self, rows)

    patch(row_windows.WindowOperator, "pipe", without)


@breaks("5.3")
def windows_of_columns_know_no_floors(patch: Patch) -> None:
    set_time = column_windows.WindowAggregates.set_time
    without = lambda self, current_ms, floors: set_time(self, current_ms, [])  # noqa: E731
    patch(column_windows.WindowAggregates, "set_time", without)


@breaks("5.7")
def limits_of_a_group_are_ignored(patch: Patch) -> None:
    patch(source_alignment.SourceAlignment, "limit", lambda self, watermark_max_ms: None)


@breaks("5.11b")
def a_session_has_the_timer_of_its_first_row_only(patch: Patch) -> None:
    on_timer = merging_windows.MergingWindowOperator._on_timer
    register = merging_windows.MergingWindowOperator._register

    def without(self: Any, start: int, end: int, time_ms: int) -> Any:
        patch(merging_windows.MergingWindowOperator, "_register", lambda self, end, reached_ms: None)
        yield from on_timer(self, start, end, time_ms)
        patch(merging_windows.MergingWindowOperator, "_register", register)

    patch(merging_windows.MergingWindowOperator, "_on_timer", without)


@breaks("5.11a")
def the_rows_of_a_session_that_is_joined_are_forgotten(patch: Patch) -> None:
    open_ = merging_windows.MergingWindowOperator.open

    def forgetting(self: Any) -> None:
        open_(self)
        self._merge = lambda kept, other: kept

    patch(merging_windows.MergingWindowOperator, "open", forgetting)


@breaks("5.11a")
def a_row_is_in_the_latest_of_its_windows_only(patch: Patch) -> None:
    opened_by = Sliding.opened_by
    patch(Sliding, "opened_by", lambda self, timestamp_ms: opened_by(self, timestamp_ms)[:1])


@breaks("5.12a")
def timers_of_windows_are_in_no_snapshot(patch: Patch) -> None:
    take = window_timers.WindowTimers.take

    def forgetful(self: Any, time_ms: int) -> Any:
        return take(self, time_ms) if time_ms in self.registered_here else None

    made, register = window_timers.WindowTimers.__init__, window_timers.WindowTimers.register

    def init(self: Any, *arguments: Any) -> None:
        made(self, *arguments)
        self.registered_here = set()

    def registered(self: Any, time_ms: int, window: Any) -> None:
        self.registered_here.add(time_ms)
        register(self, time_ms, window)

    patch(window_timers.WindowTimers, "__init__", init)
    patch(window_timers.WindowTimers, "register", registered)
    patch(window_timers.WindowTimers, "take", forgetful)


@breaks("5.12b")
def windows_of_the_clock_end_without_a_result(patch: Patch) -> None:
    patch(triggered_windows.TriggeredWindowOperator, "_end_clock", lambda self: iter(()))


@breaks("5.11a")
def the_rows_of_a_window_that_is_merged_are_forgotten(patch: Patch) -> None:
    merge = triggered_merging_windows.TriggeredMergingWindowOperator
    patch(merge, "_merge_contents", lambda self, into, other: self._contents.remove(other))


@breaks("5.13")
def rows_of_a_join_are_kept_until_their_own_time(patch: Patch) -> None:
    made = interval_join.IntervalJoinOperator.__init__

    def hasty(self: Any, *arguments: Any) -> None:
        made(self, *arguments)
        self._stays_ms = 0, 0

    patch(interval_join.IntervalJoinOperator, "__init__", hasty)


IDLE_SEEDS = (1148, 1189)
"""Random jobs with a branch of idle splits that drain for longer than its timeout."""

FIRED = "triggered-windows-over-kills-and-rescales"
COME_TWICE = r"^sink 0: 0 rows lost \[\], [1-9]\d* too many"
MUTANTS: list[tuple[Callable[[Patch], None], str | tuple[int, ...] | range, str]] = [
    (limits_of_a_group_are_ignored, "fast-source-waits-for-its-group", r"the fast source has ended"),
    (rows_on_vanished_edges_are_dropped, "graph-changes-at-every-resume", r"[1-9]\d* rows lost"),
    (new_edges_start_at_the_furthest_producer, "graph-changes-at-every-resume", "is late"),
    (parts_are_looked_for_in_the_vertex_of_the_head, "graph-changes-at-every-resume", r"[1-9]\d* rows lost"),
    (a_split_is_idle_only_when_all_are_quiet, "a-split-pauses-while-another-is-busy", "time stood still"),
    (idle_timers_count_the_time_of_draining, "idleness-counts-no-draining", "is late"),
    (idle_timers_count_the_time_of_draining, IDLE_SEEDS, "is late"),
    (restores_forget_that_idle_was_said, "a-split-pauses-while-another-is-busy", "is late"),
    (a_restart_forgets_the_floors, "floors-of-rows-over-a-restart", "the watermark fell"),
    (floors_are_in_no_snapshot, "floors-of-rows-over-a-restart", "the watermark fell"),
    (the_next_rescale_forgets_the_floors, "floors-of-rows-over-a-restart", "the watermark fell"),
    (floors_end_when_any_time_is_reached, "floors-of-rows-over-a-restart", "the watermark fell"),
    (windows_of_rows_know_no_floors, "floors-of-rows-over-a-restart", "fired twice"),
    (a_restart_forgets_the_floors, "floors-of-columns-over-a-restart", COME_TWICE),
    (windows_of_columns_know_no_floors, "floors-of-columns-over-a-restart", COME_TWICE),
    (a_session_has_the_timer_of_its_first_row_only, "sessions-over-kills-and-rescales", r"[1-9]\d* rows lost"),
    (the_rows_of_a_session_that_is_joined_are_forgotten, "sessions-over-kills-and-rescales", r"[1-9]\d* rows lost"),
    (a_row_is_in_the_latest_of_its_windows_only, "sliding-windows-over-kills-and-rescales", r"[1-9]\d* rows lost"),
    (the_rows_of_a_window_that_is_merged_are_forgotten, FIRED, r"[1-9]\d* rows lost"),
    (timers_of_windows_are_in_no_snapshot, FIRED, r"[1-9]\d* rows lost"),
    (rows_of_a_join_are_kept_until_their_own_time, "joins-over-kills-and-rescales", r"[1-9]\d* rows lost"),
    (windows_of_the_clock_end_without_a_result, FIRED, r"[1-9]\d* rows lost"),
]


_IDS = [f"{mutant.__name__}, {where}" for mutant, where, _ in MUTANTS]


@pytest.mark.parametrize(("mutant", "where", "violation"), MUTANTS, ids=_IDS)
def test_a_broken_rule_is_found_by_what_it_breaks(
    mutant: Callable[[Patch], None],
    where: str | tuple[int, ...] | range,
    violation: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def patch(place: Any, name: str, value: Any) -> None:
        monkeypatch.setattr(place, name, value, raising=hasattr(place, name))

    mutant(patch)
    assert_found(where if isinstance(where, str) else list(where), violation)
