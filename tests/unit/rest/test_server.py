"""Tests the server over real connections on loopback: Flink's paths and JSON, the token, limits, its end."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest

from penstock.common import Configuration
from penstock.common.job_execution import CheckpointFailed, RescaleFailed, SavepointFailed
from penstock.monitoring.report import RescaleReport
from penstock.network.listening import PortError, listen
from penstock.rest import server
from penstock.rest.api import ServedJob
from penstock.rest.hosting import JobHosting
from penstock.rest.http_app import REQUEST_BYTES_MAX
from penstock.rest.job_registry import running_jobs
from penstock.rest.operations import REMEMBERED_MAX, UNFINISHED_MAX
from penstock.rest.rest_client import DriverUnreachable, RequestFailed, RestClient
from penstock.rest.server import RestServer
from penstock.rest.views.checkpoint_views import EncodedCheckpoints
from tests.unit.rest.conftest import Hosted
from tests.unit.rest.running import JOB_ID, DrivenClient, checkpoint, report


def ask(
    hosted: Hosted, method: str, path: str, body: str | None = None, token: str | None = None, **headers: str
) -> tuple[int, Any]:
    url = urlsplit(hosted.job.url)
    assert url.hostname is not None
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=20)
    authorization = f"Bearer {hosted.job.token}" if token is None else token
    try:
        connection.request(method, path, body, {"Authorization": authorization, **headers})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def test_jobs_are_shown_as_flink_shows_them(hosted: Hosted) -> None:
    assert ask(hosted, "GET", "/jobs") == (200, {"jobs": [{"id": JOB_ID, "status": "RUNNING"}]})
    assert ask(hosted, "GET", "/v1/jobs/")[0] == 200
    (overview,) = ask(hosted, "GET", "/jobs/overview")[1]["jobs"]
    assert (overview["jid"], overview["name"]) == (JOB_ID, "counting")
    assert {state: count for state, count in overview["tasks"].items() if count} == {"total": 5, "running": 5}
    _, job = ask(hosted, "GET", f"/jobs/{JOB_ID}")
    assert (job["jid"], job["state"], job["status-counts"]["RUNNING"]) == (JOB_ID, "RUNNING", 2)
    assert [(v["name"], v["parallelism"], v["metrics"]["read-records"]) for v in job["vertices"]] == [
        ("source", 2, 0),
        ("sink", 3, 10),
    ]
    described = [{"name": "out", "connector": "Kafka", "topic": "t"}]
    assert [v["connectors"] for v in job["vertices"]] == [[], described]
    assert ask(hosted, "GET", "/config")[0] == 200


def test_figures_of_the_state_backend_are_shown_as_flink_shows_metrics(hosted: Hosted) -> None:
    current = report()
    metrics = {0: {"rocksdb.num-snapshots": 1, "rocksdb.estimate-num-keys": 10}, 2: {"rocksdb.estimate-num-keys": 20}}
    source, sink = current.vertices
    hosted.client.current = replace(current, vertices=(source, replace(sink, metrics=metrics)))
    path = f"/jobs/{JOB_ID}/vertices/{1:032x}"
    names = ["0.rocksdb.estimate-num-keys", "0.rocksdb.num-snapshots", "2.rocksdb.estimate-num-keys"]
    assert ask(hosted, "GET", f"{path}/metrics") == (200, [{"id": name} for name in names])
    assert ask(hosted, "GET", f"{path}/metrics?get={names[2]},unknown") == (200, [{"id": names[2], "value": "20"}])
    assert ask(hosted, "GET", f"{path}/subtasks/metrics") == (
        200, [{"id": "rocksdb.estimate-num-keys"}, {"id": "rocksdb.num-snapshots"}],
    )  # fmt: skip
    keys = "rocksdb.estimate-num-keys"
    assert ask(hosted, "GET", f"{path}/subtasks/metrics?get={keys}") == (
        200, [{"id": keys, "min": 10, "max": 20, "avg": 15.0, "sum": 30}],
    )  # fmt: skip
    assert ask(hosted, "GET", f"{path}/subtasks/metrics?get={keys}&agg=max")[1] == [{"id": keys, "max": 20}]
    status, answer = ask(hosted, "GET", f"{path}/subtasks/metrics?get={keys}&agg=median")
    assert status == 400 and "agg=median is none of min, max, avg, sum" in answer["errors"][0]
    assert ask(hosted, "GET", f"/jobs/{JOB_ID}/vertices/{0:032x}/metrics") == (200, [])
    for vertex in (f"{2:032x}", "sink"):
        status, answer = ask(hosted, "GET", f"/jobs/{JOB_ID}/vertices/{vertex}/metrics")
        assert status == 404 and f"there is no vertex {vertex}: GET /jobs/{JOB_ID} lists" in answer["errors"][0]


def test_checkpoints_are_shown_as_flink_shows_them(hosted: Hosted) -> None:
    hosted.client.current = report(
        checkpoint(1),
        checkpoint(2, "failed", failure="expired"),
        checkpoint(3, unaligned=True),
        checkpoint(4, is_savepoint=True, path="/s/savepoint-1"),
        checkpoint(5, "in_progress"),
    )
    _, statistics = ask(hosted, "GET", f"/jobs/{JOB_ID}/checkpoints")
    assert statistics["counts"] == {"restored": 0, "total": 5, "in_progress": 1, "completed": 3, "failed": 1}
    assert [c["id"] for c in statistics["history"]] == [5, 4, 3, 2, 1]
    latest = statistics["latest"]
    assert (latest["completed"]["id"], latest["savepoint"]["id"], latest["failed"]["id"]) == (3, 4, 2)
    sizes = statistics["summary"]["checkpointed_size"]
    assert (sizes["min"], sizes["p50"], sizes["max"], sizes["p999"]) == (200, 600, 800, 800)
    _, third = ask(hosted, "GET", f"/jobs/{JOB_ID}/checkpoints/details/3")
    assert (third["checkpoint_type"], third["status"], third["external_path"]) == (
        "UNALIGNED_CHECKPOINT", "COMPLETED", "/c/chk-3",
    )  # fmt: skip
    assert (third["latest_ack_timestamp"], third["num_acknowledged_subtasks"]) == (3_030, 5)
    assert ask(hosted, "GET", f"/jobs/{JOB_ID}/checkpoints/details/2")[1]["failure_message"] == "expired"
    status, answer = ask(hosted, "GET", f"/jobs/{JOB_ID}/checkpoints/details/9")
    assert status == 404 and "those are: 1, 2, 3, 4, 5" in answer["errors"][0]


def test_a_long_history_is_encoded_once() -> None:
    encoded, first = EncodedCheckpoints(), report(checkpoint(1), checkpoint(2, "in_progress"))
    newest, oldest = encoded.shown(first)
    second = report(first.checkpoints[0], checkpoint(2), checkpoint(3, "in_progress"))
    shown = encoded.shown(second)
    assert shown[2] is oldest and shown[1] is not newest
    assert [json.loads(bytes(one))["status"] for one in shown] == ["IN_PROGRESS", "COMPLETED", "COMPLETED"]


@pytest.mark.parametrize("name", ["CANONICAL", "NATIVE", "native", "DEFAULT"])
def test_a_savepoint_is_in_progress_until_it_has_a_location(hosted: Hosted, name: str) -> None:
    body = json.dumps({"target-directory": "/s", "cancel-job": False, "formatType": name, "aligned": True})
    status, answer = ask(hosted, "POST", f"/jobs/{JOB_ID}/savepoints", body)
    assert status == 202 and hosted.client.asked == [("savepoint", None, "/s", True)]
    path = f"/jobs/{JOB_ID}/savepoints/{answer['request-id']}"
    assert ask(hosted, "GET", path) == (200, {"status": {"id": "IN_PROGRESS"}})
    hosted.client.futures[0].set_result("/s/savepoint-1")
    done = {"status": {"id": "COMPLETED"}, "operation": {"location": "/s/savepoint-1"}}
    assert ask(hosted, "GET", path) == ask(hosted, "GET", path) == (200, done)


def test_a_stop_that_fails_says_why_and_one_trigger_id_asks_once(hosted: Hosted) -> None:
    body = json.dumps({"targetDirectory": None, "drain": True, "triggerId": "5" * 32, "formatType": "NATIVE"})
    for _ in range(2):
        assert ask(hosted, "POST", f"/jobs/{JOB_ID}/stop", body) == (202, {"request-id": "5" * 32})
    assert hosted.client.asked == [("stop", True, None, None)]
    hosted.client.futures[0].set_exception(SavepointFailed("no room"))
    _, answer = ask(hosted, "GET", f"/jobs/{JOB_ID}/savepoints/{'5' * 32}")
    assert answer["operation"] == {"failure-cause": {"class": "SavepointFailed", "stack-trace": "no room"}}
    assert ask(hosted, "GET", f"/jobs/{JOB_ID}/checkpoints/{'5' * 32}")[0] == 404


def test_a_rescale_is_in_progress_until_the_job_runs_so(hosted: Hosted) -> None:
    status, answer = ask(hosted, "PATCH", f"/jobs/{JOB_ID}/rescaling?parallelism=3")
    assert status == 202 and hosted.client.rescales[0][0] == 3
    path = f"/jobs/{JOB_ID}/rescaling/{answer['request-id']}"
    assert ask(hosted, "GET", path) == (200, {"status": {"id": "IN_PROGRESS"}})
    hosted.client.rescales[0][1].set_result(None)
    assert ask(hosted, "GET", path) == (200, {"status": {"id": "COMPLETED"}, "operation": {}})
    _, answer = ask(hosted, "PATCH", f"/jobs/{JOB_ID}/rescaling", '{"parallelism": {"counter": 2}}')
    hosted.client.rescales[1][1].set_exception(RescaleFailed("no"))
    _, answer = ask(hosted, "GET", f"/jobs/{JOB_ID}/rescaling/{answer['request-id']}")
    assert answer["operation"] == {"failure-cause": {"class": "RescaleFailed", "stack-trace": "no"}}
    done = RescaleReport(1_700_000_000_000, "requested", (2, 3), (3, 3), 10.2, 20.4, 30.6)
    hosted.client.current = replace(report(), rescales=(done,))
    (shown,) = ask(hosted, "GET", f"/jobs/{JOB_ID}/rescales/history")[1]["rescales"]
    assert shown["vertices"][0] == {"name": "source", "previous-parallelism": 2, "acquired-parallelism": 3}
    assert (shown["trigger"], shown["waited-ms"], shown["restart-ms"]) == ("requested", 10, 31)


def test_a_checkpoint_is_the_first_that_is_triggered_after_the_request(hosted: Hosted) -> None:
    hosted.client.current = report(checkpoint(3), checkpoint(4, "in_progress"))
    _, answer = ask(hosted, "POST", f"/jobs/{JOB_ID}/checkpoints", '{"checkpointType": "FULL"}')
    path = f"/jobs/{JOB_ID}/checkpoints/{answer['request-id']}"
    hosted.client.current = report(checkpoint(4), checkpoint(5, is_savepoint=True), checkpoint(6, "in_progress"))
    assert ask(hosted, "GET", path)[1] == {"status": {"id": "IN_PROGRESS"}}
    hosted.client.current = report(checkpoint(6))
    assert ask(hosted, "GET", path)[1]["operation"] == {"checkpointId": 6}
    _, answer = ask(hosted, "POST", f"/jobs/{JOB_ID}/checkpoints")
    hosted.client.current = report(checkpoint(6), state="FINISHED")
    _, status = ask(hosted, "GET", f"/jobs/{JOB_ID}/checkpoints/{answer['request-id']}")
    assert status["operation"]["failureCause"]["stack-trace"] == "the job has ended"
    assert len(hosted.client.checkpoints) == 2


def test_a_checkpoint_that_is_refused_or_dropped_is_no_operation_for_ever(hosted: Hosted) -> None:
    hosted.client.current = replace(report(checkpoint(3)), generation=1)
    paths = []
    for _ in range(2):
        _, answer = ask(hosted, "POST", f"/jobs/{JOB_ID}/checkpoints")
        paths.append(f"/jobs/{JOB_ID}/checkpoints/{answer['request-id']}")
    hosted.client.checkpoints[0].set_exception(CheckpointFailed("the job restarts; try again"))
    hosted.client.checkpoints[1].set_result(None)
    (refused, waits) = (ask(hosted, "GET", path)[1] for path in paths)
    assert refused["operation"]["failureCause"]["stack-trace"] == "the job restarts; try again"
    assert waits == {"status": {"id": "IN_PROGRESS"}}
    hosted.client.current = replace(report(checkpoint(3)), generation=2)
    dropped = ask(hosted, "GET", paths[1])[1]
    assert "has restarted, and dropped the request" in dropped["operation"]["failureCause"]["stack-trace"]
    hosted.client.current = replace(report(checkpoint(3), checkpoint(4)), generation=2)
    assert ask(hosted, "GET", paths[1])[1] == dropped, "what it was told stays"


def test_checkpoints_that_are_not_done_leave_room_for_a_stop(hosted: Hosted) -> None:
    for _ in range(UNFINISHED_MAX):
        assert ask(hosted, "POST", f"/jobs/{JOB_ID}/checkpoints")[0] == 202
    status, answer = ask(hosted, "POST", f"/jobs/{JOB_ID}/checkpoints")
    assert status == 503 and "ask again when one is" in answer["errors"][0]
    assert ask(hosted, "POST", f"/jobs/{JOB_ID}/stop")[0] == 202


def test_a_job_is_cancelled_once_it_runs(hosted: Hosted) -> None:
    assert ask(hosted, "PATCH", f"/jobs/{JOB_ID}?mode=cancel") == (202, {})
    assert hosted.client.cancels == 1
    status, answer = ask(hosted, "PATCH", f"/jobs/{JOB_ID}?mode=cancel", '{"triggerId": 5}')
    assert status == 400 and "'triggerId' must be a string" in answer["errors"][0]
    _, answer = ask(hosted, "POST", f"/jobs/{JOB_ID}/savepoints")
    body = json.dumps({"triggerId": answer["request-id"]})
    status, answer = ask(hosted, "PATCH", f"/jobs/{JOB_ID}?mode=cancel", body)
    assert status == 409 and "is that of a savepoint" in answer["errors"][0]
    hosted.client.current = report(state="CANCELED")
    assert ask(hosted, "PATCH", f"/jobs/{JOB_ID}")[0] == 409
    status, answer = ask(hosted, "PATCH", f"/jobs/{JOB_ID}?mode=stop")
    assert status == 400 and f"/jobs/{JOB_ID}/stop stops" in answer["errors"][0]
    assert hosted.client.cancels == 1


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "says"),
    [
        ("GET", "/jobs/xyz", None, 404, f"there is no job xyz in this driver, whose jobs are: {JOB_ID}"),
        ("GET", "/jars", None, 404, "there is nothing at /jars"),
        ("GET", f"/jobs/{JOB_ID}/../../etc", None, 404, "there is nothing at"),
        ("GET", f"/jobs/{JOB_ID}/vertices/{7:032x}", None, 404, "there is no vertex"),
        ("GET", f"/jobs/{JOB_ID}/vertices/{1:032x}/subtasks/3", None, 404, "the vertex has 3, counted from 0"),
        ("GET", f"/jobs/{JOB_ID}/exceptions?maxExceptions=x", None, 400, "maxExceptions must be a whole number"),
        ("GET", f"/jobs/{JOB_ID}/diagnosis?checkpoint=9", None, 404, "checkpoint 9 is not remembered"),
        ("DELETE", f"/jobs/{JOB_ID}", None, 405, "is asked with GET or PATCH, not with DELETE"),
        ("POST", f"/jobs/{JOB_ID}/savepoints", "{", 400, "the body is not JSON"),
        ("POST", f"/jobs/{JOB_ID}/savepoints", "[" * 50_000, 400, "the body is not JSON"),
        ("POST", f"/jobs/{JOB_ID}/savepoints", "[]", 400, "must be a JSON object"),
        (
            "POST",
            f"/jobs/{JOB_ID}/savepoints",
            '{"directory": "x"}',
            400,
            "unknown field 'directory'; there are target",
        ),
        ("POST", f"/jobs/{JOB_ID}/stop", '{"drain": "yes"}', 400, "'drain' must be true or false, not \"yes\""),
        ("POST", f"/jobs/{JOB_ID}/stop", '{"formatType": "PDF"}', 400, "'PDF' is none of CANONICAL, NATIVE"),
        ("PATCH", f"/jobs/{JOB_ID}/rescaling", None, 400, "give ?parallelism=<number>, or a body with parallelism by"),
        ("PATCH", f"/jobs/{JOB_ID}/rescaling?parallelism=x", None, 400, "must be a whole number, not 'x'"),
        ("PATCH", f"/jobs/{JOB_ID}/rescaling", '{"parallelism": 3}', 400, "'parallelism' must be an object, not 3"),
        ("POST", f"/jobs/{JOB_ID}/stop", '{"triggerId": "1"}', 400, "triggerId must be 32 hex digits, not '1'"),
        ("POST", f"/jobs/{JOB_ID}/savepoints", '{"cancel-job": true}', 400, f"POST to /jobs/{JOB_ID}/stop"),
        ("GET", f"/jobs/{JOB_ID}/savepoints/0", None, 404, "no savepoint with the trigger id 0"),
        ("POST", f"/jobs/{JOB_ID}/stop", " " * (REQUEST_BYTES_MAX + 1), 413, "a body may have 65536 bytes, not 65537"),
    ],
)
def test_wrong_requests_are_refused_by_name(
    hosted: Hosted, method: str, path: str, body: str | None, status: int, says: str
) -> None:
    found, answer = ask(hosted, method, path, body)
    assert found == status and says in answer["errors"][0]
    assert not hosted.client.asked and not hosted.client.cancels


@pytest.mark.parametrize("token", ["", "Bearer", "Bearer x", "Basic abc", "Bearer \xe9"])
@pytest.mark.parametrize(("method", "path"), [("GET", "/jobs"), ("PATCH", f"/jobs/{JOB_ID}"), ("GET", "/nothing")])
def test_without_the_token_nothing_is_answered(hosted: Hosted, token: str, method: str, path: str) -> None:
    status, answer = ask(hosted, method, path, token=token)
    assert status == 401
    assert ("is wrong" if token else "is missing") in answer["errors"][0]
    assert f"{hosted.directory.parents[1] / 'registry'}/<job id>.json" in answer["errors"][0]
    assert hosted.job.token not in answer["errors"][0] and not hosted.client.cancels


def test_a_job_without_checkpointing_refuses_checkpoints() -> None:
    client, hosting = DrivenClient(), JobHosting(Configuration())
    try:
        hosting.start(client, None, pytest.fail)
        (job,) = running_jobs()
        with pytest.raises(RequestFailed, match="set execution.checkpointing.interval") as refused:
            RestClient(job).post("/checkpoints")
        assert refused.value.status == 400 and job.directory is None
    finally:
        hosting.end()


def test_too_much_at_once_is_refused_and_outcomes_are_forgotten(hosted: Hosted) -> None:
    client = RestClient(hosted.job)
    for _ in range(UNFINISHED_MAX):
        first = client.post("/savepoints")["request-id"]
    with pytest.raises(RequestFailed, match=f"{UNFINISHED_MAX} savepoints"):
        client.post("/savepoints")
    for future in hosted.client.futures:
        future.set_result("/s")
    for _ in range(REMEMBERED_MAX):
        client.post("/savepoints")
        hosted.client.futures[-1].set_result("/t")
    with pytest.raises(RequestFailed, match="no savepoint with the trigger id"):
        client.get(f"/savepoints/{first}")


def raw(port: int, data: bytes, *, then: bytes = b"") -> bytes:
    """Sends bytes; returns all that comes back until the other side closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(data)
        received = b""
        try:
            while more := connection.recv(65536):
                received += more
                if then:
                    connection.sendall(then)
        except ConnectionResetError:
            pass
        return received


