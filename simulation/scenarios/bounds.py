"""Tests section 4: how much may be in flight."""

from __future__ import annotations

from typing import Any, ClassVar

from penstock.datastream.functions import MapFunction
from penstock.protocol.channel.credit_pool import BOUNDS_WHILE_BLOCKED, TURNS_PER_BOUND
from penstock.protocol.channel.ends import InputChannel
from penstock.protocol.values.frames import Data
from penstock.protocol.values.messages import CheckpointEnded
from simulation.jobs import simulated_functions as f
from simulation.jobs.workload import WorkloadBuilder
from simulation.scenarios.scenario import Scenario
from simulation.world.pace import Pace
from simulation.world.world_hooks import Row

BOUND_BYTES = 4_000
SPIKE_BYTES = 3_000


def _consumer(who: Any, detail: Data) -> Any:
    """Return the runner of the subtask that a frame is for; None while nothing is deployed there."""
    deployment = who.listener._deployment
    if deployment is None:
        return None
    return deployment._by_vertex[deployment._edges[detail.channel.edge].target]


class GateOfManyChannelsIsBounded(Scenario):
    """Eight producers are faster than each of eight consumers, and each channel has more rows than the bound of its
    gate. Checkpoints are aligned, so channels that are blocked hold rows while the others have to deliver barriers.
    A gate holds no more than its bound, and whatever waits is read at last."""

    section = 4
    rules: ClassVar[tuple[str, ...]] = ("4.2a", "4.2b")
    options = {
        "penstock.network.window-bytes": BOUND_BYTES,
        "penstock.network.output-queue-bytes": 20_000,
        "execution.checkpointing.interval": "60 ms",
        "execution.checkpointing.timeout": "5 s",
    }
    pace = Pace(step_ms=0.05, data_ms=0.2, control_ms=0.2)
    is_parallel = True
    batch_bytes_max: ClassVar[int] = 1_500
    """The most that a frame holds."""

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="sequence", rows=800, parallelism=8, cost_ms=0.02, keys=64)
        job.sink(job.count(source, 8, cost_ms=2.0), 2)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what == "down" and isinstance(detail, CheckpointEnded) and detail.aborted:
            self.cluster.world.violate(f"checkpoint {detail.checkpoint_id} was given up, and nothing has gone wrong")
        if what != "frame" or not isinstance(detail, Data) or (runner := _consumer(who, detail)) is None:
            return
        channels = runner.deployed.gate.channels
        if len(channels) < 8:
            return
        for blocked in (False, True):
            bound_bytes = BOUND_BYTES * (BOUNDS_WHILE_BLOCKED + 1 if blocked else 1)
            limit_bytes = bound_bytes + (TURNS_PER_BOUND + 1) * self.batch_bytes_max
            queued_bytes = sum(c.queued_bytes for c in channels if c.blocked or not blocked)
            if any(c.blocked for c in channels) is blocked and queued_bytes > limit_bytes:
                text = f"a gate of {len(channels)} channels holds {queued_bytes} bytes, more than {limit_bytes}"
                self.cluster.world.violate(text)
        self.count += self.is_the_case(channels)

    def is_the_case(self, channels: list[InputChannel]) -> bool:
        """Return whether a gate is in the state that the schedule is about."""
        return sum(c.queued_bytes for c in channels) > BOUND_BYTES // 2


class _Widen(f.Busy, MapFunction):
    """Makes rows from number `spike_from` on as large as the records of a spike, by a text in the last field."""

    def __init__(self, cost_ms: float, spike_from: int) -> None:
        super().__init__(cost_ms)
        self.spike_from = spike_from

    def map(self, value: Row) -> Any:
        self.work()
        return (*value[:4], "x" * (SPIKE_BYTES if value[1] >= self.spike_from else 0))


class _Narrow(f.Busy, MapFunction):
    """Removes the text that `_Widen` has added."""

    def map(self, value: Any) -> Row:
        self.work()
        return (*value[:4], 0)


