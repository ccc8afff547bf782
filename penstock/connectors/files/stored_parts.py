"""Keeps the files of a file sink in an object store or HDFS.

    _penstock/<owner>/<...>.inprogress/<offset>   a piece of a part in progress, which a checkpoint may name
    _penstock/<owner>/<...>.pending               a whole part, which awaits its commit
    <bucket>/<prefix>-...<suffix>                 visible

The names are those of `file_parts`, without dot and owner. Readers such as Spark leave out folders that begin with `_`.

An object never grows, so a part is written to a local file. What it has gained since the last barrier becomes a piece;
a finished part is uploaded whole. Uploads run in threads, and a barrier waits for them. The commit gives the pending
object its final name: HDFS renames it, other stores copy it (on their own side) and delete it. The final name is the
writer's own, so a copy that is repeated changes nothing.

What a killed attempt leaves behind is removed by the rules of `file_parts`, except for pending objects: the checkpoint
that a writer is restored from names all committables that are not known to be committed (`WriterContext.pending`), so
all other pending objects of older generations are removed, at any parallelism.
"""

from __future__ import annotations

import contextlib
import functools
import os
import uuid
from collections.abc import Iterator, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor
from typing import BinaryIO

from penstock.connectors.base import OutputGone, RefusedRecord, SinkError
from penstock.connectors.files.file_parts import OF_A_SAVEPOINT, FileCommittable, PartNames, leftovers, pattern_of_final
from penstock.connectors.files.part_directory import PartDirectory
from penstock.storage.local_directory import LocalDirectory
from penstock.storage.opening import open_store
from penstock.storage.store import ObjectExists, ObjectMissing, StoreError
from penstock.storage.store_settings import StoreSettings

_HIDDEN_FOLDER = "_penstock"
_OWNER_LETTERS = 24
_STEP_BYTES = 8 << 20
_UPLOADS_MAX = 4
_COMMITS_MAX = 8


