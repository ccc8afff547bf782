"""Answers requests to the jobs of one driver: methods, paths and JSON are those of Flink's REST API.

It reads a job's report, which is immutable, and calls the job's client, which posts to the JobMaster: no request waits
for a job.
"""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from penstock.common.completable_future import CompletableFuture
from penstock.common.configuration import Configuration
from penstock.common.job_client import JobClient
from penstock.common.job_execution import CheckpointFailed, JobExecutionError
from penstock.common.job_status import JobStatus
from penstock.common.options import CheckpointingOptions
from penstock.monitoring.diagnosis import JobFacts, diagnose
from penstock.monitoring.report import CheckpointReport, JobReport, VertexReport
from penstock.rest.operations import Operations, Outcome, TooManyOperations, TriggerIdInUse
from penstock.rest.prometheus import exposition
from penstock.rest.views.checkpoint_views import (
    EncodedCheckpoints,
    checkpoint_details,
    checkpoint_of_vertex,
    checkpoint_statistics,
    restored_checkpoint,
)
from penstock.rest.views.job_views import (
    driver_overview,
    has_ended,
    job_accumulators,
    job_details,
    job_exceptions,
    job_overview,
    job_plan,
    job_status,
    last_change_wall_ms,
    rescale_history,
    slot_details,
    slots_overview,
)
from penstock.rest.views.metric_views import (
    AGGREGATIONS,
    aggregated,
    figures_of,
    job_metrics,
    listed,
    vertex_metrics,
    vertex_pressure,
)
from penstock.rest.views.settings_views import checkpoint_settings, configuration_entries, job_settings
from penstock.rest.views.vertex_views import VertexView

_TRIGGER_ID = re.compile(r"[0-9a-f]{32}")
_FORMATS = ("CANONICAL", "NATIVE", "DEFAULT")
_SAVEPOINT, _CHECKPOINT, _RESCALE, _CANCELLATION = "savepoint", "checkpoint", "rescale", "cancellation"
_EXCEPTIONS = 20
"""The number of failures that are shown without `maxExceptions`, as in Flink."""
_KINDS: dict[type, str] = {bool: "true or false", str: "a string", dict: "an object"}


