"""Tests savepoints as files: what `penstock info` shows of one, and what `penstock savepoint --dispose` deletes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock.cli import savepoint_disposal
from penstock.cli.main import app
from penstock.protocol.values.log_entries import Fence
from penstock.protocol.values.metadata import FORMAT_VERSION, Metadata, Segment, SubtaskSnapshot, VertexShape
from penstock.storage.layout import METADATA_NAME, savepoint_segment_path
from penstock.storage.log import append
from penstock.storage.metadata_file import encode_metadata
from penstock.storage.opening import open_store

SEGMENT = savepoint_segment_path(0, 4, "rnd")


def penstock(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


def metadata(segment: str) -> bytes:
    snapshot = SubtaskSnapshot(0, 0, [], [], [], [], [], [], [], unaligned=True, persisted_bytes=2048, state_bytes=10)
    shape = VertexShape(0, "source -> map", ["0" * 32], ["source"], 1, 128)
    segments = [Segment(segment, 3000)]
    return encode_metadata(
        Metadata(FORMAT_VERSION, "ab" * 16, "my job", 4, 0, 0, "i", 0, False, [shape], [], segments, [snapshot], [], [])
    )


@pytest.fixture
def savepoint(tmp_path: Path) -> Path:
    folder = tmp_path / "savepoint-ababab-x1"
    store = open_store(str(folder), create_root=True)
    store.put(SEGMENT, [bytes(3000)])
    rows = folder / "data-frames" / "0" / "part-0.arrow"
    rows.parent.mkdir(parents=True)
    for file in (rows, rows.with_name(".part-0.arrow.crc"), rows.with_name("_penstock.json")):
        file.write_text("x")
    store.create(METADATA_NAME, metadata(SEGMENT))
    return folder


@pytest.mark.parametrize("name", ["", "_metadata"])
def test_info_of_a_savepoint_shows_its_vertices_and_misses_a_segment(savepoint: Path, name: str) -> None:
    shown = penstock("info", str(savepoint / name))
    assert shown.exit_code == 0
    for text in ("savepoint 4 of job " + "ab" * 16 + " (my job)", "source -> map", SEGMENT, "2.9 KiB"):
        assert text in shown.stdout
    assert "MISSING" not in shown.stdout
    (savepoint / SEGMENT).unlink()
    assert f"{SEGMENT}  2.9 KiB  MISSING" in penstock("info", str(savepoint)).stdout


@pytest.mark.parametrize("name", ["", "_metadata"])
def test_a_savepoint_is_disposed_of_whole(savepoint: Path, name: str) -> None:
    done = penstock("savepoint", "--dispose", str(savepoint / name))
    assert (done.exit_code, done.stderr) == (0, f"penstock: deleted 5 files of savepoint {savepoint / name}\n")
    assert not savepoint.exists() and savepoint.parent.is_dir()


def test_what_is_not_part_of_a_savepoint_stays_when_it_is_disposed_of(savepoint: Path) -> None:
    (savepoint / "notes.txt").write_text("mine")
    (savepoint / "data-frames" / "0" / "_notes").write_text("mine")
    (savepoint / savepoint_segment_path(0, 5, "rnd")).write_text("another's")
    done = penstock("savepoint", "--dispose", str(savepoint))
    assert done.exit_code == 0
    assert "left are files that are not part of it: data-frames, notes.txt, s0_c5_rnd\n" in done.stderr
    left = {str(file.relative_to(savepoint)) for file in savepoint.rglob("*") if file.is_file()}
    assert left == {"notes.txt", "data-frames/0/_notes", "s0_c5_rnd"}


def test_rows_of_data_frames_in_a_bucket_are_disposed_of(savepoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this: they stay, and are said to be none of the savepoint's."""
    monkeypatch.setattr(savepoint_disposal, "is_local", lambda place: False)
    (savepoint / "data-frames" / "0" / ".part-0.arrow.crc").unlink()
    (savepoint / "data-frames" / "0" / "_notes").write_text("mine")
    assert savepoint_disposal.dispose(str(savepoint)) == (4, ["data-frames/0/_notes"])


def test_an_interrupted_disposal_is_repeated(savepoint: Path) -> None:
    (savepoint / SEGMENT).unlink()
    assert penstock("savepoint", "--dispose", f"file://{savepoint}").exit_code == 0
    assert not savepoint.exists()


def test_only_a_savepoint_is_disposed_of(savepoint: Path, tmp_path: Path) -> None:
    job = tmp_path / ("ab" * 16)
    store = open_store(str(job), create_root=True)
    append(store, Fence(0, "inc", 0, "host", 1))
    store.create("chk-4/_metadata", metadata("shared/g0-0_inc_s0_c4_rnd"))
    store.put("shared/g0-0_inc_s0_c4_rnd", [b"x"])
    copied = tmp_path / "copied"
    copied.mkdir()
    (copied / "_metadata").write_bytes(metadata("shared/g0-0_inc_s0_c4_rnd"))
    (savepoint / "_metadata").write_bytes(b"penstock?")
    before = sorted(tmp_path.rglob("*"))
    for path, says in (
        (job, "is no savepoint: it has no _metadata. Nothing was deleted"),
        (job / "chk-4", "is a checkpoint of a job, not a savepoint"),
        (job / "chk-4" / "_metadata", "is a checkpoint of a job, not a savepoint"),
        (copied, f"holds a checkpoint of job {'ab' * 16}, not a savepoint"),
        (savepoint, "_metadata"),
        (tmp_path / "none", "does not exist"),
    ):
        done = penstock("savepoint", "--dispose", str(path))
        assert done.exit_code == 2 and says in done.stderr, done.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_an_unfinished_savepoint_is_not_disposed_of_but_named(tmp_path: Path) -> None:
    """A driver that was killed has left it, or another one is still at it."""
    unfinished = tmp_path / "savepoint-abcdef-0123456789ab"
    open_store(str(unfinished), create_root=True).put(SEGMENT, [b"x"])
    before = sorted(tmp_path.rglob("*"))
    done = penstock("savepoint", "--dispose", str(unfinished))
    assert done.exit_code == 2 and sorted(tmp_path.rglob("*")) == before
    assert f"{unfinished} is an unfinished savepoint: it has segments, but no _metadata" in done.stderr
    assert "If no job that runs writes it" in done.stderr and "delete the directory" in done.stderr
