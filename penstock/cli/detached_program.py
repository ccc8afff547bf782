"""Runs a program in a process of its own, which outlives the terminal (`penstock run -d`)."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import typer

from penstock.rest.job_registry import RunningJob, registry_directory, running_jobs

_LOOK_S = 0.1
_SAY_EVERY_S = 15.0
_LAST_LINES = 20


def run_detached(program: Path, arguments: Sequence[str], options: dict[str, str]) -> int:
    """Start the program, and wait until its job runs: what fails at its start is shown here.

    Args:
        program: The file.
        arguments: What it is given.
        options: As for `penstock run -D`.

    Returns:
        0 once a job of the program is registered, or the program has ended well; else the program's exit code.
    """
    log = _log_file(program)
    defined = [part for key, value in options.items() for part in ("-D", f"{key}={value}")]
    command = [sys.executable, "-m", "penstock.cli.main", "run", *defined, str(program.absolute()), *arguments]
    with log.open("ab") as stream:
        started = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True
        )
    typer.echo(f"penstock: {program} runs as process {started.pid}; its log is {log}", err=True)
    job = _wait_for_job(started)
    if job is not None:
        typer.echo(job.job_id)
        typer.echo(f"penstock: job {job.job_id} ({job.job_name}) has started. {_ways(job)}", err=True)
        return 0
    code = started.returncode
    if code:
        typer.echo("".join(log.read_text(encoding="utf-8", errors="replace").splitlines(True)[-_LAST_LINES:]), err=True)
        typer.echo(f"penstock: {program} has ended with exit code {code}; above are the last lines of {log}", err=True)
    else:
        typer.echo(f"penstock: {program} has ended already; see {log}", err=True)
    return code


def _wait_for_job(started: subprocess.Popen[bytes]) -> RunningJob | None:
    """Return the job of a process, once it is registered; None if the process ends before. A job that waits for a
    store, as one with high availability does, is waited for: the user may leave by Ctrl-C, and it starts nevertheless.
    """
    said = time.monotonic()
    while True:
        found = next((job for job in running_jobs() if job.is_here and job.pid == started.pid), None)
        if found is not None or started.poll() is not None:
            return found
        if time.monotonic() - said >= _SAY_EVERY_S:
            said = time.monotonic()
            typer.echo("penstock: its job does not run yet; Ctrl-C ends the waiting, not the program", err=True)
        time.sleep(_LOOK_S)


def _ways(job: RunningJob) -> str:
    return (
        f"See it: penstock top {job.job_id}, or penstock dashboard {job.job_id}. "
        f"End it: penstock stop {job.job_id}, or penstock cancel {job.job_id}"
    )


def _log_file(program: Path) -> Path:
    folder = registry_directory().parent / "logs" if "PENSTOCK_REGISTRY_DIR" in os.environ else Path("~/.penstock/logs")
    folder = folder.expanduser()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder / f"{program.stem}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