def test_what_is_slow_or_no_http_or_too_long_holds_nobody_up() -> None:
    server = RestServer(listen("127.0.0.1", (range(1),), "rest.port", "rest.address"), "x", request_timeout_s=0.3)
    assert server.acquire()
    served = ServedJob(DrivenClient(), 0, True)
    server.serve(JOB_ID, served)
    try:
        began = time.monotonic()
        assert raw(server.port, b"GET /jobs HTTP/1.1\r\nHost: x\r\n") == b"", "a request that never ends"
        slow_body = b"POST /jobs HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 9\r\n\r\n1"
        assert b"the body has not come within 0.3 s" in raw(server.port, slow_body)
        assert time.monotonic() - began < 10
        assert b'{"errors": [' in raw(server.port, b"hello\r\n\r\n")
        assert b"400" in raw(
            server.port,
            b"GET / HTTP/1.1\r\nHost: x\r\n" + b"".join(b"A%d: %s\r\n" % (i, b"x" * 9000) for i in range(15)),
        )
        assert b"411" in raw(
            server.port, b"POST /jobs HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        assert b"401" in raw(server.port, b"GET /jobs HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    finally:
        server.release((JOB_ID, served))
    server.join(20)
    with pytest.raises(OSError):
        raw(server.port, b"")


def test_after_its_end_a_job_is_served_until_its_outcome_is_fetched(hosted: Hosted) -> None:
    client = RestClient(hosted.job)
    trigger = client.post("/stop", drain=False)["request-id"]
    hosted.client.futures[0].set_result("/s/savepoint-1")
    hosted.client.current = report(state="FINISHED")
    hosted.hosting.end()
    assert running_jobs() == []
    assert client.get(f"/savepoints/{trigger}")["operation"] == {"location": "/s/savepoint-1"}
    deadline = time.monotonic() + 20
    said = rf"the driver of job {JOB_ID} \(counting; process \d+ on .*\) does not|there is no job {JOB_ID}"
    with pytest.raises((DriverUnreachable, RequestFailed), match=said):
        while time.monotonic() < deadline:
            client.get()


def test_jobs_of_one_driver_share_a_port_and_another_driver_is_refused_it(hosted: Hosted) -> None:
    first, second = JobHosting(Configuration({"rest.port": "0"})), JobHosting(Configuration())
    second_client = DrivenClient(report(name="second"))
    second_client.current = report(name="second").__class__(**{**vars(second_client.current), "job_id": "cd" * 16})
    try:
        second.start(second_client, None, pytest.fail)
        assert {job.url for job in running_jobs()} == {hosted.job.url}
        assert {job["id"] for job in ask(hosted, "GET", "/jobs")[1]["jobs"]} == {JOB_ID, "cd" * 16}
        taken = urlsplit(hosted.job.url).port
        with pytest.raises(PortError, match=rf"rest.port: port {taken} cannot be used on \"127.0.0.1\""):
            JobHosting(Configuration({"rest.port": str(taken)}))
    finally:
        first.end()
        second.end()


def test_a_job_that_was_started_again_is_served_until_both_have_ended(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "LINGER_S", 0.0)
    client, again = RestClient(hosted.job), JobHosting(Configuration())
    again.start(DrivenClient(report(name="again")), None, pytest.fail)
    hosted.hosting.end()
    for _ in range(3):  # the server looks for ended jobs between two requests
        assert client.get()["name"] == "again", "the end of the first one is not the end of the second"
    again.end()
    deadline = time.monotonic() + 20
    with pytest.raises((DriverUnreachable, RequestFailed)):
        while time.monotonic() < deadline:
            client.get()


def test_requests_are_answered_while_others_ask(hosted: Hosted) -> None:
    answers: list[int] = []
    threads = [threading.Thread(target=lambda: answers.append(ask(hosted, "GET", "/jobs")[0])) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert answers == [200] * 16
