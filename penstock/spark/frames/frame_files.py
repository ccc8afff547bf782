"""Reads the files that Spark wrote for one DataFrame, as a source. Nothing here imports PySpark.

They lie in a folder of the directory of the job that reads it (`frame_directory`). Splits name files relative to the
job's directory, so that it can be moved or copied. A reader takes schema and marker from the manifest next to the file
that its split names: the folder of another attempt has another marker, and would read as damaged.
"""

from __future__ import annotations

import base64
import posixpath
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pyarrow as pa

from penstock.common.row_types.composite_types import RowType
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.base import (
    FixedSplitEnumerator,
    ReaderContext,
    Source,
    SourceChanged,
    SourceError,
    SourceReader,
    SplitEnumerator,
    decode_split,
    encode_split,
)
from penstock.connectors.files.arrow_messages import ArrowMessages
from penstock.connectors.files.file_formats import FileReadFormat, OpenFile
from penstock.connectors.files.file_reader import FileReader
from penstock.connectors.files.input_file import InputFile
from penstock.connectors.formats.parquet.parquet import ParquetColumnarRowInputFormat
from penstock.spark.frames.frame_directory import FrameDirectory
from penstock.storage.layout import FRAMES_FOLDER, FRAMES_MANIFEST
from penstock.storage.store import ObjectMissing, StoreError
from penstock.storage.store_settings import DEFAULT_SETTINGS, StoreSettings


class FrameFiles(Source):
    """Reads the files of one folder.

    Args:
        root: The directory of the job that reads, a path or a URI.
        folder: The folder's path relative to `root`.
        row_type: The type of the stream's rows.
        settings: How stores are reached.
    """

    def __init__(self, root: str, folder: str, row_type: RowType, settings: StoreSettings = DEFAULT_SETTINGS) -> None:
        self._root = root
        self._folder = folder
        self._row_type = row_type
        self._settings = settings

    @property
    def produced_type(self) -> RowType:
        return self._row_type

    def create_enumerator(self, parallelism: int, restored: bytes | None) -> SplitEnumerator:
        if restored is None:
            return _FrameEnumerator(self._folder, list(self._splits()))
        state = decode_split(restored)
        # The folder that the splits name. Without this: a start that could not read the checkpoint has written a folder
        # of its own, and a savepoint takes that one along.
        return _FrameEnumerator(
            f"{FRAMES_FOLDER}/{folder_in(restored)}", [encode_split(split) for split in state["splits"]]
        )

    def create_reader(self, context: ReaderContext) -> SourceReader:
        directory, row_type = self._directory(), self._row_type
        formats: dict[str, FileReadFormat] = {}

        def open_file(split: dict[str, Any]) -> OpenFile:
            path = split["path"]
            file, name = directory.file(path), path.split("/")[-2]
            _check_size(file, split["size"])
            if name not in formats:
                formats[name] = _format_of(directory, name, row_type)
            return formats[name].open(file, row_type)

        return FileReader(open_file)

    def copy_files(self, snapshot: bytes, directory: str, progress: Callable[[], None]) -> list[str]:
        name = folder_in(snapshot)
        try:
            target = FrameDirectory(directory, self._settings, create=True)
            if target.is_complete(name):
                return []  # another source reads the same rows, and has copied the folder
            return target.take(name, self._directory(), progress, is_private=True)
        except StoreError as error:
            raise SourceError(str(error)) from error

    def _directory(self) -> FrameDirectory:
        return FrameDirectory(self._root, self._settings)

    def _splits(self) -> Iterator[bytes]:
        directory, name = self._directory(), posixpath.basename(self._folder)
        format = _format_of(directory, name, self._row_type)
        for path, size in directory.parts(name):
            for first, end in pairwise(format.inspect(directory.file(path)).bounds):
                split = {"id": f"{path}#{first}", "path": path, "size": size}
                yield encode_split({**split, "at": first, "end": end, "row": 0})


class _FrameEnumerator(FixedSplitEnumerator):
    """Snapshots the folder, too: a restored job must read the same one."""

    def __init__(self, folder: str, splits: list[bytes]) -> None:
        super().__init__(splits)
        self._folder = folder

    def snapshot(self) -> bytes:
        return encode_split({"folder": self._folder, "splits": [decode_split(split) for split in self._splits]})


def folder_in(snapshot: bytes) -> str:
    """Return the name of the folder that an enumerator's snapshot names."""
    return posixpath.basename(str(decode_split(snapshot)["folder"]))


def _format_of(directory: FrameDirectory, name: str, row_type: TypeInformation) -> FileReadFormat:
    arrow = directory.manifest(name)["arrow"]
    if arrow is None:
        return ParquetColumnarRowInputFormat(row_type)
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(arrow["schema"])))
        return ArrowMessages(row_type, schema, arrow["marker"].encode())
    except (ValueError, KeyError, TypeError, pa.ArrowException) as error:
        where = f"{directory.folder(name)}/{FRAMES_MANIFEST}"
        raise SourceChanged(f"{where} cannot be read: {error!r}. Start without the checkpoint.") from error


def _check_size(file: InputFile, size: int) -> None:
    """Check a file's size. Times of modification prove nothing: a copy may not keep them."""
    try:
        found = file.size()
    except OSError as error:
        raise SourceChanged(_gone(file.path, str(error.strerror))) from error
    except SourceError as error:
        if isinstance(error.__cause__, ObjectMissing):
            raise SourceChanged(_gone(file.path, "it does not exist")) from error
        raise
    if found != size:
        raise SourceChanged(
            f"{file.path}, with rows of a DataFrame, is damaged: it has {found} bytes and was written with {size}. Put "
            "the old file back, or start without the checkpoint."
        )


def _gone(path: str, why: str) -> str:
    return f"{path}, with rows of a DataFrame, cannot be read: {why}. Put it back, or start without the checkpoint."
