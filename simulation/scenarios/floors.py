"""Tests section 5: floors of key groups, over a rescale, a checkpoint and a restart.

Floors outlive draining if a producer that was idle comes back with a low watermark: time has advanced without it, and
after a rescale live channels start at its watermark.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from penstock.common.time import Duration, Time
from penstock.common.types import Types
from penstock.common.watermark_strategy import Watermark, WatermarkGenerator, WatermarkOutput, WatermarkStrategy
from penstock.datastream.columnar import count, max_, sum_
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.protocol.channel.watermark_valve import WATERMARK_MIN_MS
from penstock.protocol.values.elements import Active
from penstock.protocol.values.frames import Event
from penstock.protocol.values.keys import KeyEncoder, key_group_range
from penstock.protocol.values.messages import ReleaseVertices, Restored
from penstock.protocol.values.metadata import Metadata
from simulation.jobs import clocks
from simulation.jobs import simulated_functions as f
from simulation.jobs import timed_functions as t
from simulation.jobs.columnar_steps import AsWindow, windows_of
from simulation.jobs.scripted import Script, ScriptedSource
from simulation.jobs.streams import Expected, Stream
from simulation.jobs.workload import WorkloadBuilder
from simulation.scenarios.rescaling import OFTEN, Rescaled
from simulation.scenarios.scenario import UNALIGNED, Scenario
from simulation.world.pace import Pace
from simulation.world.world_hooks import Row

_MAX_PARALLELISM = 16
_KEYS = 8
_APART = 1000
"""The silent split's numbers begin here."""
_BACK = 500
"""The first number of its rows that are not late when it is back."""
_SIZE_MS = 25
_LATE = range(72, 104)
"""Numbers of rows whose windows have fired for the first owner's keys before they come."""
_REACHED_MS = _LATE.stop * clocks.STEP_MS + clocks.JITTER_MS + _SIZE_MS
"""The watermark that the first owner has reached then."""
_BEHIND_MS = _LATE.start * clocks.STEP_MS
"""A time that the other owner has not reached then."""
_SAID_MS = _BEHIND_MS - 50


def _key_of(number: int) -> int:
    return number * 7 % _KEYS


def _first_owners_keys() -> frozenset[int]:
    """Return the keys whose groups the first of two subtasks owns."""
    groups = KeyEncoder("long", _MAX_PARALLELISM).encode(list(range(_KEYS)))[1]
    owned = key_group_range(_MAX_PARALLELISM, 2, 0)
    return frozenset(key for key, group in enumerate(groups) if group in owned)


FIRST_OWNERS = _first_owners_keys()


class SaysLittleWhenItComesBack(WatermarkGenerator):
    """Emit a watermark with each row, but none that is later than `_SAID_MS` when the pause is over."""

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        watermark_ms = event_timestamp - clocks.BOUND_MS - 1
        output.emit_watermark(Watermark(min(watermark_ms, _SAID_MS) if event >= _APART else watermark_ms))

    def on_periodic_emit(self, output: WatermarkOutput) -> None: ...


