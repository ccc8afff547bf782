from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def spark_session() -> Iterator[object]:
    """A user's session, as Spark makes it: `local[4]`, where a task is tried once."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from penstock.spark.java import ensure_java

    ensure_java()
    from pyspark.sql import SparkSession

    session = SparkSession.builder.master("local[4]").config("spark.ui.enabled", "false").getOrCreate()
    yield session
    session.stop()
