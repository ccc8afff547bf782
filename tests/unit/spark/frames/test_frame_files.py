"""Tests the files of a DataFrame that a new job takes along from the job whose checkpoint it starts from."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.spark.frames.frame_directory import FrameDirectory, take_along
from penstock.storage.layout import FRAMES_FOLDER, FRAMES_MANIFEST, METADATA_NAME
from penstock.storage.store_settings import DEFAULT_SETTINGS


def test_notes_on_a_folder_are_not_taken_along(tmp_path: Path) -> None:
    """The note from where a folder was claimed was a link that both jobs had, and the newer one wrote over it."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    for name in ("part-0.arrow", FRAMES_MANIFEST, "_claimed_from"):
        (first / name).write_text(name)
    take_along(first, second, lambda: None)
    assert sorted(file.name for file in second.iterdir()) == [FRAMES_MANIFEST, "part-0.arrow"]
    (second / "_claimed_from").write_text("elsewhere")
    assert (first / "_claimed_from").read_text() == "_claimed_from"


@pytest.mark.parametrize("has_metadata", [True, False])
def test_rows_in_a_claimed_savepoint_stay_as_long_as_the_savepoint(tmp_path: Path, has_metadata: bool) -> None:
    """Only the checkpoints of a job were looked for: the rows went from a savepoint that could still be restored."""
    name, savepoint = "rows-1", tmp_path / "savepoint"
    folder = savepoint / FRAMES_FOLDER / name
    folder.mkdir(parents=True)
    for file in ("part-0.arrow", FRAMES_MANIFEST):
        (folder / file).write_text(file)
    if has_metadata:
        (savepoint / METADATA_NAME).write_text("")
    job = FrameDirectory(str(tmp_path / "job"), DEFAULT_SETTINGS, create=True)
    theirs = FrameDirectory(str(savepoint), DEFAULT_SETTINGS)
    job.take(name, theirs)
    job.note_claim(name, theirs)
    job.remove_claimed(name)
    assert folder.exists() is has_metadata and savepoint.exists() is has_metadata
    assert job.is_complete(name)
