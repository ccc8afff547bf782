"""Which tests run beside each other with `pytest -n …`, and in which order: a long one that begins last runs alone."""

from __future__ import annotations

from typing import Any

import pytest

STARTS_ITS_OWN = ("spark/test_programs.py", "spark/test_docs.py", "spark/test_command_line.py", "spark/test_java.py")
"""Each test of these files starts what it needs, and runs where there is room. Others share a Spark with their file."""

LONGEST_FIRST = [
    "test_standalone.py",
    "test_programs.py",
    "test_identity.py",
    "test_faults_storage.py",
    "test_kills.py",
    "test_docs.py",
    "test_faults_user_code.py",
    "test_command_line.py",
    "test_data_frames.py",
    "test_slots_of_jobs.py",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    rank = {name: place for place, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: rank.get(item.path.name, len(rank)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return nodeid if file.endswith(STARTS_ITS_OWN) else file

    config.option.loadscopereorder = False
    return Scheduling(config, log)
