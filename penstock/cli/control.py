"""Asks running jobs for savepoints, stops and cancellations, and shows what their drivers say of checkpoints."""

from __future__ import annotations

import contextlib
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console
from rich.table import Table

from penstock.cli.checkpoint_tables import format_bytes, format_seconds
from penstock.common.time import Duration
from penstock.rest.job_registry import RunningJob, running_jobs
from penstock.rest.rest_client import DriverUnreachable, RequestFailed, RestClient
from penstock.storage.location import location

_POLL_S = (0.05, 0.5)
_LINE_EVERY_S = 30.0
_GONE = 404
_COLUMNS_MAX = 1000
_TIMEOUT_LIMIT = "and execution.checkpointing.timeout limits each of its steps"
_DRAIN_LIMIT = "until all that its sources have read is processed, without a limit (`penstock cancel` ends that)"


class ControlFailed(Exception):
    """Signals that a request to a job was not executed, or that nobody knows. The message says the way out."""


def take_savepoint(
    job: RunningJob, directory: str | None, aligned: bool | None, format_type: str, timeout: Duration
) -> str:
    """Take a savepoint; return its directory. Raises `ControlFailed`."""
    fields = {"target-directory": _absolute(directory), "aligned": aligned, "formatType": format_type}
    return _directory_of(job, "/savepoints", fields, f"the savepoint of job {job.job_id} ({job.job_name})", timeout)


def stop_job(
    job: RunningJob, directory: str | None, drain: bool, aligned: bool | None, format_type: str, timeout: Duration
) -> str:
    """Stop the job with a savepoint; return its directory. Raises `ControlFailed`."""
    target = _absolute(directory)
    fields = {"targetDirectory": target, "drain": drain, "aligned": aligned, "formatType": format_type}
    what = f"job {job.job_id} ({job.job_name}) to {'process what it has, and to ' if drain else ''}stop"
    return _directory_of(job, "/stop", fields, what, timeout, _DRAIN_LIMIT if drain else _TIMEOUT_LIMIT)


def rescale_job(job: RunningJob, parallelism: int | dict[str, int], timeout: Duration) -> None:
    """Rescale the job, and wait until it runs so. Raises `ControlFailed`."""
    client, what = RestClient(job), f"job {job.job_id} ({job.job_name}) to be rescaled"
    if isinstance(parallelism, int):
        begun = asked(lambda: client.patch(f"/rescaling?parallelism={parallelism}"))
    else:
        begun = asked(lambda: client.patch("/rescaling", parallelism=parallelism))
    for _ in _waiting(what, timeout):
        operation = asked(lambda: client.get(f"/rescaling/{begun['request-id']}")).get("operation")
        if operation is not None:
            if "failure-cause" in operation:
                raise ControlFailed(str(operation["failure-cause"]["stack-trace"]))
            return
    raise ControlFailed(f"waited {timeout} for {what}; it waits for slots, or for the job to run, and is not given up")


def cancel_job(job: RunningJob, timeout: Duration) -> bool:
    """Cancel the job, and wait until its driver has released its slots. Return whether its driver has said that it is
    cancelled, before it ended. Raises `ControlFailed`, also if the job has ended otherwise."""
    client, trigger = RestClient(job), secrets.token_hex(16)
    asked(lambda: client.patch("?mode=cancel", triggerId=trigger))
    operation = None
    for _ in _waiting(f"job {job.job_id} ({job.job_name}) to end", timeout):
        has_ended = job not in running_jobs()
        if operation is None:
            # A driver that has ended says nothing: the registry does.
            with contextlib.suppress(DriverUnreachable, RequestFailed):
                operation = client.get(f"/cancellation/{trigger}").get("operation")
        if operation is not None and "failure-cause" in operation:
            how = operation["failure-cause"]["stack-trace"]
            raise ControlFailed(f"job {job.job_id} is not cancelled, it has ended otherwise: {how}")
        if has_ended:
            return operation is not None
    raise ControlFailed(
        f"job {job.job_id} has not ended within {timeout}; it is cancelled, and its slots may hang in user code. "
        f"Wait, or end its driver: kill {job.pid}"
    )


