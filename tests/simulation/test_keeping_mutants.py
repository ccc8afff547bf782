"""The simulation finds broken rules of what outlives a restart: untouched state, timers of processing time, and
functions' own memory, which must not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import cloudpickle
import pytest

from penstock.operators.event_time import timers
from penstock.runtime.process import slot_deployment
from penstock.runtime.process.slot_deployment import SlotDeployment
from penstock.runtime.subtask import subtask, turns
from penstock.state import restored
from penstock.state.codecs import read_stream
from penstock.state.heap import hash_map_snapshot
from tests.simulation.finding import assert_found
from tests.simulation.proofs import breaks

Patch = Callable[[Any, str, Any], None]


# ---- state that nobody asks for --------------------------------------------------------------------------------------


@breaks("8.2")
def untouched_state_is_left_out_of_the_next_snapshot(patch: Patch) -> None:
    patch(restored.RestoringBackend, "_untouched", lambda self: restored.UntouchedState([], {}))


@breaks("8.2")
def untouched_state_is_written_with_all_key_groups(patch: Patch) -> None:
    restore = restored.RestoringBackend.restore
    whole: dict[Any, list[Any]] = {}

    def remembers(self: Any, operator: str, name: str, data: bytes, key_groups: range) -> None:
        restore(self, operator, name, data, key_groups)
        whole.setdefault((id(self), operator, name), []).append(read_stream(data, range(1 << 15)))

    def untouched(self: Any) -> Any:
        runs = {name: whole[id(self), *name] for name in self._runs}
        return restored.UntouchedState(list(self._schemas.values()), runs)

    patch(restored.RestoringBackend, "restore", remembers)
    patch(restored.RestoringBackend, "_untouched", untouched)


# ---- functions that keep rows ----------------------------------------------------------------------------------------


@breaks("8.3")
def a_generation_reuses_the_functions_of_the_one_before(patch: Patch) -> None:
    made = SlotDeployment.__init__
    graphs: dict[int, Any] = {}
    deploying: list[Any] = []

    def deploys(self: Any, message: Any, of_slot: Any, backup_of: Any) -> None:
        deploying.append(of_slot)
        made(self, message, of_slot, backup_of)

    def loads(data: bytes) -> Any:
        plan = cloudpickle.loads(data)
        return replace(plan, graph=graphs.setdefault(id(deploying[-1]), plan.graph))

    patch(SlotDeployment, "__init__", deploys)
    patch(slot_deployment, "cloudpickle", SimpleNamespace(loads=loads))


# ---- timers of processing time ---------------------------------------------------------------------------------------


@breaks("5.5a")
def timers_of_processing_time_are_in_no_snapshot(patch: Patch) -> None:
    encode = hash_map_snapshot.HashMapSnapshot.encode

    def others(self: Any) -> Any:
        return (state for state in encode(self) if state.name != "_processing_time_timers")

    patch(hash_map_snapshot.HashMapSnapshot, "encode", others)


@breaks("5.5a")
def timers_of_processing_time_are_not_restored(patch: Patch) -> None:
    made = timers.Timers.__init__

    def without(self: Any, *arguments: Any) -> None:
        made(self, *arguments)
        self._processing = None

    patch(timers.Timers, "__init__", without)


@breaks("5.5c")
def timers_of_processing_time_keep_all_turns(patch: Patch) -> None:
    patch(turns.Turns, "act_on_time", lambda self, act: act())


@breaks("5.5b")
def timers_of_processing_time_fire_before_draining_is_over(patch: Patch) -> None:
    take = subtask.Subtask._take_input

    def hasty(self: Any) -> Any:
        return 0 if not self._draining.is_over and self.work.fire_processing_timers() else take(self)

    patch(subtask.Subtask, "_take_input", hasty)


MUTANTS: list[tuple[Callable[[Patch], None], str | list[int], str]] = [
    # (mutant, schedule or seeds, the violation that it must cause)
    (
        untouched_state_is_left_out_of_the_next_snapshot,
        "state-first-asked-for-after-several-restarts",
        r"first asked for now has 0 of \d+ rows",
    ),
    (
        untouched_state_is_written_with_all_key_groups,
        "state-first-asked-for-after-several-restarts",
        r"state kept of .* foreign key groups",
    ),
    (
        a_generation_reuses_the_functions_of_the_one_before,
        "functions-that-keep-rows",
        r"a function object is opened that keeps \d+ values",
    ),
    (
        a_generation_reuses_the_functions_of_the_one_before,
        list(range(12)),
        r"a function object is opened that keeps \d+ values",
    ),
    (
        timers_of_processing_time_are_in_no_snapshot,
        "processing-timers-over-restarts",
        r"[1-9]\d* rows lost",
    ),
    (
        timers_of_processing_time_are_not_restored,
        "processing-timers-over-restarts",
        r"[1-9]\d* rows lost",
    ),
    (
        timers_of_processing_time_fire_before_draining_is_over,
        "processing-timers-wait-for-the-end-of-draining",
        r"the timer of \d+ fired while the job drained",
    ),
    (timers_of_processing_time_keep_all_turns, "processing-timers-that-are-always-due", r"no end after"),
]
_IDS = [f"{mutant.__name__}, {where if isinstance(where, str) else 'seeds'}" for mutant, where, _ in MUTANTS]


@pytest.mark.parametrize(("mutant", "where", "violation"), MUTANTS, ids=_IDS)
def test_a_broken_rule_is_found(
    mutant: Callable[[Patch], None], where: str | list[int], violation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch.setattr)
    assert_found(where, violation)
