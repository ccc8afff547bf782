"""Holds the states of one checkpoint at the coordinator, the phases of the coordinator itself, and their tables."""

from __future__ import annotations

from penstock.protocol.machine import Cell, MachineState, Table


class CheckpointState(MachineState):
    """Lists how far a checkpoint can be, for the whole job."""

    UNKNOWN = "unknown"
    """Not triggered by this driver, or ended long ago."""
    TRIGGERED = "triggered"
    """Slots have still to acknowledge it."""
    PUBLISHING = "publishing"
    """Every slot has acknowledged it. Its log entry may exist, so it cannot be aborted from here; but a savepoint whose
    directory is still written has none yet."""
    PUBLISHED = "published"
    ABORTED = "aborted"


_UNKNOWN, _TRIGGERED, _PUBLISHING, _PUBLISHED, _ABORTED = CheckpointState


def _ignored(*states: CheckpointState) -> dict[CheckpointState, Cell[CheckpointState]]:
    return {state: Cell("ignore", (state,)) for state in states}


CHECKPOINT_TABLE: Table[CheckpointState] = Table(
    "checkpoint",
    {
        "triggered": {_UNKNOWN: Cell("send the trigger to all slots", (_TRIGGERED,))},
        "acknowledged": {
            _UNKNOWN: Cell("leave its file to the sweep", (_UNKNOWN,)),
            _TRIGGERED: Cell(
                "by the last slot: publish; again, with another file: delete that", (_TRIGGERED, _PUBLISHING)
            ),
            _PUBLISHING: Cell("again, with another file: delete that", (_PUBLISHING,)),
            _PUBLISHED: Cell("with a file that it does not name: delete that", (_PUBLISHED,)),
            _ABORTED: Cell("delete its file", (_ABORTED,)),
        },
        "declined": {
            _TRIGGERED: Cell("abort; by another generation: ignore", (_TRIGGERED, _ABORTED)),
            **_ignored(_UNKNOWN, _PUBLISHING, _PUBLISHED, _ABORTED),
        },
        "trigger failed": {_TRIGGERED: Cell("abort", (_ABORTED,)), **_ignored(_ABORTED)},
        "expired": {
            _TRIGGERED: Cell("abort", (_ABORTED,)),
            _PUBLISHING: Cell(
                "a savepoint that is still written: abort; else warn, and wait as long again", (_PUBLISHING, _ABORTED)
            ),
        },
        "generation ended": {
            _TRIGGERED: Cell("abort", (_ABORTED,)),
            _PUBLISHING: Cell("a stop that is still written: abort", (_PUBLISHING, _ABORTED)),
        },
        "newer, or the final one, published": {_TRIGGERED: Cell("abort", (_ABORTED,)), **_ignored(_PUBLISHING)},
        "published": {_PUBLISHING: Cell("remember which files it names", (_PUBLISHED,))},
        "not published": {_PUBLISHING: Cell("abort", (_ABORTED,))},
    },
)


class CoordinatorPhase(MachineState):
    """Lists what the coordinator may trigger."""

    STOPPED = "stopped"
    """No generation runs."""
    RUNNING = "running"
    ENDING = "ending"
    """Every subtask has reached its end of data: the next checkpoint is the final one."""
    FINAL = "final"
    """The final checkpoint is published: nothing follows."""


_STOPPED, _RUNNING, _ENDING, _FINAL = CoordinatorPhase

COORDINATOR_TABLE: Table[CoordinatorPhase] = Table(
    "the checkpoint coordinator",
    {
        "started": {_STOPPED: Cell("plan the first trigger: after the pause", (_RUNNING,))},
        "stopped": {
            _STOPPED: Cell("ignore", (_STOPPED,)),
            _RUNNING: Cell("drop all requests, abort what is triggered", (_STOPPED,)),
            _ENDING: Cell("drop all requests, abort what is triggered", (_STOPPED,)),
            _FINAL: Cell("abort what is triggered", (_FINAL,)),
        },
        "time": {
            _STOPPED: Cell("look for expired ones", (_STOPPED,)),
            _RUNNING: Cell("look for expired ones; the interval is over: request one", (_RUNNING,)),
            _ENDING: Cell("look for expired ones; the pause after a failure is over: request one", (_ENDING,)),
            _FINAL: Cell("look for expired ones", (_FINAL,)),
        },
        "requested": {
            _STOPPED: Cell("ignore", (_STOPPED,)),
            _RUNNING: Cell("trigger; too many pending: queue", (_RUNNING,)),
            _ENDING: Cell("trigger; too many pending: queue", (_ENDING,)),
            _FINAL: Cell("ignore", (_FINAL,)),
        },
        "savepoint requested": {
            _STOPPED: Cell("refuse it", (_STOPPED,)),
            _RUNNING: Cell("trigger; drains: end the sources; the job is stopped, or rescaled: refuse it", (_RUNNING,)),
            _ENDING: Cell(
                "trigger; drains: with the final one; the job is stopped, or rescaled: refuse it", (_ENDING,)
            ),
            _FINAL: Cell("refuse it", (_FINAL,)),
        },
        "rescale requested": {
            _STOPPED: Cell("ignore", (_STOPPED,)),
            _RUNNING: Cell("trigger; a savepoint is pending, or what nothing may follow: ignore", (_RUNNING,)),
            _ENDING: Cell("ignore", (_ENDING,)),
            _FINAL: Cell("ignore", (_FINAL,)),
        },
        "saved": {
            _STOPPED: Cell("ignore", (_STOPPED,)),
            _RUNNING: Cell("trigger the next request", (_RUNNING,)),
            _ENDING: Cell("trigger the final one", (_ENDING,)),
            _FINAL: Cell("ignore", (_FINAL,)),
        },
        "end of data": {
            _STOPPED: Cell("ignore", (_STOPPED,)),
            _RUNNING: Cell("of the last subtask: trigger the final one, once none is pending", (_RUNNING, _ENDING)),
            _ENDING: Cell("ignore", (_ENDING,)),
            _FINAL: Cell("ignore", (_FINAL,)),
        },
        "published": {
            _STOPPED: Cell("abort older ones", (_STOPPED, _FINAL)),
            _RUNNING: Cell("abort older ones; trigger the next request", (_RUNNING, _FINAL)),
            _ENDING: Cell("abort older ones; trigger the final one", (_ENDING, _FINAL)),
            _FINAL: Cell("abort older ones", (_FINAL,)),
        },
        "aborted": {
            _STOPPED: Cell("count it", (_STOPPED,)),
            _RUNNING: Cell("too many failures: fail the job; else trigger the next request", (_RUNNING,)),
            _ENDING: Cell("too many failures: fail the job; else trigger the final one, after a pause", (_ENDING,)),
            _FINAL: Cell("count it", (_FINAL,)),
        },
    },
)
