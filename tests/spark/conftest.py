"""Gives all tests on a real Spark the sessions that they share, and stops Spark at the end."""

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
    """A user's session."""
    return shared_spark.users_session(shared_spark.USERS)


@pytest.fixture(scope="module")
def quick_session() -> SparkSession:
    """The same with the daemon that penstock's own Spark has: a job's slots need a quarter of the CPU to start. For
    tests of what happens to a job, whoever has made its session."""
    return shared_spark.users_session(shared_spark.WITH_OUR_DAEMON)
