"""Tests what a browser and Prometheus ask for: files of the dashboard, its stream of events, figures as text."""

from __future__ import annotations

import http.client
import json
import time
from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from penstock.monitoring.subtask_figures import SubtaskReport
from penstock.rest import http_app
from penstock.rest.views.metric_views import aggregated
from tests.unit.rest.conftest import Hosted
from tests.unit.rest.running import JOB_ID, checkpoint, report

WORK = SubtaskReport(0, 10, 10, 100, 100, 5.0, 5.0, 0.4, 0.2, 10, 1.5, 17, 3, 1000.0, 400.0, 200.0)


def connection(hosted: Hosted) -> http.client.HTTPConnection:
    url = urlsplit(hosted.job.url)
    assert url.hostname is not None
    return http.client.HTTPConnection(url.hostname, url.port, timeout=20)


def get(hosted: Hosted, path: str, token: bool = True, **headers: str) -> http.client.HTTPResponse:
    if token:
        headers["Authorization"] = f"Bearer {hosted.job.token}"
    asked = connection(hosted)
    asked.request("GET", path, headers=headers)
    return asked.getresponse()


@pytest.mark.parametrize("name", ["", "app.js", "style.css", "vendor/dagre.js", "vendor/dagre.LICENSE"])
def test_files_of_the_dashboard_need_no_token_and_hold_no_secret(hosted: Hosted, name: str) -> None:
    answer = get(hosted, f"/ui/{name}", token=False)
    assert answer.status == 200 and hosted.job.token.encode() not in answer.read()


@pytest.mark.parametrize("path", ["/ui/../server.py", "/ui/%2e%2e/server.py", "/ui/nothing.js", "/ui//etc/passwd"])
def test_no_other_file_is_served(hosted: Hosted, path: str) -> None:
    answer = get(hosted, path, token=False)
    assert answer.status in (401, 404) and "errors" in json.loads(answer.read())


def test_a_browser_at_the_root_is_sent_to_the_dashboard(hosted: Hosted) -> None:
    answer = get(hosted, "/", token=False, Accept="text/html,*/*")
    assert (answer.status, answer.headers["Location"]) == (307, "/ui/")
    assert "script-src" not in answer.headers["Content-Security-Policy"], "scripts of our own only: default-src 'self'"
    assert "default-src 'self'" in answer.headers["Content-Security-Policy"]


def test_the_stream_has_each_change_of_the_job(hosted: Hosted) -> None:
    assert get(hosted, f"/jobs/{JOB_ID}/events", token=False).status == 401
    stream = get(hosted, f"/jobs/{JOB_ID}/events")
    assert stream.headers["Content-Type"].startswith("text/event-stream")
    assert json.loads(stream.readline()[6:])["checkpoints"]["counts"]["completed"] == 0
    hosted.client.current = report(checkpoint(1))
    deadline = time.monotonic() + 20
    while not (line := stream.readline()).startswith(b"data: "):
        assert time.monotonic() < deadline
    assert json.loads(line[6:])["checkpoints"]["counts"]["completed"] == 1


def test_pages_that_are_open_have_a_limit_and_closed_ones_give_room(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_app, "STREAMS_MAX", 1)
    first = connection(hosted)
    first.request("GET", f"/jobs/{JOB_ID}/events", headers={"Authorization": f"Bearer {hosted.job.token}"})
    answer = first.getresponse()
    answer.readline()
    refused = get(hosted, f"/jobs/{JOB_ID}/events")
    assert refused.status == 503 and b"pages are open already: close one" in refused.read()
    answer.close()
    first.close()
    deadline = time.monotonic() + 20
    while get(hosted, f"/jobs/{JOB_ID}/events").status != 200:
        assert time.monotonic() < deadline, "a page that was closed takes no place"
        time.sleep(0.05)


def test_prometheus_reads_figures_under_flinks_names(hosted: Hosted) -> None:
    shown = report(checkpoint(3), name='a "shop"\n')
    vertices = tuple(replace(vertex, subtasks={0: WORK}) for vertex in shown.vertices)
    hosted.client.current = replace(shown, vertices=vertices, slot_rss_bytes=(5,))
    assert get(hosted, "/metrics", token=False).status == 401
    answer = get(hosted, "/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    lines = answer.read().decode().splitlines()
    assert any(
        line.startswith("flink_jobmanager_job_lastCheckpointDuration{")
        and f'job_id="{JOB_ID}"' in line
        and r'job_name="a \"shop\"\n"' in line
        and line.endswith(" 30.0")
        for line in lines
    )
    (busy,) = [line for line in lines if line.startswith("flink_taskmanager_job_task_busy") and 'name="sink"' in line]
    assert 'subtask_index="0"' in busy and 'tm_id="slot-0"' in busy and busy.endswith(" 400.0")
    assert any(line.startswith("flink_taskmanager_Status_Process_Memory_Resident{") for line in lines)


def test_prometheus_leaves_texts_out_and_has_each_name_once(hosted: Hosted) -> None:
    shown = report(checkpoint(3))
    figures: dict[str, int | float | str] = {
        "map.state": "open", "map.a.b": 1, "map.a-b": 2, "map.rate": float("nan"), "map.sum": float("inf"),
    }  # fmt: skip
    vertices = tuple(replace(vertex, subtasks={0: WORK}, metrics={0: figures}) for vertex in shown.vertices)
    hosted.client.current = replace(shown, vertices=vertices)
    answer = get(hosted, "/metrics")
    assert answer.status == 200
    lines = [line for line in answer.read().decode().splitlines() if "task_map_" in line and 'name="sink"' in line]
    found = {line.partition("{")[0].rpartition("_map_")[2]: line.rpartition(" ")[2] for line in lines}
    assert found == {"a_b": "1.0", "rate": "NaN", "sum": "+Inf"} and len(lines) == 3


def test_figures_over_subtasks_leave_texts_out() -> None:
    (shown,) = aggregated([{"map.state": "open"}, {"map.state": 4}], ["map.state"], ["min", "sum"])
    assert shown == {"id": "map.state", "min": 4.0, "sum": 4.0}
