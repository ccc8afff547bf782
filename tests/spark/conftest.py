from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))
from quick_java import use_quick_java

ROOT = Path(__file__).resolve().parents[2]

SLOTS_OF_OUR_OWN = {
    "spark.python.daemon.module": "penstock.spark.slot_daemon",
    "spark.executorEnv.PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
}


@pytest.fixture(scope="session", autouse=True)
def quick_java() -> None:
    use_quick_java()


@pytest.fixture(scope="module")
def spark_session() -> Iterator[object]:
    """A user's session, with a place for the slots of two small jobs."""
    yield from session({})


@pytest.fixture(scope="module")
def quick_session() -> Iterator[object]:
    """The same with the daemon that penstock's own Spark has: a job's slots need half of the CPU to start. For tests
    of what happens to a job, whoever has made its session."""
    yield from session(SLOTS_OF_OUR_OWN)


def session(settings: dict[str, str]) -> Iterator[object]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[4]").config("spark.ui.enabled", "false")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    yield session
    session.stop()
