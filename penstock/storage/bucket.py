"""Implements a store in a bucket of S3, Google Cloud Storage or Azure, through obstore.

An object appears complete or not at all, and is created by a conditional put ("if none match"), so that of two
drivers one wins. What is larger than a part is uploaded in parts; its name is random, so nobody competes for it.

How requests are repeated is in `bucket_requests`.
"""

from __future__ import annotations

import builtins
import time
from typing import Any, Callable, Sequence, TypeVar

from penstock.common.options import ObjectStoreOptions
from penstock.storage.arrow_listing import ArrowListing
from penstock.storage.bucket_answers import answer_of
from penstock.storage.bucket_clients import Clients, clients_of, import_obstore
from penstock.storage.bucket_requests import PAUSE_S, BucketRequests
from penstock.storage.location import AZURE, GS, RemoteLocation
from penstock.storage.store import (
    DELETED_AT_ONCE,
    TEMPORARY_GRACE_S,
    Found,
    ObjectExists,
    ObjectMissing,
    ObjectWriter,
    RangeMissing,
    StoreError,
    UnnameableKey,
    checked,
    delete_each,
    write_whole,
)
from penstock.storage.store_settings import StoreSettings

T = TypeVar("T")

PIECE_BYTES = 16 * 1024**2
"""A larger range is read in pieces of this size, some at a time."""
_UPLOADS_MAX = 4
COPIED_BYTES_MAX = 5 * 1024**3
"""The largest object that S3's copy request accepts; a larger one is read and written instead."""
_COPY_STEP_BYTES = 64 * 1024**2


def open_bucket(location: RemoteLocation, settings: StoreSettings) -> BucketStore:
    """Open a folder of a bucket. Nothing is asked of the store yet. Raises `StoreError` if it cannot be opened."""
    return BucketStore(location, clients_of(location._replace(path=""), settings), settings)


