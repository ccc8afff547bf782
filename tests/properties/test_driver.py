"""Tests one driver with its slots over a log that loses answers: every canonical checkpoint is committed exactly once,
nothing that is named is deleted, and no restart goes below the newest entry.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from penstock.protocol.driver.published_checkpoints import FOLLOWS, Follow, PublishedKind
from penstock.protocol.log.retention import Retention, named_by
from tests.properties.driver_model import SLOTS, TIMEOUT_MS, ModelDriver, World

DRIVERS_MAX = 4
FAULTS = st.sampled_from(["", "", "", "", "lost", "refused", "full"])
NUMBERS = st.integers(0, SLOTS - 1)


class DriverMachineProperties(RuleBasedStateMachine):
    """Lets drivers run, fail, be killed and be followed by others, with faults of the store and of the sink."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.drivers: list[ModelDriver] = []

    @initialize(names_earlier=st.integers(0, 2), tolerable=st.sampled_from([0, 5]))
    def begin(self, names_earlier: int, tolerable: int) -> None:
        self._names_earlier, self._tolerable = names_earlier, tolerable
        self._start()

    def _start(self) -> None:
        is_first = not self.drivers
        driver = ModelDriver(self.world, f"d{len(self.drivers)}", self._names_earlier, self._tolerable)
        self.drivers.append(driver)
        driver.start(resume=not is_first)

    @property
    def newest(self) -> ModelDriver:
        return self.drivers[-1]

    def _one(self, is_newest: bool) -> ModelDriver:
        return self.drivers[-1 if is_newest else 0]

    # ---- what happens -------------------------------------------------------------------------------------------

    @rule(operations=st.lists(FAULTS, min_size=1, max_size=12), is_newest=st.booleans())
    def the_store_answers(self, operations: list[str], is_newest: bool) -> None:
        for fault in operations:
            self._one(is_newest).step_log(fault)

    @rule(is_newest=st.sampled_from([True, True, False]))
    def processes_come_up(self, is_newest: bool) -> None:
        for _ in range(3):
            self._one(is_newest).bring_up()

    @rule(is_newest=st.sampled_from([True, True, False]))
    def a_checkpoint_is_asked_for(self, is_newest: bool) -> None:
        self._one(is_newest).ask()

    @rule(is_newest=st.sampled_from([True, True, False]))
    def a_savepoint_is_asked_for(self, is_newest: bool) -> None:
        self._one(is_newest).ask_for_savepoint()

    @rule(number=NUMBERS, messages=st.integers(1, 4), is_newest=st.sampled_from([True, True, False]))
    def a_slot_works(self, number: int, messages: int, is_newest: bool) -> None:
        for _ in range(messages):
            self._one(is_newest).step_slot(number)

    @rule(number=NUMBERS)
    def a_slot_declines(self, number: int) -> None:
        self.newest.decline(number)

    @rule(succeeds=st.sampled_from([True, True, False]), is_newest=st.booleans())
    def the_sink_answers(self, succeeds: bool, is_newest: bool) -> None:
        self._one(is_newest).step_commit(succeeds)

    @rule()
    def the_job_fails(self) -> None:
        self.newest.fail()

    @rule(is_newest=st.booleans())
    def a_checkpoint_expires(self, is_newest: bool) -> None:
        self.world.now_ms += TIMEOUT_MS
        self._one(is_newest).look_at_the_clock()

    @rule(is_killed=st.booleans())
    def another_driver_starts(self, is_killed: bool) -> None:
        if len(self.drivers) < DRIVERS_MAX:
            self.newest.is_dead |= is_killed
            self._start()

    @rule()
    def all_goes_well(self) -> None:
        self._run_on(self.newest)

    @rule(operations=st.lists(FAULTS, min_size=1, max_size=12))
    def checkpoints_overlap(self, operations: list[str]) -> None:
        """Let two checkpoints be published one behind the other, both triggered before."""
        driver = self.newest
        self._run_on(driver)
        for _ in range(2):
            driver.ask()
        for _ in range(8):
            for number in range(SLOTS):
                driver.step_slot(number)
        for fault in [*operations, *[""] * 12]:
            driver.step_log(fault)

    @rule()
    def the_job_fails_behind_a_savepoint(self) -> None:
        driver = self.newest
        self._run_on(driver)
        driver.ask_for_savepoint()
        for _ in range(8):
            for number in range(SLOTS):
                driver.step_slot(number)
        driver.fail()
        driver.look_at_the_clock()
        for _ in range(3):
            driver.bring_up()

    def _run_on(self, driver: ModelDriver) -> None:
        """Let a driver run without faults until one more of its checkpoints is committed."""
        for _ in range(3):
            for _ in range(25):
                driver.step_log("")
                driver.bring_up()
                for number in range(SLOTS):
                    driver.step_slot(number)
                driver.step_commit(True)
            if driver.machine.coordinator.may_trigger and not driver.machine.coordinator.pending.ids:
                driver.ask()

    # ---- the theorem --------------------------------------------------------------------------------------------

    @invariant()
    def nothing_is_committed_that_is_not_canonical(self) -> None:
        canonical = {entry.checkpoint_id for entry in self.world.canonical()}
        for data, under in self.world.committed.items():
            assert under <= canonical, f"{data!r} is committed for {under}, canonical are {canonical}"
            assert len(under) == 1, f"{data!r} is committed again, for other checkpoints: {under}"

    @invariant()
    def nothing_that_is_named_is_deleted(self) -> None:
        canonical, store = self.world.canonical(), self.world.store
        if not canonical:
            return
        for path in canonical[-1].retained:
            assert path in store.metadata, f"{path} is retained, and deleted"
            missing = {s.path for s in store.metadata[path].segments} - self.world.segments
            assert not missing, f"{path} names {missing}, which are deleted"

    @invariant()
    def no_restart_goes_below_the_newest_entry(self) -> None:
        for driver in self.drivers:
            for restored, newest in driver.restarts:
                assert restored == newest, f"{driver.name} restarts from {restored}, and {newest} is in the log"

    def teardown(self) -> None:
        if not self.drivers:
            return
        for driver in self.drivers:
            driver.is_dead = True
        self._start()
        self._run_on(self.newest)
        self._run_on(self.newest)
        canonical = [entry.checkpoint_id for entry in self.world.canonical()]
        assert canonical and self.newest.is_settled, "the last driver takes a checkpoint, and commits all"
        self.newest.ask_for_savepoint()
        self._run_on(self.newest)
        assert self.newest.answered == 1, "the last driver takes a savepoint"
        expected = self.world.outputs_of_canonical()
        assert set(self.world.committed) == expected, "all output of canonical checkpoints, and nothing else"


