"""Gives all tests of kills one quick Spark, and stops it at the end: a session of each module would cost seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests import shared_spark
from tests.quick_spark import quick_spark


@pytest.fixture(scope="session", autouse=True)
def every_spark_is_quick() -> Iterator[None]:
    with quick_spark():
        yield
        shared_spark.stop()


@pytest.fixture(scope="module")
def spark_session() -> SparkSession:
    """`local[4]`, where a task is tried once, with the daemon that penstock's own Spark has: that of a plain Spark
    imports for each slot that was killed. Executors of a cluster have the plain one, in `test_standalone.py`."""
    return shared_spark.users_session(shared_spark.WITH_OUR_DAEMON)
