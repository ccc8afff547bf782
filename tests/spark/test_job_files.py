"""Tests a job whose functions use an archive, a cached file, and a Python of its own, which the next job does not."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.common import Types
from penstock.datastream import MapFunction, StreamExecutionEnvironment
from tests.spark.small_jobs import environment

pytestmark = [pytest.mark.spark, pytest.mark.timeout(200)]


class Used(MapFunction):
    def open(self, runtime_context: Any) -> None:
        self.rates = runtime_context.get_distributed_cache().get_file("rates")

    def map(self, value: str) -> str:
        found = Path("own/data.txt").read_text(encoding="utf-8")
        return f"{value} {found} {Path(self.rates).read_text(encoding='utf-8')} {os.environ.get('PYTHON_OF')}"


def test_files_and_python_of_a_job(quick_session: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "environment"
    (folder / "bin").mkdir(parents=True)
    (folder / "data.txt").write_text("archived")
    python = folder / "bin" / "python"
    python.write_text(f'#!/bin/sh\nPYTHON_OF=job exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    shutil.make_archive(str(folder), "zip", folder)
    (tmp_path / "rates.csv").write_text("cached")
    env: StreamExecutionEnvironment = environment(1)
    env.add_python_archive(f"{folder}.zip", "own")
    env.set_python_executable("own/bin/python")
    env.register_cached_file(str(tmp_path / "rates.csv"), "rates")
    with env.from_collection(["a"], Types.STRING()).map(Used(), Types.STRING()).execute_and_collect() as rows:
        assert list(rows) == ["a archived cached job"]
    plain: StreamExecutionEnvironment = environment(1)
    stream = plain.from_collection(["b"], Types.STRING())
    with stream.map(lambda _: os.environ.get("PYTHON_OF", "session"), Types.STRING()).execute_and_collect() as rows:
        assert list(rows) == ["session"]
