"""Tests where temporary files of simulated runs lie."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from simulation import files_in_memory as module
from simulation.files_in_memory import files_in_memory

WHERE = [sys.executable, "-c", "import tempfile; print(tempfile.gettempdir())"]


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Let a directory be taken for memory, with room enough."""
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(module, "SHARED_MEMORY", tmp_path)
    monkeypatch.setattr(module, "ROOM_BYTES_MIN", 1)
    return tmp_path


def test_files_of_this_process_and_of_its_children_are_in_memory_until_the_end(memory: Path) -> None:
    before = tempfile.gettempdir()
    with files_in_memory() as folder:
        assert folder is not None and folder.parent == memory and tempfile.gettempdir() == str(folder)
        assert subprocess.run(WHERE, capture_output=True, text=True, check=True).stdout.strip() == str(folder)
        Path(tempfile.mkdtemp(), "left").touch()
    assert list(memory.iterdir()) == [] and tempfile.gettempdir() == before and "TMPDIR" not in os.environ


def test_what_a_user_has_chosen_stays(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/elsewhere")
    with files_in_memory() as folder:
        assert folder is None and os.environ["TMPDIR"] == "/elsewhere"


@pytest.mark.parametrize(("place", "room"), [("missing", 1), (".", 1 << 62)])
def test_without_room_files_are_on_the_disk(
    memory: Path, monkeypatch: pytest.MonkeyPatch, place: str, room: int
) -> None:
    monkeypatch.setattr(module, "SHARED_MEMORY", memory / place)
    monkeypatch.setattr(module, "ROOM_BYTES_MIN", room)
    with files_in_memory() as folder:
        assert folder is None and "TMPDIR" not in os.environ