class RequestRefused(Exception):
    """Signals that a request is refused, with the HTTP status that says so."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class ServedJob:
    """Holds a job that is served. `takes_checkpoints`: its checkpointing is enabled."""

    client: JobClient
    started_wall_ms: int
    takes_checkpoints: bool
    configuration: Configuration = field(default_factory=Configuration)
    directory: str | None = None
    operations: Operations = field(default_factory=Operations)
    encoded: EncodedCheckpoints = field(default_factory=EncodedCheckpoints)

    def checkpoints(self) -> dict[str, Any]:
        """Show its checkpoints, as Flink does."""
        report = self.report
        return checkpoint_statistics(report, restored_checkpoint(report), self.encoded)

    @property
    def report(self) -> JobReport:
        report: JobReport = self.client.report()
        return report

    @property
    def facts(self) -> JobFacts:
        """Return the settings that decide what slows a checkpoint down."""
        get, options = self.configuration.get, CheckpointingOptions
        interval = get(options.CHECKPOINTING_INTERVAL)
        return JobFacts(
            interval_ms=None if interval is None else interval.ms,
            timeout_ms=get(options.CHECKPOINTING_TIMEOUT).ms,
            unaligned=get(options.ENABLE_UNALIGNED),
            aligned_timeout_ms=get(options.ALIGNED_CHECKPOINT_TIMEOUT).ms,
            incremental=get(options.INCREMENTAL_CHECKPOINTS),
        )


Answer = tuple[int, dict[str, Any] | list[dict[str, Any]] | list[dict[str, str]] | str]
"""A status, and what is sent as JSON (or as text)."""

_JOB, _VERTEX = r"/jobs/(?P<job>[^/]+)", r"/jobs/(?P<job>[^/]+)/vertices/(?P<vertex>[^/]+)"


class JobApi:
    """Answers requests. `jobs` returns the served jobs by id. One thread calls `answer`."""

    def __init__(self, jobs: Callable[[], dict[str, ServedJob]]) -> None:
        self._jobs = jobs
        self._routes = [
            (method, re.compile(path), handler)
            for method, path, handler in (*self._driver_routes(), *self._job_routes(), *self._vertex_routes())
        ]

    def _driver_routes(self) -> list[_Route]:
        return [
            ("GET", "/config", self._config),
            ("GET", "/overview", self._driver_overview),
            # Flink's own pages ask for it. A driver here has jobs, and nothing above them.
            ("GET", "/applications/overview", lambda request: (200, {"applications": []})),
            ("GET", "/metrics", self._prometheus),
            ("GET", "/jobmanager/config", self._driver_config),
            ("GET", "/jobs", self._list),
            ("GET", "/jobs/overview", self._overview),
            ("GET", "/jobs/metrics", self._metrics_of_jobs),
            ("GET", "/taskmanagers", self._slots),
            ("GET", r"/taskmanagers/(?P<slot>[^/]+)", self._slot),
        ]

    def _job_routes(self) -> list[_Route]:
        return [
            ("GET", _JOB, self._details),
            ("PATCH", _JOB, self._terminate),
            ("GET", rf"{_JOB}/status", self._status_of_job),
            ("GET", rf"{_JOB}/plan", self._plan),
            ("GET", rf"{_JOB}/config", self._job_config),
            ("GET", rf"{_JOB}/jobmanager/config", self._entries),
            ("GET", rf"{_JOB}/exceptions", self._exceptions),
            ("GET", rf"{_JOB}/metrics", self._job_metrics),
            ("GET", rf"{_JOB}/accumulators", lambda request: (200, job_accumulators(request.job.report))),
            ("GET", rf"{_JOB}/summary", self._summary),
            ("GET", rf"{_JOB}/diagnosis", self._diagnosis),
            ("GET", rf"{_JOB}/cancellation/(?P<trigger>[^/]+)", self._cancellation_status),
            ("GET", rf"{_JOB}/checkpoints", self._checkpoints),
            ("POST", rf"{_JOB}/checkpoints", self._trigger_checkpoint),
            ("GET", rf"{_JOB}/checkpoints/config", self._checkpoint_config),
            ("GET", rf"{_JOB}/checkpoints/details/(?P<checkpoint>\d+)", self._checkpoint),
            (
                "GET",
                rf"{_JOB}/checkpoints/details/(?P<checkpoint>\d+)/subtasks/(?P<vertex>[^/]+)",
                self._checkpoint_of_vertex,
            ),
            ("GET", rf"{_JOB}/checkpoints/(?P<trigger>[^/]+)", self._checkpoint_status),
            ("POST", rf"{_JOB}/savepoints", self._trigger_savepoint),
            ("GET", rf"{_JOB}/savepoints/(?P<trigger>[^/]+)", self._savepoint_status),
            ("POST", rf"{_JOB}/stop", self._stop),
            ("PATCH", rf"{_JOB}/rescaling", self._rescale),
            ("GET", rf"{_JOB}/rescaling/(?P<trigger>[^/]+)", self._rescale_status),
            ("GET", rf"{_JOB}/rescales/history", self._rescales),
        ]

    def _vertex_routes(self) -> list[_Route]:
        return [
            ("GET", _VERTEX, lambda request: (200, request.view.details())),
            ("GET", rf"{_VERTEX}/backpressure", lambda request: (200, request.view.backpressure())),
            ("GET", rf"{_VERTEX}/watermarks", lambda request: (200, request.view.watermarks())),
            ("GET", rf"{_VERTEX}/subtasktimes", lambda request: (200, request.view.times())),
            ("GET", rf"{_VERTEX}/taskmanagers", lambda request: (200, request.view.slots())),
            ("GET", rf"{_VERTEX}/accumulators", lambda request: (200, request.view.accumulators())),
            (
                "GET",
                rf"{_VERTEX}/subtasks/accumulators",
                lambda request: (200, request.view.accumulators_by_subtask()),
            ),
            ("GET", rf"{_VERTEX}/metrics", self._metrics),
            ("GET", rf"{_VERTEX}/table", self._table),
            ("GET", rf"{_VERTEX}/subtasks/metrics", self._aggregated_metrics),
            ("GET", rf"{_VERTEX}/subtasks/(?P<subtask>\d+)", self._subtask),
            ("GET", rf"{_VERTEX}/subtasks/(?P<subtask>\d+)/attempts/(?P<attempt>\d+)", self._attempt),
            ("GET", rf"{_VERTEX}/subtasks/(?P<subtask>\d+)/metrics", self._metrics_of_subtask),
        ]

    def answer(self, method: str, target: str, body: bytes) -> Answer:
        """Return status and JSON for a request. Raises `RequestRefused`."""
        url = urlsplit(target)
        path = unquote(url.path).removeprefix("/v1").rstrip("/")
        others = []
        for allowed, pattern, handler in self._routes:
            match = pattern.fullmatch(path)
            if match is None:
                continue
            if allowed == method:
                return handler(_Request(match.groupdict(), parse_qs(url.query), body, self._job))
            others.append(allowed)
        if others:
            raise RequestRefused(405, f"{path} is asked with {' or '.join(others)}, not with {method}")
        raise RequestRefused(
            404, f"there is nothing at {path or '/'}: the paths are those of Flink's REST API below /jobs"
        )

    def _job(self, job_id: str) -> ServedJob:
        job = self._jobs().get(job_id)
        if job is None:
            running = ", ".join(self._jobs()) or "none"
            raise RequestRefused(404, f"there is no job {job_id} in this driver, whose jobs are: {running}")
        return job

    # ---- what is seen --------------------------------------------------------------------------------------------

    def served(self, job_id: str) -> ServedJob:
        """Return a served job. Raises `RequestRefused`."""
        return self._job(job_id)

    def summary(self, job: ServedJob) -> dict[str, Any]:
        """Return the first page of the dashboard: vertices, newest checkpoints, causes of trouble."""
        report, now = job.report, _now_wall_ms()
        return {
            "job": job_details(report, job.started_wall_ms, now)
            | {"restarts": report.restarts, "failures": sum(not recovery.is_rescale for recovery in report.recoveries)},
            "checkpoints": job.checkpoints(),
            "rescales": rescale_history(report),
            "accumulators": report.accumulators,
            "pressure": [vertex_pressure(vertex) for vertex in report.vertices],
            "findings": [finding.document() for finding in diagnose(report, job.facts)],
        }

    def _config(self, request: _Request) -> Answer:
        now = datetime.now().astimezone()
        offset = now.utcoffset() or timedelta(0)
        return 200, {
            "refresh-interval": 3000,
            "timezone-name": now.tzname() or "UTC",
            "timezone-offset": int(offset.total_seconds() * 1000),
            "flink-version": f"penstock {_version()}",
            "flink-revision": "",
            "features": {"web-submit": False, "web-cancel": True, "web-rescale": True, "web-history": False},
        }

    def _driver_overview(self, request: _Request) -> Answer:
        return 200, driver_overview([job.report for job in self._jobs().values()], _version())

    def _prometheus(self, request: _Request) -> Answer:
        jobs = [(job.report, job.started_wall_ms) for job in self._jobs().values()]
        return 200, exposition(jobs, socket.gethostname(), _now_wall_ms())

    def _driver_config(self, request: _Request) -> Answer:
        entries = {e["key"]: e for job in self._jobs().values() for e in configuration_entries(job.configuration)}
        return 200, list(entries.values())

    def _list(self, request: _Request) -> Answer:
        return 200, {"jobs": [job_status(job.report) for job in self._jobs().values()]}

    def _overview(self, request: _Request) -> Answer:
        now = _now_wall_ms()
        return 200, {"jobs": [job_overview(j.report, j.started_wall_ms, now) for j in self._jobs().values()]}

    def _metrics_of_jobs(self, request: _Request) -> Answer:
        wanted = request.listed("jobs")
        jobs = [job for job_id, job in self._jobs().items() if wanted is None or job_id in wanted]
        figures = [job_metrics(job.report, job.started_wall_ms, _now_wall_ms()) for job in jobs]
        return 200, aggregated(figures, request.listed("get"), request.aggregations)

    def _slots(self, request: _Request) -> Answer:
        return 200, slots_overview([job.report for job in self._jobs().values()])

    def _slot(self, request: _Request) -> Answer:
        shown = slot_details([job.report for job in self._jobs().values()], request.named["slot"])
        if shown is None:
            raise RequestRefused(404, f"there is no slot {request.named['slot']}: GET /taskmanagers lists them")
        return 200, shown

    def _details(self, request: _Request) -> Answer:
        return 200, job_details(request.job.report, request.job.started_wall_ms, _now_wall_ms())

    def _status_of_job(self, request: _Request) -> Answer:
        return 200, {"status": request.job.report.state}

    def _plan(self, request: _Request) -> Answer:
        return 200, {"plan": job_plan(request.job.report)}

    def _job_config(self, request: _Request) -> Answer:
        job, report = request.job, request.job.report
        return 200, job_settings(report.job_id, report.job_name, report.slots_needed, job.configuration)

    def _entries(self, request: _Request) -> Answer:
        return 200, configuration_entries(request.job.configuration)

    def _exceptions(self, request: _Request) -> Answer:
        maximum = request.query.get("maxExceptions", [str(_EXCEPTIONS)])[-1]
        if not maximum.isdecimal():
            raise RequestRefused(400, f"maxExceptions must be a whole number, not {maximum!r}")
        return 200, job_exceptions(request.job.report, int(maximum[:9]))

    def _job_metrics(self, request: _Request) -> Answer:
        job = request.job
        return 200, listed(job_metrics(job.report, job.started_wall_ms, _now_wall_ms()), request.listed("get"))

    def _summary(self, request: _Request) -> Answer:
        return 200, self.summary(request.job)

    def _diagnosis(self, request: _Request) -> Answer:
        job, number = request.job, request.query.get("checkpoint", [None])[-1]
        if number is not None and not number.isdecimal():
            raise RequestRefused(400, f"checkpoint must be a whole number, not {number!r}")
        checkpoint = None if number is None else request.checkpoint(int(number))
        return 200, {"findings": [finding.document() for finding in diagnose(job.report, job.facts, checkpoint)]}

    def _metrics(self, request: _Request) -> Answer:
        return 200, vertex_metrics(request.vertex, request.listed("get"))

    def _table(self, request: _Request) -> Answer:
        wanted = request.listed("get") or []
        rows = [
            {"subtask": number} | {name: figures[name] for name in wanted if name in figures}
            for number, figures in figures_of(request.vertex).items()
        ]
        return 200, {"subtasks": rows}

    def _aggregated_metrics(self, request: _Request) -> Answer:
        figures = figures_of(request.vertex)
        wanted = request.listed("subtasks")
        chosen = [f for number, f in figures.items() if wanted is None or str(number) in wanted]
        return 200, aggregated(chosen, request.listed("get"), request.aggregations)

    def _subtask(self, request: _Request) -> Answer:
        return 200, request.view.subtask(request.subtask)

    def _attempt(self, request: _Request) -> Answer:
        attempt, generation = request.named["attempt"], request.job.report.generation
        if attempt != str(generation):
            raise RequestRefused(404, f"attempt {attempt} is over: the job runs in its attempt {generation}")
        return self._subtask(request)

    def _metrics_of_subtask(self, request: _Request) -> Answer:
        return 200, listed(figures_of(request.vertex).get(request.subtask, {}), request.listed("get"))

    def _checkpoints(self, request: _Request) -> Answer:
        return 200, request.job.checkpoints()

    def _checkpoint_config(self, request: _Request) -> Answer:
        return 200, checkpoint_settings(request.job.configuration, request.job.directory)

    def _checkpoint(self, request: _Request) -> Answer:
        return 200, checkpoint_details(request.checkpoint(int(request.named["checkpoint"])), request.job.report)

    def _checkpoint_of_vertex(self, request: _Request) -> Answer:
        checkpoint, report = request.checkpoint(int(request.named["checkpoint"])), request.job.report
        return 200, checkpoint_of_vertex(checkpoint, request.vertex_number, report)

    # ---- what is asked for ---------------------------------------------------------------------------------------

    def _trigger_checkpoint(self, request: _Request) -> Answer:
        job = request.job
        request.fields(checkpointType=str, triggerId=str)
        if not job.takes_checkpoints:
            raise RequestRefused(400, "checkpointing is not enabled; set execution.checkpointing.interval")
        return _begun(job, _CHECKPOINT, request.trigger_id, lambda: _checkpoint_after_now(job))

    def _trigger_savepoint(self, request: _Request) -> Answer:
        names: dict[str, type] = {"target-directory": str, "cancel-job": bool, "formatType": str}
        given = request.fields(**names, triggerId=str, aligned=bool)
        _check_format(given)
        if given.get("cancel-job"):
            path = f"/jobs/{request.named['job']}/stop"
            raise RequestRefused(400, f"a job is not cancelled with a savepoint; to stop it with one, POST to {path}")
        job, directory, aligned = request.job, given.get("target-directory"), given.get("aligned")
        return _begun(
            job,
            _SAVEPOINT,
            request.trigger_id,
            lambda: _location(job.client.trigger_savepoint(directory, aligned=aligned)),
        )

    def _stop(self, request: _Request) -> Answer:
        given = request.fields(targetDirectory=str, drain=bool, formatType=str, triggerId=str, aligned=bool)
        _check_format(given)
        job, drain = request.job, given.get("drain", False)
        directory, aligned = given.get("targetDirectory"), given.get("aligned")
        return _begun(
            job,
            _SAVEPOINT,
            request.trigger_id,
            lambda: _location(job.client.stop_with_savepoint(drain, directory, aligned=aligned)),
        )

    def _rescale(self, request: _Request) -> Answer:
        given = request.fields(parallelism=dict, triggerId=str)
        asked = request.query.get("parallelism", [None])[-1]
        wanted: Any = given.get("parallelism")
        if (asked is None) == (wanted is None):
            raise RequestRefused(
                400, "give ?parallelism=<number>, or a body with parallelism by operator: {uid: number}"
            )
        if wanted is None:
            if asked is None or not asked.isdecimal():
                raise RequestRefused(400, f"parallelism must be a whole number, not {asked!r}")
            wanted = int(asked)
        job = request.job
        return _begun(job, _RESCALE, request.trigger_id, lambda: _done(job.client.rescale(wanted)))

    def _rescale_status(self, request: _Request) -> Answer:
        return _status(request, _RESCALE)

    def _rescales(self, request: _Request) -> Answer:
        return 200, {"rescales": rescale_history(request.job.report)}

    def _terminate(self, request: _Request) -> Answer:
        mode = request.query.get("mode", ["cancel"])[-1]
        if mode != "cancel":
            raise RequestRefused(
                400, f"mode={mode} is not known: mode=cancel cancels; POST to /jobs/{request.named['job']}/stop stops"
            )
        request.fields(triggerId=str)
        state = request.job.report.state
        if has_ended(request.job.report):
            raise RequestRefused(409, f"job {request.named['job']} has ended already ({state})")
        client, trigger_id = request.job.client, request.trigger_id
        if trigger_id is None:
            client.cancel()
            return 202, {}
        return _begun(request.job, _CANCELLATION, trigger_id, lambda: _cancelled(client))

    def _cancellation_status(self, request: _Request) -> Answer:
        return _status(request, _CANCELLATION)

    def _checkpoint_status(self, request: _Request) -> Answer:
        return _status(request, _CHECKPOINT)

    def _savepoint_status(self, request: _Request) -> Answer:
        return _status(request, _SAVEPOINT)


@dataclass(frozen=True)
class _Request:
    """Holds a request: the named parts of its path, its query, its body."""

    named: dict[str, str]
    query: dict[str, list[str]]
    body: bytes
    find: Callable[[str], ServedJob]

    @property
    def job(self) -> ServedJob:
        return self.find(self.named["job"])

    @property
    def vertex_number(self) -> int:
        """Return the vertex that the path names by its number, in 32 hex digits as in the job's details."""
        named, vertices = self.named["vertex"], self.job.report.vertices
        number = int(named, 16) if _TRIGGER_ID.fullmatch(named) else len(vertices)
        if number >= len(vertices):
            raise RequestRefused(404, f"there is no vertex {named}: GET /jobs/{self.named['job']} lists their ids")
        return number

    @property
    def vertex(self) -> VertexReport:
        return self.job.report.vertices[self.vertex_number]

    @property
    def view(self) -> VertexView:
        job, report = self.job, self.job.report
        since = last_change_wall_ms(report, job.started_wall_ms)
        return VertexView(report, self.vertex_number, since, _now_wall_ms())

    @property
    def subtask(self) -> int:
        number, parallelism = int(self.named["subtask"][:9]), self.vertex.parallelism
        if number >= parallelism:
            raise RequestRefused(404, f"there is no subtask {number}: the vertex has {parallelism}, counted from 0")
        return number

    @property
    def aggregations(self) -> list[str]:
        asked = self.listed("agg") or list(AGGREGATIONS)
        if unknown := [how for how in asked if how not in AGGREGATIONS]:
            raise RequestRefused(400, f"agg={unknown[0]} is none of {', '.join(AGGREGATIONS)}")
        return asked

    def checkpoint(self, number: int) -> CheckpointReport:
        """Return a checkpoint that the report remembers."""
        checkpoints = self.job.report.checkpoints
        for checkpoint in checkpoints:
            if checkpoint.checkpoint_id == number:
                return checkpoint
        known = ", ".join(str(checkpoint.checkpoint_id) for checkpoint in checkpoints) or "none"
        raise RequestRefused(
            404, f"checkpoint {number} is not remembered (those are: {known}); see web.checkpoints.history"
        )

    def listed(self, name: str) -> list[str] | None:
        """Return a parameter of the query that is a list with commas; None if it is not there."""
        given = self.query.get(name)
        return None if given is None else [item for text in given for item in text.split(",") if item]

    def fields(self, **types: type) -> dict[str, Any]:
        """Return the fields of the JSON body that are not null. Refuses unknown names and other types."""
        given = self._document()
        for name, value in given.items():
            if name not in types:
                raise RequestRefused(400, f"the body has an unknown field {name!r}; there are {', '.join(types)}")
            if value is not None and not isinstance(value, types[name]):
                kind = _KINDS[types[name]]
                raise RequestRefused(400, f"the field {name!r} must be {kind}, not {json.dumps(value)}")
        return {name: value for name, value in given.items() if value is not None}

    @property
    def trigger_id(self) -> str | None:
        given = self._document().get("triggerId")
        if given is not None and not _TRIGGER_ID.fullmatch(given):
            raise RequestRefused(400, f"triggerId must be 32 hex digits, not {given!r}")
        return given

    def _document(self) -> dict[str, Any]:
        try:
            document = json.loads(self.body) if self.body.strip() else {}
        except (ValueError, RecursionError) as error:
            raise RequestRefused(400, f"the body is not JSON: {error}") from None
        if not isinstance(document, dict):
            raise RequestRefused(400, "the body must be a JSON object")
        return document