class RecordsGrowSuddenly(GateOfManyChannelsIsBounded):
    """Records become fifty times as large, larger than what one of sixteen channels would have of the gate's bound.
    Each channel that holds one such record at its gate adds up to many bounds. Those that have their turn pass the end
    of their grant by the rest of one record, and all others wait at their producers."""

    rules = ("4.2a",)
    batch_bytes_max = SPIKE_BYTES + 1_000

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="sequence", rows=640, parallelism=16, cost_ms=0.02, keys=64)
        wide = job.finish(
            source.stream.map(_Widen(0.02, 320)).uid("widen"), 16, source.expected, "widen", False, [source], "forward"
        )
        narrow = wide.stream.partition_custom(f.modulo, f.key_of).map(_Narrow(2.0), f.ROW_TYPE)
        job.sink(job.finish(narrow, 2, source.expected, "narrow", True, [wide], "custom"), 2)

    def is_the_case(self, channels: list[InputChannel]) -> bool:
        return sum(c.queued_bytes for c in channels) > BOUND_BYTES + SPIKE_BYTES


def _skewed(key: int, partitions: int) -> int:
    return 0 if key % 8 else key // 8 % partitions


class ChannelsAreSkewed(GateOfManyChannelsIsBounded):
    """One of eight producers has seven of eight rows. An equal part of the bound for each channel would leave most of
    it unused; without a bound on all of them, the busy channel would fill the gate. Credit goes to whoever has rows,
    one channel gets more than its equal part, and the gate keeps to its bound."""

    rules = ("4.2c",)

    def __init__(self) -> None:
        super().__init__()
        self.busiest_bytes = 0

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="sequence", rows=640, parallelism=2, cost_ms=0.02, keys=64)
        skewed = source.stream.partition_custom(_skewed, f.key_of).map(f.Pass(0.02), f.ROW_TYPE)
        skewed = job.finish(skewed, 8, source.expected, "skewed", True, [source], "custom")
        job.sink(job.count(skewed, 2, cost_ms=2.0), 2)

    def is_the_case(self, channels: list[InputChannel]) -> bool:
        self.busiest_bytes = max(self.busiest_bytes, *(c.queued_bytes for c in channels))
        return True

    def has_happened(self) -> bool:
        if self.busiest_bytes <= BOUND_BYTES // 2:
            text = f"the busy channel has never held more than {self.busiest_bytes} bytes of a bound of {BOUND_BYTES}"
            self.cluster.world.violate(text)
        return super().has_happened()


class _SlowsDown(f.Busy, MapFunction):
    """Passes rows, and takes a hundred times as long from a row on."""

    def __init__(self, cost_ms: float, slow_from: int) -> None:
        super().__init__(cost_ms)
        self.slow_from = slow_from

    def map(self, value: Row) -> Row:
        if self._rows == self.slow_from:
            self.cost_ms *= 100
        self.work()
        return value


class ConsumerBecomesSlow(Scenario):
    """A consumer takes a hundred times as long for each row from some row on. Its gate is full of rows, which take it
    seconds now, and an aligned barrier waits behind them. Soon after, the gate holds only the rows that are consumed in
    a few target times, or the least size of its window."""

    section = 4
    rules = ("4.3",)
    options = {
        "penstock.network.window-bytes": 20_000,
        "penstock.network.output-queue-bytes": 20_000,
        "penstock.network.bound-bytes-min": 600,
        "penstock.network.bound-target": "20 ms",
        "execution.checkpointing.interval": "60 ms",
    }
    pace = Pace(step_ms=0.05, data_ms=0.2, control_ms=0.2)
    is_parallel = True
    slow_from, settled_from, slow_ms, held_ms_max = 300, 500, 5.0, 150.0
    """Row `slow_from` is the first that takes `slow_ms`; from `settled_from` on a gate holds rows for `held_ms_max`."""

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="sequence", rows=2000, parallelism=2, cost_ms=0.02, keys=8)
        slow = source.stream.rebalance().map(_SlowsDown(self.slow_ms / 100, self.slow_from), f.ROW_TYPE)
        job.sink(job.finish(slow, 2, source.expected, "slow", True, [source], "rebalance"), 2)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what != "frame" or not isinstance(detail, Data) or (runner := _consumer(who, detail)) is None:
            return
        if runner.opened.rows_in < self.settled_from:
            return
        self.count += 1
        held_ms = sum(c.received - c.applied for c in runner.deployed.gate.channels) * self.slow_ms
        if held_ms > self.held_ms_max:
            self.cluster.world.violate(f"a gate holds rows for {held_ms:.0f} ms, and not for {self.held_ms_max:.0f}")


SCENARIOS: list[type[Scenario]] = [
    GateOfManyChannelsIsBounded, RecordsGrowSuddenly, ChannelsAreSkewed, ConsumerBecomesSlow,
]  # fmt: skip
