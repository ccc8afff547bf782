"""Tests section 8: a resumed program changes the declared types of its state, or its state backend."""

from __future__ import annotations

from penstock.protocol.values.metadata import Metadata
from simulation.jobs.branches import evolve, expire
from simulation.jobs.workload import WorkloadBuilder
from simulation.scenarios.rescaling import Rescaled
from simulation.scenarios.scenario import UNALIGNED, Scenario
from simulation.world.pace import Pace


class DeclaredTypesChangeAtEveryResume(Rescaled):
    """Rows in state gain fields and lose others, numbers become wider, and the backend is another one, again and again;
    checkpoints between are incremental. Fields that both types have keep their values, and added fields are empty."""

    section = 8
    rules = ("8.5",)
    resumes_max = 6
    changes_declarations = True
    options = UNALIGNED | {
        "execution.checkpointing.incremental": True,
        "penstock.state.rocksdb.object-cache-size": "20 kb",
    }
    pace = Pace(work_ms=0.5, slot_start_ms=5.0)

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="ranges", rows=160, parallelism=2, cost_ms=0.5, keys=8, timed=None)
        evolved = evolve(job, source, 3, cost_ms=0.3)
        job.sink(expire(job, evolved, 60, False, False, "each row", 2, 0.2), 2)

    def is_right(self, metadata: Metadata) -> bool:
        return metadata.checkpoint_id % 3 == 0

    def has_happened(self) -> bool:
        return self.cluster.statistics.rescales > 2


SCENARIOS: list[type[Scenario]] = [DeclaredTypesChangeAtEveryResume]
