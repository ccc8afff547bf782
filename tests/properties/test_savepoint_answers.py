"""Tests that, whatever happens to a job, whoever asks for a savepoint gets one answer when it has ended: it is taken at
most once, and nobody is told that it was not taken while it is written, or when it is there.
"""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from penstock.protocol.driver.coordinator import CheckpointCoordinator, CoordinatorPhase, CoordinatorSettings
from penstock.protocol.driver.driver_effects import (
    CheckpointAborted,
    CheckpointEffect,
    FailJob,
    PublishCheckpoint,
    SavepointRefused,
    TriggerCheckpoint,
)
from penstock.protocol.driver.savepoint import Alignment, Savepoint
from penstock.protocol.values.elements import Barrier, Generation, SubtaskId
from penstock.protocol.values.messages import Decline, SlotAck
from penstock.protocol.values.metadata import Segment, SubtaskSnapshot
from penstock.protocol.values.reasons import FailureReason

SLOTS = 2
places = st.integers(0, 10**6)


class SavepointMachine(RuleBasedStateMachine):
    @initialize(
        interval_ms=st.sampled_from([None, 90.0, 10_000.0]),
        concurrent_max=st.integers(1, 3),
        tolerable=st.sampled_from([None, 2]),
        begins=st.sampled_from(["running", "at its end", "its final checkpoint has failed"]),
    )
    def start(self, interval_ms: float | None, concurrent_max: int, tolerable: int | None, begins: str) -> None:
        self.coordinator = CheckpointCoordinator(
            CoordinatorSettings(
                interval_ms, timeout_ms=3000.0, concurrent_max=concurrent_max, tolerable_failures_max=tolerable
            )
        )
        self.now_ms = 0.0
        self.generation = Generation(0, 0)
        self.asked: list[Savepoint] = []
        self.triggered: dict[str, int] = {}
        self.answers: dict[str, str] = {}
        self.pending: dict[int, tuple[Barrier, Generation, set[int]]] = {}
        self.publishing: dict[int, PublishCheckpoint] = {}
        self.written: set[Savepoint] = set()
        self.at_end: set[int] = set()
        self._run()
        while begins != "running" and len(self.at_end) < SLOTS:
            self.end_data()
        if begins == "its final checkpoint has failed":
            self.decline(0)

    @property
    def is_over(self) -> bool:
        return self.coordinator.phase is CoordinatorPhase.FINAL

    def _run(self) -> None:
        self.generation = Generation(0, self.generation.counter + 1)
        self.at_end.clear()
        slots = frozenset(range(SLOTS))
        self._execute(self.coordinator.on_running(self.generation, slots, SLOTS, self.now_ms, spread=0.9))

    def _answer(self, savepoint: Savepoint, what: str) -> None:
        is_known = savepoint.directory in self.answers
        assert not is_known, f"{savepoint} is {what}, and was {self.answers[savepoint.directory]}"
        self.answers[savepoint.directory] = what

    def _execute(self, effects: Iterable[CheckpointEffect]) -> None:
        has_failed = False
        for effect in effects:
            match effect:
                case TriggerCheckpoint(barrier, savepoint):
                    if savepoint is not None:
                        assert savepoint.directory not in self.triggered, f"{savepoint} is taken twice"
                        assert savepoint.directory not in self.answers, f"{savepoint} is taken behind its answer"
                        self.triggered[savepoint.directory] = barrier.checkpoint_id
                    self.pending[barrier.checkpoint_id] = barrier, self.generation, set()
                case PublishCheckpoint():
                    del self.pending[effect.barrier.checkpoint_id]
                    self.publishing[effect.barrier.checkpoint_id] = effect
                case CheckpointAborted(checkpoint_id, _, _, savepoint):
                    self.pending.pop(checkpoint_id, None)
                    self.publishing.pop(checkpoint_id, None)
                    if savepoint is not None:
                        self._answer(savepoint, "aborted")
                case SavepointRefused(savepoint):
                    assert savepoint.directory not in self.triggered, f"{savepoint} is refused, and was triggered"
                    self._answer(savepoint, "refused")
                case FailJob():
                    has_failed = True
        if has_failed:
            self.restart()

    # ---- what happens -------------------------------------------------------------------------------------------

    @rule(ms=st.sampled_from([60.0, 1000.0]))
    def pass_time(self, ms: float) -> None:
        self.now_ms += ms
        self._execute(self.coordinator.on_time(self.now_ms))

    @rule()
    def ask_for_checkpoint(self) -> None:
        self._execute(self.coordinator.request(self.now_ms))

    @rule(
        alignment=st.sampled_from([Alignment.CONFIGURED, Alignment.ALIGNED]),
        stops=st.sampled_from(["no", "stop", "drain"]),
    )
    def ask_for_savepoint(self, alignment: Alignment, stops: str) -> None:
        savepoint = Savepoint(f"/s/{len(self.asked)}", alignment, stops != "no", stops == "drain")
        self.asked.append(savepoint)
        self._execute(self.coordinator.request_savepoint(savepoint, self.now_ms))

    @rule(aligned=st.booleans())
    def ask_for_rescale(self, aligned: bool) -> None:
        self._execute(self.coordinator.request_rescale(aligned, self.now_ms))

    @precondition(lambda self: len(self.at_end) < SLOTS)
    @rule()
    def end_data(self) -> None:
        subtask = len(self.at_end)
        self.at_end.add(subtask)
        self._execute(self.coordinator.on_end_of_data(SubtaskId(0, subtask), self.now_ms))

    @precondition(lambda self: self.pending)
    @rule(place=places, slots=st.integers(1, SLOTS))
    def acknowledge(self, place: int, slots: int) -> None:
        checkpoint_id = list(self.pending)[place % len(self.pending)]
        _, generation, acked = self.pending[checkpoint_id]
        for slot in [slot for slot in range(SLOTS) if slot not in acked][:slots]:
            acked.add(slot)
            snapshot = SubtaskSnapshot(0, slot, [], [], [], [], [], [], [], finished=slot in self.at_end)
            segment = Segment(f"{checkpoint_id}-{slot}", 10)
            self._execute(
                self.coordinator.on_ack(SlotAck(generation, slot, checkpoint_id, segment, [snapshot]), self.now_ms)
            )

    @precondition(lambda self: self.pending)
    @rule(place=places)
    def decline(self, place: int) -> None:
        checkpoint_id = list(self.pending)[place % len(self.pending)]
        declined = Decline(self.pending[checkpoint_id][1], 0, checkpoint_id, SubtaskId(0, 0), FailureReason.DECLINED)
        self._execute(self.coordinator.on_decline(declined, self.now_ms))

    @precondition(lambda self: any(p.savepoint is not None and p.savepoint.stops for p in self.publishing.values()))
    @rule()
    def write(self) -> None:
        for checkpoint_id, publish in self.publishing.items():
            if publish.savepoint is not None and publish.savepoint.stops:
                self.coordinator.on_written(checkpoint_id)
                self.written.add(publish.savepoint)

    @precondition(lambda self: self.publishing)
    @rule(place=places, works=st.booleans())
    def publish(self, place: int, works: bool) -> None:
        checkpoint_id = list(self.publishing)[place % len(self.publishing)]
        publish = self.publishing.pop(checkpoint_id)
        savepoint = publish.savepoint
        if savepoint is not None and savepoint.stops:
            assert savepoint in self.written or publish.generation == self.generation, "the job ends in a restart"
        if not works:
            self._execute(
                self.coordinator.on_not_published(checkpoint_id, FailureReason.FINALIZE_FAILURE, "full", self.now_ms)
            )
        elif savepoint is not None and not savepoint.stops:
            self._execute(self.coordinator.on_saved(checkpoint_id, self.now_ms))
            self._answer(savepoint, "taken")
        else:
            # As in the JobMaster: whoever asked hears of it last.
            self._execute(self.coordinator.on_published(checkpoint_id, publish.is_final, self.now_ms))
            if savepoint is not None:
                self._answer(savepoint, "taken")

    @rule()
    def restart(self) -> None:
        if not self.is_over:
            self._execute(self.coordinator.on_stopped(self.now_ms))
            stop = self.coordinator.stopping.savepoint
            assert stop is None or stop in self.written, "the next generation takes no checkpoint"
            self._run()

    def teardown(self) -> None:
        if not hasattr(self, "coordinator"):
            return
        while self.publishing:
            self.publish(0, True)
        self._execute(self.coordinator.on_stopped(self.now_ms))
        while self.publishing:
            self.publish(0, False)
        assert [s for s in self.asked if s.directory not in self.answers] == []


TestSavepointAnswers = SavepointMachine.TestCase
TestSavepointAnswers.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)
