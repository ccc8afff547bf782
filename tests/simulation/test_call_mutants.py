"""The simulation finds answers that are asked for again, rows that are lost while they wait, and rows that are late."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from penstock.operators.calls import stored_calls
from penstock.operators.calls.held_clock import HeldClock
from penstock.operators.event_time.subtask_clock import SubtaskClock
from penstock.runtime.checkpoint import calls_restore
from penstock.runtime.subtask import snapshot_source
from tests.simulation.finding import assert_found
from tests.simulation.proofs import breaks

Patch = Callable[[Any, str, Any], None]


@breaks("7.4a")
def snapshots_contain_rows_without_their_answers(patch: Patch) -> None:
    decode = stored_calls.decode_calls

    def unanswered(item: bytes) -> Any:
        stored = decode(item)
        return msgspec.structs.replace(stored, answers=[-1] * len(stored.answers))

    patch(calls_restore, "decode_calls", unanswered)


@breaks("7.4a")
def snapshots_contain_every_other_answer(patch: Patch) -> None:
    part = stored_calls.calls_part

    def with_half_of_them(operator: Any) -> Any:
        answers = {call.number: call.answer for call in operator.queue.calls()}
        for call in operator.queue.calls():
            call.answer = call.answer if call.number % 2 else None
        made = part(operator)
        for call in operator.queue.calls():
            call.answer = answers[call.number]
        return made

    patch(snapshot_source, "calls_part", with_half_of_them)


@breaks("7.4b")
def rows_that_wait_are_in_no_snapshot(patch: Patch) -> None:
    patch(snapshot_source, "calls_part", lambda operator: None)


@breaks("7.4c")
def watermarks_pass_rows_that_wait(patch: Patch) -> None:
    patch(HeldClock, "on_inputs", SubtaskClock.on_inputs)


ANSWERS, KILLS = "answers-that-a-checkpoint-holds", "calls-over-kills-and-rescales"
MUTANTS: list[tuple[Callable[[Patch], None], str, str]] = [
    (snapshots_contain_rows_without_their_answers, ANSWERS, r"is asked for again"),
    (snapshots_contain_every_other_answer, ANSWERS, r"is asked for again"),
    (rows_that_wait_are_in_no_snapshot, KILLS, r"rows lost|missing"),
    (watermarks_pass_rows_that_wait, KILLS, r"is late: the watermark is"),
]


@pytest.mark.parametrize(("mutant", "where", "violation"), MUTANTS, ids=[m.__name__ for m, _, _ in MUTANTS])
def test_a_broken_rule_is_found(
    mutant: Callable[[Patch], None], where: str, violation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch.setattr)
    assert_found(where, violation)
