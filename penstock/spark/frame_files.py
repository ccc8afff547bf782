"""Reads the files that Spark wrote for one DataFrame, as a source. Nothing here imports PySpark.

A folder of such files lies below the directory of the job that reads it:

    <job's directory>/data-frames/<operator uid>-<random>/part-*           Arrow messages or Parquet
                                                         /_penstock.json   how to read them; written last

Splits name files relative to the job's directory, so that it can be moved or copied. A reader takes schema and marker
from the manifest next to the file that its split names: the folder of another attempt has another marker, and would
read as damaged.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.common.composite_types import RowType
from penstock.common.typeinfo import TypeInformation
from penstock.datastream.connectors.arrow_messages import ArrowMessages
from penstock.datastream.connectors.base import (
    ReaderContext,
    Source,
    SourceChanged,
    SourceError,
    SourceReader,
    SplitEnumerator,
)
from penstock.datastream.connectors.files.file_formats import FileReadFormat, OpenFile
from penstock.datastream.connectors.files.file_reader import FileReader
from penstock.datastream.connectors.files.input_file import InputFile
from penstock.datastream.connectors.files.parquet import ParquetColumnarRowInputFormat
from penstock.datastream.connectors.splits import FixedSplitEnumerator, decode_split, encode_split
from penstock.storage.layout import FRAMES_FOLDER, FRAMES_MANIFEST
from penstock.storage.location import is_local


class FrameFiles(Source):
    """Reads the files of one folder.

    Args:
        root: The directory of the job that reads.
        folder: The folder's path relative to `root`.
        row_type: The type of the stream's rows.
    """

    def __init__(self, root: str, folder: str, row_type: RowType) -> None:
        self._root = root
        self._folder = folder
        self._row_type = row_type

    @property
    def produced_type(self) -> RowType:
        return self._row_type

    def create_enumerator(self, parallelism: int, restored: bytes | None) -> SplitEnumerator:
        if restored is None:
            return _FrameEnumerator(self._folder, list(self._splits()))
        state = decode_split(restored)
        splits = state["splits"] if isinstance(state, dict) else state
        return _FrameEnumerator(self._folder, [encode_split(split) for split in splits])

    def create_reader(self, context: ReaderContext) -> SourceReader:
        root, row_type = self._root, self._row_type
        formats: dict[Path, FileReadFormat] = {}

        def open_file(split: dict[str, Any]) -> OpenFile:
            path = Path(root, *Path(split["path"]).parts[-3:])  # earlier versions wrote absolute paths
            _check_size(path, split["size"])
            if path.parent not in formats:
                formats[path.parent] = _format_of(path.parent, row_type)
            return formats[path.parent].open(InputFile(str(path)), row_type)

        return FileReader(open_file)

    def copy_files(self, snapshot: bytes, directory: str) -> list[str]:
        if not is_local(directory):
            raise SourceError(
                f"rows of DataFrames are files, and {directory} is no file system: give the savepoint a directory that "
                "the driver and all executors share"
            )
        name = folder_in(snapshot) or Path(self._folder).name
        target = Path(directory, FRAMES_FOLDER, name)
        if target.exists():
            return []  # of another source that reads the same rows
        take_along(Path(self._root, FRAMES_FOLDER, name), target)
        return [file.relative_to(directory).as_posix() for file in sorted(target.iterdir())]

    def _splits(self) -> Iterator[bytes]:
        folder = Path(self._root, self._folder)
        format = _format_of(folder, self._row_type)
        for file in sorted(folder.glob("part-*")):
            path = f"{self._folder}/{file.name}"
            for first, end in pairwise(format.inspect(InputFile(str(file))).bounds):
                split = {"id": f"{path}#{first}", "path": path, "size": file.stat().st_size}
                yield encode_split({**split, "at": first, "end": end, "row": 0})


class _FrameEnumerator(FixedSplitEnumerator):
    """Snapshots the folder, too: a restored job must read the same one."""

    def __init__(self, folder: str, splits: list[bytes]) -> None:
        super().__init__(splits)
        self._folder = folder

    def snapshot(self) -> bytes:
        return encode_split({"folder": self._folder, "splits": [decode_split(split) for split in self._splits]})


def folder_in(snapshot: bytes) -> str | None:
    """Return the name of the folder that an enumerator's snapshot names; None for one of an earlier version whose
    splits had all been assigned."""
    state = decode_split(snapshot)
    if isinstance(state, dict):
        return Path(state["folder"]).name
    return Path(state[0]["path"]).parent.name if state else None


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read a folder's manifest. Raises `SourceChanged`."""
    with _readable(folder / FRAMES_MANIFEST):
        manifest: dict[str, Any] = json.loads((folder / FRAMES_MANIFEST).read_text(encoding="utf-8"))
        for key in ("columns", "origin", "arrow"):
            manifest[key]
        return manifest


def take_along(source: Path, target: Path) -> None:
    """Make `target` a copy of the folder `source`, of links where the file system has them, complete or not at all.

    So a new job needs nothing of the job whose checkpoint it started from. Raises `SourceError`."""
    shutil.rmtree(target, ignore_errors=True)
    try:
        target.mkdir(parents=True)
        for file in sorted(source.iterdir(), key=lambda file: file.name == FRAMES_MANIFEST):  # the manifest is last
            # Other names that begin with _ are notes on the folder itself: two jobs would write to a linked one. Those
            # that begin with a dot are checksums of Hadoop's, which nothing of ours reads.
            if file.is_file() and (file.name == FRAMES_MANIFEST or not file.name.startswith(("_", "."))):
                _link_or_copy(file, target / file.name)
    except OSError as error:
        shutil.rmtree(target, ignore_errors=True)
        raise SourceError(
            f"{source}, with rows of a DataFrame, could not be copied to {target}: {error}. Make room or set the "
            "permissions, and start the job again."
        ) from error


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copy2(source, target)


def _format_of(folder: Path, row_type: TypeInformation) -> FileReadFormat:
    arrow = read_manifest(folder)["arrow"]
    if arrow is None:
        return ParquetColumnarRowInputFormat(row_type)
    with _readable(folder / FRAMES_MANIFEST):
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(arrow["schema"])))
        return ArrowMessages(row_type, schema, arrow["marker"].encode())


def _check_size(path: Path, size: int) -> None:
    """Check a file's size. Its time of modification proves nothing: these files are written once, and a copy may not
    keep it.
    """
    try:
        found = path.stat().st_size
    except OSError as error:
        raise SourceChanged(
            f"{path}, with rows of a DataFrame, cannot be read: {error.strerror}. Put it back, or start without the "
            "checkpoint."
        ) from error
    if found != size:
        raise SourceChanged(
            f"{path}, with rows of a DataFrame, is damaged: it has {found} bytes and was written with {size}. Put the "
            "old file back, or start without the checkpoint."
        )


@contextmanager
def _readable(manifest: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise SourceChanged(f"{manifest} cannot be read: {error!r}. Start without the checkpoint.") from error
