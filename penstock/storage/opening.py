"""Opens the store that a user names (`execution.checkpointing.dir`, a job's directory).

It also checks that the store offers what exactly-once needs.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

from penstock.storage.local import LocalStore
from penstock.storage.location import HDFS, local_path, remote_location
from penstock.storage.store import BrowsableStore, ObjectExists, ObjectStore, StoreError
from penstock.storage.store_settings import DEFAULT_SETTINGS, StoreSettings

PROBE_FOLDER = "probe"

OpenStore = Callable[[str, bool], ObjectStore]
"""(directory, whether to create it) -> its store. Raises `StoreError`."""


def open_store(
    uri_or_path: str, settings: StoreSettings = DEFAULT_SETTINGS, *, create_root: bool = False
) -> BrowsableStore:
    """Open the store below a path or URI. The driver sets `create_root`; slots do not (see `LocalStore`). A folder of
    an object store needs no creation: nothing is asked of it before something is read or written. Raises `StoreError`.
    """
    remote = remote_location(uri_or_path)
    if remote is not None and remote.kind != HDFS:
        from penstock.storage.bucket import open_bucket

        return open_bucket(remote, settings)
    if remote is not None:
        from penstock.storage.hdfs import open_hdfs

        return open_hdfs(remote, settings, create_root)
    store = LocalStore(local_path(uri_or_path), fsync=settings.fsync, create_root=create_root)
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
                "publish, so exactly-once is refused; use a store with create-if-absent, such as S3, Google Cloud "
                "Storage, Azure, HDFS, or a local or POSIX network file system"
            )
    finally:
        store.delete(path)


def open_own(open_store: OpenStore, directory: str) -> ObjectStore:
    """Open the job's directory, creating it if needed, and check that it is writable. Raises `StoreError`."""
    store = open_store(directory, True)
    probe(store)
    return store
