"""Keeps temporary files in memory, because RocksDB would spend most of its time on the disk with them."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")
ROOM_BYTES_MIN = 2 << 30
"""The free memory from which on files are kept there. A container has 64 MB by default."""


@contextmanager
def files_in_memory() -> Iterator[Path | None]:
    """Let `tempfile` use a new directory in memory, here and in processes that are started, until the end of the block.
    Yields None, and changes nothing, where `TMPDIR` says where files are to be, or where there is too little room.
    """
    if "TMPDIR" in os.environ or not _has_room():
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="temporary-", dir=SHARED_MEMORY, ignore_cleanup_errors=True) as folder:
        before, tempfile.tempdir = tempfile.tempdir, folder
        os.environ["TMPDIR"] = folder
        try:
            yield Path(folder)
        finally:
            tempfile.tempdir = before
            del os.environ["TMPDIR"]


def _has_room() -> bool:
    try:
        return os.access(SHARED_MEMORY, os.W_OK) and shutil.disk_usage(SHARED_MEMORY).free >= ROOM_BYTES_MIN
    except OSError:
        return False
