"""Tests what becomes of a checkpoint or a savepoint that a job has started from and owns (CLAIM)."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from penstock.jobmaster.identity import CheckpointToStartFrom, JobIdentity
from penstock.jobmaster.ports import CancelRequested
from penstock.protocol.values.log_entries import CheckpointEntry, Ended, Fence
from penstock.protocol.values.metadata import Segment
from penstock.storage.layout import METADATA_NAME, savepoint_segment_path
from penstock.storage.local import LocalStore
from penstock.storage.log import read_log
from penstock.storage.memory import MemoryStore
from penstock.storage.metadata_file import encode_metadata, read_metadata
from penstock.storage.store import StoreError
from tests.unit.jobmaster.manual_ports import Directories, MixedDirectories
from tests.unit.jobmaster.master_world import DIRECTORY, World, reset_target

JOB = "f" * 32
CLAIM = {"execution.state-recovery.claim-mode": "CLAIM"}


@pytest.fixture(autouse=True)
def fresh_target() -> None:
    reset_target()


def old_job(directories: Directories | None = None) -> World:
    """Run a job until it has completed checkpoint 1. From then on it is left alone."""
    world = World(directories=directories)
    world.at(60.0)
    return world


def claiming(
    directories: Directories,
    options: dict[str, str] | None = None,
    start: CheckpointToStartFrom = CheckpointToStartFrom(DIRECTORY, 1),
) -> World:
    """Run the first driver of a job that starts from another job's checkpoint and claims it."""
    identity = JobIdentity(JOB, f"/checkpoints/{JOB}", start_from=start)
    return World(CLAIM | (options or {}), directories=directories, identity=identity, incarnation="two")


def resumed(directories: Directories, options: dict[str, str] | None = None, incarnation: str = "three") -> World:
    """Run the next driver of that job, whose program says nothing of a claim any more."""
    identity = JobIdentity(JOB, f"/checkpoints/{JOB}", resume=True)
    return World(options, directories=directories, identity=identity, incarnation=incarnation)


def left(old: MemoryStore) -> list[str]:
    """Return the objects of checkpoint 1 of the old job."""
    return [*old.list("chk-1"), *(path for path in old.list("shared") if "_c1_" in path)]


def log_of(directories: Directories) -> list[Fence | CheckpointEntry | Ended]:
    return read_log(directories.stores[f"/checkpoints/{JOB}"])


def own(directories: Directories) -> int:
    """Return how many checkpoints the new job has completed."""
    return sum(isinstance(entry, CheckpointEntry) for entry in log_of(directories))


def test_it_is_deleted_when_it_is_subsumed_and_the_log_names_it_until_then() -> None:
    first = old_job()
    second = claiming(first.directories)
    second.at(60.0)
    assert len(left(first.store)) == 3, "one of two retained"
    second.at(260.0)
    assert left(first.store) == []
    names = [entry.claimed for entry in log_of(first.directories)]
    assert names == [f"{DIRECTORY}/chk-1"] * 3 + [None], "the fence, one of two retained, the subsuming one, the next"


def test_a_driver_that_takes_over_deletes_it_when_it_is_subsumed() -> None:
    """The claim was in the memory of the driver that had read it: its successor has checkpoints of its own, and read no
    other."""
    first = old_job()
    second = claiming(first.directories)
    second.at(60.0)
    third = resumed(first.directories)
    assert own(first.directories) == 1 and len(left(first.store)) == 3
    third.at(60.0)
    assert own(first.directories) == 2 and left(first.store) == []


def test_a_driver_that_takes_over_before_the_first_own_checkpoint_deletes_it_too() -> None:
    first = old_job()
    claiming(first.directories)
    third = resumed(first.directories, {"execution.checkpointing.num-retained": "1"})
    third.at(60.0)
    assert left(first.store) == []


@pytest.mark.parametrize("deleted", [0, 1, 2, 3])
def test_a_driver_that_dies_while_it_deletes_is_followed_by_one_that_deletes_the_rest(deleted: int) -> None:
    first = old_job()
    second = claiming(first.directories, {"execution.checkpointing.num-retained": "1"})
    second.work.is_paused = True
    second.at(50.0)
    while own(first.directories) < 1:
        second.work.run_one()
    # Its metadata are the last that goes: they say what else there is.
    segments = [path for path in first.store.list("shared") if "_c1_" in path]
    for path in [*segments, f"chk-1/{METADATA_NAME}"][:deleted]:
        first.store.delete(path)
    third = resumed(first.directories, {"execution.checkpointing.num-retained": "1"})
    third.at(60.0)
    assert left(first.store) == [] and not third.console.warnings


