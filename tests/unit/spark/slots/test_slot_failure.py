"""Tests what is said when a slot does not start: which executor, what it lacks, and the way out."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

from penstock.spark.process.slot_task import NEEDS, SlotArguments, slot_task
from penstock.spark.slots.slot_failure import cause, is_final, is_hopeless
from penstock.spark.slots.task_placement import TaskPlace

PLACES = [TaskPlace("1", "10.0.0.6", "FAILED"), TaskPlace("2", "10.0.0.7", "FAILED")]

LOST = (
    "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n"
    ": org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, most "
    "recent failure: Lost task 0.3 in stage 3.0 (TID 17) (10.0.0.7 executor 2): "
)


def test_another_python_is_told_with_both_versions_executor_and_way_out() -> None:
    error = RuntimeError(
        LOST + "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        '  File "worker.py", line 90, in main\n'
        "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different "
        "version: 3.12 than that in driver: 3.11, PySpark cannot run with different minor versions.\n\n\tat org.apache"
    )
    said = cause(error, PLACES)
    assert "the executor's Python is 3.12, the driver's is 3.11 (executor 2 on 10.0.0.7)" in said
    assert "PYSPARK_PYTHON" in said and "--archives" in said
    assert is_hopeless(said)


def test_what_the_slots_python_raised_is_told_without_frames() -> None:
    error = RuntimeError(
        LOST + 'Traceback (most recent call last):\n  File "x.py", line 1\nValueError: bad\n\tat org.apache'
    )
    assert cause(error, PLACES) == "ValueError: bad (executor 2 on 10.0.0.7)"
    assert not is_hopeless(cause(error))


def test_an_executor_in_this_process_has_no_name_worth_telling() -> None:
    error = RuntimeError("(TID 1) (localhost executor driver): Traceback (most recent call last)\nOSError: full\n")
    assert cause(error, [TaskPlace("driver", "localhost", "FAILED")]) == "OSError: full"


def test_a_slot_looks_for_what_it_needs_before_it_imports_anything() -> None:
    arguments = SlotArguments(
        "h", 1, b"", "job", 3, 1, needs=(("json", "0"), ("penstock_nowhere", "1"), ("msgspec", "99.1"))
    )
    version = ".".join(map(str, sys.version_info[:3]))
    with pytest.raises(RuntimeError) as raised:
        slot_task(arguments)(iter(()))
    said = str(raised.value)
    assert said.startswith(f"slot 3: Python {version} at {sys.executable} on this executor lacks penstock_nowhere, ")
    assert "msgspec 99.1 or later (it has " in said and "venv-pack" in said
    assert is_hopeless(said)


def test_needs_are_those_of_the_package() -> None:
    project = tomllib.loads((Path(__file__).parents[4] / "pyproject.toml").read_text())["project"]
    declared = {text.partition(">=")[0]: text.partition(">=")[2].partition(",")[0] for text in project["dependencies"]}
    assert dict(NEEDS).items() <= declared.items()


@pytest.mark.parametrize(
    ("detail", "fruitless", "has_run", "final"),
    [
        ("ValueError: no", 3, False, False),
        ("ValueError: no", 4, False, True),
        ("ValueError: no", 400, True, False),
        ("Python 3.11 at python on this executor lacks xxhash", 1, True, False),
        ("Python 3.11 at python on this executor lacks xxhash", 2, True, True),
    ],
)
def test_a_job_that_has_run_goes_on_with_trying_what_may_come_back(
    detail: str, fruitless: int, has_run: bool, final: bool
) -> None:
    assert is_final(detail, fruitless, has_run) is final
