"""Names a process in `ps` and `top` by what it does, on Linux."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from pathlib import Path

_ARG_START, _ARG_END = 45, 46
"""The places of these fields in /proc/<pid>/stat, behind the process's name (see proc(5))."""
_NAME_BYTES_MAX = 15


def set_title(title: str, name: str) -> None:
    """Replace the process's arguments by `title`, cut off where those end, and its name by `name`. Does nothing where
    the system does not say where they are.
    """
    with suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = int(fields[_ARG_START]), int(fields[_ARG_END])
        room = end - start
        if start and room > 1:
            # The last byte stays 0. Without this: the kernel reads on into the environment.
            ctypes.memmove(start, title.encode()[: room - 1].ljust(room, b"\0"), room)
        Path("/proc/self/comm").write_text(name[:_NAME_BYTES_MAX])
