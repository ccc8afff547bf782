"""Tests what a savepoint that fails leaves behind: nothing of its own, and everything else."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterable
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from penstock.common.job_execution import SavepointFailed
from penstock.common.row_types.composite_types import RowType
from penstock.common.types import Types
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.base import encode_split
from penstock.jobmaster.identity import JobIdentity
from penstock.jobmaster.ports import SavepointOrder
from penstock.jobmaster.reports import CheckpointHistory
from penstock.jobmaster.savepoints import NAMES_MAX, Savepoints
from penstock.protocol.driver.driver_effects import PublishCheckpoint
from penstock.protocol.driver.savepoint import Savepoint
from penstock.protocol.values.elements import Barrier, Generation, SnapshotKind
from penstock.protocol.values.metadata import (
    FORMAT_VERSION,
    EnumeratorState,
    Metadata,
    Segment,
    StateRange,
    SubtaskSnapshot,
)
from penstock.spark.frames.frame_files import FrameFiles
from penstock.storage import local_files
from penstock.storage.layout import FRAMES_FOLDER, FRAMES_MANIFEST, METADATA_NAME, savepoint_segment_path
from penstock.storage.local import LocalStore
from tests.unit.jobmaster.manual_ports import ManualClock, QueuedWork
from tests.unit.runtime.jobs.small_job import CommittedRows, graph_of

FRAMES = f"{FRAMES_FOLDER}/rows-1"
TIMEOUT_MS = 5000.0


class AtOnce:
    def submit(self, name: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        try:
            result = work()
        except Exception as error:
            result = error
        done(result)


class World:
    """A job that reads the rows of a DataFrame, and takes one savepoint, of which slot 0 has written its segment."""

    def __init__(self, folder: Path, names: Iterable[str] = ("one",), work: Any = None, stops: bool = False) -> None:
        names = cycle(names)
        self.answers: list[str | SavepointFailed] = []
        self.warnings: list[str] = []
        self.asked: list[Savepoint] = []
        self.outcomes: list[str | None] = []
        self.clock = ManualClock()
        (folder / "job" / FRAMES).mkdir(parents=True)
        for name in ("part-0.arrow", ".part-0.arrow.crc", FRAMES_MANIFEST):
            (folder / "job" / FRAMES / name).write_text(name)
        source = FrameFiles(str(folder / "job"), FRAMES, RowType((Types.LONG(),), ("a",)))
        strategy: Any = WatermarkStrategy.no_watermarks()
        graph = graph_of(lambda env: env.from_source(source, strategy, "rows").sink_to(CommittedRows()))
        self._source = graph.vertices[0].operators[0].uid
        self.savepoints = Savepoints(
            graph,
            JobIdentity("a" * 32, str(folder / "job")),
            CheckpointHistory(10, str(folder / "job")),
            work or AtOnce(),
            self.clock,
            TIMEOUT_MS,
            lambda directory, create: LocalStore(directory, create_root=create),
            str(folder / "savepoints"),
            lambda: next(names),
            self.asked.append,
            self.warnings.append,
        )
        if work is not None:
            return
        self.savepoints.order(SavepointOrder(self.answers.append, stops=stops))
        self.on_made()

    def on_made(self) -> None:
        """Do as slot 0 does when the savepoint is triggered."""
        (self.savepoint,) = self.asked
        self.directory = Path(self.savepoint.directory)
        self.segment = savepoint_segment_path(0, 1, "ab")
        LocalStore(self.directory).put(self.segment, [b"state"])

    def write(self) -> str | None:
        """Do as when all slots have acknowledged it. Return why it failed; None: it has not."""
        barrier = Barrier(1, None, kind=SnapshotKind.SAVEPOINT)
        publish = PublishCheckpoint(barrier, Generation(0, 1), (), 0.0, False, self.savepoint)
        segments = [Segment(self.segment, 5)]
        state = StateRange("a" * 32, "counts", 0, 0, 5, 0, 1)
        subtasks = [SubtaskSnapshot(0, 0, [], [], [], [state], [], [], [])]
        enumerators = [EnumeratorState(self._source, encode_split({"folder": FRAMES, "splits": []}))]
        metadata = Metadata(
            FORMAT_VERSION, "a" * 32, "job", 1, 0, 1, "inc", 0, False, [], [], segments, subtasks, enumerators, []
        )  # fmt: skip
        self.savepoints.write(publish, metadata, self.outcomes.append)
        return self.outcomes[-1] if self.outcomes else None

    def begin_to_write(self, work: QueuedWork) -> None:
        """Order a savepoint, and leave the writing of it among the work to be done."""
        self.savepoints.order(SavepointOrder(self.answers.append))
        work.run_one()
        self.on_made()
        self.write()

    def files(self) -> list[str]:
        return sorted(p.relative_to(self.directory).as_posix() for p in self.directory.rglob("*") if p.is_file())


def test_a_complete_savepoint_has_all_that_a_restore_reads(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert world.write() is None
    world.savepoints.succeeded(world.savepoint)
    world.savepoints.discard(str(world.directory), [savepoint_segment_path(0, 1, "late")])
    names = [f"{FRAMES}/{FRAMES_MANIFEST}", f"{FRAMES}/part-0.arrow", METADATA_NAME, "s0_c1_ab"]
    assert world.files() == sorted(names) and world.answers == [str(world.directory)]


def test_one_that_its_slots_decline_leaves_no_directory(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.savepoints.failed(world.savepoint, "declined by subtask 1 of 'rows'")
    assert not world.directory.exists() and world.directory.parent.is_dir()
    (answer,) = world.answers
    assert "was not taken: declined by subtask 1 of 'rows'" in str(answer)
    world.savepoints.discard(str(world.directory), [savepoint_segment_path(1, 1, "late")])
    assert not world.warnings, "a segment that comes late finds no directory"


def test_one_whose_disk_is_full_leaves_no_copies_of_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path)

    def full(descriptor: int, parts: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(local_files, "_write_all", full)
        why = world.write()
    assert why is not None and "the disk is full" in why and str(world.directory) in why
    assert f"{FRAMES}/part-0.arrow" in world.files()
    world.savepoints.failed(world.savepoint, why)
    assert not world.directory.exists() and not world.warnings
    assert (tmp_path / "job" / FRAMES / "part-0.arrow").exists(), "the job reads it"


def test_one_whose_directory_is_removed_fails_and_nothing_is_left_to_do(tmp_path: Path) -> None:
    world = World(tmp_path)
    shutil.rmtree(world.directory)
    why = world.write()
    assert why is not None and f"the savepoint {world.directory} could not be written" in why
    world.savepoints.failed(world.savepoint, why)
    assert isinstance(world.answers[0], SavepointFailed) and not world.warnings
    assert not world.directory.exists(), "the copies of the sources that made it again are gone, too"


def test_one_that_has_lost_a_segment_is_not_called_complete(tmp_path: Path) -> None:
    world = World(tmp_path)
    (world.directory / world.segment).unlink()
    why = world.write()
    assert why is not None and world.segment in why and "does not exist" in why
    assert METADATA_NAME not in world.files()


def test_what_somebody_else_has_put_there_stays(tmp_path: Path) -> None:
    world = World(tmp_path)
    (world.directory / "notes.txt").write_text("mine")
    world.savepoints.failed(world.savepoint, "the job failed over; try again")
    assert world.files() == ["notes.txt"]


def test_one_that_may_be_in_the_log_of_a_job_that_has_ended_is_kept(tmp_path: Path) -> None:
    world = World(tmp_path, stops=True)
    assert world.write() is None
    world.savepoints.fail_all("the job has ended")
    assert METADATA_NAME in world.files() and isinstance(world.answers[0], SavepointFailed)


def test_one_that_is_written_while_its_job_ends_is_not_there_when_it_was_called_not_taken(tmp_path: Path) -> None:
    work = QueuedWork()
    world = World(tmp_path, work=work)
    world.begin_to_write(work)
    world.savepoints.fail_all("the job has ended")
    assert "was not taken: the job has ended" in str(world.answers[0])
    while work.run_one():
        pass
    assert not world.directory.exists() and not world.outcomes


def test_one_that_nobody_has_begun_to_write_goes_with_its_job(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.savepoints.fail_all("the job has ended")
    assert not world.directory.exists()


# ---- a storage that does not answer ---------------------------------------------------------------------------------


def test_a_directory_that_is_not_made_in_time_is_waited_for_no_longer(tmp_path: Path) -> None:
    work = QueuedWork()
    world = World(tmp_path, work=work)
    assert world.savepoints.next_deadline_ms() is None
    world.savepoints.order(SavepointOrder(world.answers.append, stops=True))
    assert world.savepoints.next_deadline_ms() == TIMEOUT_MS
    world.savepoints.on_time(TIMEOUT_MS - 1)
    assert not world.answers
    world.savepoints.on_time(TIMEOUT_MS)
    (answer,) = world.answers
    assert isinstance(answer, SavepointFailed) and "was not made within 5 s" in str(answer)
    assert world.savepoints.next_deadline_ms() is None and not world.savepoints.pending
    while work.run_one():
        pass
    assert not world.asked and len(world.answers) == 1
    assert not any((tmp_path / "savepoints").iterdir()), "made after all, it is removed"


def test_what_is_written_after_the_savepoint_has_expired_is_removed(tmp_path: Path) -> None:
    work = QueuedWork()
    world = World(tmp_path, work=work)
    world.begin_to_write(work)
    world.savepoints.failed(world.savepoint, "its metadata were not written within 5 s")
    while work.run_one():
        pass
    assert world.outcomes == [] and len(world.answers) == 1, "the checkpoint has ended, and hears of it no more"
    assert not world.directory.exists()


# ---- files of sources -----------------------------------------------------------------------------------------------


def without_links(monkeypatch: pytest.MonkeyPatch, at_each: Callable[[], None] = lambda: None) -> None:
    """Let the files of sources be copied, as to another file system. `at_each`: called before each copy."""
    links = os.link

    def link(source: Path, target: Path) -> None:
        if FRAMES not in str(target):
            links(source, target)
            return
        at_each()
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(os, "link", link)


def test_copies_of_files_that_are_not_linked_show_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A savepoint on another file system was given up while gigabytes were copied to it, and so was the next one."""
    work = QueuedWork()
    world = World(tmp_path, work=work)
    without_links(monkeypatch, lambda: seen.append(dict(world.savepoints.progress_ms)))
    seen: list[dict[str, float]] = []
    world.savepoints.order(SavepointOrder(world.answers.append))
    work.run_one()
    world.on_made()
    world.clock.now_ms += 4000.0
    world.write()
    world.savepoints.order(SavepointOrder(world.answers.append, "/elsewhere"))
    assert not world.savepoints.progress_ms and world.savepoints.next_deadline_ms() == 9000.0
    world.clock.now_ms += 4000.0
    work.run_one()
    assert seen == [{}, {str(world.directory): 8000.0}] and world.outcomes == [None]
    assert not world.savepoints.progress_ms


