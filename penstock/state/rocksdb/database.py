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
from itertools import takewhile
from pathlib import Path
from typing import Any, Callable, Iterator, NamedTuple, Sequence

from penstock.common.options import CoreOptions, RocksDBOptions
from penstock.state.backend import StateError
from penstock.state.first_failure import FirstFailure
from penstock.state.rocksdb.native_metrics import NativeMetrics
from penstock.state.rocksdb.rocksdb_settings import RocksDBSettings
from penstock.storage.local_directory import LocalDirectory
from penstock.storage.store import StoreError

_STALL_PAUSE_S = 0.002
_STALL_MAX_S = 120.0
_STALLS = ("rocksdb.is-write-stopped", "rocksdb.actual-delayed-write-rate")
_FLUSHING = ("rocksdb.mem-table-flush-pending", "rocksdb.num-running-flushes")
_BLIND_RETRY_S = 0.1
"""The time after which a write is tried again even if RocksDB reports that it would have to wait."""
_MEMTABLE_BLOOM_RATIO = 0.1
"""The part of a write buffer that its Bloom filter takes: ten bits and more for each key of 100 bytes."""
PREFIX_BYTES = 2
"""The bytes that the number of its state takes at the beginning of a key."""
_END = b"\xff" * 16
"""Follows a prefix: no key has 16 of these bytes there, so the result sorts behind all keys of the prefix."""
_DISK_FULL = tuple(os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
MAKE_ROOM = "make room there, or name directories of a larger disk with state.backend.rocksdb.localdir"
INSTALL = "pip install 'penstock[rocksdb]'"


Entry = tuple[bytes, bytes]
"""(key, value), as the database has them"""


def behind_state(prefix: bytes) -> bytes:
    """Return a key that sorts behind all keys of a state."""
    return prefix[:PREFIX_BYTES] + _END


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
    """Holds a batch of writes: keys with their values, and deleted keys. No key is in both."""

    keys: list[bytes]
    values: list[bytes]
    deleted: list[bytes]


@dataclass(frozen=True)
class View:
    """Holds the contents of a database at one time. Of a snapshot only single entries are read: its iterators show what
    was written since (rocksdict 0.3.29), those of the database do not.
    """

    snapshot: Any
    entries: dict[bytes, Iterator[tuple[bytes, bytes]]]
    """The entries of each state, by the prefix of its keys; each iterator can be read once."""

    database: Database

    def value(self, key: bytes) -> bytes:
        """Return the value of a key that has one. Raises `StateError` if it cannot be read."""
        try:
            found: bytes = self.snapshot[key]
        except Exception as error:
            raise self.database.failed("cannot be read", error) from error
        return found


class Database:
    """Holds an open RocksDB without a log: checkpoints keep its contents. `described`: its owner, for messages."""

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
        self.first_failure = FirstFailure()
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
        self._how_kept = self._options(rocks, self._settings)
        self._db = rocks.Rdict(str(self._path), self._how_kept)
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
        options.set_min_write_buffer_number_to_merge(settings.write_buffers_merged)
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
            raise self.failed("cannot be read", error) from error
        return found

    def write(self, batch: Batch) -> None:
        """Write a batch, and wait if RocksDB cannot keep up. Raises `StateError`."""

        def write() -> None:
            # RocksDB takes each batch of its own once, whether it writes it or not.
            made = self._rocks_batch(raw_mode=True)
            deque(map(made.put, batch.keys, batch.values), maxlen=0)
            deque(map(made.delete, batch.deleted), maxlen=0)
            self._db.write(made, self._how)

        self._written(write)

    def delete_state(self, number: int) -> None:
        """Delete all entries of a state, and wait if RocksDB cannot keep up. `number`: what its keys begin with. Raises
        `StateError`.
        """
        first, end = (n.to_bytes(PREFIX_BYTES, "big") for n in (number, number + 1))
        self._written(lambda: self._db.delete_range(first, end, write_opt=self._how))

    def _written(self, write: Callable[[], None]) -> None:
        deadline_s: float | None = None
        while True:
            try:
                write()
                return
            except Exception as error:
                if "stall" not in str(error).lower():
                    raise self.failed("cannot be written", error) from error
                now_s = time.monotonic()
                deadline_s = now_s + _STALL_MAX_S if deadline_s is None else deadline_s
                if now_s > deadline_s:
                    raise self.failed(
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

    def view(self, scanned: dict[bytes, Iterator[Entry]]) -> View:
        """Return a view of the database's present contents, to be read in any thread while it changes. `scanned`: by
        prefix, what `scan` returns now of those whose entries will be asked for.
        """
        return View(self._db.snapshot(), scanned, self)

    def sorted_file(self, path: str) -> Any:
        """Return a new file for `ingest`, which takes sorted entries. The caller handles failures of both."""
        file = rocksdict().SstFileWriter(self._how_kept)
        file.open(path)
        return file

    def ingest(self, path: str) -> None:
        """Take a file of entries over, which override those that are there."""
        how = rocksdict().IngestExternalFileOptions()
        how.set_move_files(True)
        self._db.ingest_external_file([path], how)

    def begin(self, prefix: bytes) -> None:
        """Note that keys may begin with `prefix`. Call it before they are written or scanned."""
        self.write(Batch([behind_state(prefix)], [b""], []))

    def scan(self, prefix: bytes, behind: bytes = b"") -> Iterator[Entry]:
        """Return the entries whose keys begin with `prefix`, sorted, as they are at the time of this call; only those
        behind the key `behind`.
        """
        options = self._read_options()
        options.fill_cache(False)
        start = max(prefix, behind)
        return self._until_end(prefix, behind, self._db.items(read_opt=options, from_key=start), options)

    def stretch(self, first: bytes, end: bytes) -> Iterator[Entry]:
        """Return the entries of one state with keys from `first` to before `end`, as they are now."""
        options = self._read_options()
        options.fill_cache(False)
        found = self._until_end(first[:PREFIX_BYTES], b"", self._db.items(read_opt=options, from_key=first), options)
        return takewhile(lambda entry: entry[0] < end, found)

    def _until_end(self, prefix: bytes, behind: bytes, entries: Any, _: Any) -> Iterator[Entry]:
        """Yield entries up to the mark behind them. Without the mark: where a file is damaged, an iterator of rocksdict
        ends like any other, and a checkpoint would lack the rest. The options are kept, for RocksDB looks at them.
        """
        end = behind_state(prefix)
        key = prefix
        for key, data in entries:
            if key == end or not key.startswith(prefix):
                return
            if key != behind:
                yield key, data
        raise self._damage_behind(key)

    def _damage_behind(self, key: bytes) -> StateError:
        """Return the error for entries that cannot be read behind `key`, with RocksDB's own words. It fails the
        subtask: most scans run in the thread of the snapshot writer, which only declines a checkpoint.
        """
        try:
            at = self._db.iter()
            at.seek(key)
            while at.valid():
                at.next()
            at.status()
        except Exception as error:
            return self.failed("cannot be read", error)
        return self.failed("cannot be read", ValueError("entries are missing behind those that were read"))

    def failed(self, what: str, error: Exception) -> StateError:
        """Return the error for a call that has failed, and that fails the subtask, whoever catches the error."""
        failure = self.failure(what, error)
        self.first_failure.note(failure)
        return failure

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
        """Begin to flush the memtables, in RocksDB's own threads."""
        self._db.flush(wait=False)

    @property
    def is_flushing(self) -> bool:
        return any(map(self._db.property_int_value, _FLUSHING))

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

    def close(self) -> None:
        """Close the database, and delete its files. Views can still be read."""
        self._closing()

    def metrics(self) -> dict[str, int]:
        """Return the figures that the options ask for; none once it is closed. Called from any thread."""
        try:
            return self._metrics.read(self._db)
        except Exception:  # it is closed at any time by its own thread
            return {}
