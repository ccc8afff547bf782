"""Prints tables about jobs and checkpoints, from the files in their directories."""

from __future__ import annotations

import posixpath
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Column, Table

from penstock.cli.store_access import has_object, open_store
from penstock.protocol.values.log_entries import CheckpointEntry, Ended, Fence, stopped_with
from penstock.protocol.values.metadata import Metadata
from penstock.storage.damage import check_segments, kind_of
from penstock.storage.layout import LOG_FOLDER, METADATA_NAME, log_path
from penstock.storage.location import location, parent_of
from penstock.storage.log import Entry, look_at_log, read_log
from penstock.storage.metadata_file import read_metadata
from penstock.storage.store import DirectoryMissing, Found, StoreError

_console = Console(soft_wrap=True, highlight=False, markup=False)


def print_jobs(directory: str) -> None:
    """Print the jobs. Raises `StoreError` if `directory` is none."""
    root = location(directory)
    try:
        store = open_store(root)
    except DirectoryMissing as error:
        raise StoreError(f"{error}; give the directory that execution.checkpointing.dir names") from None
    jobs = [name for name in store.folders("") if LOG_FOLDER in store.folders(name)]
    if not jobs:
        _console.print(f"There are no jobs below {root}.")
        return
    columns = ("name", "state", "newest checkpoint", "retained", "age", "size")
    table = Table(Column("job id", min_width=32), *columns, box=None)
    reasons = []
    for name in jobs:
        job = posixpath.join(root, name)
        seen, objects = _Seen(job), list[Found]()
        try:
            objects = open_store(job).objects("")
            look_at_log(open_store(job), seen.look)
            state = _state(seen.log)
        except StoreError as error:
            state = kind_of(error)
            reasons.append(f"{name} is {state}: {error}")
        size = format_bytes(size_of(objects))
        table.add_row(name, seen.name, state, *_newest_cells(seen.log, objects), size)
        if seen.log and isinstance(seen.log[-1], Ended) and (savepoint := stopped_with(seen.log)) is not None:
            reasons.append(f"{name} was stopped with the savepoint {savepoint}")
    _console.print(table)
    for reason in reasons:
        _console.print(reason)


@dataclass
class _Seen:
    """Holds the readable facts of a job."""

    job: str
    log: list[Entry] = field(default_factory=list)
    name: str = ""

    def look(self, log: list[Entry]) -> None:
        """Look at the newest checkpoint. Raises `StoreError` if it is damaged."""
        self.log = log
        self.name = next((e.job_name for e in reversed(log) if isinstance(e, Fence | Ended) and e.job_name), "")
        newest = _newest(log)
        if newest is not None and newest.path in _retained(log):
            metadata = _metadata(self.job, newest.path)
            self.name = metadata.job_name
            check_segments(open_store(self.job), metadata)


def print_job(job: str) -> None:
    """Print a job. Raises `StoreError` if `job` is no job's directory or its log is damaged."""
    store = open_store(job)
    if LOG_FOLDER not in store.folders(""):
        raise StoreError(f"{job} is no job's directory: it has no {LOG_FOLDER}/")
    log = read_log(store)
    retained, objects = _retained(log), store.objects("")
    _console.print(f"job {posixpath.basename(job)}: {_state(log)}, {format_bytes(size_of(objects))} in {job}")
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
            table.add_row(*_row(job, path, objects))
        except StoreError as error:
            table.add_row(path, f"{kind_of(error)}: {error}")
    _console.print(table)


def print_checkpoint(folder: str) -> None:
    """Print a checkpoint of a job. Raises `StoreError` if there is no readable one."""
    job = parent_of(folder)
    metadata = _metadata(job, f"{posixpath.basename(folder)}/{METADATA_NAME}")
    _print_metadata(f"checkpoint {metadata.checkpoint_id}", metadata, job)


def print_savepoint(folder: str) -> None:
    """Print a savepoint. Raises `StoreError` if there is no readable one."""
    metadata = _metadata(folder, METADATA_NAME)
    kind = "savepoint of a drained job" if metadata.drained else "savepoint"
    _print_metadata(f"{kind} {metadata.checkpoint_id}", metadata, folder)


def _print_metadata(title: str, metadata: Metadata, root: str) -> None:
    """Print the parts of a checkpoint. `root`: the directory of its segments."""
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
    store = open_store(root)
    for segment in metadata.segments:
        there = has_object(store, segment.path)
        _console.print(f"  {segment.path}  {format_bytes(segment.length_bytes)}{'' if there else '  MISSING'}")


def _row(job: str, path: str, objects: list[Found]) -> Iterable[str]:
    metadata = _metadata(job, path)
    subtasks = metadata.subtasks
    return (
        path.partition("/")[0],
        "unaligned" if any(s.unaligned for s in subtasks) else "aligned",
        format_bytes(sum(s.state_bytes for s in subtasks)),
        format_bytes(sum(s.persisted_bytes for s in subtasks)),
        f"{len(metadata.segments)}, {format_bytes(sum(s.length_bytes for s in metadata.segments))}",
        _age(objects, path),
    )


def _metadata(job: str, path: str) -> Metadata:
    return read_metadata(open_store(job), path)


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


def _newest_cells(log: list[Entry], objects: list[Found]) -> tuple[str, str, str]:
    """Return the newest checkpoint, how many are retained, and the age: of the job's end if no checkpoint is left."""
    newest, retained = _newest(log), _retained(log)
    if newest is not None and newest.path in retained:
        return f"chk-{newest.checkpoint_id}", str(len(retained)), _age(objects, newest.path)
    last = log[-1] if log else None
    age = _age(objects, log_path(last.sequence)) if isinstance(last, Ended) else ""
    return "none", str(len(retained)), age


def _describe(entry: Entry) -> str:
    match entry:
        case Fence():
            since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.wall_ms / 1000))
            start = f", starting from {entry.restored_from}" if entry.restored_from else ""
            return f"fence: driver {entry.incarnation} (process {entry.pid} on {entry.host}) since {since}{start}"
        case CheckpointEntry():
            final = ", the last of the job" if entry.is_final else ""
            final += f", which was stopped with the savepoint {entry.savepoint}" if entry.savepoint else ""
            return f"checkpoint {entry.checkpoint_id} of generation {entry.fence}.{entry.counter}{final}"
        case Ended():
            return f"ended: {entry.state}, {len(entry.retained)} checkpoints kept"


def size_of(objects: list[Found]) -> int:
    """Sum the sizes of objects."""
    return sum(found.size_bytes for found in objects)


def format_bytes(size: int) -> str:
    """Write a size in its largest unit: "2.0 KiB"."""
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def _age(objects: list[Found], path: str) -> str:
    found = next((each for each in objects if each.path == path), None)
    return "missing" if found is None else format_seconds(max(0.0, time.time() - found.modified_s))


def format_seconds(seconds: float) -> str:
    """Write a time in its largest unit: "3 min"."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
