"""Tests how the end of a process is recorded and reported."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.spark.process.process_ends import describe_end, oom_kills

ROOT = Path(__file__).parents[4]
DAEMON = """
import os, signal, sys
from penstock.spark.process.process_ends import record_ends
record_ends(sys.argv[1])
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # as PySpark's daemon does
children = []
for end in (lambda: os.kill(os.getpid(), signal.SIGKILL), lambda: os._exit(3), lambda: os._exit(0)):
    pid = os.fork()
    if pid == 0:
        end()
    children.append(pid)

def is_there(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True

while any(map(is_there, children)):
    pass
print(*children)
"""


def test_the_daemon_records_signals_and_exit_codes_of_its_children(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DAEMON, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    killed, exited, _ = done.stdout.split()
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {killed: "-9", exited: "3"}


@pytest.mark.parametrize(
    ("code", "killed", "said"),
    [
        (3, 1, "exited with code 3"),
        (-signal.SIGSEGV, 1, "was ended by SIGSEGV"),
        (-signal.SIGKILL, 0, "was ended by SIGKILL"),
        (-signal.SIGKILL, 2, "was ended by SIGKILL, probably for want of memory: the kernel's OOM killer has ended 2"),
        (None, 1, "ended; the kernel's OOM killer has ended 1 process(es)"),
    ],
)
def test_an_end_is_told_with_what_is_known(code: int | None, killed: int, said: str) -> None:
    assert describe_end(code, killed).startswith(said)


def test_linux_counts_what_its_oom_killer_ends() -> None:
    count = oom_kills()
    assert count is None or count >= 0
