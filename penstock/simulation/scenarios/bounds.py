"""Tests section 4: how much may be in flight."""

from __future__ import annotations

from typing import Any

from penstock.protocol.channel.credit_pool import BOUNDS_WHILE_BLOCKED, TURNS_PER_BOUND
from penstock.protocol.values.frames import Data
from penstock.protocol.values.messages import CheckpointEnded
from penstock.simulation.scenarios.scenario import Scenario
from penstock.simulation.settings import Pace
from penstock.simulation.workload import WorkloadBuilder

BOUND_BYTES = 4_000
BATCH_BYTES_MAX = 1_500


class GateOfManyChannelsIsBounded(Scenario):
    """Eight producers are faster than each of eight consumers, and each channel has more rows than the bound of its
    gate. Checkpoints are aligned, so channels that are blocked hold rows while the others have to deliver barriers.
    A gate holds no more than its bound, and whatever waits is read at last."""

    section = 4
    options = {
        "penstock.network.window-bytes": BOUND_BYTES,
        "penstock.network.output-queue-bytes": 20_000,
        "execution.checkpointing.interval": "60 ms",
        "execution.checkpointing.timeout": "5 s",
    }
    pace = Pace(step_ms=0.05, data_ms=0.2, control_ms=0.2)
    is_parallel = True

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="sequence", rows=800, parallelism=8, cost_ms=0.02, keys=64)
        job.sink(job.count(source, 8, cost_ms=2.0), 2)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what == "down" and isinstance(detail, CheckpointEnded) and detail.aborted:
            self.cluster.world.violate(f"checkpoint {detail.checkpoint_id} was given up, and nothing has gone wrong")
        if what != "frame" or not isinstance(detail, Data) or who.listener._deployment is None:
            return
        runner = who.listener._deployment._by_vertex[who.listener._deployment._edges[detail.channel.edge].target]
        channels = runner.deployed.gate.channels
        if len(channels) < 8:
            return
        for blocked in (False, True):
            bound_bytes = BOUND_BYTES * (BOUNDS_WHILE_BLOCKED + 1 if blocked else 1)
            limit_bytes = bound_bytes + (TURNS_PER_BOUND + 1) * BATCH_BYTES_MAX
            queued_bytes = sum(c.queued_bytes for c in channels if c.blocked or not blocked)
            if any(c.blocked for c in channels) is blocked and queued_bytes > limit_bytes:
                text = f"a gate of {len(channels)} channels holds {queued_bytes} bytes, more than {limit_bytes}"
                self.cluster.world.violate(text)
        self.count += sum(c.queued_bytes for c in channels) > BOUND_BYTES // 2


SCENARIOS: list[type[Scenario]] = [GateOfManyChannelsIsBounded]
