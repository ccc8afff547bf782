from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from quick_java import use_quick_java


@pytest.fixture(scope="session", autouse=True)
def quick_java() -> None:
    use_quick_java()


@pytest.fixture(scope="module")
def spark_session() -> Iterator[object]:
    """A user's session, as Spark makes it: `local[4]`, where a task is tried once."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    session = SparkSession.builder.master("local[4]").config("spark.ui.enabled", "false").getOrCreate()
    yield session
    session.stop()
