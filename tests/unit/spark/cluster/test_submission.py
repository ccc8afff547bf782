"""Ships a program's folder and the slots' task: a process that has neither our package nor the folder runs them."""

from __future__ import annotations

import importlib
import sys
import zipfile
from pathlib import Path

import cloudpickle
import pytest

from penstock.spark.cluster.submission import archive_modules, modules_below
from penstock.spark.process.slot_task import SlotArguments, slot_task


def test_modules_of_the_programs_folder_are_found_and_zipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "beside_job.py").write_text("X = 1")
    (tmp_path / "not_imported.py").write_text("X = 1")
    (tmp_path / "package_of_job" / "inner").mkdir(parents=True)
    (tmp_path / "package_of_job" / "__init__.py").write_text("")
    (tmp_path / "package_of_job" / "inner" / "__init__.py").write_text("Y = 2")
    (tmp_path / "package_of_job" / "data.json").write_text("{}")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("beside_job", "package_of_job.inner"):
        importlib.import_module(name)
    names = modules_below(tmp_path)
    assert names == ["beside_job", "package_of_job"]
    archive = archive_modules(tmp_path / "out.zip", tmp_path, names)
    assert sorted(zipfile.ZipFile(archive).namelist()) == [
        "beside_job.py",
        "package_of_job/__init__.py",
        "package_of_job/data.json",
        "package_of_job/inner/__init__.py",
    ]
    for name in list(sys.modules):
        if name.partition(".")[0] in names:
            del sys.modules[name]


def test_the_slots_task_arrives_without_our_package() -> None:
    task = slot_task(SlotArguments("h", 1, b"s", "job", 0, 1))
    pickled = cloudpickle.dumps(task)
    assert b"penstock.spark.slots.spark_slots" not in pickled
    hidden = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == "penstock"}
    try:
        loaded = cloudpickle.loads(pickled)
        assert not any(name.startswith("penstock") for name in sys.modules)
    finally:
        sys.modules.update(hidden)
    assert callable(loaded)
