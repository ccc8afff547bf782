"""Compares our answers with those of Flink 2.3: the same paths, with the same fields of the same types.

`flink_answers.json` holds the fields and types of what Flink 2.3.0's REST server answered on 2026-11-28 for a running
job with unaligned checkpoints (`record_flink_answers.py` says how).
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec.json import encode

from penstock.common import Configuration
from penstock.monitoring.report import EdgeReport, RecoveryReport
from penstock.monitoring.subtask_figures import SubtaskCheckpoint, SubtaskReport, packed
from penstock.rest.api import JobApi, RequestRefused, ServedJob
from tests.unit.rest.running import JOB_ID, DrivenClient, checkpoint, report

FLINK: dict[str, Any] = json.loads((Path(__file__).parent / "flink_answers.json").read_text("utf-8"))

LEFT_OUT = {
    "/jobmanager/environment": "the classpath and options of a JVM that runs nothing of the job",
    "/jobs/:jobid/jobmanager/environment": "as above",
    "/jobmanager/logs": "the driver is the user's own program: its log is where the user has put it",
    "/jobmanager/metrics": "figures of a JVM",
    "/jobmanager/thread-dump": "threads of a JVM; py-spy shows those of a Python process",
    "/taskmanagers/metrics": "figures of JVMs",
    "/taskmanagers/:taskmanagerid/metrics": "figures of a JVM",
    "/taskmanagers/:taskmanagerid/logs": "Spark keeps the output of executors, and shows it in its own pages",
    "/taskmanagers/:taskmanagerid/thread-dump": "threads of a JVM",
    "/jobs/:jobid/vertices/:vertexid/flamegraph": "samples of JVM threads; py-spy makes flame graphs of slots",
    "/jobs/:jobid/vertices/:vertexid/jm-operator-metrics": "always empty, but for sources of Flink's own",
}
"""Paths that Flink has and Penstock has not, each with its reason."""

FIELDS_LEFT_OUT = {
    "application-id": "an application of Flink's: a driver here has jobs, and nothing between",
    "processed_data": "rows that were processed during the alignment are not counted",
    "processed": "as above",
    "allocatedSlots": "a process is one slot",
    "/taskmanagers/:taskmanagerid.metrics": "pools of a JVM",
}


def served() -> JobApi:
    """A job with everything that can be shown."""
    parts = [
        SubtaskCheckpoint(vertex, subtask, True, 12.5, 1.5, 2.5, 0.5, 3.0, 100, 50, 20)
        for vertex, parallelism in enumerate((2, 3))
        for subtask in range(parallelism)
    ]
    work = SubtaskReport(0, 10, 10, 100, 100, 5.0, 5.0, 0.4, 0.2, 10, 1.5, 17, 3, 1000.0, 400.0, 200.0)
    shown = report(checkpoint(1, acknowledged=packed(parts), subtasks_expected=5))
    vertices = tuple(
        replace(
            vertex,
            accumulators={0: {"seen": 3}},
            subtasks=dict.fromkeys(range(vertex.parallelism), work),
            operators=(("uid", vertex.name),),
        )
        for vertex in shown.vertices
    )
    failed = RecoveryReport(2, 5_000, "ValueError: no", 20.0, 1, "Traceback …")
    shown = replace(
        shown,
        vertices=vertices,
        edges=(EdgeReport(0, 1, "hash"),),
        recoveries=(failed,),
        slot_pids=(11, 12, 13),
        slot_rss_bytes=(1, 2, 3),
    )
    job = ServedJob(DrivenClient(shown), 1_000, True, Configuration({"execution.checkpointing.interval": "1 s"}), "/c")
    return JobApi(lambda: {JOB_ID: job})


def ours(path: str) -> Any:
    names = {
        ":attempt": "0",
        ":jobid": JOB_ID,
        ":vertexid": f"{1:032x}",
        ":checkpointid": "1",
        ":taskmanagerid": "slot-0",
    }
    for name, value in (names | {":subtaskindex": "0"}).items():
        path = path.replace(name, value)
    return json.loads(encode(served().answer("GET", path, b"")[1]))


def differences(flink: Any, found: Any, where: str) -> list[str]:
    """List the fields of Flink's that are missing here, or have another type."""
    if isinstance(flink, dict):
        if not isinstance(found, dict):
            return [f"{where}: an object in Flink, here {found!r}"]
        lines = []
        for name, kind in flink.items():
            if name in FIELDS_LEFT_OUT or f"{where}.{name}" in FIELDS_LEFT_OUT:
                continue
            if name == "<id>":
                lines += [d for key, value in found.items() for d in differences(kind, value, f"{where}.{key[-2:]}")]
            elif name not in found:
                lines.append(f"{where}.{name} is missing")
            else:
                lines += differences(kind, found[name], f"{where}.{name}")
        return lines
    if isinstance(flink, list):
        if not isinstance(found, list):
            return [f"{where}: a list in Flink, here {found!r}"]
        return [d for item in found[:1] for kind in flink for d in differences(kind, item, f"{where}[0]")]
    kinds = {bool: "truth", int: "number", float: "number", str: "text", type(None): "null"}
    kind = kinds.get(type(found), "object")
    # What is null in Flink's answer has another value at other times. Flink writes some numbers as texts ("NaN").
    return (
        []
        if "null" in (flink, kind) or flink == kind or (flink, kind) == ("text", "number")
        else [f"{where}: {flink} in Flink, here {found!r}"]
    )


@pytest.mark.parametrize("path", sorted(FLINK.keys() - LEFT_OUT.keys()))
def test_a_path_has_the_fields_of_flink(path: str) -> None:
    assert differences(FLINK[path], ours(path), path) == []


@pytest.mark.parametrize("path", sorted(LEFT_OUT))
def test_what_is_left_out_is_not_there(path: str) -> None:
    assert path in FLINK
    with pytest.raises(RequestRefused) as refused:
        ours(path)
    assert refused.value.status == 404
