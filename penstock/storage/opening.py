"""Opens the store that a user names (`execution.checkpointing.dir`, a job's directory).

It also checks that the store offers what exactly-once needs.
"""

from __future__ import annotations

import uuid
from urllib.parse import unquote, urlsplit

from penstock.storage.local import LocalStore
from penstock.storage.store import ObjectExists, ObjectStore, StoreError

PROBE_FOLDER = "probe"


def local_path(uri_or_path: str) -> str:
    """Return the path that a `file:` URI or a plain path names. Raises `StoreError` for any other scheme."""
    parts = urlsplit(uri_or_path)
    # A letter before the colon is a drive, or a file name with a colon in it.
    if len(parts.scheme) <= 1 or "/" in uri_or_path.partition(":")[0]:
        return uri_or_path
    if parts.scheme != "file":
        raise StoreError(
            f"{uri_or_path}: checkpoints cannot be stored at {parts.scheme}:// yet; use a path, or a file:// URI, on a "
            "file system that the driver and all executors share"
        )
    if parts.netloc not in ("", "localhost"):
        raise StoreError(f"{uri_or_path}: names the host {parts.netloc!r}; write file:///path, with three slashes")
    if not parts.path.startswith("/"):
        raise StoreError(f"{uri_or_path}: must name an absolute path, as in file:///path")
    return unquote(parts.path)


def open_store(uri_or_path: str, *, fsync: bool = True, create_root: bool = False) -> LocalStore:
    """Open the store below a `file:` URI or path. The driver sets `create_root`; slots do not (see `LocalStore`)."""
    store = LocalStore(local_path(uri_or_path), fsync=fsync, create_root=create_root)
    if create_root:
        store.sweep_temporary()
    return store


def probe(store: ObjectStore) -> None:
    """Raise `StoreError` unless the store can be written and refuses the second creation of one name."""
    path = f"{PROBE_FOLDER}/{uuid.uuid4().hex}"
    store.create(path, b"first")
    try:
        try:
            store.create(path, b"second")
        except ObjectExists:
            refused = True
        else:
            refused = False
        if not refused or store.get(path) != b"first":
            raise StoreError(
                "this checkpoint storage lets a second writer replace an object that exists: two drivers could both "
                "publish, so exactly-once is refused; use a store with create-if-absent, such as a local or POSIX "
                "network file system"
            )
    finally:
        store.delete(path)
