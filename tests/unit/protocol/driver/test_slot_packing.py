"""Tests when slots share processes, and whose: decided from who has registered and how many tasks Spark runs at
once."""

from __future__ import annotations

from typing import Any

from penstock.protocol.driver.lifecycle import Lifecycle, LifecycleSettings
from penstock.protocol.driver.restarts import ExponentialDelay
from penstock.protocol.driver.slot_packing import Patience, SlotPacking
from penstock.protocol.values.messages import Host, Register

PATIENCE = Patience(loss_ms=500.0, return_ms=15_000.0, start_ms=10_000.0)


class Packed:
    """A job's life, and a packing that looks at it; `places` is what Spark would say."""

    def __init__(
        self, slots: int, capacity: int | None = None, places: int | None = None, relieved: bool = True
    ) -> None:
        self.life = Lifecycle(LifecycleSettings(slots), ExponentialDelay(), lambda: 0.0)
        self.life.start(0.0)
        self.places = places
        self.asked: list[tuple[str, int]] = []
        self.told: list[str] = []
        self._answers: list[Any] = []
        self.packing = SlotPacking(
            self,
            self._send,
            lambda answered: self._answers.append(lambda: answered(self.places)),
            self.told.append,
            capacity,
            relieved=relieved,
            patience=PATIENCE,
        )

    def leave_to_another(self, slot: int, relieved: bool) -> int:
        return 0

    def _send(self, process: str, message: Any) -> None:
        assert isinstance(message, Host)
        self.asked.append((process, message.slot))

    def register(self, slot: int, process: str, pid: int, hosted: bool = False) -> None:
        self.life.on_register(
            Register(slot, 0 if hosted else 1, 0, process, pid, "host", 1, "3.11", "0", hosted=hosted), 0.0
        )

    def look(self, now_ms: float) -> list[tuple[str, int]]:
        """Return whom it asks to play which slot, now that Spark has answered."""
        self.asked.clear()
        self.packing.look(self.life, now_ms)
        for answer in self._answers:
            answer()
        self._answers.clear()
        self.packing.look(self.life, now_ms + 200.0)
        return sorted(self.asked)


def test_where_places_are_fixed_the_rest_is_shared_out_evenly_once_all_who_can_are_there() -> None:
    packed = Packed(slots=5, capacity=2)
    packed.register(0, "p0", 10)
    assert packed.look(0.0) == []
    packed.register(1, "p1", 11)
    assert packed.look(300.0) == [("p0", 2), ("p0", 4), ("p1", 3)]
    assert packed.look(800.0) == [], "who was asked is not asked again at once"
    assert "Spark runs 2 tasks at once" in packed.told[0]


def test_a_slot_that_shares_a_process_hosts_nobody() -> None:
    packed = Packed(slots=3, capacity=1)
    packed.register(0, "p0", 10)
    packed.register(1, "p0 too", 10, hosted=True)
    assert packed.look(0.0) == [("p0", 2)]


def test_a_cluster_is_given_time_to_grow_before_slots_are_packed() -> None:
    packed = Packed(slots=2, places=1)
    packed.register(0, "p0", 10)
    assert packed.look(0.0) == []
    assert packed.look(5_000.0) == []
    assert packed.look(10_000.0) == [("p0", 1)]


def test_with_places_enough_at_the_start_nothing_is_packed_however_long_it_takes() -> None:
    packed = Packed(slots=2, places=2)
    packed.register(0, "p0", 10)
    packed.look(0.0)
    assert packed.look(200_000.0) == []


def running(places: int) -> Packed:
    packed = Packed(slots=2, places=2)
    life = packed.life
    life.on_prepared(0, 0.0)
    packed.register(0, "p0", 10)
    packed.register(1, "p1", 11)
    generation = life.generation
    assert generation is not None
    for process in ("p0", "p1"):
        life.on_connected(process, generation, 0.0)
    for process in ("p0", "p1"):
        life.on_restored(process, generation, 0.0)
    packed.places = places
    assert packed.look(0.0) == []
    life.on_link_lost("p1", "killed", 1_000.0)
    assert packed.look(1_000.0) == []
    return packed


def test_after_a_loss_with_fewer_places_left_than_slots_the_survivors_play_them_at_once() -> None:
    assert running(places=1).look(1_600.0) == [("p0", 1)]


def test_after_a_loss_with_a_place_left_the_slot_is_waited_for() -> None:
    packed = running(places=2)
    assert packed.look(1_600.0) == []
    assert packed.look(16_500.0) == [("p0", 1)], "but not for ever"


def test_a_host_that_has_died_is_replaced_by_another() -> None:
    packed = Packed(slots=3, capacity=2)
    packed.register(0, "p0", 10)
    packed.register(1, "p1", 11)
    assert packed.look(0.0) == [("p0", 2)]
    packed.life.on_link_lost("p0", "killed", 100.0)
    packed.register(0, "p0 again", 12)
    asked = packed.look(1_000.0)
    assert [slot for _, slot in asked] == [2] and asked[0][0] != "p0"


def test_a_slot_without_a_spark_job_of_its_own_is_packed_again_however_many_places_there_are() -> None:
    """[Without checkpoints nobody is submitted for a packed slot. Its process died before the job ran for the first
    time, there were places enough by then, and the job waited for a slot that nobody would start.]"""
    packed = Packed(slots=2, places=1, relieved=False)
    packed.register(0, "p0", 10)
    packed.look(0.0)
    assert packed.look(10_000.0) == [("p0", 1)]
    packed.register(1, "p0 too", 10, hosted=True)
    packed.places = 2
    assert packed.look(10_100.0) == []
    packed.life.on_link_lost("p0 too", "killed", 10_200.0)
    assert packed.look(10_200.0) == []
    assert packed.look(10_800.0) == [("p0", 1)]
