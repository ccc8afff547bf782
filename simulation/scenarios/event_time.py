"""Tests section 5 (watermarks and time), and its consequences in sections 9 and 10 at another parallelism."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.base import decode_split
from penstock.operators.batches import TIMESTAMP_FIELD
from penstock.protocol.restore.rescale import edges_in_flight
from penstock.protocol.values.elements import WATERMARK_MAX_MS, Idle
from penstock.protocol.values.frames import Data, Event
from penstock.protocol.values.messages import ReleaseVertices, SplitsAssigned
from penstock.protocol.values.metadata import Metadata
from simulation.faults.fault_plan import FaultPlan
from simulation.jobs.workload import WorkloadBuilder
from simulation.scenarios.rescaling import FULL, OFTEN, Rescaled
from simulation.scenarios.scenario import UNALIGNED, Scenario
from simulation.world.pace import Pace
from simulation.world.small_limits import SMALL


class FinalWatermarkAtAnotherParallelism(Rescaled):
    """A finished producer's final watermark leaks to a live one's channel: every window fires. After a resume live
    channels start at the least watermark of the unfinished producers; the windows of a union of a short source and a
    long one are whole, and no row of it is late."""

    section = 5
    rules = ("5.2a",)
    options = FULL | OFTEN

    def declare(self, job: WorkloadBuilder) -> None:
        short = job.source(0, kind="owned", rows=10, parallelism=2, cost_ms=0.02, keys=4, timed="patient")
        long = job.source(1, kind="ranges", rows=120, parallelism=2, cost_ms=1.0, keys=4, timed="patient")
        job.sink(job.window(job.union(short, long), "aggregate", 25), 2)

    def is_right(self, metadata: Metadata) -> bool:
        sources = {v.index for v in metadata.vertices} - {e.target for e in metadata.edges}
        ended = {s.finished for s in metadata.subtasks if s.vertex in sources}
        return len(ended) == 2


class OwnersOfDifferentTime(Rescaled):
    """Two owners at different times are merged. A minimum of both would fire a window again that has fired. Each key
    group keeps the time that its owner had reached, and no key sees it fall.
    """

    section = 5
    rules = ("5.3",)
    options = FULL | OFTEN
    pace = Pace(data_ms=5.0, step_ms=0.5)
    resumes_max = 5

    def __init__(self) -> None:
        super().__init__()
        self.floors = 0

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="ranges", rows=120, parallelism=2, cost_ms=0.3, keys=8, timed="patient")
        job.sink(job.window(job.delay(source, 30, cost_ms=0.3), "rows", 25), 2)

    def is_right(self, metadata: Metadata) -> bool:
        self.floors += any(s.floors for s in metadata.subtasks)
        times: dict[int, set[int | None]] = {}
        for s in metadata.subtasks:
            times.setdefault(s.vertex, set()).add(s.current_ms)
        return any(len(reached) > 1 for reached in times.values())

    def has_happened(self) -> bool:
        return self.floors > 0


class TimeAdvancesAfterAResume(Rescaled):
    """Leftovers of an old owner would hold event time back for ever: a generator of a split that another reader has, a
    virtual channel whose layer is read, an idle channel taken for a silent one. Long before the sources end, every
    subtask has to see a later time than any had seen before the resume.
    """

    section = 5
    rules = ("5.1a",)
    options = FULL | OFTEN
    resumes_max = 1000  # it looks at every checkpoint

    def __init__(self) -> None:
        super().__init__()
        self.reached_ms: int | None = None
        self.advanced = False

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="ranges", rows=150, parallelism=3, cost_ms=1.0, keys=8, timed="patient")
        self.keyed = job.delay(job.repartition(source, "forward", cost_ms=0.1), 1, cost_ms=0.1)
        job.sink(self.keyed, 2)

    def is_right(self, metadata: Metadata) -> bool:
        keyed = {v.index for v in metadata.vertices if any("delay" in name for name in v.operator_names)}
        times = [s.current_ms for s in metadata.subtasks if s.vertex in keyed and s.current_ms is not None]
        if self.reached_ms is not None:
            self.advanced = self.advanced or self.reached_ms < min(times, default=0) < 390
        left = sum(s["end"] - s["next"] for s in _splits_in_hand(metadata))
        if self.resumes >= 2 or left < 70 or not times or max(times) < 0 or not super().is_right(metadata):
            return False
        self.reached_ms, self.advanced = max(times), False
        return True

    def has_happened(self) -> bool:
        if self.count and not self.advanced:
            self.cluster.world.violate(f"after the resume time has never been later than {self.reached_ms}")
        return super().has_happened()


def _splits_in_hand(metadata: Metadata) -> list[Any]:
    return [decode_split(i) for s in metadata.subtasks for p in s.parts if p.name == "splits" for i in p.items]


class BarrierBetweenTimers(Rescaled):
    """A checkpoint falls between two groups of timers of one watermark: operators have seen it, nobody downstream has.
    Restored, the rest fires before anything else, whichever subtask owns it then, and each timer once."""

    section = 5
    rules = ("5.1a",)
    options = FULL | OFTEN | {"execution.checkpointing.interval": "10 ms"}
    resumes_max = 4

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="ranges", rows=100, parallelism=2, cost_ms=0.02, keys=3, timed="patient")
        job.sink(job.delay(source, 1, cost_ms=2.0), 2)

    def is_right(self, metadata: Metadata) -> bool:
        is_firing = any((s.current_ms or 0) > (s.watermark_ms or 0) for s in metadata.subtasks)
        if is_firing and self.cluster.world.chance() < 0.5:
            self.count += 1
            self.cluster.fault_injector.inject("kill_slot")
            return False
        return is_firing and self.cluster.world.chance() < 0.5


class BarrierBetweenColumnarWindows(Rescaled):
    """A barrier falls between two groups of windows of columns that one watermark fires. Emitted windows have left the
    state, and the others fire after the restore, at any parallelism.
    """

    section = 5
    rules = ("5.1a",)
    options = FULL | OFTEN | {"execution.checkpointing.interval": "10 ms", "penstock.slice.target": "1 ms"}
    resumes_max = 5
    pace = Pace(work_ms=0.5, step_ms=0.5)

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="ranges", rows=120, parallelism=2, cost_ms=0.02, keys=8, timed="patient")
        moved = job.repartition(job.pass_batches(source), "custom", 2, cost_ms=0.3)
        told = job.repartition(job.window_columns(moved, 100), "global", 1, cost_ms=2.0)
        job.sink(job.roll(told), 2)

    def is_right(self, metadata: Metadata) -> bool:
        is_firing = any((s.current_ms or 0) > (s.watermark_ms or 0) for s in metadata.subtasks)
        if is_firing and self.cluster.world.chance() < 0.3:
            self.count += 1
            self.cluster.fault_injector.inject("kill_slot")
            return False
        return is_firing


class RowsHeldBeforeAWindow(Rescaled):
    """Rows wait to be added up in front of a window. A barrier that passed them would find them in no state and on no
    edge, and they would be lost; behind a watermark that passed them they would be late. Both let them go before."""

    section = 5
    rules = ("5.6",)
    options = FULL | {"execution.buffer-timeout.interval": "40 ms", "pipeline.auto-watermark-interval": "15 ms"}
    resumes_max = 5
    pace = Pace(work_ms=0.5, scale=replace(SMALL, held_rows=1000))

    def __init__(self) -> None:
        super().__init__()
        self.added_up = 0

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="ranges", rows=120, parallelism=2, cost_ms=0.3, keys=2, timed="patient")
        job.sink(job.window_columns(job.pass_batches(source), 100, lateness_ms=0), 2)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        super().observe(what, who, detail)
        if what == "frame" and isinstance(detail, Data):
            self.added_up += self._represent_several(detail)

    def _represent_several(self, frame: Data) -> bool:
        partial = self.cluster.workload.graph.edges[frame.channel.edge].partitioner.partial
        if partial is None:
            return False
        rows = pa.ipc.read_record_batch(pa.py_buffer(frame.payload), partial.row_type.schema.append(TIMESTAMP_FIELD))
        return bool(pc.any(pc.greater(rows.column(partial.rows_column), 1)).as_py())

    def is_right(self, metadata: Metadata) -> bool:
        return self.added_up > 2 * self.resumes

    def has_happened(self) -> bool:
        return self.added_up > 0 and super().has_happened()


class RowsHeldForABatch(Rescaled):
    """Rows wait in front of a function that wants batches of a size. A barrier that passed them would find them in no
    state and on no edge, and they would be lost; behind a watermark that passed them they would be late."""

    section = 5
    rules = ("5.6",)
    options = FULL | {"pipeline.auto-watermark-interval": "15 ms", "execution.checkpointing.interval": "20 ms"}
    resumes_max = 5
    pace = Pace(work_ms=0.5, scale=SMALL)

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="ranges", rows=120, parallelism=2, cost_ms=0.3, keys=4, timed="patient")
        batches = job.pass_batches(job.pass_batches(source, batch_size=50), batch_size=7)
        job.sink(job.window_columns(batches, 25, lateness_ms=0), 2)

    def is_right(self, metadata: Metadata) -> bool:
        """Return True while rows are read: in each checkpoint most subtasks hold some."""
        return not any(subtask.finished for subtask in metadata.subtasks)


class LayersOfDifferentTime(Rescaled):
    """Two gates that shared a channel after a scale-out had read it to different places. Each piece of an old channel
    is a virtual channel with a time of its own until it is read, through further resumes too."""

    section = 5
    rules = ("5.2a",)
    options = FULL | OFTEN | {"execution.checkpointing.interval": "10 ms"}
    resumes_max = 5
    pace = Pace(work_ms=0.5)

    def __init__(self) -> None:
        super().__init__()
        self.different = 0

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="ranges", rows=120, parallelism=2, cost_ms=0.02, keys=8, timed="patient")
        job.sink(job.window(job.repartition(source, "custom", 3, cost_ms=1.0), "rows", 25), 2)

    def is_right(self, metadata: Metadata) -> bool:
        times = [layer.time for s in metadata.subtasks for layer in s.layers if layer.time is not None]
        self.different += any(time != times[0] for time in times)
        return super().is_right(metadata)

    def has_happened(self) -> bool:
        return self.different > 0


class SplitsOfDifferentTimeAreRedistributed(Rescaled):
    """A split moved to a reader whose channel's watermark is further: its rows are late. Splits are redistributed,
    unread ones too, and a reader's watermark waits for all that it holds."""

    section = 10
    rules = ("10.2",)
    options = FULL | OFTEN
    resumes_max = 5

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="ranges", rows=120, parallelism=3, cost_ms=0.3, keys=8, timed="patient")
        job.sink(job.window(source, "rows", 25), 2)

    def is_right(self, metadata: Metadata) -> bool:
        ends = {split["end"] for split in _splits_in_hand(metadata) if split["next"] < split["end"]}
        return len(ends) > 1 and self.cluster.world.chance() < 0.5


