"""Shows a driver and its jobs: overviews, one job with its graph, its failures, its rescales."""

from __future__ import annotations

import html
from collections.abc import Sequence

from penstock.monitoring.report import JobReport
from penstock.rest.views.figures import TASK_STATES, Document, counts_of_states, task_state, vertex_id
from penstock.rest.views.vertex_views import VertexView, accumulators_listed, slot_id

_ENDED = ("FINISHED", "CANCELED", "FAILED")
_JOB_STATES = (
    "INITIALIZING", "CREATED", "RUNNING", "FAILING", "FAILED", "CANCELLING", "CANCELED", "FINISHED", "RESTARTING",
    "SUSPENDED", "RECONCILING",
)  # fmt: skip


def has_ended(report: JobReport) -> bool:
    return report.state in _ENDED


def job_status(report: JobReport) -> Document:
    return {"id": report.job_id, "status": report.state}


def driver_overview(reports: Sequence[JobReport], version: str) -> Document:
    """Show the driver: how many jobs and slots it has."""
    return {
        "taskmanagers": sum(report.slots_registered for report in reports),
        "slots-total": sum(report.slots_needed for report in reports),
        "slots-available": 0,
        "jobs-running": sum(not has_ended(report) for report in reports),
        "jobs-finished": sum(report.state == "FINISHED" for report in reports),
        "jobs-cancelled": sum(report.state == "CANCELED" for report in reports),
        "jobs-failed": sum(report.state == "FAILED" for report in reports),
        "flink-version": f"penstock {version}",
        "flink-commit": "",
    }


def job_overview(report: JobReport, started_wall_ms: int, now_wall_ms: int) -> Document:
    """Show a job in a list of jobs."""
    total, state = sum(vertex.parallelism for vertex in report.vertices), task_state(report.state).lower()
    tasks = {"total": total} | {name.lower(): 0 for name in TASK_STATES}
    return {
        "jid": report.job_id,
        "name": report.job_name,
        "jobType": "STREAMING",
        "schedulerType": "Default",
        "state": report.state,
        "start-time": started_wall_ms,
        "end-time": -1,
        "duration": now_wall_ms - started_wall_ms,
        "last-modification": last_change_wall_ms(report, started_wall_ms),
        "tasks": tasks | {state: total},
        "pending-operators": 0,
    }


def job_details(report: JobReport, started_wall_ms: int, now_wall_ms: int) -> Document:
    """Show a job with its vertices."""
    since = last_change_wall_ms(report, started_wall_ms)
    vertices = [VertexView(report, number, since, now_wall_ms).overview() for number in range(len(report.vertices))]
    return {
        "jid": report.job_id,
        "name": report.job_name,
        "isStoppable": False,
        "state": report.state,
        "job-type": "STREAMING",
        "schedulerType": "Default",
        "start-time": started_wall_ms,
        "end-time": -1,
        "duration": now_wall_ms - started_wall_ms,
        "maxParallelism": max((vertex.max_parallelism for vertex in report.vertices), default=-1),
        "now": now_wall_ms,
        "timestamps": dict.fromkeys(_JOB_STATES, 0) | {"INITIALIZING": started_wall_ms, report.state: since},
        "vertices": vertices,
        "status-counts": counts_of_states(vertex["status"] for vertex in vertices),
        "plan": job_plan(report),
        "pending-operators": 0,
    }


def last_change_wall_ms(report: JobReport, started_wall_ms: int) -> int:
    """Return the time of the last change: the start of the job, its last restart or its last rescale."""
    changes = [recovery.wall_ms + round(recovery.running_after_ms or 0) for recovery in report.recoveries[-1:]]
    changes += [rescale.ended_wall_ms for rescale in report.rescales[-1:]]
    return max(changes, default=started_wall_ms)


def job_plan(report: JobReport) -> Document:
    """Show the job's graph as Flink's plan."""
    nodes = []
    for number, vertex in reversed(list(enumerate(report.vertices))):
        names = [name for _, name in vertex.operators] or [vertex.name]
        node: Document = {
            "id": vertex_id(number),
            "operator": "",
            "parallelism": vertex.parallelism,
            "operator_strategy": "",
            "description": "".join(f"{'' if i == 0 else '+- '}{html.escape(n)}<br/>" for i, n in enumerate(names)),
            "optimizer_properties": {},
        }
        inputs = [edge for edge in report.edges if edge.target == number]
        if inputs:
            node["inputs"] = [
                {
                    "id": vertex_id(edge.source),
                    "num": ordinal,
                    "exchange": "pipelined_bounded",
                    "ship_strategy": edge.exchange.upper(),
                }
                for ordinal, edge in enumerate(inputs)
            ]
        nodes.append(node)
    return {"jid": report.job_id, "name": report.job_name, "type": "STREAMING", "nodes": nodes}


