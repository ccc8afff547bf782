"""Opens one RocksDB per subtask, and writes to it. All of a process share one bounded memory."""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
import weakref
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, NamedTuple, Protocol, Sequence

import pyarrow as pa

from penstock.common.options import CoreOptions, RocksDBOptions
from penstock.protocol.values.metadata import StateSchema
from penstock.state.backend import StateError
from penstock.state.rocksdb.native_metrics import NativeMetrics
from penstock.state.rocksdb.settings import RocksDBSettings
from penstock.storage.local_directory import LocalDirectory
from penstock.storage.store import StoreError

_STALL_PAUSE_S = 0.002
_STALL_MAX_S = 120.0
_STALLS = ("rocksdb.is-write-stopped", "rocksdb.actual-delayed-write-rate")
_BLIND_RETRY_S = 0.1
"""After so long a write is tried again even if RocksDB reports that it would have to wait."""
_MEMTABLE_BLOOM_RATIO = 0.1
"""Of a write buffer: ten bits and more for each key of 100 bytes."""
PREFIX_BYTES = 2
"""A key begins with the number of its state."""
_END = b"\xff" * 16
"""Behind the prefix: no key has so many of these bytes there, so it comes behind all of them."""
_DISK_FULL = tuple(os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
MAKE_ROOM = "make room there, or name directories of a larger disk with state.backend.rocksdb.localdir"
INSTALL = "pip install 'penstock[rocksdb]'"


Entry = tuple[bytes, bytes]
"""(key, value), as the database has them"""


class StoredTable(Protocol):
    """Encodes the entries of one state as all backends write them. `prefix`: of its keys."""

    schema: StateSchema
    prefix: bytes

    def encoded(self, entries: Sequence[Entry]) -> pa.RecordBatch:
        """Encode entries. Raises `StateError` for a value that cannot be encoded."""

    def encoded_keys(self, keys: Sequence[bytes]) -> pa.RecordBatch:
        """Encode keys that have no entry any more."""


def rocksdict() -> Any:
    """Return the module that binds RocksDB. Raises `StateError` if it is not installed."""
    try:
        import rocksdict
    except ImportError as error:
        raise StateError(
            f"state.backend.type: rocksdb needs the package rocksdict, which cannot be imported here ({error}): "
            f"{INSTALL}, on the driver and wherever the slots run"
        ) from error
    return rocksdict


class _SharedMemory:
    """Holds the block cache and the manager of write buffers that all databases of a process share."""

    def __init__(self, settings: RocksDBSettings) -> None:
        rocks = rocksdict()
        self.cache = rocks.Cache(settings.memory_bytes)
        buffers_bytes = int(settings.memory_bytes * settings.write_buffer_ratio)
        self.buffers = rocks.WriteBufferManager.new_write_buffer_manager_with_cache(buffers_bytes, False, self.cache)


_shared: weakref.WeakValueDictionary[tuple[int, float], _SharedMemory] = weakref.WeakValueDictionary()
_shared_lock = threading.Lock()


def _shared_memory(settings: RocksDBSettings) -> _SharedMemory:
    sizes = (settings.memory_bytes, settings.write_buffer_ratio)
    with _shared_lock:
        memory = _shared.get(sizes)
        if memory is None:
            memory = _shared[sizes] = _SharedMemory(settings)
        return memory


def _close(db: Any, directory: LocalDirectory) -> None:
    # As long as a view is read, RocksDB stays open, and would write new files while they are deleted. It refuses to be
    # closed after that, and is when it is freed.
    with suppress(Exception):
        db.cancel_all_background(True)
        db.close()
    directory.delete()


class Batch(NamedTuple):
    """Holds what is written at once: keys with their values, and keys that are deleted, which are others."""

    keys: list[bytes]
    values: list[bytes]
    deleted: list[bytes]


@dataclass(frozen=True)
class View:
    """Holds what was in a database at one time. Of a snapshot only single entries are read: its iterators show what was
    written since (rocksdict 0.3.29), those of the database do not.
    """

    snapshot: Any
    entries: dict[bytes, Iterator[tuple[bytes, bytes]]]
    """By prefix; each can be read once."""

    database: Database

    def values(self, keys: Sequence[bytes]) -> Iterator[Entry]:
        """Yield keys that have a value, with it. Raises `StateError` if one cannot be read."""
        for key in keys:
            try:
                yield key, self.snapshot[key]
            except Exception as error:
                raise self.database.failure("cannot be read", error) from error


class Database:
    """Holds an open RocksDB without a log of its own: what counts is in checkpoints. `described`: whose it is, for
    messages.
    """

    def __init__(self, settings: RocksDBSettings, described: str) -> None:
        rocks = rocksdict()
        try:
            named = f"{RocksDBOptions.LOCAL_DIRECTORIES.key} or {CoreOptions.TMP_DIRS.key}"
            self.directory = LocalDirectory(settings.directories, "RocksDB", named)
        except StoreError as error:
            raise StateError(str(error)) from error
        self.described = f"the RocksDB of {described}"
        self.on_failure: Callable[[], None] = lambda: None
        """Called before a failure is raised."""
        self._settings = settings
        self._memory = _shared_memory(settings)
        self._rocks_batch = rocks.WriteBatch
        self._read_options = rocks.ReadOptions
        self._how = rocks.WriteOptions()
        self._how.disable_wal = True
        # A write waits with the interpreter's lock, so it must not wait for long.
        self._how.no_slowdown = True
        try:
            self._open()
        except Exception as error:
            self.directory.delete()
            raise self.failure("cannot be opened", error) from error

    @property
    def _path(self) -> Path:
        return self.directory.path / "db"

    def _open(self) -> None:
        rocks = rocksdict()
        self._db = rocks.Rdict(str(self._path), self._options(rocks, self._settings))
        # Also before the garbage collector deletes the directory: without it RocksDB cannot write what is in memory,
        # and tries again for seconds.
        self._closing = weakref.finalize(self, _close, self._db, self.directory)
        self._closing.atexit = False
        self.get: Any = self._db.get
        """Return the value of a key, or those of a list of keys; None where there is none."""

    def _options(self, rocks: Any, settings: RocksDBSettings) -> Any:
        options = rocks.Options(raw_mode=True)
        options.create_if_missing(True)
        blocks = rocks.BlockBasedOptions()
        blocks.set_block_cache(self._memory.cache)
        blocks.set_block_size(settings.block_bytes)
        blocks.set_cache_index_and_filter_blocks(True)
        blocks.set_pin_l0_filter_and_index_blocks_in_cache(True)
        if settings.bloom_bits_per_key:
            blocks.set_bloom_filter(settings.bloom_bits_per_key, False)
        options.set_block_based_table_factory(blocks)
        options.set_write_buffer_manager(self._memory.buffers)
        options.set_write_buffer_size(settings.write_buffer_bytes)
        options.set_max_write_buffer_number(settings.write_buffers)
        if settings.bloom_bits_per_key:
            # Most keys that are read are not among those written lately; a search there costs more than in a file.
            options.set_memtable_prefix_bloom_ratio(_MEMTABLE_BLOOM_RATIO)
            options.set_memtable_whole_key_filtering(True)
        options.set_max_background_jobs(settings.threads)
        options.set_compression_type(getattr(rocks.DBCompressionType, settings.compression)())
        options.set_max_open_files(settings.files_open)
        options.set_max_bytes_for_level_base(settings.level_base_bytes)
        options.set_target_file_size_base(settings.file_base_bytes)
        options.set_keep_log_file_num(2)
        self._metrics = NativeMetrics(settings.metrics, options)
        return options

    def read(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of keys; None where there is none. Raises `StateError`."""
        try:
            found: list[bytes | None] = self.get(keys)
        except Exception as error:
            raise self.failure("cannot be read", error) from error
        return found

    def write(self, batch: Batch) -> None:
        """Write a batch, and wait if RocksDB cannot keep up. Raises `StateError`."""
        deadline_s: float | None = None
        while True:
            # RocksDB takes each batch of its own once, whether it writes it or not.
            made = self._rocks_batch(raw_mode=True)
            deque(map(made.put, batch.keys, batch.values), maxlen=0)
            deque(map(made.delete, batch.deleted), maxlen=0)
            try:
                self._db.write(made, self._how)
                return
            except Exception as error:
                if "stall" not in str(error).lower():
                    raise self.failure("cannot be written", error) from error
                now_s = time.monotonic()
                deadline_s = now_s + _STALL_MAX_S if deadline_s is None else deadline_s
                if now_s > deadline_s:
                    raise self.failure(
                        f"has not taken a write for {_STALL_MAX_S:.0f} s, because its flushes and compactions do not "
                        "keep up (state.backend.rocksdb.thread.num, or a faster disk)",
                        error,
                    ) from error
            self._wait_for_room()

    def _wait_for_room(self) -> None:
        """Wait until RocksDB takes writes again, or for a moment."""
        until_s = time.monotonic() + _BLIND_RETRY_S
        time.sleep(_STALL_PAUSE_S)
        while time.monotonic() < until_s and any(map(self._db.property_int_value, _STALLS)):
            time.sleep(_STALL_PAUSE_S)

    def view(self, scanned: Iterable[bytes] = ()) -> View:
        """Return what is in the database now, to be read in any thread while it changes. `scanned`: the prefixes whose
        entries will be asked for.
        """
        return View(self._db.snapshot(), {prefix: self.scan(prefix) for prefix in scanned}, self)

    def begin(self, prefix: bytes) -> None:
        """Note that keys may begin with `prefix`. Call it before they are written or scanned."""
        self.write(Batch([prefix + _END], [b""], []))

    def scan(self, prefix: bytes, behind: bytes = b"") -> Iterator[Entry]:
        """Return the entries whose keys begin with `prefix`, sorted, as they are at the time of this call; only those
        behind the key `behind`.
        """
        options = self._read_options()
        options.fill_cache(False)
        start = max(prefix, behind)
        return self._until_end(prefix, behind, self._db.items(read_opt=options, from_key=start), options)

    def _until_end(self, prefix: bytes, behind: bytes, entries: Any, _: Any) -> Iterator[Entry]:
        """Yield entries up to the mark behind them. Without the mark: where a file is damaged, an iterator of rocksdict
        ends like any other, and a checkpoint would lack the rest. The options are kept, for RocksDB looks at them.
        """
        end = prefix[:PREFIX_BYTES] + _END
        key = prefix
        for key, data in entries:
            if key == end or not key.startswith(prefix):
                return
            if key != behind:
                yield key, data
        raise self._damage_behind(key)

    def _damage_behind(self, key: bytes) -> StateError:
        """Return the error for entries that cannot be read behind `key`, with RocksDB's own words."""
        try:
            at = self._db.iter()
            at.seek(key)
            while at.valid():
                at.next()
            at.status()
        except Exception as error:
            return self.failure("cannot be read", error)
        return self.failure("cannot be read", ValueError("entries are missing behind those that were read"))

    def failure(self, what: str, error: Exception) -> StateError:
        """Return the error for a call that has failed."""
        self.on_failure()
        told = f"{self.described} in {self.directory.path} {what}: {error}"
        copy = "The slot's disk holds a working copy only: the job restarts from its newest checkpoint"
        if any(text in str(error) for text in _DISK_FULL):
            return StateError(f"{told}. {copy}. {self.directory.room}: {MAKE_ROOM}")
        return StateError(
            f"{told}. {copy}. If this comes again, look at the disk, or name another one with "
            "state.backend.rocksdb.localdir"
        )

    # ---- copies -------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Begin to write what is in memory to files, which happens in RocksDB's own threads."""
        self._db.flush(wait=False)

    @property
    def is_flushing(self) -> bool:
        return bool(self._db.property_int_value("rocksdb.num-immutable-mem-table"))

    def copy_to(self, path: Path) -> None:
        """Make a copy of hard links, with what is in the database now. Everything waits for it: call `flush` before."""
        rocksdict().Checkpoint(self._db).create_checkpoint(str(path))

    def open_with(self, fill: Callable[[Path], None]) -> None:
        """Open other files in place of an empty database. `fill` makes their directory. If that fails, the database is
        empty as before, and the error is raised.
        """
        self._closing.detach()
        self._db.close()
        shutil.rmtree(self._path)
        try:
            fill(self._path)
            self._open()
        except Exception:
            shutil.rmtree(self._path, ignore_errors=True)
            self._open()
            raise

    def delete_state(self, number: int) -> None:
        """Delete all entries of a state. `number`: what its keys begin with."""
        try:
            ends = (n.to_bytes(PREFIX_BYTES, "big") for n in (number, number + 1))
            self._db.delete_range(*ends, write_opt=self._how)
        except Exception as error:
            raise self.failure("cannot be written", error) from error

    def close(self) -> None:
        """Close it, and delete its files. Views can still be read."""
        self._closing()

    def metrics(self) -> dict[str, int]:
        """Return the figures that the options ask for; none once it is closed. Called from any thread."""
        try:
            return self._metrics.read(self._db)
        except Exception:  # it is closed at any time by its own thread
            return {}
