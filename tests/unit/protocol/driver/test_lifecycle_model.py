"""Tests that, whatever slots do, and in whatever order, generations grow, each is deployed to living processes that are
free, one per slot, none of which holds anything of an older one; and no deadline is left in the past."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.protocol.driver.driver_effects import (
    AssignSpare,
    CancelGeneration,
    CloseLink,
    Deploy,
    Dismiss,
    FailureCause,
    Prepare,
    Restarting,
    ResubmitSlot,
    SlotsGone,
    StartRun,
    SubmitSlot,
)
from penstock.protocol.driver.lifecycle import Lifecycle, LifecycleSettings, Phase
from penstock.protocol.driver.restarts import ExponentialDelay
from penstock.protocol.values.elements import Generation
from penstock.protocol.values.messages import Register

SLOTS = 3
NONE = Generation(0, 0)


@dataclass
class Process:
    name: str
    slot: int
    submission: int
    holds: Generation | None = None
    is_registered: bool = False
    is_dismissed: bool = False


@dataclass
class World:
    life: Lifecycle
    now_ms: float = 0.0
    processes: dict[str, Process] = field(default_factory=dict)
    submissions: dict[int, int] = field(default_factory=dict)
    newest: Generation = NONE
    preparing: bool = False
    ran: int = 0
    gone: bool = False
    spawned: int = 0

    def spawn(self, slot: int) -> None:
        self.spawned += 1
        name = f"p{self.spawned}"
        self.processes[name] = Process(name, slot, self.submissions.get(slot, 0))

    def follow(self, effects: list[Any]) -> None:
        for effect in effects:
            match effect:
                case SubmitSlot(slot) | ResubmitSlot(slot):
                    self.submissions[slot] = self.submissions.get(slot, 0) + 1
                    self.spawn(slot)
                case Restarting():
                    self.preparing = False
                case Prepare():
                    self.preparing = True
                case Deploy(generation, members):
                    self.deployed(generation, members)
                case CancelGeneration(generation, process):
                    assert self.processes[process].holds == generation
                case StartRun(generation):
                    assert generation == self.newest
                    self.ran += 1
                case Dismiss(process):
                    if process in self.processes:
                        self.processes[process].is_dismissed = True
                case CloseLink(process):
                    self.processes.pop(process, None)
                case SlotsGone():
                    assert not self.gone
                    self.gone = True
                case AssignSpare(process):
                    assert self.processes[process].holds is None

    def deployed(self, generation: Generation, members: tuple[Register, ...]) -> None:
        assert generation > self.newest
        self.newest = generation
        assert [m.slot for m in members] == list(range(SLOTS))
        for member in members:
            process = self.processes[member.process]
            assert process.is_registered and not process.is_dismissed
            assert process.holds is None, "it has let go of everything older"
            assert process.submission == max(
                p.submission for p in self.processes.values() if p.slot == member.slot and p.is_registered
            )
            process.holds = generation

    # ---- what may happen ----------------------------------------------------------------------------------------

    def step(self, action: str, pick: int) -> None:
        names = sorted(self.processes)
        process = self.processes[names[pick % len(names)]] if names else None
        life, now_ms = self.life, self.now_ms
        if action == "prepare" and self.preparing:
            self.preparing = False
            self.follow(life.on_prepared(0, now_ms))
        elif action == "time":
            self.now_ms += [1.0, 40.0, 600.0][pick % 3]
            self.catch_up()
        elif action == "copy":
            self.spawn(pick % SLOTS)
        elif action == "fail" and life.generation is not None:
            self.follow(life.on_failure(life.generation, FailureCause("user code"), now_ms))
        elif action == "cancel" and pick == 0:
            self.follow(life.cancel(now_ms))
        elif process is not None:
            self.step_process(action, process)

    def step_process(self, action: str, process: Process) -> None:
        life, now_ms, name = self.life, self.now_ms, process.name
        if action == "register" and not process.is_registered:
            process.is_registered = True
            self.follow(
                life.on_register(Register(process.slot, process.submission, 0, name, 1, "h", 1, "3", "0"), now_ms)
            )
        elif action == "kill":
            del self.processes[name]
            self.follow(life.on_link_lost(name, "", now_ms) if process.is_registered else [])
            if process.submission == self.submissions.get(process.slot):
                self.follow([ResubmitSlot(process.slot)])
        elif process.holds is not None and not process.is_dismissed:
            generation = process.holds
            life.processes.on_heard(name, now_ms)
            if action == "connected":
                self.follow(life.on_connected(name, generation, now_ms))
            elif action == "restored":
                self.follow(life.on_restored(name, generation, now_ms))
            elif action == "left" and generation != life.generation:
                process.holds = None
                self.follow(life.on_left(name, generation, now_ms))

    def catch_up(self) -> None:
        for _ in range(20):
            self.follow(self.life.on_time(self.now_ms))
            deadline_ms = self.life.next_deadline_ms()
            if deadline_ms is None or deadline_ms > self.now_ms:
                return
        raise AssertionError(f"a deadline of the past again and again: {deadline_ms} at {self.now_ms}")


ACTIONS = ["register", "connected", "restored", "left", "prepare"] * 5 + ["time", "kill", "copy", "fail", "cancel"]


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32))
def test_generations_grow_over_free_and_living_slots(seed: int) -> None:
    random = Random(seed)
    life = Lifecycle(
        LifecycleSettings(
            SLOTS,
            slot_request_timeout_ms=5_000.0,
            heartbeat_timeout_ms=500.0,
            cancellation_timeout_ms=300.0,
            leave_timeout_ms=100.0,
        ),
        ExponentialDelay(initial_backoff_ms=20.0),
        lambda: 0.5,
    )
    world = World(life)
    world.follow(life.start(0.0))
    for _ in range(random.randrange(250)):
        world.step(random.choice(ACTIONS), random.randrange(30))
    assert (life.phase is Phase.ENDED) == world.gone
    settle(world)
    assert world.gone or world.life.phase is Phase.RUNNING, "left alone, the job runs or has ended"


def settle(world: World) -> None:
    """Everybody does what a healthy process does until nothing changes."""
    for _ in range(60):
        world.step("prepare", 0)
        for name in list(world.processes):
            for action in ("register", "left", "connected", "restored"):
                if name in world.processes:
                    world.step_process(action, world.processes[name])
        for process in list(world.processes.values()):
            if process.is_dismissed:
                del world.processes[process.name]
                world.follow(world.life.on_link_lost(process.name, "", world.now_ms))
        world.now_ms += 50.0
        for name in world.processes:
            world.life.processes.on_heard(name, world.now_ms)
        world.catch_up()
