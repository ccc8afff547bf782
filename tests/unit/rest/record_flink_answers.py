"""Records which fields and types Flink's REST server answers with, for `test_flink_answers.py`.

    python -m tests.unit.rest.record_flink_answers http://localhost:8081

The server is that of a running Flink job which has completed some checkpoints, of any kind.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

DRIVER = """/config /overview /jobs /jobs/overview /jobs/metrics /jobmanager/config /jobmanager/environment
/jobmanager/metrics /jobmanager/logs /jobmanager/thread-dump /taskmanagers /taskmanagers/metrics"""
SLOT = "/ /metrics /logs /thread-dump"
JOB = """/ /plan /config /status /exceptions /accumulators /metrics /jobmanager/config /jobmanager/environment
/resource-requirements /rescales/history /rescales/overview /rescales/summary /rescales/config /checkpoints
/checkpoints/config"""
VERTEX = """/ /accumulators /backpressure /metrics /subtasks/accumulators /subtasks/metrics /subtasktimes /taskmanagers
/watermarks /flamegraph /subtasks/0 /subtasks/0/attempts/0 /subtasks/0/metrics /jm-operator-metrics"""


def record(address: str) -> dict[str, Any]:
    def get(path: str) -> Any:
        with urllib.request.urlopen(address + path, timeout=30) as response:
            return json.loads(response.read())

    job = get("/jobs/overview")["jobs"][0]["jid"]
    vertex = get(f"/jobs/{job}")["vertices"][-1]["id"]
    checkpoint = str(get(f"/jobs/{job}/checkpoints")["latest"]["completed"]["id"])
    slot = get("/taskmanagers")["taskmanagers"][0]["id"]
    paths = DRIVER.split()
    for prefix, rest in (
        ("/taskmanagers/:taskmanagerid", SLOT),
        ("/jobs/:jobid", JOB),
        ("/jobs/:jobid/vertices/:vertexid", VERTEX),
        ("/jobs/:jobid/checkpoints/details/:checkpointid", "/ /subtasks/:vertexid"),
    ):
        paths += [prefix + ("" if path == "/" else path) for path in rest.split()]
    found = {}
    named = {":jobid": job, ":vertexid": vertex, ":checkpointid": checkpoint, ":taskmanagerid": slot}
    for name in paths:
        path = name
        for parameter, value in named.items():
            path = path.replace(parameter, value)
        try:
            answer = get(path)
        except HTTPError as error:
            print(f"{name}: {error.code}", file=sys.stderr)
            continue
        name = name.replace("/subtasks/0", "/subtasks/:subtaskindex").replace("attempts/0", "attempts/:attempt")
        found[name] = [{"id": "text"}] if name.endswith("/metrics") else kinds(answer)
    return found


def kinds(answer: Any) -> Any:
    """Return the answer with the kind of each value in its place."""
    if isinstance(answer, dict):
        if answer and all(len(name) == 32 for name in answer):
            return {"<id>": kinds(next(iter(answer.values())))}
        # A task's times by state: those states that it has passed through.
        return {
            name: kinds({"RUNNING": value["RUNNING"]}) if name == "status-duration" else kinds(value)
            for name, value in answer.items()
        }
    if isinstance(answer, list):
        return [kinds(item) for item in answer[:1]]
    return {int: "number", float: "number", str: "text", bool: "truth", type(None): "null"}[type(answer)]


if __name__ == "__main__":
    file = Path(__file__).parent / "flink_answers.json"
    file.write_text(json.dumps(record(sys.argv[1].rstrip("/")), indent=1, sort_keys=True) + "\n", encoding="utf-8")
