"""Tests the files that a job ships to its slots: archives, requirements and cached files, here and elsewhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkFiles

from penstock.common import Configuration
from penstock.common.cached_files import CachedFile, DistributedCache, local_copies, parse_cached_files
from penstock.common.options import OptionError, PipelineOptions, PythonOptions
from penstock.datastream import StreamExecutionEnvironment
from penstock.spark.cluster.job_files import with_files
from penstock.spark.process import slot_files
from penstock.spark.session import Substrate

WHEEL = {
    "small_greeting.py": "def greet(name):\n    return f'hello {name}'\n",
    "small_greeting-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: small-greeting\nVersion: 1.0\n",
    "small_greeting-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "small_greeting-1.0.dist-info/RECORD": "",
}


def write_zip(path: Path, files: dict[str, str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


class Context:
    """Keeps files as Spark's context does, in one folder and by their names."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.archives: list[str] = []
        folder.mkdir()

    def addFile(self, source: str) -> None:
        shutil.copy(source.removeprefix("file://"), self.folder / Path(source).name)

    def addArchive(self, source: str) -> None:
        self.archives.append(source)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with a folder for temporary files, where a test may change what a slot's process changes."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(params=[True, False], ids=["here", "elsewhere"])
def substrate(machine: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Substrate:
    context: Any = Context(machine / "spark")
    monkeypatch.setattr(SparkFiles, "get", lambda name: str(context.folder / name))
    return Substrate(context, "local[2]", request.param, "127.0.0.1")


def prepare(substrate: Substrate, configuration: Configuration) -> Substrate:
    made = with_files(substrate, configuration)
    slot_files.prepare([file.fields() for file in made.files])
    return made


def test_archives_lie_in_the_working_directory(machine: Path, substrate: Substrate) -> None:
    write_zip(machine / "models.zip", {"prices.bin": "weights"})
    (machine / "folder" / "bin").mkdir(parents=True)
    program = machine / "folder" / "bin" / "python"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    env = StreamExecutionEnvironment.get_execution_environment()
    env.add_python_archive(str(machine / "models.zip"), "models")
    env.add_python_archive(str(machine / "folder"))
    env.set_python_executable("folder/bin/python")
    made = prepare(substrate, env.get_configuration())
    assert Path("models/prices.bin").read_text() == "weights"
    assert os.access("folder/bin/python", os.X_OK), "a program stays one"
    if substrate.is_local:
        assert made.python == str(Path("folder/bin/python").absolute())
    else:
        context: Any = substrate.context
        assert made.python == "./folder/bin/python"
        assert [source.rpartition("#")[2] for source in context.archives] == ["models", "folder"]


def test_requirements_are_installed_once(machine: Path, substrate: Substrate, monkeypatch: pytest.MonkeyPatch) -> None:
    write_zip(machine / "packages" / "small_greeting-1.0-py3-none-any.whl", WHEEL)
    (machine / "requirements.txt").write_text("small_greeting==1.0\n")
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_python_requirements(str(machine / "requirements.txt"), str(machine / "packages"))
    made = prepare(substrate, env.get_configuration())
    installed = Path(sys.path[0])
    assert (installed / "small_greeting.py").exists()
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("the second slot installs nothing"))
    slot_files.prepare([file.fields() for file in made.files])
    assert sys.path[0] == str(installed)


def test_pip_says_why_it_fails(machine: Path, substrate: Substrate) -> None:
    (machine / "packages").mkdir()
    (machine / "requirements.txt").write_text("no_such_package_at_all==1.0\n")
    options = {"python.requirements": f"{machine}/requirements.txt#{machine}/packages"}
    with pytest.raises(RuntimeError, match=r"(?s)pip cannot install .*requirements.txt \(exit code 1\).*No matching"):
        prepare(substrate, Configuration(options))


def test_cached_files_are_found_by_name(machine: Path, substrate: Substrate) -> None:
    (machine / "data").mkdir()
    (machine / "data" / "rates.csv").write_text("eur,1.1")
    (machine / "tool.sh").write_text("#!/bin/sh\n")
    env = StreamExecutionEnvironment.get_execution_environment()
    env.register_cached_file(str(machine / "data" / "rates.csv"), "rates")
    env.register_cached_file(f"file://{machine}/data", "all")
    env.register_cached_file(str(machine / "tool.sh"), "tool", executable=True)
    with pytest.raises(ValueError, match="the name 'tool' is taken"):
        env.register_cached_file(str(machine / "tool.sh"), "tool")
    prepare(substrate, env.get_configuration())
    cache = DistributedCache(local_copies)
    assert Path(cache.get_file("rates")).read_text() == "eur,1.1"
    assert os.listdir(cache.get_file("all")) == ["rates.csv"]
    assert os.access(cache.get_file("tool"), os.X_OK) and not os.access(machine / "tool.sh", os.X_OK)
    with pytest.raises(KeyError, match="no file was registered as 'none'"):
        cache.get_file("none")


def test_files_that_are_missing_are_named(machine: Path, substrate: Substrate) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    for call in (env.add_python_archive, env.set_python_requirements, lambda path: env.register_cached_file(path, "a")):
        with pytest.raises(FileNotFoundError, match=": there is no /nowhere"):
            call("/nowhere")
    with pytest.raises(OptionError, match=r"^python.archives: there is no /nowhere"):
        with_files(substrate, Configuration({"python.archives": "/nowhere#a"}))
    if substrate.is_local:
        with pytest.raises(OptionError, match="there is no env/bin/python in the archives"):
            with_files(substrate, Configuration({"python.executable": "env/bin/python"}))
    assert with_files(substrate, Configuration({"python.executable": "/usr/bin/python3"})).python == "/usr/bin/python3"
    assert with_files(substrate, Configuration()).python is None


def test_the_option_is_flinks_text() -> None:
    text = "name:a,path:/data/a;name:b,path:hdfs://host/b,executable:true"
    found = Configuration({"pipeline.cached-files": text}).get(PipelineOptions.CACHED_FILES)
    assert found == (CachedFile("a", "/data/a"), CachedFile("b", "hdfs://host/b", True)) == parse_cached_files(text)
    assert Configuration().set(PipelineOptions.CACHED_FILES, found).to_dict()["pipeline.cached-files"] == text
    with pytest.raises(OptionError, match="is no cached file: write name:<name>,path:<path>"):
        Configuration({"pipeline.cached-files": "/data/a"})
    with pytest.raises(OptionError, match="its path no ',' or ';'"):
        Configuration().set(PipelineOptions.CACHED_FILES, (CachedFile("a", "/data/a;b"),))
    assert Configuration({"python.archives": "a.zip,b.zip#c"}).get(PythonOptions.PYTHON_ARCHIVES) == (
        "a.zip",
        "b.zip#c",
    )
