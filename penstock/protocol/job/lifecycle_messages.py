"""Describes failures of a job in which slots, or the storage, were too late."""

from __future__ import annotations

from penstock.protocol.job.lifecycle_settings import LifecycleSettings
from penstock.protocol.job.players import ProcessState
from penstock.protocol.job.slot_processes import SlotProcesses

_MIN_PARALLELISM = "jobmanager.adaptive-scheduler.min-parallelism"


def not_connected(settings: LifecycleSettings, processes: SlotProcesses) -> str:
    late = ", ".join(f"{m.slot} ({m.host}:{m.data_port})" for m in processes.members_at(ProcessState.DEPLOYED))
    return (
        f"slot(s) {late} did not connect to their peers within {settings.heartbeat_timeout_ms / 1000:g} s "
        "(heartbeat.timeout). Slots must reach each other: see taskmanager.host and taskmanager.data.bind-port"
    )


def not_restored(settings: LifecycleSettings, processes: SlotProcesses) -> str:
    late = processes.members_at(ProcessState.CONNECTED)
    slots = ", ".join(f"{m.slot} ({m.host})" for m in late)
    names = sorted({name for m in late for name in processes.players[m.process].restoring})
    what = f", where {', '.join(map(repr, names))} did not come to an end" if names else ""
    return (
        f"slot(s) {slots} did not restore their state and open their functions within "
        f"{settings.restore_timeout_ms / 1000:g} s (execution.checkpointing.timeout){what}"
    )


def not_prepared(settings: LifecycleSettings) -> str:
    return (
        "the checkpoint storage did not say what to restore within "
        f"{settings.slot_request_timeout_ms / 1000:g} s ({settings.slot_timeout_option})"
    )


def too_few_slots(settings: LifecycleSettings, processes: SlotProcesses) -> str:
    came, needed = processes.roster.registered, processes.roster.slots
    missing = ", ".join(map(str, processes.roster.missing))
    lower = ", lower the parallelism (-p, env.set_parallelism)" if needed > 1 else ""
    fewest = ""
    if settings.slots_min is not None and 1 < settings.slots_min < needed:
        fewest = f", or {settings.slots_min} at least ({_MIN_PARALLELISM})"
        lower = f", lower {_MIN_PARALLELISM}"
    return (
        f"the job needs {needed} slot(s){fewest}, of which {came} registered within "
        f"{settings.slot_request_timeout_ms / 1000:g} s (missing: {missing}). A slot is a long-running Spark "
        "task: give Spark more task places (cores of the master or executors, or fewer other jobs beside this "
        f"one){lower}, or raise {settings.slot_timeout_option}."
    )