def print_running_jobs() -> bool:
    """Print the user's running jobs; return False if there are none."""
    jobs = running_jobs()
    if not jobs:
        return False
    columns = ("name", "state", "for", "process", "newest checkpoint", "directory")
    table = Table("job id", *columns, box=None, title="running", title_justify="left")
    for job in jobs:
        age = format_seconds(max(0.0, time.time() - job.started_wall_ms / 1000))
        where = str(job.pid) if job.is_here else f"{job.pid} on {job.host}"
        try:
            client = RestClient(job, timeout_s=5.0)
            state = client.get()["state"]
            latest = client.get("/checkpoints")["latest"]["completed"]
            newest = f"{latest['id']}" if latest else "none"
        except (DriverUnreachable, RequestFailed):
            state, newest = "does not answer", ""
        table.add_row(job.job_id, job.job_name, state, age, where, newest, job.directory or "")
    _console().print(table)
    return True


def print_checkpoints(job: RunningJob) -> None:
    """Print the newest checkpoints of a running job, newest first. Raises `ControlFailed`."""
    statistics = asked(lambda: RestClient(job).get("/checkpoints"))
    counts = statistics["counts"]
    console = _console()
    console.print(
        f"job {job.job_id} ({job.job_name}): {counts['completed']} checkpoints completed, {counts['failed']} failed, "
        f"{counts['in_progress']} in progress"
    )
    columns = ("checkpoint", "kind", "status", "age", "duration", "state", "in flight", "written", "path")
    table = Table(*columns, box=None)
    for checkpoint in statistics["history"]:
        kind = "unaligned" if checkpoint["unaligned_checkpoint"] else "aligned"
        duration = checkpoint["end_to_end_duration"]
        table.add_row(
            str(checkpoint["id"]),
            f"{kind} savepoint" if checkpoint["is_savepoint"] else kind,
            checkpoint["status"].lower().replace("_", " "),
            format_seconds(max(0.0, time.time() - checkpoint["trigger_timestamp"] / 1000)),
            "" if duration < 0 else f"{duration} ms",
            format_bytes(checkpoint["state_size"]),
            format_bytes(checkpoint["persisted_data"]),
            format_bytes(checkpoint["checkpointed_size"]),
            checkpoint.get("external_path") or checkpoint.get("failure_message") or "",
        )
    console.print(table)


def _directory_of(
    job: RunningJob, path: str, fields: dict[str, Any], what: str, timeout: Duration, limit: str = _TIMEOUT_LIMIT
) -> str:
    """Ask for a savepoint, and wait for its directory. `limit`: how long the job works on it."""
    client = RestClient(job)
    trigger = asked(lambda: client.post(path, **fields))["request-id"]
    for _ in _waiting(what, timeout):
        answer = asked(lambda: client.get(f"/savepoints/{trigger}"), ending=path == "/stop")
        operation = answer.get("operation")
        if operation is not None and "location" in operation:
            return str(operation["location"])
        if operation is not None:
            raise ControlFailed(str(operation["failure-cause"]["stack-trace"]))
    raise ControlFailed(
        f"waited {timeout} for {what}; the job still works on it, {limit}. See `penstock checkpoints "
        f"{job.job_id}`, which shows its directory once it is complete"
    )


def asked(ask: Callable[[], Any], ending: bool = False) -> Any:
    """Ask the driver; turn its errors into ours. `ending`: the job may have ended since the last answer."""
    try:
        return ask()
    except DriverUnreachable as error:
        way_out = "it may have ended: its own terminal says how" if ending else "is its process stopped, or ending?"
        raise ControlFailed(f"{error}; {way_out}") from None
    except RequestFailed as error:
        if error.status == _GONE and ending:
            raise ControlFailed(f"the job has ended without an answer; its own terminal says how: {error}") from None
        raise ControlFailed(str(error)) from None


def _waiting(what: str, timeout: Duration) -> Iterator[None]:
    """Yield at growing intervals until the time is over, and show on stderr how long it has taken."""
    began = time.monotonic()
    until, pause_s, said = began + timeout.ms / 1000, _POLL_S[0], began
    terminal = sys.stderr.isatty()
    try:
        while True:
            yield
            now = time.monotonic()
            if now >= until:
                return
            text = f"penstock: waiting for {what}, {now - began:.0f} s"
            if terminal and now - began > 1:
                print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
            elif now - said >= _LINE_EVERY_S:
                said = now
                print(text, file=sys.stderr, flush=True)
            time.sleep(min(pause_s, until - now))
            pause_s = min(2 * pause_s, _POLL_S[1])
    finally:
        if terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _absolute(directory: str | None) -> str | None:
    """Make a path absolute: the driver has another working directory."""
    return None if directory is None else location(directory)


def _console() -> Console:
    """Return a console that cuts nothing: ids and paths are there to be copied."""
    return Console(soft_wrap=True, highlight=False, markup=False, width=_COLUMNS_MAX)
