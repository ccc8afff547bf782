"""Implements a store in HDFS, through hdfs-native, which needs no Java.

HDFS shows a file under its name from its creation on, with length 0 until it is closed. So an object is written under a
temporary name, and published by a rename that fails where the name is taken. Of two drivers one wins.

A rename that was executed and whose answer was lost finds its source gone when it is repeated: nobody else takes a
temporary file away.
"""

from __future__ import annotations

import builtins
import contextlib
import random
import time
import uuid
from typing import Any, Callable, Sequence, TypeVar

from penstock.common.options import ObjectStoreOptions
from penstock.storage.location import RemoteLocation
from penstock.storage.settings import StoreSettings
from penstock.storage.store import (
    Found,
    ObjectExists,
    ObjectMissing,
    ObjectWriter,
    RangeMissing,
    StoreError,
    checked,
    write_whole,
)

T = TypeVar("T")

TEMPORARY_FOLDER = ".tmp"
TEMPORARY_GRACE_S = 3600
_PAUSE_S = (0.05, 5.0)
_ATTEMPTS_MAX = 100
_CLIENT = {
    # The client's own attempts take minutes with a name node that is away; these find the other one of a pair.
    "dfs.client.failover.max.attempts": "2",
    "dfs.client.failover.sleep.base.millis": "100",
    "dfs.client.failover.sleep.max.millis": "500",
}


def open_hdfs(location: RemoteLocation, settings: StoreSettings, create_root: bool) -> HdfsStore:
    """Open a folder of HDFS, and make it if `create_root` is set. Raises `StoreError`."""
    try:
        import hdfs_native
    except ImportError as error:
        raise StoreError(
            f"{location.uri}: needs hdfs-native, which is not installed here ({error}): pip install 'penstock[hdfs]', "
            "on the driver and on the executors"
        ) from None
    try:
        client = hdfs_native.Client(location.root if location.authority else None, _CLIENT)
    except (RuntimeError, OSError, ValueError) as error:
        raise StoreError(
            f"{location.uri} cannot be opened: {_first_line(error)}; name host and port of the name node, or set "
            "HADOOP_CONF_DIR to a directory with core-site.xml and hdfs-site.xml"
        ) from None
    store = HdfsStore(location, client, hdfs_native.WriteOptions, settings)
    store.open_root(create_root)
    return store


