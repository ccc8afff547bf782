"""Shows all figures of all jobs as Prometheus reads them, under the names and labels of Flink's Prometheus reporter."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from penstock.monitoring.report import JobReport
from penstock.rest.views.figures import vertex_id
from penstock.rest.views.metric_views import figures_of, job_metrics
from penstock.rest.views.vertex_views import slot_id

if TYPE_CHECKING:
    from prometheus_client.core import GaugeMetricFamily

_NOT_ALLOWED = re.compile(r"[^a-zA-Z0-9:_]")
_JOB_LABELS = ("host", "job_id", "job_name")
_SLOT_LABELS = ("host", "tm_id", "job_id", "job_name")
_TASK_LABELS = ("host", "job_id", "job_name", "subtask_index", "task_id", "task_name", "tm_id")


def exposition(jobs: Iterable[tuple[JobReport, int]], host: str, now_wall_ms: int) -> str:
    """Return the figures in Prometheus' text format.

    Args:
        jobs: The report of each job, and when it was started.
        host: The name of the driver's machine.
        now_wall_ms: The time.
    """
    from prometheus_client.exposition import generate_latest
    from prometheus_client.registry import CollectorRegistry

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(list(jobs), host, now_wall_ms))
    return str(generate_latest(registry).decode())


class _Collector:
    """Yields one gauge per name: 1,280 subtasks take some milliseconds so, and two hundred as counters of their own."""

    def __init__(self, jobs: list[tuple[JobReport, int]], host: str, now_wall_ms: int) -> None:
        self._jobs = jobs
        self._host = host
        self._now_wall_ms = now_wall_ms

    def describe(self) -> list[Any]:
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        from prometheus_client.core import GaugeMetricFamily

        families: dict[str, GaugeMetricFamily] = {}
        for name, labels, named, value in self._samples():
            if name not in families:
                families[name] = GaugeMetricFamily(
                    name, f"{name.rpartition('_')[2]} (scope: {_scope(name)})", labels=labels
                )
            families[name].add_metric(named, float(value))
        yield from families.values()

    def _samples(self) -> Iterator[tuple[str, tuple[str, ...], list[str], Any]]:
        for report, started_wall_ms in self._jobs:
            of_job = [self._host, report.job_id, report.job_name]
            for name, value in job_metrics(report, started_wall_ms, self._now_wall_ms).items():
                if not isinstance(value, str):
                    yield f"flink_jobmanager_job_{name}", _JOB_LABELS, of_job, value
            for slot, resident in enumerate(report.slot_rss_bytes):
                labels = [self._host, slot_id(slot), *of_job[1:]]
                yield "flink_taskmanager_Status_Process_Memory_Resident", _SLOT_LABELS, labels, resident
            for number, vertex in enumerate(report.vertices):
                for subtask, figures in figures_of(vertex).items():
                    labels = [*of_job, str(subtask), vertex_id(number), vertex.name, slot_id(subtask)]
                    for name, value in _by_allowed_name(figures).items():
                        yield f"flink_taskmanager_job_task_{name}", _TASK_LABELS, labels, value


def _by_allowed_name(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers under names that Prometheus allows: it has no texts. Of several with one name, the first
    stays, because Prometheus refuses all figures of a page that has two of one name.
    """
    found: dict[str, Any] = {}
    for name, value in figures.items():
        if not isinstance(value, str):
            found.setdefault(_NOT_ALLOWED.sub("_", name), value)
    return found


def _scope(name: str) -> str:
    return "_".join(name.split("_")[1:-1])
