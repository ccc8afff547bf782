"""Sweeps a job's directory: besides unnamed objects it deletes what killed writers left half-written."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.jobmaster.job_directory import _look_around
from penstock.protocol.log.retention import FoundMetadata, FoundSegment, Sweep
from penstock.protocol.values.elements import Generation
from penstock.storage.layout import metadata_path, segment_path
from penstock.storage.local import TEMPORARY_FOLDER, LocalStore


def test_a_sweep_deletes_half_written_objects_that_are_old_and_at_the_end_all(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    path = segment_path(Generation(0, 1), "inc", 0, 1, "r")
    store.put(path, [b"x"])
    store.create("log/" + "0" * 20, b"x")
    old, new = tmp_path / TEMPORARY_FOLDER / "old", tmp_path / TEMPORARY_FOLDER / "new"
    for file in (old, new):
        file.write_bytes(b"half")
    os.utime(old, (0, 0))
    sweep = Sweep(Generation(1, 0), 0)
    assert _look_around(store, sweep, 3600.0) == [FoundSegment(path, Generation(0, 1))]
    assert new.exists() and not old.exists()
    os.utime(new, (new.stat().st_mtime - 1,) * 2)
    _look_around(store, sweep, 0.0)
    assert not new.exists()
    assert store.list("") == ["log/" + "0" * 20, path]


def test_a_folder_that_a_killed_driver_has_emptied_is_removed(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    (tmp_path / "chk-3").mkdir()
    sweep = Sweep(Generation(1, 0), 3)
    found = _look_around(store, sweep, 0.0)
    assert found == [FoundMetadata(metadata_path(3), 3)]
    store.delete_all(sweep.deletable(found, frozenset()))
    assert not (tmp_path / "chk-3").exists()
    (tmp_path / "chk-4").mkdir()  # a driver that publishes has made it, and links the metadata next
    assert sweep.deletable(_look_around(store, sweep, 0.0), frozenset()) == []


def test_a_checkpoint_that_was_moved_to_an_archive_stays_there(tmp_path: Path) -> None:
    """A link is left in its place, to what this process may see or not."""
    archived = tmp_path / "archive" / "chk-3"
    archived.mkdir(parents=True)
    (archived / "_metadata").write_bytes(b"x")
    store = LocalStore(tmp_path / "job", create_root=True)
    (tmp_path / "job" / "chk-3").symlink_to(archived)
    (tmp_path / "job" / "chk-2").symlink_to(tmp_path / "job" / "chk-2")
    sweep = Sweep(Generation(1, 0), 4)
    found = _look_around(store, sweep, 0.0)
    store.delete_all(sweep.deletable(found, frozenset()))
    assert found == [] and (archived / "_metadata").exists()