def test_a_directory_is_waited_for_as_long_as_what_is_before_it_advances(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = QueuedWork()
    world = World(tmp_path, work=work)
    world.savepoints.order(SavepointOrder(world.answers.append))
    monkeypatch.setattr(world.savepoints, "_progress_ms", {"/another": 2000.0})
    world.savepoints.on_time(TIMEOUT_MS)
    assert not world.answers and world.savepoints.next_deadline_ms() == TIMEOUT_MS + 2000.0
    world.savepoints.on_time(TIMEOUT_MS + 2000.0)
    assert "was not made within 5 s" in str(world.answers[0])


def test_nothing_is_copied_any_more_when_the_savepoint_has_been_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = QueuedWork()
    world = World(tmp_path, work=work)
    copies: list[None] = []

    def give_up() -> None:
        copies.append(None)
        world.savepoints.failed(world.savepoint, "its metadata were not written within 5 s")

    without_links(monkeypatch, give_up)
    world.begin_to_write(work)
    while work.run_one():
        pass
    assert len(copies) == 1 and not world.outcomes and not world.directory.exists() and not world.warnings


# ---- the name of its directory ------------------------------------------------------------------------------------


def savepoint_of_somebody(folder: Path) -> dict[str, bytes]:
    """Put a savepoint where one of the job's would be called "one". Return its files."""
    directory = folder / "savepoints" / f"savepoint-{'a' * 6}-one"
    directory.mkdir(parents=True)
    (directory / METADATA_NAME).write_text("theirs")
    (directory / savepoint_segment_path(0, 1, "ab")).write_text("theirs")
    return files_below(directory)


def files_below(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_a_directory_that_is_not_empty_is_passed_over_for_another_name(tmp_path: Path) -> None:
    before = savepoint_of_somebody(tmp_path)
    world = World(tmp_path, ["one", "one", "two"])
    assert world.directory.name.endswith("-two") and world.write() is None
    world.savepoints.failed(world.savepoint, "no")
    assert not world.directory.exists()
    assert files_below(world.directory.with_name(f"savepoint-{'a' * 6}-one")) == before


def test_two_savepoints_at_once_have_two_names(tmp_path: Path) -> None:
    world = World(tmp_path, ["one", "one", "two"])
    world.savepoints.order(SavepointOrder(world.answers.append))
    first, second = world.asked
    assert first.directory.endswith("-one") and second.directory.endswith("-two")
    world.savepoints.succeeded(first)
    world.savepoints.succeeded(second)
    assert world.answers == [first.directory, second.directory]


def test_where_all_names_are_taken_nothing_is_written_and_nothing_deleted(tmp_path: Path) -> None:
    work = QueuedWork()
    world = World(tmp_path, work=work)
    before = savepoint_of_somebody(tmp_path)
    directory = tmp_path / "savepoints" / f"savepoint-{'a' * 6}-one"
    world.savepoints.order(SavepointOrder(world.answers.append))
    while work.run_one():
        pass
    (answer,) = world.answers
    assert isinstance(answer, SavepointFailed) and f"{directory} is not empty" in str(answer)
    assert f"the {NAMES_MAX - 1} whose names" in str(answer) and not world.asked
    # The same when the job ends before it is known that the directory is another's.
    world.savepoints.order(SavepointOrder(world.answers.append))
    world.savepoints.fail_all("the job has ended")
    while work.run_one():
        pass
    assert "the job has ended" in str(world.answers[1]) and len(world.answers) == 2
    assert files_below(directory) == before


def test_a_job_in_batch_mode_has_none(tmp_path: Path) -> None:
    """Its subtasks hold rows that are in no snapshot."""
    world = World(tmp_path)
    world.savepoints._is_batch = True
    world.savepoints.order(SavepointOrder(world.answers.append))
    answer = world.answers[-1]
    assert isinstance(answer, SavepointFailed) and "set execution.runtime-mode to STREAMING" in str(answer)
