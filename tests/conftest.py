"""Which tests run beside each other with `pytest -n …`, and in which order: a long one that begins last runs alone.
And how often garbage is collected: thousands of collected tests would be walked through each time.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

ALLOCATIONS_BETWEEN_COLLECTIONS = 100_000
"""Python's 700 are for programs that make garbage slowly; a collection took an eighth of the tests' time."""

SPREAD = (
    "chaos/test_kills.py",
    "spark/test_command_line.py",
    "spark/test_docs.py",
    "spark/test_java.py",
    "spark/test_programs.py",
)
"""The tests of these files run wherever there is room: they start what they need themselves, or last long. The tests
of any other file share what its fixtures have made, a Spark above all."""

LONGEST_FIRST = [
    "test_standalone.py",
    "test_programs.py",
    "test_kills.py",
    "test_docs.py",
    "test_identity.py",
    "test_faults_storage.py",
    "test_command_line.py",
    "test_faults_user_code.py",
    "test_data_frames.py",
    "test_slots_of_jobs.py",
]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        gc.set_threshold(ALLOCATIONS_BETWEEN_COLLECTIONS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    rank = {name: place for place, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: rank.get(item.path.name, len(rank)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return nodeid if file.endswith(SPREAD) else file

    config.option.loadscopereorder = False
    return Scheduling(config, log)
