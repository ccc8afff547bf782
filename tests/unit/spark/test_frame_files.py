"""The files of a DataFrame that a new job takes along from the job whose checkpoint it starts from."""

from __future__ import annotations

from pathlib import Path

from penstock.spark.frame_directory import take_along
from penstock.storage.layout import FRAMES_MANIFEST


def test_notes_on_a_folder_are_not_taken_along(tmp_path: Path) -> None:
    """The note from where a folder was claimed was a link that both jobs had, and the newer one wrote over it."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    for name in ("part-0.arrow", FRAMES_MANIFEST, "_claimed_from"):
        (first / name).write_text(name)
    take_along(first, second)
    assert sorted(file.name for file in second.iterdir()) == [FRAMES_MANIFEST, "part-0.arrow"]
    (second / "_claimed_from").write_text("elsewhere")
    assert (first / "_claimed_from").read_text() == "_claimed_from"
