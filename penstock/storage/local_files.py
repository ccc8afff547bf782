"""Writes and reads single files of the local store, and explains what a file system refuses."""

from __future__ import annotations

import bisect
import contextlib
import errno
import itertools
import os
from pathlib import Path
from typing import Iterator, Sequence

from penstock.storage.store import StoreAway, StoreError

_PARTS_PER_WRITE_MAX = 1024
_BYTES_PER_WRITE_MAX = 512 * 1024
"""The kernel lays a longer write out in larger pages, and while it looks for those nobody else gets the processor:
measured, one of 16 MB stops its neighbours for up to 50 ms, and takes several times as long as 32 of these."""


class NewFile:
    """Writes a file with a new name. Raises OSError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)

    def write(self, parts: Sequence[bytes | memoryview]) -> None:
        assert self._descriptor is not None
        _write_all(self._descriptor, parts)

    def finish(self, fsync: bool) -> None:
        assert self._descriptor is not None
        try:
            if fsync:
                os.fsync(self._descriptor)
        finally:
            self._close()

    def discard(self) -> None:
        with contextlib.suppress(OSError):
            self._close()
        self.path.unlink(missing_ok=True)

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


_AWAY = (
    errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENOTCONN,
    errno.ECONNREFUSED, errno.ECONNRESET, errno.EREMOTEIO, errno.EAGAIN,
)  # fmt: skip
"""The errors of a network file system whose server does not answer."""


def explained(error: OSError, verb: str, target: Path, root: Path) -> StoreError:
    """Return the error of the store that explains an error of the file system."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        cause = "the disk is full, or the quota used up: free space, or retain fewer checkpoints"
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        cause = f"the directory is not writable for user {os.geteuid()} ({error.strerror})"
        if verb in ("read", "list"):
            cause = f"it is not readable for user {os.geteuid()} ({error.strerror})"
    elif error.errno in (errno.ENOTDIR, errno.EEXIST):
        cause = "a part of this path is a file, not a directory"
    else:
        cause = error.strerror or str(error)
    kind = StoreAway if error.errno in _AWAY else StoreError
    return kind(f"cannot {verb} {target} in checkpoint directory {root}: {cause}")


def _write_all(descriptor: int, parts: Sequence[bytes | memoryview]) -> None:
    """Write the parts without copying them; continue if the system took only some."""
    waiting = [piece for part in parts for piece in _pieces(memoryview(part).cast("B"))]
    ends = list(itertools.accumulate(piece.nbytes for piece in waiting))
    at = 0
    while at < len(waiting):
        limit_bytes = ends[at] - waiting[at].nbytes + _BYTES_PER_WRITE_MAX
        until = min(at + _PARTS_PER_WRITE_MAX, bisect.bisect_right(ends, limit_bytes, at))
        taken = os.writev(descriptor, waiting[at:until])
        while taken:
            if taken < waiting[at].nbytes:
                waiting[at] = waiting[at][taken:]
                break
            taken -= waiting[at].nbytes
            at += 1


def _pieces(view: memoryview) -> Iterator[memoryview]:
    for start in range(0, view.nbytes, _BYTES_PER_WRITE_MAX):
        yield view[start : start + _BYTES_PER_WRITE_MAX]


def read_range(descriptor: int, offset: int, length_bytes: int) -> bytes:
    """Read a range of an open file. Raises OSError."""
    pieces = []
    while length_bytes:
        piece = os.pread(descriptor, length_bytes, offset)
        if not piece:
            raise OSError(errno.EIO, "the file became shorter while it was read")
        pieces.append(piece)
        offset += len(piece)
        length_bytes -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