class SplitsThatNobodyHasBegun(Rescaled):
    """A reader is dealt splits that others have read a part of, and one that nobody has begun: its watermark waits for
    that one, too, however far the others are."""

    section = 10
    rules = ("10.2",)
    options = FULL | OFTEN
    resumes_max = 1
    pace = Pace(control_ms=15.0, step_ms=0.3)

    def declare(self, job: WorkloadBuilder) -> None:
        self.source = job.source(kind="owned", rows=120, parallelism=4, cost_ms=0.2, keys=8, timed="patient")
        job.sink(job.window(self.source, "rows", 25), 2)

    def is_right(self, metadata: Metadata) -> bool:
        held = _splits_in_hand(metadata)
        all_given = all(decode_split(e.data) == [] for e in metadata.enumerators)
        read = [split["next"] - 30 * split["owner"] for split in held]
        if not all_given or min(read, default=1) > 0 or max(read, default=0) < 10:
            return False
        # A checkpoint is there, so that splits stay what they are whatever the number of readers.
        self.source.group.root().parallelism = 1
        return True


class HeldSourcesGetSplits(Rescaled):
    """A held source accepts splits, but reads nothing, and neither becomes idle nor ends; it reads when draining is
    over."""

    section = 10
    rules = ("10.3",)
    options = FULL | OFTEN
    resumes_max = 4
    pace = Pace(control_ms=0.5)

    def __init__(self) -> None:
        super().__init__()
        self.is_draining = False
        self.given = 0

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="ranges", rows=100, parallelism=3, cost_ms=0.05, keys=8)
        job.sink(job.count(source, 2, cost_ms=2.0), 2)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        super().observe(what, who, detail)
        if what == "down" and isinstance(detail, ReleaseVertices):
            self.is_draining = not detail.is_last
            self.given += 1
        elif what == "down" and isinstance(detail, SplitsAssigned) and self.is_draining:
            self.cluster.world.violate("a held source has asked for splits")

    def has_happened(self) -> bool:
        return self.given > 1


