"""Implements a store in HDFS, through hdfs-native, which needs no Java.

HDFS shows a file under its name from its creation on, with length 0 until it is closed. So an object is written under a
temporary name, and published by a rename that fails where the name is taken. Of two drivers one wins.

How requests are repeated is in `hdfs_requests`.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import time
import uuid
from typing import Any, Callable, Sequence, TypeVar

from penstock.common.options import ObjectStoreOptions
from penstock.storage.hdfs_answers import answer_of
from penstock.storage.hdfs_requests import LIBRARY_ERRORS, HdfsRequests, NotWritten
from penstock.storage.location import RemoteLocation
from penstock.storage.store import (
    DELETED_AT_ONCE,
    TEMPORARY_GRACE_S,
    DirectoryMissing,
    Found,
    ObjectMissing,
    ObjectWriter,
    RangeMissing,
    StoreError,
    StoreRefused,
    checked,
    delete_each,
    write_whole,
)
from penstock.storage.store_settings import StoreSettings

T = TypeVar("T")

TEMPORARY_FOLDER = ".tmp"
PIECE_BYTES = 4 * 1024**2
"""The most bytes of one request; more are written and read by several, each with the time limit of one."""
_CLIENT = {
    # By default, the client tries a name node that is away for minutes; this is enough to find the other one of a pair.
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
    keytab = settings.get(ObjectStoreOptions.KERBEROS_KEYTAB)
    principal = settings.get(ObjectStoreOptions.KERBEROS_PRINCIPAL)
    _check_kerberos(location, keytab, principal)
    try:
        client = hdfs_native.Client(
            location.root if location.authority else None, _CLIENT, kerberos_principal=principal, kerberos_keytab=keytab
        )
    except LIBRARY_ERRORS + (ValueError,) as error:
        raise StoreError(
            f"{location.uri} cannot be opened: {answer_of(error)}; name host and port of the name node, or set "
            "HADOOP_CONF_DIR to a directory with core-site.xml and hdfs-site.xml"
        ) from None
    store = HdfsStore(location, client, hdfs_native.WriteOptions, settings)
    store.open_root(create_root)
    return store


def _check_kerberos(location: RemoteLocation, keytab: str | None, principal: str | None) -> None:
    if (keytab is None) != (principal is None):
        raise StoreError(
            f"{location.uri}: {ObjectStoreOptions.KERBEROS_KEYTAB.key} and {ObjectStoreOptions.KERBEROS_PRINCIPAL.key} "
            "belong together, and only one is set"
        )
    if keytab is None:
        return
    try:
        with open(keytab, "rb"):
            return
    except OSError as error:
        raise StoreError(
            f"{location.uri}: {ObjectStoreOptions.KERBEROS_KEYTAB.key} is {keytab}, which cannot be read here "
            f"({error.strerror}): it must be on the driver and on the executors, at the same path"
        ) from None


class HdfsStore:
    """Implements `ObjectStore` below `location`."""

    def __init__(
        self, location: RemoteLocation, client: Any, write_options: Callable[..., Any], settings: StoreSettings
    ) -> None:
        self._location = location
        self._client = client
        self._write_options = write_options
        self._root = f"/{location.path}".rstrip("/")
        self._hsync = settings.fsync
        self.requests = HdfsRequests(location, settings)

    def open_root(self, create: bool) -> None:
        """Make the folder, and sweep what killed writers left; or check that it is there. Raises `StoreError`."""
        root = self._root or "/"
        if create:
            self.requests.call("create", "", lambda: self._client.mkdirs(root, create_parent=True))
            self.sweep_temporary()
            return
        try:
            self.requests.call("open", "", lambda: self._client.get_file_info(root))
        except FileNotFoundError:
            raise DirectoryMissing(f"{self._location.uri} does not exist") from None

    def put(self, path: str, parts: Sequence[bytes | memoryview]) -> None:
        pauses = self.requests.pauses("write", path)
        while True:
            try:
                write_whole(self.writer(path), parts)
                return
            except NotWritten as error:
                pauses.wait(error.answer, StoreRefused)

    def writer(self, path: str) -> ObjectWriter:
        return _HdfsWriter(self, checked(path))

    def create(self, path: str, data: bytes) -> None:
        pauses = self.requests.pauses("write", path)
        while True:
            writer = _HdfsWriter(self, checked(path), is_ours=lambda: self.get(path) == data)
            try:
                write_whole(writer, [data])
                return
            except NotWritten as error:
                pauses.wait(error.answer, StoreRefused)

    def get(self, path: str, offset: int = 0, length_bytes: int | None = None) -> bytes:
        name = self._name(path)
        file = self._found("read", path, lambda: self._client.read(name))
        size = len(file)
        wanted = max(0, size - offset) if length_bytes is None else length_bytes
        if offset + wanted > size:
            uri = self.requests.uri(path)
            raise RangeMissing(f"{uri} has {size} bytes, and not those at {offset}..{offset + wanted}")
        pieces = []
        for start in range(offset, offset + wanted, PIECE_BYTES):
            length = min(PIECE_BYTES, offset + wanted - start)
            read = functools.partial(file.read_range, start, length)
            pieces.append(self._found("read", path, read))
        return bytes(pieces[0]) if len(pieces) == 1 else b"".join(pieces)

    def size(self, path: str) -> int:
        return self.stat(path).size_bytes

    def stat(self, path: str) -> Found:
        name = self._name(path)
        status = self._found("read", path, lambda: self._client.get_file_info(name))
        if status.isdir:
            raise ObjectMissing(f"{self.requests.uri(path)} is a folder")
        return Found(path, int(status.length), status.modification_time / 1000)

    def move(self, path: str, new_path: str) -> None:
        try:
            self.publish(new_path, self._name(path), is_ours=lambda: False)
        except FileNotFoundError:
            raise ObjectMissing(f"{self.requests.uri(path)} does not exist") from None

    def list(self, prefix: str) -> builtins.list[str]:
        return [found.path for found in self.objects(prefix)]

    def objects(self, prefix: str) -> builtins.list[Found]:
        return sorted(
            Found(path, status.length, status.modification_time / 1000)
            for path, status in self._listed(prefix, recursive=True)
            if not status.isdir
        )

    def folders(self, prefix: str, with_links: bool = True) -> builtins.list[str]:
        return sorted(path.rpartition("/")[2] for path, status in self._listed(prefix, recursive=False) if status.isdir)

    def _listed(self, prefix: str, recursive: bool) -> builtins.list[tuple[str, Any]]:
        """Return the entries below a folder, by paths relative to the root, without hidden names."""
        folder = self._name(prefix) if prefix else self._root or "/"
        try:
            found = self.requests.call("list", prefix, lambda: [*self._client.list_status(folder, recursive)])
        except FileNotFoundError:
            return []
        named = [(status.path.removeprefix(f"{self._root}/"), status) for status in found]
        # A file lists itself.
        return [(p, s) for p, s in named if p != prefix and not any(part.startswith(".") for part in p.split("/"))]

    def delete(self, path: str) -> None:
        name = self._name(path)
        self.requests.call("delete", path, lambda: self._client.delete(name))
        while (name := name.rpartition("/")[0]) != self._root and self._remove_empty(name):
            pass

    def delete_all(self, paths: Sequence[str]) -> None:
        delete_each(self.delete, paths, DELETED_AT_ONCE)

    def remove_if_empty(self) -> None:
        if self._remove_empty(f"{self._root}/{TEMPORARY_FOLDER}") and self._root:
            self._remove_empty(self._root)

    def _remove_empty(self, folder: str) -> bool:
        try:
            self.requests.once(lambda: self._client.delete(folder))
        except LIBRARY_ERRORS:  # it is not empty, or HDFS does not answer
            return False
        return True

    # ---- writing ------------------------------------------------------------------------------------------------

    def new_temporary(self) -> str:
        return f"{self._root}/{TEMPORARY_FOLDER}/{uuid.uuid4().hex}"

    def open_file(self, path: str, temporary: str) -> Any:
        """Create a temporary file, which will become the object. Raises `StoreRefused`."""
        options = self._write_options(overwrite=True)
        return self.requests.step(path, lambda: self._client.create(temporary, options))

    def close(self, path: str, file: Any, has_data: bool) -> None:
        """Make the file durable, and close it. Raises `StoreRefused`."""
        if has_data and self._hsync:
            self.requests.step(path, file.hsync)
        self.requests.step(path, file.close)

    def publish(self, path: str, temporary: str, is_ours: Callable[[], bool]) -> None:
        """Give the file its name. Raises as `HdfsRequests.rename`."""
        name = self._name(path)
        self.requests.rename(
            path,
            lambda: self._client.rename(temporary, name, overwrite=False),
            lambda: self.requests.call(
                "write", path, lambda: self._client.mkdirs(name.rpartition("/")[0], create_parent=True)
            ),
            is_ours,
        )

    def discard(self, temporary: str) -> None:
        with contextlib.suppress(*LIBRARY_ERRORS):
            self.requests.once(lambda: self._client.delete(temporary))

    def sweep_temporary(self, grace_s: float = TEMPORARY_GRACE_S) -> None:
        folder = f"{self._root}/{TEMPORARY_FOLDER}"
        try:
            found = self.requests.call("sweep", TEMPORARY_FOLDER, lambda: [*self._client.list_status(folder)])
        except FileNotFoundError:
            return
        for status in found:
            if status.modification_time / 1000 < time.time() - grace_s:
                self.discard(status.path)

    def _name(self, path: str) -> str:
        return f"{self._root}/{checked(path)}"

    def _found(self, verb: str, path: str, request: Callable[[], T]) -> T:
        try:
            return self.requests.call(verb, path, request)
        except FileNotFoundError:
            raise ObjectMissing(f"{self.requests.uri(path)} does not exist") from None


class _HdfsWriter:
    """Implements `ObjectWriter`: writes a temporary file, and renames it at the end. `is_ours`: returns whether the
    object that has the name is this one. None: nobody else uses the name, so an object of our size is ours.
    """

    def __init__(self, store: HdfsStore, path: str, is_ours: Callable[[], bool] | None = None) -> None:
        self._store = store
        self._path = path
        self._is_ours = is_ours or self._has_our_size
        self._temporary = ""
        self._file: Any = None
        self._bytes = 0

    def write(self, parts: Sequence[bytes | memoryview]) -> None:
        file = self._opened()
        for part in parts:
            view = memoryview(part).cast("B")
            for start in range(0, view.nbytes, PIECE_BYTES):
                # The library takes bytes as a whole, and a view byte by byte.
                piece = bytes(view[start : start + PIECE_BYTES])
                self._store.requests.step(self._path, functools.partial(file.write, piece))
            self._bytes += view.nbytes

    def finish(self) -> None:
        file = self._opened()
        self._store.close(self._path, file, self._bytes > 0)
        try:
            self._store.publish(self._path, self._temporary, self._is_there)
        except FileNotFoundError:
            raise StoreError(
                f"cannot write {self._store.requests.uri(self._path)}: its temporary file was removed from "
                f"{TEMPORARY_FOLDER}, or its answer was lost"
            ) from None
        self._temporary = ""

    def _is_there(self) -> bool:
        try:
            return self._is_ours()
        except ObjectMissing:
            return False

    def _has_our_size(self) -> bool:
        return self._store.size(self._path) == self._bytes

    def abort(self) -> None:
        temporary, self._temporary = self._temporary, ""
        if temporary:
            if self._file is not None:
                with contextlib.suppress(StoreError):
                    self._store.close(self._path, self._file, False)
            self._store.discard(temporary)

    def _opened(self) -> Any:
        if self._file is None:
            self._temporary = self._store.new_temporary()
            self._file = self._store.open_file(self._path, self._temporary)
        return self._file
