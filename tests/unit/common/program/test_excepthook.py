"""Checks what a failed program prints: the user's own lines, and none of ours above or below them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.common import Configuration, WatermarkStrategy
from penstock.common.job_execution import JobExecutionError
from penstock.common.options import OptionError
from penstock.common.program.excepthook import format_uncaught

ROOT = Path(__file__).parents[4]


def raised(call: Callable[[], object]) -> BaseException:
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def fails() -> None:
    raise JobExecutionError("Traceback (most recent call last):\n  the user's\nthe job has failed")


def refuses() -> None:
    Configuration({"execution.checkpointing.interval": "fast"}).validate()


def test_a_failed_job_is_told_without_how_we_came_to_run_it() -> None:
    assert format_uncaught(raised(fails)) == "Traceback (most recent call last):\n  the user's\nthe job has failed\n"


def test_a_refusal_ends_with_the_users_line() -> None:
    error = raised(refuses)
    assert isinstance(error, OptionError)
    *frames, said = [line for line in format_uncaught(error).splitlines() if line.startswith((" ", "penstock"))]
    assert 'Configuration({"execution' in "".join(frames) and "penstock/common" not in "".join(frames)
    assert "execution.checkpointing.interval" in said


def test_a_refusal_with_an_error_of_pythons_own_ends_with_the_users_line_too() -> None:
    told = format_uncaught(raised(lambda: WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("")))
    assert 'with_timestamp_column("")' in told and "penstock/common" not in told
    assert told.endswith("TypeError: with_timestamp_column() takes the name of a column, got ''\n")
    mistake = raised(lambda: Configuration({"a": "b"}).get(3))  # type: ignore[call-overload]
    assert "penstock/common" in format_uncaught(mistake), "which is nobody's refusal"


def test_frames_above_the_program_are_left_out_and_its_own_errors_are_whole() -> None:
    def program() -> None:
        raise ValueError("mine") from KeyError("cause")

    told = format_uncaught(raised(program), __file__)
    assert "KeyError: 'cause'" in told and told.endswith("ValueError: mine\n")


@pytest.mark.parametrize(
    ("ends", "code", "says"),
    [
        ("raise KeyboardInterrupt", 130, ""),
        ("raise JobExecutionError('it failed')", 1, "it failed\n"),
        ("raise SystemExit(7)", 7, ""),
    ],
)
def test_how_a_program_ends(ends: str, code: int, says: str) -> None:
    program = (
        "from penstock.common.job_execution import JobExecutionError\n"
        f"from penstock.common.program.excepthook import install_excepthook\ninstall_excepthook()\n{ends}"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, says)


def test_an_excepthook_of_the_users_own_stays() -> None:
    program = (
        "import sys\nfrom penstock.common.program.excepthook import install_excepthook\n"
        "sys.excepthook = lambda *_: print('mine')\ninstall_excepthook()\nraise ValueError"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == "mine\n"
