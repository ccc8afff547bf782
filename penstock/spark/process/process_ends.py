"""Records the end of a slot's process: exit code or signal, written by our daemon and read by the driver.

Only a parent learns how a process ended, and the parent of a slot is the daemon. Penstock's own Spark runs on the
driver's machine with our daemon (`slot_daemon.py`), which writes a file for each process that did not end by itself. In
a session of the user's that file is missing; then only the kernel's count of processes that ran out of memory is known.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import signal
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

FOLDER_VARIABLE = "PENSTOCK_PROCESS_ENDS"
_VMSTAT = Path("/proc/vmstat")


@functools.cache
def ends_folder() -> Path:
    """Make the folder in which this program's processes record how they end; it is removed when the program ends."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-process-ends-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def record_ends(folder: str) -> None:
    """Start recording. Called in the daemon before PySpark's loop, which makes the kernel forget ended children."""
    set_handler = signal.signal

    def reap(_number: int, _frame: Any) -> None:
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                if status:
                    with suppress(OSError):
                        Path(folder, str(pid)).write_text(str(os.waitstatus_to_exitcode(status)))

    def signal_or_reap(number: Any, handler: Any) -> Any:
        return set_handler(number, reap if (number, handler) == (signal.SIGCHLD, signal.SIG_IGN) else handler)

    signal.signal = signal_or_reap  # type: ignore[assignment]


def take_exit_code(pid: int) -> int | None:
    """Return the exit code, or the negative number of the signal, that was recorded for a process, and forget it."""
    file = ends_folder() / str(pid)
    with suppress(OSError, ValueError):
        code = int(file.read_text())
        file.unlink()
        return code
    return None


def oom_kills() -> int | None:
    """Return the number of processes that this machine's kernel ended for want of memory; None if unknown."""
    with suppress(OSError, ValueError):
        for line in _VMSTAT.read_text().splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return None


def describe_end(code: int | None, oom_killed: int) -> str:
    """Describe the end of a process, as part of a sentence.

    Args:
        code: As `take_exit_code` returns it.
        oom_killed: How many processes the kernel has ended for want of memory since the job started.
    """
    killer = f"the kernel's OOM killer has ended {oom_killed} process(es) of this machine since the job started"
    if code is None:
        return f"ended; {killer}" if oom_killed else "ended"
    if code >= 0:
        return f"exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    if -code != signal.SIGKILL:
        return f"was ended by {name}"
    return f"was ended by SIGKILL, probably for want of memory: {killer}" if oom_killed else "was ended by SIGKILL"
