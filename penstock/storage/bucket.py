"""Implements a store in a bucket of S3, Google Cloud Storage or Azure, through obstore.

An object appears complete or not at all, and is created by a conditional put ("if none match"), so that of two
drivers one wins. What is larger than a part is uploaded in parts; its name is random, so nobody competes for it.

A request is repeated, after pauses that grow and have jitter, while its failure may pass. A put that was executed
and whose answer was lost meets its own object when it is repeated: then what is there is compared with what was
written. Without this: a driver takes its own log entry for another driver's, and stops.
"""

from __future__ import annotations

import builtins
import random
import time
from typing import Any, Callable, Sequence, TypeVar

from penstock.common.options import ObjectStoreOptions
from penstock.storage.bucket_answers import Answer, answer_of
from penstock.storage.bucket_clients import Clients, clients_of, import_obstore
from penstock.storage.location import AZURE, RemoteLocation
from penstock.storage.settings import StoreSettings
from penstock.storage.store import (
    Found,
    ObjectExists,
    ObjectMissing,
    ObjectWriter,
    RangeMissing,
    StoreError,
    StoreRefused,
    checked,
    write_whole,
)

T = TypeVar("T")

PAUSE_S = (0.05, 5.0)
"""The longest pause before the first repetition, and before any."""
PIECE_BYTES = 16 * 1024**2
"""A larger range is read in pieces of this size, some at a time."""
_UPLOADS_MAX = 4
COPIED_BYTES_MAX = 5 * 1024**3
"""What is larger is refused by S3's copy request, and read and written instead."""
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
        self._clients = clients
        self._client = clients.once
        self._obstore = import_obstore(location.uri, location.kind)
        self._prefix = f"{location.path}/" if location.path else ""
        self._retry_s = settings.get(ObjectStoreOptions.RETRY_TIMEOUT).seconds
        self.part_bytes = settings.get(ObjectStoreOptions.S3_PART_BYTES)
        self._sleep = sleep

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

        self._call("write", path, put, is_ours=lambda: self.get(path) == data)

    def get(self, path: str, offset: int = 0, length_bytes: int | None = None) -> bytes:
        name = self._name(path)
        if length_bytes is None and offset == 0:
            return self._call("read", path, lambda: bytes(self._obstore.get(self._client, name).bytes()))
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

        data = self._call("read", path, read, out_of_range=lambda: b"")
        if len(data) != length_bytes:
            raise self._too_short(path, self.size(path), offset, length_bytes)
        return data

    def _too_short(self, path: str, size: int, offset: int, length_bytes: int) -> RangeMissing:
        return RangeMissing(f"{self._uri(path)} has {size} bytes, and not those at {offset}..{offset + length_bytes}")

    def size(self, path: str) -> int:
        return self.stat(path).size_bytes

    def stat(self, path: str) -> Found:
        name = self._name(path)
        found = self._call(
            "read", path, lambda: self._obstore.head(self._client, name), ask_why=lambda: self._first_byte(path)
        )
        return Found(path, int(found["size"]), found["last_modified"].timestamp(), found["e_tag"] or "")

    def _first_byte(self, path: str) -> None:
        """Ask for an object. If that fails the answer has a body, which says why; that to a head request has none."""
        name = self._name(path)
        self._call("read", path, lambda: self._obstore.get_range(self._client, name, start=0, end=1), bytes)

    def move(self, path: str, new_path: str) -> None:
        name, new_name, size = self._name(path), self._name(new_path), self.size(path)
        if size > COPIED_BYTES_MAX:
            self._copy_in_parts(path, new_path, size)
        else:
            self._call("copy", path, lambda: self._obstore.copy(self._client, name, new_name))
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
                    f"{self._uri(new_path)} has {found} of {size} bytes {self._retry_s:.0f} s after a copy"
                )
            self._sleep(PAUSE_S[0])

    def list(self, prefix: str) -> builtins.list[str]:
        return [found.path for found in self.objects(prefix)]

    def objects(self, prefix: str) -> builtins.list[Found]:
        folder = self._folder(prefix)

        def listed() -> builtins.list[Any]:
            return [found for batch in self._obstore.list(self._client, folder) for found in batch]

        return sorted(
            Found(found["path"].removeprefix(self._prefix), found["size"], found["last_modified"].timestamp())
            for found in self._call("list", prefix, listed)
            if found["path"].startswith(self._prefix)
        )

    def folders(self, prefix: str) -> builtins.list[str]:
        folder = self._folder(prefix)
        listed = self._call("list", prefix, lambda: self._obstore.list_with_delimiter(self._client, folder))
        return sorted(path.rpartition("/")[2] for path in listed["common_prefixes"])

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

        self._call("delete", path, delete)

    def remove_if_empty(self) -> None:
        """Do nothing: a bucket has no folders."""

    # ---- what a writer needs ------------------------------------------------------------------------------------

    def open_upload(self, path: str) -> Any:
        """Open an upload in parts. Raises `ObjectExists`: no condition can be put on its end, so it is asked first."""
        name = self._name(path)
        try:
            self._first_byte(path)
        except ObjectMissing:
            return self._obstore.open_writer(
                self._clients.repeating, name, buffer_size=self.part_bytes, max_concurrency=_UPLOADS_MAX
            )
        raise ObjectExists(f"{self._uri(path)} exists already")

    def upload(self, path: str, step: Callable[[], T]) -> T:
        """Run a step of an upload, whose requests the client repeats itself. Raises `StoreError`."""
        try:
            return step()
        except (self._obstore.exceptions.BaseError, OSError) as error:
            raise self._failure("write", path, answer_of(error), "") from None

    # ---- requests -----------------------------------------------------------------------------------------------

    def _name(self, path: str) -> str:
        return self._prefix + checked(path)

    def _uri(self, path: str) -> str:
        return f"{self._location.uri}/{path}" if path else self._location.uri

    def _call(
        self,
        verb: str,
        path: str,
        request: Callable[[], T],
        out_of_range: Callable[[], T] | None = None,
        is_ours: Callable[[], bool] | None = None,
        ask_why: Callable[[], None] | None = None,
    ) -> T:
        """Send a request until it is answered. `is_ours`: asked if it finds its object there after an attempt of which
        nothing is known. `out_of_range`: the result if there is nothing at that range. `ask_why`: called where the
        answer has no body, and another attempt would get the same; may raise.
        """
        exceptions = self._obstore.exceptions
        began = time.monotonic()
        attempts, is_unsure = 0, False
        while True:
            attempts += 1
            try:
                return request()
            except (exceptions.AlreadyExistsError, exceptions.PreconditionError) as error:
                answer = answer_of(error)
                if not answer.is_conflict:
                    if is_unsure and is_ours is not None and is_ours():
                        return None  # type: ignore[return-value]
                    raise ObjectExists(f"{self._uri(path)} exists already") from None
            except FileNotFoundError as error:
                answer = answer_of(error)
                if ask_why is not None:
                    ask_why()
                if not answer.no_bucket:
                    raise ObjectMissing(f"{self._uri(path)} does not exist") from None
            except (exceptions.BaseError, OSError) as error:
                answer = answer_of(error)
                if answer.is_out_of_range and out_of_range is not None:
                    return out_of_range()
            if ask_why is not None and not answer.is_transient:
                ask_why()
            is_unsure = is_unsure or (answer.is_transient and not answer.is_unsent)
            passed_s = time.monotonic() - began
            pause_s = random.uniform(0, min(PAUSE_S[1], PAUSE_S[0] * 2 ** min(attempts, 20)))
            if not answer.is_transient or passed_s + pause_s > self._retry_s:
                tried = f", {attempts} attempts in {passed_s:.0f} s" if attempts > 1 else ""
                failure = self._failure(verb, path, answer, tried)
                refused = is_ours is not None and not is_unsure
                raise StoreRefused(str(failure)) if refused else failure from None
            self._sleep(pause_s)

    def _failure(self, verb: str, path: str, answer: Answer, tried: str) -> StoreError:
        clients, bucket = self._clients, self._location.root
        if answer.no_bucket:
            why = f"bucket {bucket} does not exist at {clients.service}: create it, or name another one"
        elif answer.no_credentials:
            why = f"no credentials were found for {bucket} (at last the machine was asked): give {clients.credentials}"
        elif answer.is_expired:
            why = f"the credentials for {bucket} have expired ({answer}{tried}): renew {clients.credentials}"
        elif answer.is_forbidden:
            why = (
                f"{clients.service} refuses access to {bucket} ({answer}{tried}): reading, writing, listing and "
                f"deleting objects there must be allowed; the credentials are those of {clients.credentials}"
            )
        elif answer.status is None:
            why = f"{clients.service} does not answer ({answer}{tried}): check that it runs, and {clients.endpoint_key}"
        else:
            why = f"{clients.service} answers {answer}{tried}"
        return StoreError(f"cannot {verb} {self._uri(path)}: {why}")


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
                self._send(view)
        if self._upload is None and self._bytes > self._store.part_bytes:
            self._upload = self._store.open_upload(self._path)
            collected, self._collected = self._collected, []
            for piece in collected:
                self._send(piece)

    def _send(self, piece: bytes | memoryview) -> None:
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
                # With an error it gives the upload up; without one it would finish it.
                upload.__exit__(StoreError, StoreError("given up"), None)
            except Exception:  # the store does not answer: what is left is for the bucket's rule for unfinished uploads
                return
