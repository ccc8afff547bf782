"""Reads and writes `chk-<n>/_metadata`: a checkpoint as JSON after a first line with format version and checksum."""

from __future__ import annotations

import zlib

import msgspec

from penstock.protocol.values.metadata import FORMAT_VERSION, Metadata
from penstock.storage.layout import METADATA_NAME, MetadataName, parse
from penstock.storage.sealed import DamagedObject, seal, unseal
from penstock.storage.store import ObjectStore

KIND = "checkpoint"
_DECODER = msgspec.json.Decoder(Metadata)


def encode_metadata(metadata: Metadata) -> bytes:
    return seal(KIND, metadata.format_version, msgspec.json.encode(metadata) + b"\n")


def decode_metadata(data: bytes, name: str) -> Metadata:
    """Decode metadata. `name` is its path, for messages. Raises `DamagedObject` and `NewerFormat`."""
    body = unseal(KIND, FORMAT_VERSION, data, name)
    try:
        return _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DamagedObject(f"{name} is not the metadata of a checkpoint: {error}") from None


def read_metadata(store: ObjectStore, path: str, crc: int | None = None) -> Metadata:
    """Read metadata. `crc`: the checksum of the whole object that the log names, if known (see `metadata_crc`)."""
    data = store.get(path)
    metadata = decode_metadata(data, path)
    if crc is not None and metadata_crc(data) != crc:
        raise DamagedObject(f"{path} is not the metadata that the job's log names: its checksum differs")
    return metadata


def list_metadata(store: ObjectStore) -> list[MetadataName]:
    """Return the names of all checkpoints' metadata in a job's directory, by the folders that they lie in.

    The rest is not looked at: `results/` grows for as long as the job runs. A crash can leave a folder empty on a disk.
    A folder that is a link is somebody else's. Without this: a checkpoint is moved to an archive, a link is left in its
    place, and the sweep deletes its metadata in the archive.
    """
    paths = [f"{folder}/{METADATA_NAME}" for folder in store.folders("", with_links=False)]
    return [name for path in paths if isinstance(name := parse(path), MetadataName) and name.path == path]


def metadata_crc(data: bytes) -> int:
    """Compute `CheckpointEntry.metadata_crc`: the CRC-32 of the encoded metadata, first line included."""
    return zlib.crc32(data)
