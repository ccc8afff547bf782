"""Brings a lifecycle of two slots to any phase, for its tests."""

from __future__ import annotations

from typing import Any, TypeVar

from penstock.protocol.driver.driver_effects import LifecycleEffect
from penstock.protocol.driver.lifecycle import Lifecycle, LifecycleSettings, Phase
from penstock.protocol.driver.restarts import ExponentialDelay, RestartStrategy
from penstock.protocol.values.elements import Generation
from penstock.protocol.values.messages import Register

Kind = TypeVar("Kind")
G1, G2 = Generation(0, 1), Generation(0, 2)


def register(slot: int, process: str, submission: int = 1, attempt: int = 0) -> Register:
    return Register(slot, submission, attempt, process, 100, "host", 5000, "3.11", "0")


def lifecycle(strategy: RestartStrategy | None = None, **settings: Any) -> Lifecycle:
    return Lifecycle(LifecycleSettings(**{"slots": 2, **settings}), strategy or ExponentialDelay(), lambda: 0.0)


def gathered(strategy: RestartStrategy | None = None, **settings: Any) -> Lifecycle:
    life = lifecycle(strategy, **settings)
    life.start(0.0)
    life.on_prepared(0, 0.0)
    life.on_register(register(0, "p0"), 1.0)
    return life


def deployed(strategy: RestartStrategy | None = None, **settings: Any) -> Lifecycle:
    life = gathered(strategy, **settings)
    life.on_register(register(1, "p1"), 2.0)
    assert life.phase is Phase.CONNECTING
    return life


def running(strategy: RestartStrategy | None = None, **settings: Any) -> Lifecycle:
    life = deployed(strategy, **settings)
    run(life, G1, 3.0)
    return life


def run(life: Lifecycle, generation: Generation, now_ms: float) -> None:
    for member in life.roster.members():
        life.on_connected(member.process, generation, now_ms)
    for member in life.roster.members():
        life.on_restored(member.process, generation, now_ms)
    assert life.phase is Phase.RUNNING


def of(kind: type[Kind], effects: list[LifecycleEffect]) -> list[Kind]:
    return [e for e in effects if isinstance(e, kind)]


def only(kind: type[Kind], effects: list[LifecycleEffect]) -> Kind:
    (effect,) = effects
    assert isinstance(effect, kind)
    return effect