def run(examples: int, finds_mutant: bool = False) -> None:
    """Run the machine. `finds_mutant`: the same examples each time, and none is made smaller."""
    run_state_machine_as_test(
        DriverMachineProperties,
        settings=settings(
            max_examples=examples,
            stateful_step_count=30,
            deadline=None,
            derandomize=finds_mutant,
            phases=(Phase.generate,) if finds_mutant else tuple(Phase),
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )


def test_every_canonical_checkpoint_is_committed_exactly_once_and_restored() -> None:
    run(examples=100)


@pytest.mark.parametrize(
    ("missing", "violation"),
    [
        (Follow.RESTORE_FROM, "restarts from"),
        (Follow.COMMIT, "all output of canonical checkpoints"),
    ],
)
def test_a_step_that_is_missing_behind_a_publication_is_found(
    missing: Follow, violation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = PublishedKind.CHECKPOINT
    monkeypatch.setitem(FOLLOWS, kind, tuple(step for step in FOLLOWS[kind] if step is not missing))
    with pytest.raises(AssertionError, match=violation):
        run(examples=60, finds_mutant=True)


def test_a_restart_from_a_savepoint_that_no_entry_names_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = PublishedKind.SAVED
    monkeypatch.setitem(FOLLOWS, kind, (Follow.RESTORE_FROM, *FOLLOWS[kind]))
    with pytest.raises(AssertionError, match="restarts from"):
        run(examples=60, finds_mutant=True)


def test_a_deletion_that_ignores_what_a_pending_checkpoint_may_name_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Retention, "named", property(lambda retention: named_by(retention.retained)))
    with pytest.raises(AssertionError, match="which are deleted"):
        run(examples=60, finds_mutant=True)
