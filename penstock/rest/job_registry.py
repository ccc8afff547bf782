"""Lists the user's running jobs: one file per job, which only this user can read, because it holds the job's token.

The file is there while the job runs. A driver that was killed leaves its file behind; whoever reads the registry sees
that the process is gone, and removes it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import stat
from pathlib import Path

import msgspec

DIRECTORY_VARIABLE = "PENSTOCK_REGISTRY_DIR"
_SUFFIX = ".json"


class RegistryError(Exception):
    """Signals that the registry's directory cannot be used. The message names it and the way out."""


class RunningJob(msgspec.Struct, frozen=True):
    """Describes a running job, and how to reach its driver. `directory`: the job's; None if it has none.

    `process_started` tells the driver from a later process with the same id; empty where the system does not say it.
    """

    job_id: str
    job_name: str
    pid: int
    process_started: str
    host: str
    url: str
    token: str
    directory: str | None
    started_wall_ms: int

    def __repr__(self) -> str:
        return f"RunningJob({self.job_id}, {self.job_name!r}, {self.url})"

    @property
    def is_here(self) -> bool:
        """Return True if its driver runs on this machine."""
        return self.host == socket.gethostname()

    @property
    def is_gone(self) -> bool:
        """Return True if its driver ran on this machine, and has ended."""
        return self.is_here and process_started(self.pid) not in (self.process_started, "")


def dashboard_address(job: RunningJob) -> str:
    """Return the address that opens the job's dashboard. Browsers send no part of it behind `#` anywhere."""
    return f"{job.url}/ui/#token={job.token}"


def registry_directory() -> Path:
    """Return the directory in which this process registers its jobs."""
    return _directories()[0]


def register(job: RunningJob) -> Path:
    """Write the job's file, in one step; return its path. Raises `RegistryError`."""
    directory = registry_directory()
    file = directory / f"{job.job_id}{_SUFFIX}"
    temporary = directory / f".{job.job_id}.{secrets.token_hex(4)}"
    try:
        _prepare(directory)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with open(descriptor, "wb") as stream:
                stream.write(msgspec.json.encode(job))
            os.replace(temporary, file)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise RegistryError(
            f"cannot register the job in {directory}: {error.strerror or error}. Set ${DIRECTORY_VARIABLE} to a "
            "directory of yours"
        ) from error
    return file


def unregister(job: RunningJob, file: Path) -> None:
    """Remove the job's file, unless another driver has taken the job over and written its own."""
    with contextlib.suppress(OSError):
        if _read(file) == job:
            file.unlink()


def running_jobs() -> list[RunningJob]:
    """Return the user's running jobs, oldest first, and remove the files of those whose driver is gone."""
    found: dict[str, RunningJob] = {}
    for directory in _directories():
        for file in directory.glob(f"*{_SUFFIX}"):
            with contextlib.suppress(OSError):
                job = _read(file)
                if job is None:
                    continue
                if job.is_gone:
                    file.unlink()
                else:
                    found.setdefault(job.job_id, job)
    return sorted(found.values(), key=lambda job: (job.started_wall_ms, job.job_id))


def process_started(pid: int) -> str | None:
    """Return the start time of a process, as the system counts; "" if it does not say, None if there is no process."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError):  # another user's process cannot be a driver of ours
        return None
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return ""
    state, started = fields[0], fields[19]
    return None if state in "ZX" else started


def _directories() -> list[Path]:
    """Return the directories in which jobs are registered: first where this process does it, then where other sessions
    of the user do."""
    given = os.environ.get(DIRECTORY_VARIABLE)
    if given:
        return [Path(given).absolute()]
    at_home = Path("~/.penstock/jobs").expanduser()
    session = os.environ.get("XDG_RUNTIME_DIR")
    return [Path(session) / "penstock", at_home] if session and Path(session).is_dir() else [at_home]


def _prepare(directory: Path) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = directory.stat()
    if status.st_uid != os.geteuid():
        raise RegistryError(
            f"cannot register the job in {directory}: it belongs to user {status.st_uid}. Set ${DIRECTORY_VARIABLE} to "
            "a directory of yours"
        )
    if stat.S_IMODE(status.st_mode) & 0o077:
        raise RegistryError(
            f"cannot register the job in {directory}: other users may open it, and it holds tokens. Run chmod 700 "
            f"{directory}, or set ${DIRECTORY_VARIABLE} to another directory"
        )


def _read(file: Path) -> RunningJob | None:
    """Return the job that the file describes; None if it is not readable as one, or another user has written it."""
    with file.open("rb") as stream:
        if os.fstat(stream.fileno()).st_uid != os.geteuid():
            return None
        try:
            return msgspec.json.decode(stream.read(), type=RunningJob)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
