"""Makes the backends of columnar state that the conformance tests run against."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from penstock.state.columnar.columnar_backend import ColumnarBackend, ColumnarStateBackend
from penstock.state.rocksdb.disk_columnar_backend import RocksDBColumnarBackend
from penstock.state.rocksdb.rocksdb_settings import RocksDBSettings

KINDS = ("memory", "rocksdb", "rocksdb-without-cache")
CACHED_BYTES = {"rocksdb": 2**13, "rocksdb-without-cache": 1}


class ColumnarBackends:
    """Makes backends of one kind, and ends them all at once."""

    def __init__(self, kind: str, incremental: bool = False, range_bytes: int = 2**22) -> None:
        self.kind = kind
        self.range_bytes = range_bytes
        self.incremental = incremental
        self._made: list[ColumnarBackend[Any]] = []
        self._directory: TemporaryDirectory[str] | None = None if kind == "memory" else TemporaryDirectory()

    def new(self) -> ColumnarBackend[Any]:
        if self._directory is None:
            return ColumnarStateBackend({"op": "Sums"}, incremental=self.incremental)
        limits = RocksDBSettings(
            (self._directory.name,), 2**23, cached_bytes=CACHED_BYTES[self.kind], range_bytes=self.range_bytes
        )
        made = RocksDBColumnarBackend({"op": "Sums"}, settings=limits, incremental=self.incremental)
        self._made.append(made)
        return made

    def close(self) -> None:
        for backend in self._made:
            backend.revoke()
        self._made.clear()

    def __enter__(self) -> ColumnarBackends:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
        if self._directory is not None:
            left = list(Path(self._directory.name).iterdir())
            self._directory.cleanup()
            assert not left, "a backend has left files behind"