class HdfsStore:
    """Implements `ObjectStore` below `location`."""

    def __init__(
        self, location: RemoteLocation, client: Any, write_options: Callable[..., Any], settings: StoreSettings
    ) -> None:
        self._location = location
        self._client = client
        self._write_options = write_options
        self._root = f"/{location.path}".rstrip("/")
        self._retry_s = settings.get(ObjectStoreOptions.RETRY_TIMEOUT).seconds
        self._hsync = settings.fsync

    def open_root(self, create: bool) -> None:
        """Make the folder, and sweep what killed writers left; or check that it is there. Raises `StoreError`."""
        root = self._root or "/"
        if create:
            self._call("create", "", lambda: self._client.mkdirs(root, create_parent=True))
            self._sweep_temporary()
            return
        try:
            self._call("open", "", lambda: self._client.get_file_info(root))
        except FileNotFoundError:
            raise StoreError(f"{self._location.uri} does not exist") from None

    def put(self, path: str, parts: Sequence[bytes | memoryview]) -> None:
        write_whole(self.writer(path), parts)

    def writer(self, path: str) -> ObjectWriter:
        return _HdfsWriter(self, checked(path))

    def create(self, path: str, data: bytes) -> None:
        self.put(path, [data])

    def get(self, path: str, offset: int = 0, length_bytes: int | None = None) -> bytes:
        name = self._name(path)

        def read() -> bytes:
            file = self._client.read(name)
            size = len(file)
            wanted = max(0, size - offset) if length_bytes is None else length_bytes
            if offset + wanted > size:
                raise RangeMissing(f"{self._uri(path)} has {size} bytes, and not those at {offset}..{offset + wanted}")
            return bytes(file.read_range(offset, wanted)) if wanted else b""

        return self._found("read", path, read)

    def size(self, path: str) -> int:
        return self.stat(path).size_bytes

    def stat(self, path: str) -> Found:
        name = self._name(path)
        status = self._found("read", path, lambda: self._client.get_file_info(name))
        if status.isdir:
            raise ObjectMissing(f"{self._uri(path)} is a folder")
        return Found(path, int(status.length), status.modification_time / 1000)

    def move(self, path: str, new_path: str) -> None:
        try:
            self.publish(new_path, self._name(path))
        except FileNotFoundError:
            raise ObjectMissing(f"{self._uri(path)} does not exist") from None

    def list(self, prefix: str) -> builtins.list[str]:
        return [found.path for found in self.objects(prefix)]

    def objects(self, prefix: str) -> builtins.list[Found]:
        return sorted(
            Found(path, status.length, status.modification_time / 1000)
            for path, status in self._listed(prefix, recursive=True)
            if not status.isdir
        )

    def folders(self, prefix: str) -> builtins.list[str]:
        return sorted(path.rpartition("/")[2] for path, status in self._listed(prefix, recursive=False) if status.isdir)

    def _listed(self, prefix: str, recursive: bool) -> builtins.list[tuple[str, Any]]:
        """Return what is below a folder, by paths relative to the root, without hidden names."""
        folder = self._name(prefix) if prefix else self._root or "/"
        try:
            found = self._call("list", prefix, lambda: [*self._client.list_status(folder, recursive)])
        except FileNotFoundError:
            return []
        named = [(status.path.removeprefix(f"{self._root}/"), status) for status in found]
        # A file lists itself.
        return [(p, s) for p, s in named if p != prefix and not any(part.startswith(".") for part in p.split("/"))]

    def delete(self, path: str) -> None:
        name = self._name(path)
        self._call("delete", path, lambda: self._client.delete(name))
        while (name := name.rpartition("/")[0]) != self._root and self._remove_empty(name):
            pass

    def remove_if_empty(self) -> None:
        if self._remove_empty(f"{self._root}/{TEMPORARY_FOLDER}") and self._root:
            self._remove_empty(self._root)

    def _remove_empty(self, folder: str) -> bool:
        try:
            self._client.delete(folder)
        except (RuntimeError, OSError):  # it is not empty, or HDFS does not answer
            return False
        return True

    # ---- writing ------------------------------------------------------------------------------------------------

    def new_temporary(self) -> str:
        return f"{self._root}/{TEMPORARY_FOLDER}/{uuid.uuid4().hex}"

    def open_file(self, path: str, temporary: str) -> Any:
        """Create a temporary file, which will become the object."""
        options = self._write_options(overwrite=True)
        return self._call("write", path, lambda: self._client.create(temporary, options))

    def written(self, path: str, step: Callable[[], T]) -> T:
        """Run a step of writing a file, which cannot be repeated. Raises `StoreError`."""
        try:
            return step()
        except (OSError, RuntimeError) as error:
            raise self.failure("write", path, error) from None

    def close(self, path: str, file: Any, has_data: bool) -> None:
        """Make the file durable, and close it."""
        if has_data and self._hsync:
            self.written(path, file.hsync)
        self.written(path, file.close)

    def publish(self, path: str, temporary: str) -> None:
        """Give the file its name. Raises `ObjectExists`, and FileNotFoundError if there is no such file."""
        name = self._name(path)
        began = time.monotonic()
        is_unsure = False
        for attempt in range(_ATTEMPTS_MAX):
            try:
                self._client.rename(temporary, name, overwrite=False)
                return
            except FileExistsError:
                raise ObjectExists(f"{self._uri(path)} exists already") from None
            except FileNotFoundError as error:
                if "source" in str(error):
                    if is_unsure:
                        return
                    raise
                # The folder is missing: `delete` of another thread has removed it, or it is the first in it.
                self._call("write", path, lambda: self._client.mkdirs(name.rpartition("/")[0], create_parent=True))
            except (OSError, RuntimeError) as error:
                is_unsure = True
                self._pause("write", path, error, attempt, began)
        raise StoreError(f"cannot write {self._uri(path)}: its folder is removed each time that it is made")

    def discard(self, temporary: str) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            self._client.delete(temporary)

    def _sweep_temporary(self) -> None:
        """Remove what killed writers left behind, if it is old."""
        with contextlib.suppress(OSError, RuntimeError):
            for status in self._client.list_status(f"{self._root}/{TEMPORARY_FOLDER}"):
                if status.modification_time / 1000 < time.time() - TEMPORARY_GRACE_S:
                    self._client.delete(status.path)

    # ---- requests -----------------------------------------------------------------------------------------------

    def _name(self, path: str) -> str:
        return f"{self._root}/{checked(path)}"

    def _uri(self, path: str) -> str:
        return f"{self._location.uri}/{path}" if path else self._location.uri

    def _found(self, verb: str, path: str, request: Callable[[], T]) -> T:
        try:
            return self._call(verb, path, request)
        except FileNotFoundError:
            raise ObjectMissing(f"{self._uri(path)} does not exist") from None

    def _call(self, verb: str, path: str, request: Callable[[], T]) -> T:
        """Send a request that may be repeated. Raises FileNotFoundError, and `StoreError` for all else."""
        began = time.monotonic()
        for attempt in range(_ATTEMPTS_MAX):
            try:
                return request()
            except FileNotFoundError:
                raise
            except RuntimeError as error:  # an answer of the name node, which would answer the same again
                raise self.failure(verb, path, error) from None
            except OSError as error:
                self._pause(verb, path, error, attempt, began)
        raise AssertionError("pauses end before attempts do")

    def _pause(self, verb: str, path: str, error: Exception, attempt: int, began: float) -> None:
        """Wait before another attempt. Raises `StoreError` if it has been tried for long enough."""
        passed_s = time.monotonic() - began
        pause_s = random.uniform(0, min(_PAUSE_S[1], _PAUSE_S[0] * 2 ** min(attempt + 1, 20)))
        if passed_s + pause_s > self._retry_s or attempt + 1 == _ATTEMPTS_MAX:
            tried = f", {attempt + 1} attempts in {passed_s:.0f} s" if attempt else ""
            raise self.failure(verb, path, error, tried) from None
        time.sleep(pause_s)

    def failure(self, verb: str, path: str, error: Exception, tried: str = "") -> StoreError:
        where = self._location.root
        return StoreError(f"cannot {verb} {self._uri(path)}: {where} answers: {_first_line(error)}{tried}")


