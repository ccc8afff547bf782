"""Prints tables about jobs and checkpoints, from the files in their directories."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Column, Table

from penstock.jobmaster.restore import check_segments
from penstock.protocol.values.log_entries import CheckpointEntry, Ended, Fence
from penstock.protocol.values.metadata import Metadata
from penstock.storage.layout import LOG_FOLDER, METADATA_NAME
from penstock.storage.log import Entry, look_at_log, read_log
from penstock.storage.metadata import read_metadata
from penstock.storage.opening import local_path, open_store
from penstock.storage.store import StoreError

_console = Console(soft_wrap=True, highlight=False)


def print_jobs(directory: str) -> None:
    """Print the jobs. Raises `StoreError` if `directory` is none."""
    root = Path(local_path(directory))
    if not root.is_dir():
        raise StoreError(f"{root} is no directory; give the one that execution.checkpointing.dir names")
    jobs = sorted(folder.parent for folder in root.glob(f"*/{LOG_FOLDER}"))
    if not jobs:
        _console.print(f"There are no jobs below {root}.")
        return
    columns = ("name", "state", "newest checkpoint", "retained", "age", "size")
    table = Table(Column("job id", min_width=32), *columns, box=None)
    reasons = []
    for job in jobs:
        size, seen = format_bytes(_size_of(job)), _Seen(job)
        try:
            look_at_log(open_store(str(job)), seen.look)
            state = _state(seen.log)
        except StoreError as error:
            state = "damaged"
            reasons.append(f"{job.name} is damaged: {error}")
        newest, retained = _newest(seen.log), _retained(seen.log)
        checkpoint = f"chk-{newest.checkpoint_id}" if newest else "none"
        age = _age(job / newest.path) if newest else ""
        table.add_row(job.name, seen.name, state, checkpoint, str(len(retained)), age, size)
    _console.print(table)
    for reason in reasons:
        _console.print(reason)


@dataclass
class _Seen:
    """Holds what was seen of a job, as far as it could be read."""

    job: Path
    log: list[Entry] = field(default_factory=list)
    name: str = ""

    def look(self, log: list[Entry]) -> None:
        """Look at the newest checkpoint. Raises `StoreError` if it is damaged."""
        self.log = log
        newest = _newest(log)
        if newest is not None and newest.path in _retained(log):
            metadata = _metadata(self.job, newest.path)
            self.name = metadata.job_name
            check_segments(open_store(str(self.job)), metadata)


def print_job(job: Path) -> None:
    """Print a job. Raises `StoreError` if `job` is no job's directory or its log is damaged."""
    if not (job / LOG_FOLDER).is_dir():
        raise StoreError(f"{job} is no job's directory: it has no {LOG_FOLDER}/")
    log = read_log(open_store(str(job)))
    retained = _retained(log)
    _console.print(f"job {job.name}: {_state(log)}, {format_bytes(_size_of(job))} in {job}")
    entries = Table("position", "entry", box=None, title="log", title_justify="left")
    for entry in log[-20:]:
        entries.add_row(str(entry.sequence), _describe(entry))
    _console.print(entries)
    if len(log) > 20:
        _console.print(f"  ({len(log) - 20} earlier entries)")
    table = Table(
        "checkpoint", "kind", "state", "in flight", "segments", "age", box=None, title="retained", title_justify="left"
    )
    for path in retained:
        try:
            table.add_row(*_row(job, path))
        except StoreError as error:
            table.add_row(path, f"unreadable: {error}")
    _console.print(table)


def print_checkpoint(folder: Path) -> None:
    """Print a checkpoint of a job. Raises `StoreError` if there is no readable one."""
    metadata = _metadata(folder.parent, f"{folder.name}/{METADATA_NAME}")
    _print_metadata(f"checkpoint {metadata.checkpoint_id}", metadata, folder.parent)


def print_savepoint(folder: Path) -> None:
    """Print a savepoint. Raises `StoreError` if there is no readable one."""
    metadata = _metadata(folder, METADATA_NAME)
    kind = "savepoint of a drained job" if metadata.drained else "savepoint"
    _print_metadata(f"{kind} {metadata.checkpoint_id}", metadata, folder)


def _print_metadata(title: str, metadata: Metadata, root: Path) -> None:
    """Print what a checkpoint consists of. `root`: the directory of its segments."""
    triggered = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(metadata.trigger_wall_ms / 1000))
    _console.print(f"{title} of job {metadata.job_id} ({metadata.job_name}), {triggered}")
    table = Table("vertex", "parallelism", "max", "state", "in flight", "kind", box=None)
    for vertex in metadata.vertices:
        mine = [s for s in metadata.subtasks if s.vertex == vertex.index]
        table.add_row(
            vertex.name,
            str(vertex.parallelism),
            str(vertex.max_parallelism),
            format_bytes(sum(s.state_bytes for s in mine)),
            format_bytes(sum(s.persisted_bytes for s in mine)),
            "unaligned" if any(s.unaligned for s in mine) else "aligned",
        )
    _console.print(table)
    for segment in metadata.segments:
        there = (root / segment.path).is_file()
        _console.print(f"  {segment.path}  {format_bytes(segment.length_bytes)}{'' if there else '  MISSING'}")


def _row(job: Path, path: str) -> Iterable[str]:
    metadata = _metadata(job, path)
    subtasks = metadata.subtasks
    return (
        path.partition("/")[0],
        "unaligned" if any(s.unaligned for s in subtasks) else "aligned",
        format_bytes(sum(s.state_bytes for s in subtasks)),
        format_bytes(sum(s.persisted_bytes for s in subtasks)),
        f"{len(metadata.segments)}, {format_bytes(sum(s.length_bytes for s in metadata.segments))}",
        _age(job / path),
    )


def _metadata(job: Path, path: str) -> Metadata:
    return read_metadata(open_store(str(job)), path)


def _newest(log: list[Entry]) -> CheckpointEntry | None:
    return next((entry for entry in reversed(log) if isinstance(entry, CheckpointEntry)), None)


def _retained(log: list[Entry]) -> list[str]:
    return next((entry.retained for entry in reversed(log) if isinstance(entry, (CheckpointEntry, Ended))), [])


def _state(log: list[Entry]) -> str:
    last = log[-1] if log else None
    if isinstance(last, Ended):
        return last.state
    if isinstance(last, CheckpointEntry) and last.is_final:
        return "FINISHED"
    return "open"


def _describe(entry: Entry) -> str:
    match entry:
        case Fence():
            since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.wall_ms / 1000))
            start = f", starting from {entry.restored_from}" if entry.restored_from else ""
            return f"fence: driver {entry.incarnation} (process {entry.pid} on {entry.host}) since {since}{start}"
        case CheckpointEntry():
            final = ", the last of the job" if entry.is_final else ""
            return f"checkpoint {entry.checkpoint_id} of generation {entry.fence}.{entry.counter}{final}"
        case Ended():
            return f"ended: {entry.state}, {len(entry.retained)} checkpoints kept"


def _size_of(folder: Path) -> int:
    """Sum the sizes of files; a driver may delete files, and whole folders, while they are counted."""
    size = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                size += os.stat(os.path.join(parent, name)).st_size
    return size


def format_bytes(size: int) -> str:
    """Write a size in its largest unit: "2.0 KiB"."""
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def _age(file: Path) -> str:
    try:
        return format_seconds(max(0.0, time.time() - file.stat().st_mtime))
    except OSError:
        return "missing"


def format_seconds(seconds: float) -> str:
    """Write a time in its largest unit: "3 min"."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