def job_exceptions(report: JobReport, maximum: int) -> Document:
    """Show the failures of a job, newest first, at most `maximum` of them."""
    failures = [recovery for recovery in report.recoveries if not recovery.is_rescale][::-1]
    entries = [
        {
            "exceptionName": failure.cause.splitlines()[0] if failure.cause else "",
            "stacktrace": f"{failure.traceback.rstrip()}\n{failure.cause}" if failure.traceback else failure.cause,
            "timestamp": failure.wall_ms,
            "failureLabels": {},
            "concurrentExceptions": [],
        }
        for failure in failures[:maximum]
    ]
    return {"exceptionHistory": {"entries": entries, "truncated": len(failures) > maximum}}


_RESOURCE: Document = {
    "cpuCores": 1.0, "taskHeapMemory": 0, "taskOffHeapMemory": 0, "managedMemory": 0, "networkMemory": 0,
    "extendedResources": {},
}  # fmt: skip
_POOLS = (
    "frameworkHeap", "taskHeap", "frameworkOffHeap", "taskOffHeap", "networkMemory", "managedMemory", "jvmMetaspace",
    "jvmOverhead", "totalFlinkMemory", "totalProcessMemory",
)  # fmt: skip


def job_accumulators(report: JobReport) -> Document:
    """Show the counters of user functions, added up over the job."""
    return {
        "job-accumulators": [],
        "user-task-accumulators": accumulators_listed(report.accumulators),
        "serialized-user-task-accumulators": {},
    }


def slots_overview(reports: Sequence[JobReport]) -> Document:
    """Show the processes of the slots, which Flink calls task managers."""
    return {"taskmanagers": [_slot(report, slot) for report in reports for slot in range(len(report.slot_pids))]}


def slot_details(reports: Sequence[JobReport], named: str) -> Document | None:
    for report in reports:
        for slot in range(len(report.slot_pids)):
            if named in (slot_id(slot), f"{report.job_id}-{slot_id(slot)}"):
                return _slot(report, slot)
    return None


def _slot(report: JobReport, slot: int) -> Document:
    pid = report.slot_pids[slot]
    resident = report.slot_rss_bytes[slot] if slot < len(report.slot_rss_bytes) else 0
    return {
        "id": slot_id(slot),
        "job-id": report.job_id,
        "path": "missing" if pid is None else f"process {pid}",
        "pid": pid,
        "slotsNumber": 1,
        "freeSlots": 0,
        "assignedTasks": sum(slot < vertex.parallelism for vertex in report.vertices),
        "memory": {"residentBytes": resident},
        "dataPort": -1,
        "jmxPort": -1,
        "timeSinceLastHeartbeat": -1,
        # A slot computes in one thread at a time. The pools of memory are those of a JVM, and there is none.
        "hardware": {"cpuCores": 1, "physicalMemory": resident, "freeMemory": 0, "managedMemory": 0},
        "totalResource": _RESOURCE,
        "freeResource": _RESOURCE | {"cpuCores": 0.0},
        "memoryConfiguration": dict.fromkeys(_POOLS, 0) | {"totalProcessMemory": resident},
    }


def rescale_history(report: JobReport) -> list[Document]:
    """Return the newest rescales, newest first."""
    names = [vertex.name for vertex in report.vertices]
    return [
        {
            "trigger": rescale.reason,
            "end-timestamp": rescale.ended_wall_ms,
            "vertices": [
                {"name": name, "previous-parallelism": before, "acquired-parallelism": after}
                for name, before, after in zip(names, rescale.before, rescale.after)
            ],
            "waited-ms": round(rescale.waited_ms),
            "checkpoint-ms": round(rescale.checkpoint_ms),
            "restart-ms": round(rescale.restart_ms),
        }
        for rescale in reversed(report.rescales)
    ]
