"""Starts the object stores that need nothing but our environment: moto's S3, and our fake of Google Cloud Storage."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.common.configuration import Configuration
from penstock.storage.opening import open_store
from penstock.storage.store import BrowsableStore
from penstock.storage.store_settings import StoreSettings
from tools.object_stores import SERVERS, Server

BUCKET = "penstock-tests"


@contextmanager
def running(name: str, directory: Path) -> Iterator[Server]:
    """Run a server with a bucket."""
    with SERVERS[name](directory) as server:
        server.make_bucket(BUCKET)
        yield server


def settings_of(server: Server, **more: str) -> StoreSettings:
    """Return what reaches the server. `more`: options, with _ for the dots of their keys and __ for a dash."""
    given = {key.replace("__", "-").replace("_", "."): text for key, text in more.items()}
    return StoreSettings.of(Configuration({**server.options, **given}))


def new_folder(server: Server, **more: str) -> BrowsableStore:
    """Return a store in a folder of its own."""
    return open_store(f"{server.uri(BUCKET)}/{uuid.uuid4().hex}/job", settings_of(server, **more), create_root=True)