class BucketStore:
    """Implements `ObjectStore` below `location`. `sleep`: what passes the time between repetitions."""

    def __init__(
        self,
        location: RemoteLocation,
        clients: Clients,
        settings: StoreSettings,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._location = location
        self._settings = settings
        self._requests = BucketRequests(location, clients, settings, sleep)
        self._obstore = import_obstore(location.uri, location.kind)
        self._prefix = f"{location.path}/" if location.path else ""
        self._retry_s = settings.get(ObjectStoreOptions.RETRY_TIMEOUT).seconds
        self.part_bytes = settings.get(ObjectStoreOptions.S3_PART_BYTES)

    @property
    def _client(self) -> Any:
        return self._requests.clients.once

    def put(self, path: str, parts: Sequence[bytes | memoryview]) -> None:
        views = [memoryview(part).cast("B") for part in parts]
        if sum(view.nbytes for view in views) <= self.part_bytes:
            self.create(path, b"".join(views))
            return
        write_whole(self.writer(path), views)

    def writer(self, path: str) -> ObjectWriter:
        return _BucketWriter(self, checked(path))

    def create(self, path: str, data: bytes) -> None:
        name = self._name(path)

        def put() -> None:
            self._obstore.put(self._client, name, data, mode="create", use_multipart=False)

        self._requests.call("write", path, put, is_ours=lambda: self.get(path) == data)

    def get(self, path: str, offset: int = 0, length_bytes: int | None = None) -> bytes:
        name = self._name(path)
        if length_bytes is None and offset == 0:
            return self._requests.call("read", path, lambda: bytes(self._obstore.get(self._client, name).bytes()))
        if length_bytes is None or length_bytes == 0:
            size = self.size(path)
            wanted = max(0, size - offset) if length_bytes is None else 0
            if offset + wanted > size:
                raise self._too_short(path, size, offset, wanted)
            return self._range(path, offset, wanted) if wanted else b""
        return self._range(path, offset, length_bytes)

    def _range(self, path: str, offset: int, length_bytes: int) -> bytes:
        name, end = self._name(path), offset + length_bytes
        starts = list(range(offset, end, PIECE_BYTES))
        ends = [min(start + PIECE_BYTES, end) for start in starts]

        def read() -> bytes:
            if len(starts) == 1:
                return bytes(self._obstore.get_range(self._client, name, start=offset, end=end))
            return b"".join(self._obstore.get_ranges(self._client, name, starts=starts, ends=ends, coalesce=0))

        data = self._requests.call("read", path, read, out_of_range=lambda: b"")
        if len(data) != length_bytes:
            raise self._too_short(path, self.size(path), offset, length_bytes)
        return data

    def _too_short(self, path: str, size: int, offset: int, length_bytes: int) -> RangeMissing:
        return RangeMissing(
            f"{self._requests.uri(path)} has {size} bytes, and not those at {offset}..{offset + length_bytes}"
        )

    def size(self, path: str) -> int:
        return self.stat(path).size_bytes

    def stat(self, path: str) -> Found:
        name = self._name(path)
        found = self._requests.call(
            "read", path, lambda: self._obstore.head(self._client, name), ask_why=lambda: self._first_byte(path)
        )
        return Found(path, int(found["size"]), found["last_modified"].timestamp(), found["e_tag"] or "")

    def _first_byte(self, path: str) -> None:
        """Read an object's first byte. If this fails, the answer has a body with the reason, which the answer to a head
        request lacks."""
        name = self._name(path)
        self._requests.call("read", path, lambda: self._obstore.get_range(self._client, name, start=0, end=1), bytes)

    def move(self, path: str, new_path: str) -> None:
        name, new_name, size = self._name(path), self._name(new_path), self.size(path)
        if size > COPIED_BYTES_MAX:
            self._copy_in_parts(path, new_path, size)
        else:
            self._requests.call("copy", path, lambda: self._obstore.copy(self._client, name, new_name))
            self._await_copy(new_path, size)
        self.delete(path)

    def _copy_in_parts(self, path: str, new_path: str, size: int) -> None:
        writer = self.writer(new_path)
        try:
            for start in range(0, size, _COPY_STEP_BYTES):
                writer.write([self.get(path, start, min(_COPY_STEP_BYTES, size - start))])
            writer.finish()
        except ObjectExists:
            # An earlier call was cut off before it deleted the object.
            writer.abort()
            if self.size(new_path) != size:
                raise
        except BaseException:
            writer.abort()
            raise

    def _await_copy(self, new_path: str, size: int) -> None:
        """Wait until a copy has all its bytes. Azure may answer before; the others copy at once."""
        if self._location.kind != AZURE:
            return
        began = time.monotonic()
        while (found := self.size(new_path)) != size:
            if time.monotonic() - began > self._retry_s:
                raise StoreError(
                    f"{self._requests.uri(new_path)} has {found} of {size} bytes {self._retry_s:.0f} s after a copy"
                )
            time.sleep(PAUSE_S[0])

    def list(self, prefix: str) -> builtins.list[str]:
        return [found.path for found in self.objects(prefix)]

    def objects(self, prefix: str) -> builtins.list[Found]:
        folder = self._folder(prefix)

        def listed() -> builtins.list[Any]:
            return [found for batch in self._obstore.list(self._client, folder) for found in batch]

        try:
            found = self._requests.call("list", prefix, listed)
        except UnnameableKey as refused:
            found = self._arrow_listing(refused).objects(folder)
        markers = self._markers({each["path"]: each["size"] for each in found}, folder or "")
        return sorted(
            Found(each["path"].removeprefix(self._prefix), each["size"], each["last_modified"].timestamp())
            for each in found
            if each["path"].startswith(self._prefix) and each["path"] not in markers
        )

    def _markers(self, sizes: dict[str, int], folder: str) -> set[str]:
        """Return the paths that mark folders: empty objects named `folder/`, which consoles make. The client drops the
        slash, so an empty object may be one: it is if others lie below it, or no object has that name without a slash.
        """
        empty = [path for path, size in sizes.items() if size == 0]
        if not empty:
            return set()
        above = {path[:at] for path in sizes for at in range(len(path)) if path[at] == "/"}
        return {path for path in empty if path in above or path == folder or not self._is_object(path)}

    def _is_object(self, path: str) -> bool:
        try:
            self.size(path.removeprefix(self._prefix))
        except ObjectMissing:
            return False
        return True

    def folders(self, prefix: str, with_links: bool = True) -> builtins.list[str]:
        folder = self._folder(prefix)
        try:
            listed = self._requests.call(
                "list", prefix, lambda: self._obstore.list_with_delimiter(self._client, folder)["common_prefixes"]
            )
        except UnnameableKey as refused:
            listed = self._arrow_listing(refused).folders(folder)
        return sorted(path.rpartition("/")[2] for path in listed)

    def _arrow_listing(self, refused: UnnameableKey) -> ArrowListing:
        """Return a listing without the client, which has refused to list. Raises `refused` if there is none."""
        if self._location.kind in (GS, AZURE):
            raise refused
        return ArrowListing(self._location, self._settings)

    def _folder(self, prefix: str) -> str | None:
        return f"{self._prefix}{checked(prefix) if prefix else ''}".rstrip("/") or None

    def delete(self, path: str) -> None:
        name = self._name(path)

        def delete() -> None:
            try:
                self._obstore.delete(self._client, name)
            except FileNotFoundError as error:
                if answer_of(error).no_bucket:
                    raise

        self._requests.call("delete", path, delete)

    def delete_all(self, paths: Sequence[str]) -> None:
        delete_each(self.delete, paths, DELETED_AT_ONCE)

    def remove_if_empty(self) -> None:
        """Do nothing: a bucket has no folders."""

    def sweep_temporary(self, grace_s: float = TEMPORARY_GRACE_S) -> None:
        """Do nothing: the bucket's rule for unfinished uploads deletes them."""

    # ---- what a writer needs ------------------------------------------------------------------------------------

    def open_upload(self, path: str) -> Any:
        """Open an upload in parts. Raises `ObjectExists`: no condition can be put on its end, so it is asked first."""
        name = self._name(path)
        try:
            self._first_byte(path)
        except ObjectMissing:
            return self._obstore.open_writer(
                self._requests.clients.repeating, name, buffer_size=self.part_bytes, max_concurrency=_UPLOADS_MAX
            )
        raise ObjectExists(f"{self._requests.uri(path)} exists already")

    def upload(self, path: str, step: Callable[[], T]) -> T:
        """Run a step of an upload, whose requests the client repeats itself. Raises `StoreError`."""
        try:
            return step()
        except (self._obstore.exceptions.BaseError, OSError) as error:
            raise self._requests.failure("write", path, answer_of(error), "") from None

    # ---- requests -----------------------------------------------------------------------------------------------

    def _name(self, path: str) -> str:
        return self._prefix + checked(path)


class _BucketWriter:
    """Implements `ObjectWriter`. Nothing is sent before there is more than one part; less is put at once."""

    def __init__(self, store: BucketStore, path: str) -> None:
        self._store = store
        self._path = path
        self._collected: list[bytes] = []
        self._bytes = 0
        self._upload: Any = None

    def write(self, parts: Sequence[bytes | memoryview]) -> None:
        for part in parts:
            view = memoryview(part).cast("B")
            self._bytes += view.nbytes
            if self._upload is None:
                self._collected.append(bytes(view))
            elif view.nbytes:
                self._send(bytes(view))
        if self._upload is None and self._bytes > self._store.part_bytes:
            self._upload = self._store.open_upload(self._path)
            collected, self._collected = self._collected, []
            for piece in collected:
                self._send(piece)

    def _send(self, piece: bytes) -> None:
        """Give a piece to the upload, which keeps it, uncopied, until its part is sent."""
        upload = self._upload
        self._store.upload(self._path, lambda: upload.write(piece))

    def finish(self) -> None:
        if self._upload is None:
            self._store.put(self._path, self._collected)
            self._collected = []
            return
        upload = self._upload
        try:
            self._store.upload(self._path, upload.close)
        except StoreError:
            # The end of an upload may have been executed, and its answer lost. Nobody else has this name.
            if not self._is_complete():
                raise
        self._upload = None

    def _is_complete(self) -> bool:
        try:
            return self._store.size(self._path) == self._bytes
        except StoreError:
            return False

    def abort(self) -> None:
        upload, self._upload, self._collected = self._upload, None, []
        if upload is not None:
            try:
                # `__exit__` gives the upload up if it gets an error; without one it would finish the upload.
                upload.__exit__(StoreError, StoreError("given up"), None)
            except Exception:  # the store does not answer: what is left is for the bucket's rule for unfinished uploads
                return
