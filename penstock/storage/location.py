"""Reads a location that a user gives: a path, a `file:` URI, or a URI of an object store or HDFS.

A location is a text in its one canonical form: an absolute path, or `scheme://authority/path` without a slash at its
end. What lies below it is named by `posixpath.join`, in either case.
"""

from __future__ import annotations

import os
import posixpath
import re
from typing import NamedTuple
from urllib.parse import unquote

from penstock.storage.store import StoreError

S3, GS, AZURE, HDFS = "s3", "gs", "azure", "hdfs"
KINDS = {
    "s3": S3, "s3a": S3, "s3n": S3, "s3p": S3, "gs": GS, "gcs": GS, "az": AZURE, "abfs": AZURE, "abfss": AZURE,
    "wasb": AZURE, "wasbs": AZURE, "hdfs": HDFS, "viewfs": HDFS,
}  # fmt: skip
"""Scheme -> the kind of store that it names."""

_CANONICAL = {"s3a": "s3", "s3n": "s3", "s3p": "s3", "gcs": "gs"}
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://([^/]*)(?:/(.*))?", re.S)


class RemoteLocation(NamedTuple):
    """Names a folder in an object store or HDFS. `path` has no slash at its ends; "" is the bucket itself."""

    scheme: str
    authority: str
    path: str

    @property
    def kind(self) -> str:
        return KINDS[self.scheme]

    @property
    def uri(self) -> str:
        return f"{self.scheme}://{self.authority}/{self.path}".rstrip("/") if self.path else self.root

    @property
    def root(self) -> str:
        """Return the URI of the bucket, or of the file system."""
        return f"{self.scheme}://{self.authority}"


def remote_location(uri_or_path: str) -> RemoteLocation | None:
    """Parse the URI of an object store or HDFS. Return None for a path and for `file:`. Raises `StoreError`."""
    match = _URI.fullmatch(uri_or_path)
    if match is None or match[1].lower() == "file":
        return None
    scheme, authority, path = match[1].lower(), match[2], match[3] or ""
    if scheme not in KINDS:
        raise StoreError(
            f"{uri_or_path}: files cannot be stored at {scheme}://; use a path or a file:// URI on a file system that "
            f"the driver and all executors share, or one of {', '.join(f'{name}://' for name in KINDS)}"
        )
    scheme = _CANONICAL.get(scheme, scheme)
    kind = KINDS[scheme]
    if not authority and kind != HDFS:
        raise StoreError(f"{uri_or_path}: names no bucket; write {scheme}://bucket/folder")
    if kind in (S3, GS) and ("@" in authority or ":" in authority):
        raise StoreError(
            f"{scheme}://…: a URI names a bucket and a folder only; credentials and endpoints are options "
            "(s3.access-key, s3.endpoint, …) or come from the environment"
        )
    parts = path.rstrip("/").split("/") if path.strip("/") else []
    if any(part in ("", ".", "..") for part in parts):
        raise StoreError(f"{uri_or_path}: its folder must not have empty or dotted parts")
    return RemoteLocation(scheme, authority, "/".join(parts))


def location(uri_or_path: str) -> str:
    """Return the canonical form of a user's path or URI: an absolute path, or a URI. Raises `StoreError`."""
    remote = remote_location(uri_or_path)
    return os.path.abspath(local_path(uri_or_path)) if remote is None else remote.uri


def is_local(uri_or_path: str) -> bool:
    """Return whether this is a path of a file system, or a `file:` URI. Raises `StoreError`."""
    return remote_location(uri_or_path) is None


def parent_of(place: str) -> str:
    """Return the location above this one; of a bucket, the bucket itself."""
    remote = remote_location(place)
    return posixpath.dirname(place) if remote is None or remote.path else place


def local_path(uri_or_path: str) -> str:
    """Return the path that a `file:` URI or a plain path names. A URI's percent signs are decoded, as `Path.as_uri()`
    encodes them; "?" and "#" belong to the path, which may be a pattern. Raises `StoreError` for any other scheme.
    """
    scheme, colon, rest = uri_or_path.partition(":")
    # A letter before the colon is a drive, or a file name with a colon in it.
    if not colon or len(scheme) <= 1 or not _SCHEME.fullmatch(scheme):
        return uri_or_path
    if scheme.lower() != "file":
        if not rest.startswith("//") and scheme.lower() not in KINDS:
            return uri_or_path
        raise StoreError(
            f"{uri_or_path}: {scheme}:// is not supported here; use a path, or a file:// URI, on a file system "
            "that the driver and all executors share"
        )
    host = ""
    if rest.startswith("//"):
        host, slash, rest = rest[2:].partition("/")
        rest = slash + rest
    if host not in ("", "localhost"):
        raise StoreError(f"{uri_or_path}: names the host {host!r}; write file:///path, with three slashes")
    if not rest.startswith("/"):
        raise StoreError(f"{uri_or_path}: must name an absolute path, as in file:///path")
    return unquote(rest)
