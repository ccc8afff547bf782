"""Which tests run beside each other with `pytest -n …`, and in which order: a long one that begins last runs alone."""

from __future__ import annotations

from typing import Any

import pytest

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