def test_its_metadata_are_deleted_behind_its_segments() -> None:
    first = old_job()
    order: list[str] = []
    delete = first.store.delete

    def noting(path: str) -> None:
        order.append(path)
        delete(path)

    first.store.delete = noting  # type: ignore[method-assign]
    claiming(first.directories, {"execution.checkpointing.num-retained": "1"}).at(60.0)
    assert order[-1] == f"chk-1/{METADATA_NAME}" and len(order) == 3


def test_one_that_cannot_be_deleted_is_named_and_left_to_the_next_driver() -> None:
    first = old_job()
    second = claiming(first.directories, {"execution.checkpointing.num-retained": "1"})
    delete = first.store.delete

    def refuse(path: str) -> None:
        raise StoreError(f"{path} is read only")

    first.store.delete = refuse  # type: ignore[method-assign]
    second.at(260.0)
    (warning,) = second.console.warnings
    assert "could not be deleted" in warning and "is read only" in warning
    assert len(left(first.store)) == 3 and log_of(first.directories)[-1].claimed == f"{DIRECTORY}/chk-1"
    first.store.delete = delete  # type: ignore[method-assign]
    resumed(first.directories, {"execution.checkpointing.num-retained": "1"}).at(60.0)
    assert left(first.store) == []


def test_what_is_put_back_after_it_was_deleted_is_not_the_jobs() -> None:
    first = old_job()
    before = {path: first.store.get(path) for path in left(first.store)}
    second = claiming(first.directories, {"execution.checkpointing.num-retained": "1"})
    second.at(260.0)
    assert own(first.directories) >= 2 and left(first.store) == []
    for path, data in before.items():
        first.store.create(path, data)
    resumed(first.directories, {"execution.checkpointing.num-retained": "1"}).at(260.0)
    assert sorted(left(first.store)) == sorted(before)


def test_it_goes_at_the_end_with_the_own_checkpoints_of_a_job_that_keeps_none() -> None:
    first = old_job()
    second = claiming(first.directories, {"execution.checkpointing.num-retained": "3"})
    second.at(60.0)
    assert own(first.directories) == 1 and len(left(first.store)) == 3
    second.reach_end_of_data()
    assert second.master.outcome is not None and second.master.outcome.state == "FINISHED"
    assert left(first.store) == []


@pytest.mark.parametrize("until_ms", [0.0, 60.0])
def test_it_stays_with_a_job_that_can_be_resumed(until_ms: float) -> None:
    """Cancelled before its first own checkpoint it is all that there is; later, the job keeps what it has."""
    first = old_job()
    retention = "DELETE_ON_CANCELLATION" if until_ms == 0 else "RETAIN_ON_CANCELLATION"
    second = claiming(first.directories, {"execution.checkpointing.externalized-checkpoint-retention": retention})
    second.at(until_ms)
    second.master.handle(CancelRequested())
    second.run_until_idle()
    assert second.master.outcome is not None and second.master.outcome.state == "CANCELED"
    assert len(left(first.store)) == 3
    third = resumed(first.directories, {"execution.checkpointing.num-retained": "1"})
    assert third.master.job.restore_point is not None
    third.at(160.0)
    assert left(first.store) == []


def test_a_log_that_was_written_before_entries_named_what_is_claimed_is_read() -> None:
    first = old_job()
    claiming(first.directories).at(60.0)
    entry = msgspec.json.decode(msgspec.json.encode(log_of(first.directories)[-1]))
    del entry["claimed"]
    assert msgspec.convert(entry, CheckpointEntry).claimed is None


@pytest.mark.parametrize("has_notes", [False, True])
def test_the_directory_of_a_claimed_savepoint_goes_unless_something_else_is_in_it(
    tmp_path: Path, has_notes: bool
) -> None:
    directories = MixedDirectories(tmp_path)
    first = old_job(directories)
    directory = tmp_path / "savepoint-000000-one"
    store = LocalStore(directory, create_root=True)
    metadata, segment = read_metadata(first.store, "chk-1/_metadata"), savepoint_segment_path(0, 1, "ab")
    store.put(segment, [b"segment"])
    data = encode_metadata(msgspec.structs.replace(metadata, segments=[Segment(segment, 7)]))
    store.create(METADATA_NAME, data)
    if has_notes:
        (directory / "notes.txt").write_text("mine")
    second = claiming(directories, start=CheckpointToStartFrom(str(directory), None))
    second.at(60.0)
    assert (directory / segment).exists() and (directory / METADATA_NAME).exists(), "one of two retained"
    resumed(directories).at(60.0)
    assert own(directories) == 2 and not second.console.warnings
    if has_notes:
        assert [path.name for path in directory.iterdir() if path.name != ".tmp"] == ["notes.txt"]
    else:
        assert not directory.exists() and tmp_path.is_dir()
