"""Asks, by the job's tag, where Spark runs the task of a slot's job."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.spark.session import Substrate


@dataclass(frozen=True)
class TaskPlace:
    """Describes one attempt of a task. `executor`: Spark's id of it, "driver" in `local[n]`. `status`: RUNNING, FAILED,
    …
    """

    executor: str
    host: str
    status: str


def task_places(substrate: Substrate, tag: str) -> list[TaskPlace]:
    """Return the attempts of the job with this tag, oldest first. May raise what a stopping session raises."""
    spark = substrate.context._jsc.sc()
    found = []
    for job in spark.statusTracker().getJobIdsForTag(tag):
        info = spark.statusTracker().getJobInfo(job)
        for stage in info.get().stageIds() if info.isDefined() else ():
            tasks = spark.statusStore().taskList(stage, 0, 100)
            attempts = sorted((tasks.apply(i) for i in range(tasks.size())), key=lambda task: int(task.taskId()))
            found += [TaskPlace(str(t.executorId()), str(t.host()), str(t.status())) for t in attempts]
    return found