def _first_line(error: Exception) -> str:
    """Return an error without the name node's stack."""
    return str(error).replace("\\n", "\n").partition("\n")[0]


class _HdfsWriter:
    """Implements `ObjectWriter`: a temporary file grows, and gets its name at the end."""

    def __init__(self, store: HdfsStore, path: str) -> None:
        self._store = store
        self._path = path
        self._temporary = ""
        self._file: Any = None
        self._bytes = 0

    def write(self, parts: Sequence[bytes | memoryview]) -> None:
        file = self._opened()
        for part in parts:
            view = memoryview(part).cast("B")
            if view.nbytes:
                self._bytes += view.nbytes
                self._store.written(self._path, lambda view=view: file.write(view))  # type: ignore[misc]

    def finish(self) -> None:
        file = self._opened()
        self._store.close(self._path, file, self._bytes > 0)
        try:
            self._store.publish(self._path, self._temporary)
        except FileNotFoundError as error:
            raise self._store.failure("write", self._path, error) from None
        self._temporary = ""

    def abort(self) -> None:
        temporary, self._temporary = self._temporary, ""
        if temporary:
            with contextlib.suppress(StoreError):
                self._store.close(self._path, self._file, False)
            self._store.discard(temporary)

    def _opened(self) -> Any:
        if not self._temporary:
            self._temporary = self._store.new_temporary()
            self._file = self._store.open_file(self._path, self._temporary)
        return self._file