def _begun(job: ServedJob, kind: str, trigger_id: str | None, begin: Callable[[], Outcome]) -> Answer:
    try:
        return 202, {"request-id": job.operations.begin(kind, trigger_id, begin)}
    except TooManyOperations as error:
        raise RequestRefused(503, str(error)) from None
    except TriggerIdInUse as error:
        raise RequestRefused(409, str(error)) from None


def _status(request: _Request, kind: str) -> Answer:
    status = request.job.operations.status(kind, request.named["trigger"])
    if status is None:
        raise RequestRefused(404, f"there is no {kind} with the trigger id {request.named['trigger']}")
    return 200, status


def _location(taken: CompletableFuture[str]) -> Outcome:
    def outcome() -> dict[str, Any] | None:
        if not taken.done():
            return None
        error = taken.exception()
        return {"location": taken.result()} if error is None else {"failure-cause": _cause(error)}

    return outcome


def _done(rescaled: CompletableFuture[None]) -> Outcome:
    def outcome() -> dict[str, Any] | None:
        if not rescaled.done():
            return None
        error = rescaled.exception()
        return {} if error is None else {"failure-cause": _cause(error)}

    return outcome


def _cancelled(client: JobClient) -> Outcome:
    """Cancel the job. It may end otherwise: its end may have begun before."""
    client.cancel()
    ended = client.get_job_execution_result()

    def outcome() -> dict[str, Any] | None:
        if not ended.done():
            return None
        error = ended.exception()
        if error is None:
            return {"failure-cause": _cause(JobExecutionError("the job has finished before it was cancelled"))}
        is_cancelled = isinstance(error, JobExecutionError) and error.status is JobStatus.CANCELED
        return {} if is_cancelled else {"failure-cause": _cause(error)}

    return outcome


