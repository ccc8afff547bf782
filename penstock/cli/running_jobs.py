"""Finds the running job that a user names: by its id, the beginning of it, its name, or its directory."""

from __future__ import annotations

import os
import posixpath
import pwd
from urllib.parse import urlsplit

from penstock.cli.store_access import open_store
from penstock.protocol.values.log_entries import CheckpointEntry, Ended, Fence
from penstock.rest.job_registry import RunningJob, registry_directory, running_jobs
from penstock.storage.layout import LOG_FOLDER
from penstock.storage.location import is_local, location
from penstock.storage.log import read_log
from penstock.storage.store import StoreError

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class NoSuchJob(Exception):
    """Signals that no running job, or more than one, is meant. The message says what runs, and the way out."""


def find_job(named: str) -> RunningJob:
    """Return the job. Raises `NoSuchJob`."""
    jobs = running_jobs()
    for found in (
        [job for job in jobs if job.job_id == named],
        [job for job in jobs if job.directory is not None and _is_same_folder(job.directory, named)],
        [job for job in jobs if job.job_name == named],
        [job for job in jobs if named and job.job_id.startswith(named)],
    ):
        if len(found) > 1:
            raise NoSuchJob(f"{named!r} may be {_listed(found)}: give an id, or as much of it as tells them apart")
        if found:
            return _reachable(found[0])
    folder = _folder(named)
    if folder is not None and _has_log(folder):
        raise NoSuchJob(_why_not_running(folder))
    runs = f"running are {_listed(jobs)}" if jobs else f"none runs ({registry_directory()} lists them)"
    raise NoSuchJob(
        f"no running job of yours is called {named!r}: {runs}. A job of another user or machine can only be reached "
        "there"
    )


def _reachable(job: RunningJob) -> RunningJob:
    if not job.is_here and urlsplit(job.url).hostname in _LOOPBACK:
        raise NoSuchJob(
            f"job {job.job_id} ({job.job_name}) runs on {job.host}, and listens there only ({job.url}): run this "
            f"command on {job.host}, or start the job with rest.address, an address that this machine can reach"
        )
    return job


def _has_log(folder: str) -> bool:
    if is_local(folder):
        return os.path.isdir(os.path.join(folder, LOG_FOLDER))
    try:
        return LOG_FOLDER in open_store(folder).folders("")
    except StoreError as error:
        raise NoSuchJob(f"no running job of yours has the directory {folder}, and {error}") from None


def _why_not_running(folder: str) -> str:
    """Say of a job that has a directory, but is not among the running ones, what its log knows."""
    resume = f"penstock run -s {folder} <program>"
    try:
        log = read_log(open_store(folder))
    except StoreError as error:
        return f"the job of {folder} is not running, and its log cannot be read: {error}"
    last = log[-1] if log else None
    if isinstance(last, Ended):
        way_out = f"; resume it with: {resume}" if last.retained else ""
        return f"job {posixpath.basename(folder)} is not running: it has ended ({last.state}){way_out}"
    if isinstance(last, CheckpointEntry) and last.is_final:
        return f"job {posixpath.basename(folder)} is not running: it has ended (FINISHED)"
    fence = next((entry for entry in reversed(log) if isinstance(entry, Fence)), None)
    where = "" if fence is None else f" Its driver was process {fence.pid} on {fence.host}."
    return (
        f"job {posixpath.basename(folder)} is not among your running jobs.{where} If it still runs, give this command "
        f"there, as {_owner(folder)}; if not, resume it with: {resume}"
    )


def _owner(folder: str) -> str:
    if not is_local(folder):
        return "the user who runs it"
    user = os.stat(folder).st_uid
    try:
        return f"user {pwd.getpwuid(user).pw_name}"
    except KeyError:
        return f"user {user}"


def _folder(named: str) -> str | None:
    try:
        return os.path.realpath(location(named)) if is_local(named) else location(named)
    except (StoreError, ValueError):
        return None


def _is_same_folder(directory: str, named: str) -> bool:
    folder = _folder(named)
    return folder is not None and folder == _folder(directory)


def _listed(jobs: list[RunningJob]) -> str:
    return ", ".join(f"{job.job_id} ({job.job_name})" for job in jobs)
