"""The simulation finds broken rules of event time, rescaling and draining, each on the schedule that it was written
for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from penstock.operators.event_time import progress, timers, watermark_generators
from penstock.protocol.channel import watermark_valve
from penstock.protocol.driver.pending_checkpoints import PendingCheckpoints
from penstock.protocol.restore import drain_phases as protocol_draining
from penstock.protocol.restore import rescale
from penstock.protocol.subtask.drain_gate import DrainGate
from penstock.protocol.values.elements import WATERMARK_MAX_MS, EndOfData
from penstock.protocol.values.metadata import ChannelTime
from penstock.runtime.checkpoint import subtask_restore as restore
from penstock.runtime.output import result_partition
from penstock.runtime.subtask import feeds, snapshot_source
from penstock.runtime.subtask.subtask import StepResult, Subtask
from penstock.state.columnar import columnar_backend as columnar_state
from penstock.state.heap import hash_map
from simulation.scenarios import scenario
from simulation.world.pace import Bounds
from tests.simulation.finding import assert_found
from tests.simulation.proofs import breaks

Patch = Callable[[Any, str, Any], None]


# ---- draining -------------------------------------------------------------------------------------------------------


@breaks("3.3a")
def everything_is_released_at_once(patch: Patch) -> None:
    patch(protocol_draining, "phases", lambda vertices, edges: [tuple(range(vertices))])


@breaks("3.3a")
def sources_are_released_first(patch: Patch) -> None:
    phases = protocol_draining.phases
    patch(protocol_draining, "phases", lambda vertices, edges: phases(vertices, edges)[::-1])


@breaks("3.4a")
def a_release_does_not_wait_for_checkpoints(patch: Patch) -> None:
    on_release = DrainGate.on_release
    patch(DrainGate, "on_release", lambda self, is_last, checkpoints: on_release(self, is_last, []))


@breaks("3.4b")
def a_release_waits_for_checkpoints_of_earlier_generations(patch: Patch) -> None:
    patch(PendingCheckpoints, "of", lambda pending, generation: pending.ids)


@breaks("3.5")
def a_draining_checkpoint_is_restored_like_any_other(patch: Patch) -> None:
    is_rescaled = rescale.is_rescaled

    def forgets(metadata: Any, vertices: Any, edges: Any) -> bool:
        return is_rescaled(msgspec.structs.replace(metadata, draining=False), vertices, edges)

    patch(rescale, "is_rescaled", forgets)


@breaks("3.3a")
def the_first_report_releases_the_next_level(patch: Patch) -> None:
    patch(protocol_draining.Draining, "_is_final", lambda self: True)


@breaks("3.3b")
def held_rows_leave_behind_the_report(patch: Patch) -> None:
    report, step = Subtask._report_empty, Subtask.step

    def reports_last(self: Subtask, now_ms: float) -> StepResult:
        result = step(self, now_ms)
        if not result.worked:
            report(self)
        return result

    patch(Subtask, "_report_empty", lambda self: None)
    patch(Subtask, "step", reports_last)


# ---- who gets what --------------------------------------------------------------------------------------------------


@breaks("5.3")
def state_is_restored_with_all_key_groups(patch: Patch) -> None:
    own = hash_map.HashMapStateBackend.restore

    def everything(self: Any, operator: str, name: str, data: bytes, key_groups: range) -> None:
        own(self, operator, name, data, range(1 << 15))

    patch(hash_map.HashMapStateBackend, "restore", everything)


@breaks("5.1a")
def columnar_state_is_restored_with_all_key_groups(patch: Patch) -> None:
    own = columnar_state.ColumnarStateBackend.restore

    def everything(self: Any, operator: str, name: str, data: bytes, key_groups: range) -> None:
        own(self, operator, name, data, range(1 << 15))

    patch(columnar_state.ColumnarStateBackend, "restore", everything)


@breaks("10.2")
def splits_are_dealt_out_to_everybody(patch: Patch) -> None:
    patch(rescale, "redistributed", lambda items, new, subtask: [item for of_one in items for item in of_one])


@breaks("3.2")
def whole_channels_go_to_one_owner_of_keys(patch: Patch) -> None:
    def whole(old: int, new: int, max_parallelism: int, consumer: int) -> list[rescale.Share]:
        return [rescale.Share(h, rescale.Filter.WHOLE) for h in range(old) if h * new // old == consumer]

    keyed = rescale._keyed_shares
    patch(rescale, "_keyed_shares", whole)
    patch(rescale, "state_holders", lambda old, new, m, s: [h.holder for h in keyed(old, new, m, s)])


# ---- time -----------------------------------------------------------------------------------------------------------


@breaks("5.2a")
def live_channels_start_at_the_maximum(patch: Patch) -> None:
    def furthest(producers: Any) -> ChannelTime:
        return ChannelTime(max((p.watermark_ms or 0 for p in producers), default=watermark_valve.WATERMARK_MIN_MS))

    patch(rescale, "live_start", furthest)


@breaks("5.3")
def there_are_no_floors(patch: Patch) -> None:
    patch(rescale, "floors", lambda old, max_parallelism, key_groups: [])


@breaks("5.3")
def time_of_a_key_group_is_that_of_the_subtask(patch: Patch) -> None:
    patch(progress.EventTime, "of_group", lambda self, key_group: self.current_ms)


@breaks("5.2a")
def recovered_layers_hold_nothing_back(patch: Patch) -> None:
    add = watermark_valve.WatermarkValve.add_virtual
    patch(watermark_valve.WatermarkValve, "add_virtual", lambda self, time: add(self, ChannelTime(WATERMARK_MAX_MS)))


@breaks("9.2")
def an_end_of_data_in_a_layer_ends_its_live_channel(patch: Patch) -> None:
    on_event = feeds.GateFeed._on_event

    def leaks(self: Any, found: Any) -> None:
        on_event(self, found)
        if isinstance(found.event, EndOfData):
            self._event_time.on_inputs(self._valve.on_event(found.channel, found.event))
            self.ended = self.ended or self._valve.all_ended

    patch(feeds.GateFeed, "_on_event", leaks)


@breaks("5.1a")
def restores_forget_that_timers_were_firing(patch: Patch) -> None:
    in_flight = restore.SubtaskRestore.in_flight

    def as_said(self: Any) -> Any:
        found = in_flight(self)
        return replace(found, current_ms=found.emitted_ms, floors=())

    patch(restore.SubtaskRestore, "in_flight", as_said)


@breaks("5.1a")
def fired_timers_stay_registered(patch: Patch) -> None:
    take = timers.TimerQueue.take_due

    def kept(self: Any, now_ms: int) -> Any:
        timer = take(self, now_ms)
        if timer is not None:
            self._registered.put(timer.timestamp_ms, True)
        return timer

    patch(timers.TimerQueue, "take_due", kept)


@breaks("5.1a")
def resumed_firing_never_ends(patch: Patch) -> None:
    """The job never ends: told from others after ten times the events of a healthy run."""
    patch(scenario, "Bounds", lambda: Bounds(events_max=30_000))
    patch(timers.TimerQueue, "resumes", property(lambda self: self._resumes))


@breaks("5.2a")
def read_layers_hold_time_back(patch: Patch) -> None:
    patch(watermark_valve.WatermarkValve, "end_virtual", lambda self, layer: None)


@breaks("5.1a")
def generators_of_foreign_splits_are_kept(patch: Patch) -> None:
    own = watermark_generators.WatermarkGenerators.restore
    everything = lambda self, items, emitted_ms, splits: own(self, items, emitted_ms, None)  # noqa: E731
    patch(watermark_generators.WatermarkGenerators, "restore", everything)


@breaks("10.2")
def splits_that_nobody_has_begun_hold_nothing_back(patch: Patch) -> None:
    patch(watermark_generators.WatermarkGenerators, "wait_for", lambda self, splits: None)


@breaks("5.4")
def the_last_word_of_one_ends_time_for_all(patch: Patch) -> None:
    risen = watermark_valve.WatermarkValve._risen

    def hasty(self: Any) -> Any:
        talking = [c for c in self._all() if not c.ended and not c.idle]
        if talking and all(c.watermark_ms == WATERMARK_MAX_MS for c in talking) and self.current_ms < WATERMARK_MAX_MS:
            self.current_ms = WATERMARK_MAX_MS
            return WATERMARK_MAX_MS
        return risen(self)

    patch(watermark_valve.WatermarkValve, "_risen", hasty)


@breaks("5.6")
def held_rows_stay_behind_a_barrier(patch: Patch) -> None:
    patch(snapshot_source.SnapshotSource, "finish_row", lambda self: self.work.finish_row())


@breaks("5.6")
def watermarks_overtake_held_rows(patch: Patch) -> None:
    emit_event, flush_held = result_partition.ResultPartition.emit_event, result_partition.ResultPartition.flush_held

    def emits(self: Any, event: Any) -> None:
        patch(result_partition.ResultPartition, "flush_held", lambda self: None)
        emit_event(self, event)
        patch(result_partition.ResultPartition, "flush_held", flush_held)
        self.flush_held()

    patch(result_partition.ResultPartition, "emit_event", emits)


MUTANTS: list[tuple[Callable[[Patch], None], str | list[int], str]] = [
    # (mutant, schedule or seeds, the violation that it must cause)
    (
        everything_is_released_at_once,
        "rows-are-overtaken-on-the-way-to-their-key",
        r"split \d+ key .*: \(.*\) after \(",
    ),
    (
        sources_are_released_first,
        "rows-are-overtaken-on-the-way-to-their-key",
        r"rows came before its consumer had read what was recovered",
    ),
    (
        a_release_waits_for_checkpoints_of_earlier_generations,
        "a-savepoint-outlives-its-generation",
        r"a release waits for checkpoint \d+, which was not triggered in its generation",
    ),
    (
        a_release_does_not_wait_for_checkpoints,
        "released-while-a-checkpoint-is-pending",
        r"rows came before its consumer had read what was recovered",
    ),
    (
        a_draining_checkpoint_is_restored_like_any_other,
        "resumed-in-the-middle-of-draining",
        r": \(.*\) after \(|StopIteration",
    ),
    (
        the_first_report_releases_the_next_level,
        "rows-are-overtaken-on-the-way-to-their-key",
        r": \(.*\) after \(",
    ),
    (
        state_is_restored_with_all_key_groups,
        "owners-of-different-time",
        r"[1-9]\d* too many|fired twice|entry of a key was written twice",
    ),
    (
        columnar_state_is_restored_with_all_key_groups,
        "barrier-between-columnar-windows",
        r"[1-9]\d* too many|entry of a key was written twice",
    ),
    (
        splits_are_dealt_out_to_everybody,
        "splits-of-different-time-are-redistributed",
        r"[1-9]\d* too many",
    ),
    (
        whole_channels_go_to_one_owner_of_keys,
        "several-rescales-in-a-row",
        r"owns key groups .* but a row of group",
    ),
    (
        live_channels_start_at_the_maximum,
        "final-watermark-at-another-parallelism",
        r"is late",
    ),
    (
        there_are_no_floors,
        "owners-of-different-time",
        r"the watermark fell",
    ),
    (
        time_of_a_key_group_is_that_of_the_subtask,
        "owners-of-different-time",
        r"the watermark fell",
    ),
    (
        recovered_layers_hold_nothing_back,
        "layers-of-different-time",
        r"is late",
    ),
    (
        an_end_of_data_in_a_layer_ends_its_live_channel,
        "every-source-had-ended",
        r"is late|[1-9]\d* rows lost",
    ),
    (
        restores_forget_that_timers_were_firing,
        "barrier-between-timers",
        r"the watermark fell",
    ),
    (
        fired_timers_stay_registered,
        "barrier-between-timers",
        r"fired twice, or was deleted",
    ),
    (
        resumed_firing_never_ends,
        "barrier-between-timers",
        r"^no end after",
    ),
    (
        read_layers_hold_time_back,
        "time-advances-after-a-resume",
        r"after the resume time has never been later",
    ),
    (
        generators_of_foreign_splits_are_kept,
        "time-advances-after-a-resume",
        r"after the resume time has never been later",
    ),
    (
        splits_that_nobody_has_begun_hold_nothing_back,
        "splits-that-nobody-has-begun",
        r"fired twice|is late",
    ),
    (
        held_rows_stay_behind_a_barrier,
        "rows-held-before-a-window",
        r"[1-9]\d* rows lost",
    ),
    (
        watermarks_overtake_held_rows,
        "rows-held-before-a-window",
        r"[1-9]\d* rows lost",
    ),
    (
        the_last_word_of_one_ends_time_for_all,
        "last-watermark-with-an-idle-producer",
        r"[1-9]\d* rows lost",
    ),
]


@pytest.mark.parametrize(("mutant", "where", "violation"), MUTANTS, ids=[m.__name__ for m, _, _ in MUTANTS])
def test_a_broken_rule_is_found(
    mutant: Callable[[Patch], None], where: str | list[int], violation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch.setattr)
    assert_found(where, violation)
