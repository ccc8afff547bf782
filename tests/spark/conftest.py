from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))
import shared_spark
from quick_spark import quick_spark


@pytest.fixture(scope="session", autouse=True)
def every_spark_is_quick() -> Iterator[None]:
    with quick_spark():
        yield
        shared_spark.stop()


@pytest.fixture(scope="module")
def spark_session() -> object:
    """A user's session."""
    return shared_spark.users_session(shared_spark.USERS)


@pytest.fixture(scope="module")
def quick_session() -> object:
    """The same with the daemon that penstock's own Spark has: a job's slots need a quarter of the CPU to start. For
    tests of what happens to a job, whoever has made its session."""
    return shared_spark.users_session(shared_spark.WITH_OUR_DAEMON)