class EverySourceHadEnded(Rescaled):
    """All producers of a subtask have finished, and their rows are in flight: it sends its own end of data when it is
    released and its layers are read, not before."""

    section = 9
    rules = ("9.2",)
    options = FULL | OFTEN
    resumes_max = 4

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="ranges", rows=100, parallelism=2, cost_ms=0.01, keys=8, timed="patient")
        job.sink(job.window(job.repartition(source, "custom", 3, cost_ms=0.5), "reduce", 25), 2)

    def is_right(self, metadata: Metadata) -> bool:
        sources = {v.index for v in metadata.vertices} - {e.target for e in metadata.edges}
        ended = all(s.finished for s in metadata.subtasks if s.vertex in sources)
        return ended and bool(edges_in_flight(metadata))


class LastWatermarkWithAnIdleProducer(Scenario):
    """A producer's final watermark reaches a subtask while another producer is idle and continues later: time would end
    before the rows do, and a timer that is registered after that never fires. Found by a seed: rows were lost."""

    section = 5
    rules = ("5.4",)
    options = UNALIGNED | OFTEN
    faults = FaultPlan(kinds=("kill_slot",), count=2, gap_ms=60.0)

    def __init__(self) -> None:
        super().__init__()
        self._idle: set[Any] = set()

    def declare(self, job: WorkloadBuilder) -> None:
        short = job.source(0, kind="sequence", rows=10, parallelism=1, cost_ms=0.02, keys=4, timed="idle")
        long = job.source(1, kind="ranges", rows=60, parallelism=1, cost_ms=0.05, keys=4, timed="idle")
        job.sink(job.delay(job.union(short, long), 30), 2)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        """Count last watermarks that arrive while another channel is idle."""
        if what != "frame" or not isinstance(detail, Event):
            return
        place = (who.process.name, detail.channel.consumer)
        if isinstance(detail.event, Idle):
            self._idle.add(place)
        elif place in self._idle:
            self.count += getattr(detail.event, "timestamp_ms", 0) == WATERMARK_MAX_MS


SCENARIOS: list[type[Scenario]] = [
    FinalWatermarkAtAnotherParallelism, OwnersOfDifferentTime, TimeAdvancesAfterAResume, BarrierBetweenTimers,
    BarrierBetweenColumnarWindows, RowsHeldBeforeAWindow, RowsHeldForABatch, LayersOfDifferentTime,
    SplitsOfDifferentTimeAreRedistributed, SplitsThatNobodyHasBegun, HeldSourcesGetSplits, EverySourceHadEnded,
    LastWatermarkWithAnIdleProducer,
]  # fmt: skip
