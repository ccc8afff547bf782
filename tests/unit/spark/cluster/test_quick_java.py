"""Tests the flags of our own Spark's Java: when it writes an archive of its classes, when it uses one, when neither."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from penstock.spark.cluster.java import ensure_java
from penstock.spark.cluster.quick_java import QUICK, java_flags


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("SPARK_SUBMIT_OPTS", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def written_to(flags: str) -> Path:
    found = re.search(r"-XX:ArchiveClassesAtExit=(\S+)", flags)
    assert found is not None, flags
    return Path(found[1])


def age(path: Path, seconds: float) -> None:
    os.utime(path, (time.time() - seconds,) * 2)


def test_the_first_java_writes_an_archive_and_later_ones_use_it() -> None:
    home = ensure_java()
    flags = java_flags(home, is_quick=True)
    assert flags.startswith(QUICK) and "SharedArchiveFile" not in flags
    written = written_to(flags)
    written.write_bytes(b"classes")
    assert "SharedArchiveFile" not in java_flags(home, is_quick=True), "another Java may be writing it just now"
    age(written, 60)
    archive = written.parent / "classes.jsa"
    assert f"-XX:SharedArchiveFile={archive}" in java_flags(home, is_quick=True)
    assert archive.read_bytes() == b"classes" and not written.exists()


def test_a_java_that_never_writes_one_is_not_asked_for_ever() -> None:
    home = ensure_java()
    for _ in range(3):
        written_to(java_flags(home, is_quick=True)).write_bytes(b"")
    assert java_flags(home, is_quick=True) == QUICK


@pytest.mark.parametrize("name", ["SPARK_SUBMIT_OPTS", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS"])
def test_flags_of_the_user_are_left_alone(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "-XX:+UseG1GC")
    assert java_flags(ensure_java(), is_quick=True) == ""
    monkeypatch.setenv(name, "-Dmy.setting=1")
    assert java_flags(ensure_java(), is_quick=True).startswith(QUICK)


def test_a_spark_that_executes_queries_is_not_hindered() -> None:
    assert java_flags(ensure_java(), is_quick=False) == ""


def test_without_a_folder_to_write_to_java_still_starts_quickly(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cache / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache / "file"))
    assert java_flags(ensure_java(), is_quick=True) == QUICK
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache / "two words"))
    assert java_flags(ensure_java(), is_quick=True) == QUICK


def test_java_starts_with_these_flags_and_passes_over_a_damaged_archive() -> None:
    home = ensure_java()
    java = str(home / "bin" / "java") if home else "java"
    written = written_to(java_flags(home, is_quick=True))
    for damage in (b"", b"x" * 5000):
        written.write_bytes(damage)
        age(written, 60)
        flags = java_flags(home, is_quick=True).split()
        assert any("SharedArchiveFile" in flag for flag in flags)
        done = subprocess.run([java, *flags, "-version"], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0 and not done.stdout and "warning" not in done.stderr.lower(), done
