"""Names a job's objects below its directory, as in Flink:

    shared/g<fence>-<counter>_<incarnation>_s<slot>_c<checkpoint>_<random>   segments (.lz4, .zstd: compressed)
    chk-<checkpoint>/_metadata                                              one per checkpoint
    log/<sequence, 20 digits>                                               the job's log

A segment's name contains its writer, so that a sweep finds the objects of dead generations. Callers pass the random
parts.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection
from typing import NamedTuple

from penstock.protocol.values.elements import Generation
from penstock.storage.compression import CODECS, with_codec

SHARED_FOLDER = "shared"
LOG_FOLDER = "log"
METADATA_NAME = "_metadata"
SAVEPOINT_PREFIX = "savepoint-"
"""The beginning of the name of each savepoint's directory."""
FRAMES_FOLDER = "data-frames"
"""Rows of DataFrames, in a folder per source with a manifest. Savepoints take them along."""
FRAMES_MANIFEST = "_penstock.json"

_WORD = re.compile(r"[0-9A-Za-z]+")
_CODEC = rf"(?:\.({'|'.join(CODECS)}))?"
_SEGMENT = re.compile(rf"{SHARED_FOLDER}/g(\d+)-(\d+)_([0-9A-Za-z]+)_s(\d+)_c(\d+)_([0-9A-Za-z]+){_CODEC}")
_SAVEPOINT_SEGMENT = re.compile(rf"s\d+_c\d+_[0-9A-Za-z]+{_CODEC}")
_METADATA = re.compile(rf"chk-(\d+)/{METADATA_NAME}")
_LOG = re.compile(rf"{LOG_FOLDER}/(\d{{20}})")


class SegmentName(NamedTuple):
    """Describes a segment's name. `random` distinguishes the segments of one slot and checkpoint. `incarnation`: the
    driver's incarnation."""

    generation: Generation
    incarnation: str
    slot: int
    checkpoint_id: int
    random: str
    codec: str = "none"

    @property
    def path(self) -> str:
        for word in (self.incarnation, self.random):
            if not _WORD.fullmatch(word):
                raise ValueError(f"not a part of an object's name (letters and digits): {word!r}")
        fence, counter = self.generation
        name = f"g{fence}-{counter}_{self.incarnation}_s{self.slot}_c{self.checkpoint_id}_{self.random}"
        return with_codec(f"{SHARED_FOLDER}/{name}", self.codec)


class MetadataName(NamedTuple):
    checkpoint_id: int

    @property
    def path(self) -> str:
        return f"{checkpoint_folder(self.checkpoint_id)}/{METADATA_NAME}"


class LogName(NamedTuple):
    sequence: int

    @property
    def path(self) -> str:
        return f"{LOG_FOLDER}/{self.sequence:020}"


ObjectName = SegmentName | MetadataName | LogName


def segment_path(
    generation: Generation, incarnation: str, slot: int, checkpoint_id: int, random: str, codec: str = "none"
) -> str:
    return SegmentName(generation, incarnation, slot, checkpoint_id, random, codec).path


def savepoint_segment_path(slot: int, checkpoint_id: int, random: str, codec: str = "none") -> str:
    """Return the name of a slot's segment in a savepoint's directory, which holds nothing else but `_metadata`."""
    return with_codec(f"s{slot}_c{checkpoint_id}_{random}", codec)


def is_savepoint_segment(path: str) -> bool:
    """Return True if a segment of a savepoint may have this name."""
    return _SAVEPOINT_SEGMENT.fullmatch(path) is not None


def is_unfinished_savepoint(directory: str, paths: Callable[[], Collection[str]]) -> bool:
    """Return True if a directory has segments of a savepoint, but not its metadata, which is written last: a driver
    still writes it, or was killed before it was complete. `paths` lists its objects. It is called only if the directory
    is called as savepoints are, because a wrong path may be that of a whole disk."""
    if not posixpath.basename(directory.rstrip("/")).startswith(SAVEPOINT_PREFIX):
        return False
    found = paths()
    return METADATA_NAME not in found and any(is_savepoint_segment(path) for path in found)


def checkpoint_folder(checkpoint_id: int) -> str:
    return f"chk-{checkpoint_id}"


def metadata_path(checkpoint_id: int) -> str:
    return MetadataName(checkpoint_id).path


def log_path(sequence: int) -> str:
    return LogName(sequence).path


def parse(path: str) -> ObjectName | None:
    """Identify an object by its path; return None for foreign objects, which are never touched."""
    if match := _SEGMENT.fullmatch(path):
        fence, counter, incarnation, slot, checkpoint_id, random, codec = match.groups()
        generation = Generation(int(fence), int(counter))
        return SegmentName(generation, incarnation, int(slot), int(checkpoint_id), random, codec or "none")
    if match := _METADATA.fullmatch(path):
        return MetadataName(int(match[1]))
    if match := _LOG.fullmatch(path):
        return LogName(int(match[1]))
    return None