class StoredParts(PartDirectory):
    """Represents a folder of a store."""

    def __init__(self, place: str, settings: StoreSettings, create: bool) -> None:
        super().__init__(place)
        self._settings = settings
        self._store = open_store(place, settings, create_root=create)
        self._scratch: LocalDirectory | None = None
        self._pool = ThreadPoolExecutor(_UPLOADS_MAX, "file sink upload")
        self._kept: dict[str, int] = {}
        """The bytes of each part that are durable in pieces, or will be when `settle` returns."""
        self._ahead: dict[str, tuple[str, Future[None]]] = {}
        """The pending objects that no checkpoint names yet, by their names in progress."""
        self._running: list[Future[None]] = []

    @property
    def way_out(self) -> str:
        return f"Files lie there on their way to {self.place}: make room, or name other directories in io.tmp.dirs."

    def probe(self) -> None:
        path = f"{_HIDDEN_FOLDER}/probe/{uuid.uuid4().hex}"
        self._store.create(path, b"")
        self._store.delete(path)

    def prepare(self, names: PartNames, predecessors: set[tuple[int, int]], kept: Set[str]) -> None:
        if not names.context.job_id:
            return
        objects: dict[str, list[str]] = {}
        for path in self._store.list(f"{_HIDDEN_FOLDER}/{names.owner}"):
            objects.setdefault(f".{names.owner}-{path.split('/')[2]}", []).append(path)
        kept = kept | {pending for data in names.context.pending for pending in _pending_of(data)}
        for name in leftovers(objects, names, None, kept):
            for path in objects[name]:
                self._store.delete(path)

    def path(self, name: str) -> str:
        if self._scratch is None:
            use = f"files on their way to {self.place}"
            try:
                self._scratch = LocalDirectory(self._settings.temporary_directories, use)
            except StoreError as error:
                raise SinkError(str(error)) from error
        return str(self._scratch.path / name)

    def check_bucket(self, bucket: str) -> None:
        super().check_bucket(bucket)
        if any(name.startswith(".") for name in bucket.split("/")):
            raise RefusedRecord(f"{bucket!r} is no bucket in {self.place}: names that begin with '.' are hidden")

    def flush(self, file: BinaryIO) -> int:
        file.flush()
        return os.fstat(file.fileno()).st_size

    def keep(self, name: str, size: int) -> None:
        start = self._kept.get(name, 0)
        if size > start:
            self._kept[name] = size
            piece = f"{_hidden(name)}/{start:015}"
            self._running.append(self._pool.submit(self._upload, self.path(name), piece, start, size))

    def send_ahead(self, name: str, pending: str) -> None:
        path = self.path(name)
        size = os.path.getsize(path)
        self._ahead[name] = pending, self._pool.submit(self._upload, path, _hidden(pending), 0, size, removes=True)

    def make_pending(self, name: str, pending: str, keeps_name: bool) -> None:
        if name not in self._ahead:
            self.send_ahead(name, pending)
        self._running.append(self._ahead.pop(name)[1])
        self._kept.pop(name, None)

    def settle(self, has_new_names: bool) -> None:
        running, self._running = self._running, []
        for upload in running:
            upload.result()

    def still_pending(self, paths: list[str]) -> list[str]:
        return []

    def release(self, names: Sequence[str]) -> None:
        for name in names:
            self._kept.pop(name, None)
            with contextlib.suppress(OSError):
                os.unlink(self.path(name))

    def read_part(self, name: str, bucket: str, size: int, operator_uid: str, suffix: str, file: BinaryIO) -> bool:
        at = 0
        for found in self._store.objects(_hidden(name)) if size else ():
            if at == int(found.path.rpartition("/")[2]) and at < size:
                self._read(found.path, found.size_bytes, file)
                at += found.size_bytes
        if at == size:
            return True
        if at:
            raise OutputGone(
                f"{self._uri(_hidden(name))} has {at} bytes, and its checkpoint says {size}: it was changed from "
                "outside. Start from another checkpoint."
            )
        for path in self._whole(name, bucket, operator_uid, suffix):
            with contextlib.suppress(ObjectMissing):
                found_bytes = self._store.size(path)
                if found_bytes < size:
                    raise OutputGone(
                        f"{self._uri(path)} has {found_bytes} bytes, and its checkpoint says {size} at least: it was "
                        "changed from outside. Start from another checkpoint."
                    )
                self._read(path, size, file)
                return True
        return False

    def _whole(self, name: str, bucket: str, operator_uid: str, suffix: str) -> Iterator[str]:
        """Yield the places of a part as one object: pending, or visible."""
        yield _hidden(name.removesuffix(".inprogress") + ".pending")
        final = pattern_of_final(name, operator_uid, suffix)
        start = f"{bucket}/" if bucket else ""
        if final is not None:
            yield from (p for p in self._store.list(bucket) if final.fullmatch(p.removeprefix(start)))

    def close(self, left: Sequence[str]) -> None:
        for upload in self._running:
            upload.cancel()
        for pending, upload in self._ahead.values():
            if not upload.cancel():
                upload.add_done_callback(functools.partial(self._discard, _hidden(pending)))
        self._ahead, self._running = {}, []
        self._pool.shutdown(wait=False)
        if self._scratch is not None:
            self._scratch.delete()
            self._scratch = None

    def commit(self, parts: Sequence[FileCommittable]) -> None:
        with ThreadPoolExecutor(min(_COMMITS_MAX, max(1, len(parts))), "file sink commit") as pool:
            for committed in [pool.submit(self._commit, part) for part in parts]:
                committed.result()

    def remove(self, names: Sequence[str]) -> None:
        for name in names:
            for path in self._store.list(_hidden(name)):
                self._store.delete(path)

    # ---- objects ------------------------------------------------------------------------------------------------

    def _commit(self, part: FileCommittable) -> None:
        pending = _hidden(part.pending)
        try:
            size = self._store.size(pending)
            if size != part.size:
                raise OutputGone(
                    f"{self._uri(pending)} has {size} bytes, but {part.size} were written for its checkpoint: it was "
                    f"changed from outside, so it does not become {part.final}. Restore the object, or start from "
                    "another checkpoint."
                )
            self._store.move(pending, part.final)
        except ObjectMissing:
            # It has been committed before, or another committer of the same checkpoint has just done it.
            self._check_committed(part, pending)
        except ObjectExists:
            raise OutputGone(
                f"{self._uri(part.final)} exists already, and is not this job's: move it away, and start the job again"
            ) from None

    def _check_committed(self, part: FileCommittable, pending: str) -> None:
        try:
            size = self._store.size(part.final)
        except ObjectMissing:
            raise OutputGone(
                f"rows of a completed checkpoint are lost: neither {self._uri(pending)}, which held them, nor "
                f"{self._uri(part.final)}, which it was to become, exists. Were objects removed from {self.place}, by "
                "a rule for old ones, say? If the rows have been taken from there on purpose, put any object of "
                f"{part.size} bytes in the final one's place, and remove it afterwards. {OF_A_SAVEPOINT}"
            ) from None
        if size != part.size:
            raise OutputGone(
                f"{self._uri(part.final)} has {size} bytes, but {part.size} were written for its checkpoint: it was "
                "changed from outside. Move it away if its rows are not needed, or start from another checkpoint."
            )

    def _upload(self, path: str, name: str, start: int, end: int, removes: bool = False) -> None:
        writer = self._store.writer(name)
        try:
            with open(path, "rb") as file:
                file.seek(start)
                while start < end:
                    data = file.read(min(_STEP_BYTES, end - start))
                    if not data:
                        raise SinkError(f"{path} was cut at {start} of {end} bytes, on its way to {self._uri(name)}")
                    writer.write([data])
                    start += len(data)
            writer.finish()
        except BaseException:
            writer.abort()
            raise
        if removes:
            os.unlink(path)

    def _read(self, path: str, size: int, file: BinaryIO) -> None:
        for start in range(0, size, _STEP_BYTES):
            file.write(self._store.get(path, start, min(_STEP_BYTES, size - start)))

    def _discard(self, path: str, _: Future[None]) -> None:
        with contextlib.suppress(StoreError):
            self._store.delete(path)

    def _uri(self, path: str) -> str:
        return f"{self.place}/{path}"


def _hidden(name: str) -> str:
    """Return the object of a hidden name: `.<owner>-...`."""
    return f"{_HIDDEN_FOLDER}/{name[1 : 1 + _OWNER_LETTERS]}/{name[2 + _OWNER_LETTERS :]}"


def _pending_of(data: bytes) -> list[str]:
    """Return the pending name of a committable; [] if a sink of another kind has made it."""
    try:
        return [FileCommittable.decode(data).pending]
    except (ValueError, TypeError, KeyError):
        return []