class _FloorsOverARestart(Rescaled):
    """Steers the schedule by hand.

    The busy split is read ahead, while the way from there to the second owner is slow. The other split comes back, and
    a checkpoint is requested at once. The job is rescaled. When it has drained, and after each restart, a checkpoint is
    requested, and a slot killed when it is complete. The third time the job is rescaled.
    """

    section = 5
    options = OFTEN | UNALIGNED | {
        "penstock.network.window-bytes": 400_000,
        "penstock.network.output-queue-bytes": 400_000,
        "execution.checkpointing.interval": "1 h",
        "pipeline.max-parallelism": _MAX_PARALLELISM,
    }  # fmt: skip
    pace = Pace(slot_start_ms=5.0, work_ms=0.5)
    resumes_max = 2  # it looks at every checkpoint, and resumes once

    def __init__(self) -> None:
        super().__init__()
        self.is_back = False
        self.restarts = self.floors = 0

    def source(self, job: WorkloadBuilder) -> Stream:
        """Declare a busy split, and one that pauses and comes back with rows that are late for the first owner's keys
        only, and with others that are late for nobody."""
        late = [n for n in _LATE if _key_of(n) in FIRST_OWNERS]
        back = [n for i, n in enumerate(late) for n in (*range(_BACK + 10 * i, _BACK + 10 * i + 10), n)]
        scripts = (
            Script(0, 0, ((0, 150), *_slowly(range(150, 350)))),
            Script(1, _APART, ((0, 10), (None, 300), *_slowly(back))),
        )
        label = f.Label(0, [0, _APART], _KEYS, 0.5, relative=True)
        strategy = WatermarkStrategy.for_generator(SaysLittleWhenItComesBack).with_idleness(Duration.of_millis(40))
        strategy = strategy.with_timestamp_assigner(clocks.Assigner(clocks.RowTime(), label.label))
        made = job.environment.from_source(ScriptedSource(scripts), strategy, "scripted").set_parallelism(2)
        group = job.parallelisms.new_group(2, pinned=True)
        job.parallelisms.add(made, group)
        rows = tuple(label.label(number) for script in scripts for number in script.numbers())
        expected = Expected(rows, ordered=False)
        before = Stream(made, group, expected, True)
        return job.finish(made.map(label, f.ROW_TYPE), 2, expected, "label", True, [before], "forward")

    @staticmethod
    def on_time(rows: tuple[Row, ...]) -> tuple[Row, ...]:
        return tuple(row for row in rows if row[0] == 1 or row[1] not in _LATE)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        super().observe(what, who, detail)
        world, fault_injector = self.cluster.world, self.cluster.fault_injector
        if what == "up" and isinstance(detail, Restored):
            if not self.resumes:
                self._slow_down()
            elif self.restarts:
                world.after(40.0, None, fault_injector.inject, "request_checkpoint")
        elif what == "down" and isinstance(detail, ReleaseVertices) and detail.is_last and not self.restarts:
            world.after(40.0, None, fault_injector.inject, "request_checkpoint")
        elif what == "frame" and isinstance(detail, Event) and isinstance(detail.event, Active) and not self.is_back:
            self.is_back = True
            world.after(0.0, None, fault_injector.inject, "request_checkpoint")

    def _slow_down(self) -> None:
        """Slow the connection from the first slot to the second."""
        for slot in self.cluster.drivers[-1].keeper.processes:
            if slot.endpoint.slot == 0 and 1 in slot.endpoint.links:
                slot.endpoint.links[1].latency_ms = 25.0

    def is_right(self, metadata: Metadata) -> bool:
        if self.resumes:
            if self.restarts < 3 and not metadata.draining:
                self.restarts += 1
                self.floors += any(s.floors for s in metadata.subtasks)
                self.cluster.fault_injector.inject("kill_slot" if self.restarts < 3 else "rescale")
            return False
        sources = {v.index for v in metadata.vertices} - {e.target for e in metadata.edges}
        keyed = {e.target for e in metadata.edges if e.partitioner == "hash"}
        said = [_ms(s.watermark_ms) for s in metadata.subtasks if s.vertex in sources and not s.idle]
        first = [_ms(s.current_ms) for s in metadata.subtasks if s.vertex in keyed and s.subtask == 0]
        second = [_ms(s.current_ms) for s in metadata.subtasks if s.vertex in keyed and s.subtask == 1]
        is_back = len(said) == 2 and min(said) < _BEHIND_MS
        return is_back and min(first) > _REACHED_MS and max(second) < _BEHIND_MS

    def has_happened(self) -> bool:
        return self.floors > 1


def _ms(time_ms: int | None) -> int:
    return WATERMARK_MIN_MS if time_ms is None else time_ms


def _slowly(numbers: Iterable[int]) -> list[tuple[int | None, int]]:
    return [step for number in numbers for step in ((number, 1), (None, 2))]


class FloorsOfRowsOverARestart(_FloorsOverARestart):
    """Owners are at different times when the job is rescaled; floors are left when it has drained, and stand in the
    checkpoint from which the job is restarted at the same parallelism. No key sees time fall, and no window of rows
    fires twice."""

    rules = ("5.3",)

    def declare(self, job: WorkloadBuilder) -> None:
        source = self.source(job)
        held = t.Delay("delay", clocks.RowTime(), False, 1, 0.01)
        delayed = source.stream.key_by(f.key_of, Types.LONG()).process(held, f.ROW_TYPE)
        job.sink(job.finish(delayed, 2, source.expected, "delay", True, [source], "keyed"), 2)
        windows = source.stream.key_by(f.key_of, Types.LONG()).window(
            TumblingEventTimeWindows.of(Time.milliseconds(_SIZE_MS))
        )
        together = t.Together("window", clocks.WindowEnd(clocks.RowTime(), _SIZE_MS), True, 0.01)
        expected = replace(source.expected, rows=self.on_time(source.expected.rows))
        job.sink(job.finish(windows.process(together, f.ROW_TYPE), 2, expected, "window", True, [source], "keyed"), 2)


class FloorsOfColumnsOverARestart(_FloorsOverARestart):
    """Owners are at different times, as for rows, with windows of columns: one that fired before the rescale takes no
    row after the restart.
    """

    rules = ("5.3",)

    def declare(self, job: WorkloadBuilder) -> None:
        source = self.source(job)
        windows = source.stream.key_by("f2").window(TumblingEventTimeWindows.of(Time.milliseconds(_SIZE_MS)))
        fired = windows.aggregate(rows=count(), total=sum_("f1"), largest=max_("f1"))
        rows = windows_of(self.on_time(source.expected.rows), clocks.WindowEnd(clocks.RowTime(), _SIZE_MS))
        expected = Expected(rows, ordered=False, exact=True)
        window = job.finish(fired, 2, expected, "window", True, [source], "keyed")
        result = window.stream.map(AsWindow(), f.ROW_TYPE)
        job.sink(job.finish(result, 2, expected, "rows", True, [window]), 2)


SCENARIOS: list[type[Scenario]] = [FloorsOfRowsOverARestart, FloorsOfColumnsOverARestart]
