"""The simulation finds broken rules of several checkpoints in progress at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from penstock.jobmaster import checkpoints
from penstock.jobmaster.job_directory import LogConversations
from penstock.protocol.driver.coordinator import CheckpointCoordinator
from penstock.protocol.log.publication import Publication, PublicationState
from penstock.protocol.subtask import barrier_handler
from penstock.runtime.checkpoint.segment_uploads import SegmentUploads
from penstock.runtime.checkpoint.snapshot_writer import SnapshotWriter
from tests.simulation.finding import assert_found
from tests.simulation.proofs import breaks

Patch = Callable[[Any, str, Any], None]


@breaks("2.7")
def segments_wait_for_each_other(patch: Patch) -> None:
    start_waiting = SegmentUploads._start_waiting

    def one_at_a_time(self: Any) -> None:
        uploads_max, self._uploads_max = self._uploads_max, 1
        start_waiting(self)
        self._uploads_max = uploads_max

    patch(SegmentUploads, "_start_waiting", one_at_a_time)


class _EndedLast(deque[int]):
    """Holds those that have ended last."""

    def __init__(self) -> None:
        super().__init__(maxlen=32)

    def add(self, checkpoint_id: int) -> None:
        self.append(checkpoint_id)


@breaks("2.3b")
def ends_of_long_ago_are_forgotten(patch: Patch) -> None:
    patch(barrier_handler, "EndedCheckpoints", _EndedLast)


@breaks("11.15")
def an_older_checkpoint_follows_a_newer_one(patch: Patch) -> None:
    def publish(self: Any, checkpoint: Any) -> Any:
        self._step("publish", self._after(PublicationState.WRITING))
        return (yield from self._as_owner(self._publish(checkpoint)))

    patch(Publication, "publish", publish)


@breaks("11.16")
def output_is_committed_with_each_checkpoint_that_names_it(patch: Patch) -> None:
    patch(checkpoints, "without_committables", lambda subtasks, newest_id: subtasks)


@breaks("9.4a")
def a_checkpoint_follows_the_final_one(patch: Patch) -> None:
    publish = Publication.publish

    def forgetful(self: Any, checkpoint: Any) -> Any:
        self._has_final = False
        return (yield from publish(self, checkpoint))

    patch(Publication, "publish", forgetful)


@breaks("12.2")
def segments_that_are_being_stored_are_not_waited_for(patch: Patch) -> None:
    patch(SnapshotWriter, "is_storing", property(lambda self: False))


@breaks("3.6c")
def a_restart_does_not_wait_for_queued_publications(patch: Patch) -> None:
    patch(LogConversations, "is_idle", property(lambda self: self._current is None))


@breaks("2.8a")
def expired_checkpoints_change_no_limit(patch: Patch) -> None:
    situation = CheckpointCoordinator._situation
    patch(
        CheckpointCoordinator,
        "_situation",
        lambda self, now_ms: replace(situation(self, now_ms), is_congested=False),
    )


class _EndInItsTurn(NamedTuple):
    checkpoint_id: int


@breaks("2.8b")
def what_has_ended_waits_for_its_turn(patch: Patch) -> None:
    step = SnapshotWriter.step

    def in_turn(self: Any) -> bool:
        if self._encoding is None and self.mailbox and isinstance(self.mailbox.mail[0], _EndInItsTurn):
            self._drop(self.mailbox.take().checkpoint_id)
            return True
        return step(self)

    patch(SnapshotWriter, "on_ended", lambda self, checkpoint_id: self.mailbox.post(_EndInItsTurn(checkpoint_id)))
    patch(SnapshotWriter, "step", in_turn)


MUTANTS: list[tuple[Callable[[Patch], None], str | list[int], str]] = [
    # (mutant, schedule or seeds, the violation that it must cause)
    (segments_wait_for_each_other, "slow-store-with-concurrent-checkpoints", r"ms after the one before|given up"),
    (ends_of_long_ago_are_forgotten, "barriers-come-long-after-their-checkpoints", r"which ended long ago"),
    (an_older_checkpoint_follows_a_newer_one, "older-checkpoint-is-acknowledged-last", r"published after"),
    (
        output_is_committed_with_each_checkpoint_that_names_it,
        "output-named-by-two-checkpoints",
        r"again, which checkpoint \d+ has named",
    ),
    (a_checkpoint_follows_the_final_one, "two-checkpoints-are-final", r"follows the final one"),
    (
        segments_that_are_being_stored_are_not_waited_for,
        "generation-ends-while-segments-are-stored",
        r"a segment of generation .* is written, which the process has left",
    ),
    (
        expired_checkpoints_change_no_limit,
        "checkpoints-that-hold-each-other-up",
        r"checkpoints expired, one behind the other",
    ),
    (
        what_has_ended_waits_for_its_turn,
        "checkpoints-that-hold-each-other-up",
        r"checkpoints expired, one behind the other",
    ),
]
_IDS = [f"{mutant.__name__}, {where if isinstance(where, str) else 'seeds'}" for mutant, where, _ in MUTANTS]


@pytest.mark.parametrize(("mutant", "where", "violation"), MUTANTS, ids=_IDS)
def test_a_broken_rule_is_found(
    mutant: Callable[[Patch], None], where: str | list[int], violation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch.setattr)
    assert_found(where, violation)