def _checkpoint_after_now(job: ServedJob) -> Outcome:
    """Trigger a checkpoint. The outcome is the outcome of the next checkpoint that is triggered."""
    newest = max((checkpoint.checkpoint_id for checkpoint in job.report.checkpoints), default=-1)
    generation = job.report.generation
    accepted = job.client.trigger_checkpoint()

    def outcome() -> dict[str, Any] | None:
        refusal = accepted.exception() if accepted.done() else None
        if refusal is not None:
            return {"failureCause": _cause(refusal)}
        report = job.report
        for checkpoint in report.checkpoints:
            if checkpoint.checkpoint_id > newest and not checkpoint.is_savepoint:
                if checkpoint.status == "completed":
                    return {"checkpointId": checkpoint.checkpoint_id}
                if checkpoint.status == "failed":
                    return {"failureCause": {"class": "CheckpointFailed", "stack-trace": checkpoint.failure}}
        if has_ended(report):
            return {"failureCause": _cause(CheckpointFailed("the job has ended"))}
        if report.generation != generation:
            return {
                "failureCause": _cause(CheckpointFailed("the job has restarted, and dropped the request; try again"))
            }
        return None

    return outcome


def _cause(error: BaseException) -> dict[str, Any]:
    return {"class": type(error).__name__, "stack-trace": str(error)}


def _check_format(given: dict[str, Any]) -> None:
    name = given.get("formatType", "CANONICAL")
    if name.upper() not in _FORMATS:
        raise RequestRefused(400, f"formatType {name!r} is none of {', '.join(_FORMATS)}")


def _now_wall_ms() -> int:
    return int(time.time() * 1000)


def _version() -> str:
    from penstock import __version__

    return __version__


_Route = tuple[str, str, Callable[[_Request], Answer]]
