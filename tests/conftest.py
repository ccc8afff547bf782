"""Decides which tests run next to each other with `pytest -n …`, and in which order: a long one that begins last runs
alone. It also sets how often garbage is collected, because thousands of collected tests would be walked through each
time, and marks the tests that `make check` and `make test` leave out.
"""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from simulation.files_in_memory import files_in_memory
from tests.slow_tests import SLOW, THOROUGH

# An example that takes a fifth of a second says that the machine is busy.
hypothesis.settings.register_profile("without a deadline", hypothesis.settings(), deadline=None)
hypothesis.settings.load_profile("without a deadline")

ALLOCATIONS_BETWEEN_COLLECTIONS = 100_000
"""Python's 700 are for programs that make garbage slowly; a collection took an eighth of the tests' time."""

SPREAD = (
    "chaos/test_driver_kills.py",
    "simulation/test_kept_plans.py",
    "simulation/test_plans.py",
    "simulation/test_scenarios.py",
    "simulation/test_shrinking.py",
    "simulation/test_stress.py",
    "spark/test_command_line.py",
    "spark/test_control.py",
    "spark/test_java.py",
)
"""The tests of these files start what they need themselves, and run wherever there is room. The tests of any other file
share what its fixtures have made, a Spark above all."""

BEHIND_EACH_OTHER = [
    ("chaos/test_standalone.py",),
    ("chaos/test_places_lost.py",),
    ("chaos/test_kills.py",),
    ("spark/test_data_frames.py",),
    ("spark/test_docs.py",),
    ("spark/test_identity.py", "spark/test_faults_storage.py"),
    ("spark/test_demo.py",),
    ("spark/test_faults_user_code.py", "spark/test_faults_connections.py", "spark/test_rescale.py"),
    ("spark/test_slots_of_jobs.py", "spark/test_slots.py", "spark/test_flight_delays_verification.py"),
    ("spark/test_data_frames_restored.py",),
    ("spark/test_programs.py",),
    ("spark/test_command_line.py",),
    ("spark/test_control.py",),
]
"""Longest first. The files of one line share a Spark, too: see `shared_spark.py`."""

FIRST = "chaos/test_driver_kills.py"
"""Its tests last for minutes each, start their own drivers, and begin before all others."""

_HERE = Path(__file__).parent

_PLACES = {name: (row, column) for row, names in enumerate(BEHIND_EACH_OTHER) for column, name in enumerate(names)}


def _name(path: str) -> str:
    return "/".join(path.split("/")[-2:])


def _named(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return what the ids of the named files, folders and single tests begin with, below the root of the disk."""
    parts = (name.partition("::") for name in names)
    return tuple(f"{path.as_posix()}{colons}{test}" for glob, colons, test in parts for path in _HERE.glob(glob))


_SLOW, _THOROUGH = _named(SLOW), _named(THOROUGH)


def _order(item: pytest.Item) -> tuple[int, int]:
    """Return the place of an item: those of files that are named come first, then those that may run anywhere."""
    file = item.path.as_posix()
    if file.endswith(FIRST):
        return -1, 0
    return _PLACES.get(_name(file), (len(BEHIND_EACH_OTHER), 0 if file.endswith(SPREAD) else 1))


def pytest_configure(config: pytest.Config) -> None:
    """Keep the jobs of tests out of the user's registry of running jobs, and their files off the disk."""
    # Processes of xdist find TMPDIR, and have their temporary paths below those of the process that starts them.
    in_memory = ExitStack()
    config.add_cleanup(in_memory.close)
    if (folder := in_memory.enter_context(files_in_memory())) is not None:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(folder))
    if "PENSTOCK_REGISTRY_DIR" not in os.environ:
        directory = tempfile.TemporaryDirectory(prefix="penstock-registry-")
        os.environ["PENSTOCK_REGISTRY_DIR"] = directory.name
        config.add_cleanup(directory.cleanup)


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
    for item in items:
        name = f"{item.path.as_posix()}::{item.name}"
        if name.startswith(_SLOW):
            item.add_marker(pytest.mark.slow)
        if name.startswith(_THOROUGH):
            item.add_marker(pytest.mark.thorough)
    items.sort(key=_order)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            if file.endswith(SPREAD):
                return nodeid
            place = _PLACES.get(_name(file))
            return file if place is None else BEHIND_EACH_OTHER[place[0]][0]

    config.option.loadscopereorder = False
    return Scheduling(config, log)
