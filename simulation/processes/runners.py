"""Schedules the runners of one process: the seed decides whose step is next and how long each waits."""

from __future__ import annotations

from typing import Callable

from penstock.protocol.values.elements import Generation, SubtaskId
from penstock.protocol.values.frames import Frame
from penstock.runtime.process.slot_ports import Runner
from penstock.runtime.subtask.subtask_runner import SubtaskRunner
from penstock.state.rocksdb.lazy_restore import LazyRestore
from simulation.checkers.durations import Measured
from simulation.checkers.revocations import RevocationChecker
from simulation.processes.watching import name_of, watch
from simulation.world.trace import NOTHING, About
from simulation.world.world import Process, World


class _Driven:
    __slots__ = (
        "runner", "pace_ms", "turn", "is_waiting", "is_stuck", "clear_wakeup", "is_silent", "subtask", "about",
        "is_restored",
    )  # fmt: skip

    def __init__(self, runner: Runner, pace_ms: float) -> None:
        self.runner = runner
        self.pace_ms = pace_ms
        self.turn = 0
        self.is_waiting = False
        self.is_stuck = False
        self.clear_wakeup = runner.mailbox.clear_wakeup
        self.is_silent = runner.mailbox.is_silent
        # What lines of the trace about this runner name.
        self.subtask: SubtaskId | None = runner.deployed.id if isinstance(runner, SubtaskRunner) else None
        self.about = About(subtasks=(self.subtask,)) if self.subtask is not None else NOTHING
        self.is_restored = False


class ScheduledRunners:
    """Implements `penstock.runtime.process.slot_ports.StepScheduler`. `kill`: ends the process hard."""

    def __init__(
        self,
        world: World,
        process: Process,
        pace_ms: float,
        kill: Callable[[str], None],
        revocations: RevocationChecker,
        measured: Measured | None = None,
    ) -> None:
        self._world = world
        self._process = process
        self._pace_ms = pace_ms
        self._kill = kill
        self._revocations = revocations
        self._measured = measured
        self._generation: Generation | None = None
        self._driven: dict[int, _Driven] = {}
        self._waiting: list[_Driven] = []
        self._joins: list[tuple[list[Runner], Callable[[], None]]] = []
        process.after_event = self.look_for_mail

    def start(self, runner: Runner) -> None:
        slowness = self._world.random.choice((0.1, 1.0, 1.0, 1.0, 10.0))
        driven = _Driven(runner, self._pace_ms * slowness)
        self._driven[id(runner)] = driven
        if self._world.trace is not None and driven.subtask is not None and isinstance(runner, SubtaskRunner):
            watch(self._world, self._process.name, runner.deployed.machine, driven.subtask)
        self._give_turn(driven, 0.0)

    def run_apart(self, work: Callable[[], None]) -> None:
        """Let an upload of a segment, or a part of a lazy restore, take its time, then run it."""
        if isinstance(getattr(work, "__self__", None), LazyRestore):
            self._world.after(self._world.lazy_restores.next_ms(), self._process, work)
            return
        shortest_ms, longest_ms = self._world.upload_ms
        self._world.after(shortest_ms + self._world.chance() * (longest_ms - shortest_ms), self._process, work)

    def _give_turn(self, driven: _Driven, delay_ms: float) -> None:
        if driven.is_stuck:
            return
        driven.turn += 1
        world = self._world
        world.after(delay_ms + world.chance() * driven.pace_ms, self._process, self._step, driven, driven.turn)

    def _step(self, driven: _Driven, turn: int) -> None:
        if turn != driven.turn:
            return
        if driven.is_waiting:
            driven.is_waiting = False
            self._waiting.remove(driven)
        runner = driven.runner
        driven.clear_wakeup()
        generation = getattr(runner, "generation", None)
        if generation is not None:
            self._revocations.on_step(runner.name, generation)
        self._generation = generation
        world, started_ms = self._world, self._world.now_ms
        wait_ms = runner.step()
        self._generation = None
        if self._measured is not None:
            self._measured.step_ms = max(self._measured.step_ms, world.now_ms - started_ms)
        if world.trace is not None:
            self._tell_step(driven, wait_ms)
        if runner.done:
            del self._driven[id(runner)]
            self._look_at_joins()
        elif wait_ms == 0:
            self._give_turn(driven, 0.0)
        else:
            driven.is_waiting = True
            self._waiting.append(driven)
            if wait_ms is not None:
                self._give_turn(driven, wait_ms)

    def _tell_step(self, driven: _Driven, wait_ms: float | None) -> None:
        runner, tell, who = driven.runner, self._world.tell, self._process.name
        tell(who, f"step {runner.name} -> {'mail' if wait_ms is None else f'{wait_ms:g} ms'}", driven.about)
        if isinstance(runner, SubtaskRunner) and not driven.is_restored and runner.is_restored:
            driven.is_restored = True
            tell(who, f"{name_of(runner.deployed.id)} is restored: {runner.name}", driven.about)

    def on_frame(self, frame: Frame) -> None:
        """Handle a frame that the runner of the present step sends."""
        if self._generation is not None:
            self._revocations.on_frame(self._generation, frame)

    def stop_one(self) -> None:
        """Stop scheduling one of the runners, as if its step did not return."""
        driven = next(iter(self._driven.values()), None)
        if driven is not None:
            driven.turn += 1
            driven.is_stuck = True

    def look_for_mail(self) -> None:
        """Schedule, after each event of the process, the runners whose mailbox was woken."""
        for waiting in self._waiting:
            if not waiting.is_silent():
                break
        else:
            return
        for driven in [d for d in self._waiting if d.clear_wakeup()]:
            driven.is_waiting = False
            self._waiting.remove(driven)
            self._give_turn(driven, 0.0)

    def when_done(self, runners: list[Runner], timeout_ms: float, done: Callable[[], None]) -> None:
        join = (list(runners), done)
        self._joins.append(join)
        self._world.after(timeout_ms, self._process, self._give_up, join)
        self._look_at_joins()

    def _look_at_joins(self) -> None:
        for join in [j for j in self._joins if all(r.done for r in j[0])]:
            self._joins.remove(join)
            self._world.after(self._world.chance() * self._pace_ms, self._process, join[1])

    def _give_up(self, join: tuple[list[Runner], Callable[[], None]]) -> None:
        if join in self._joins:
            late = ", ".join(r.name for r in join[0] if not r.done)
            self._kill(f"{late} did not return within task.cancellation.timeout")
