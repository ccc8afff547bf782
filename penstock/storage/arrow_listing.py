"""Lists folders of S3 through PyArrow's client, where obstore finds a key such as "a//b": it refuses the whole listing.

Objects with such keys are left out, and named in a warning, because no other request of obstore's could reach them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from penstock.common.options import ObjectStoreOptions
from penstock.storage.bucket_clients import amazon_settings
from penstock.storage.location import RemoteLocation
from penstock.storage.store import StoreError
from penstock.storage.store_settings import StoreSettings

log = logging.getLogger(__name__)

_NAMED_MAX = 3


class ArrowListing:
    """Lists a bucket of S3. Paths are keys, as obstore has them; of objects with their sizes and times."""

    def __init__(self, bucket: RemoteLocation, settings: StoreSettings) -> None:
        self._bucket = bucket
        self._settings = settings

    def objects(self, folder: str | None) -> list[dict[str, Any]]:
        """Return the objects below a folder, as obstore's list does: `path`, `size`, `last_modified`. Empty objects
        that mark folders are none. Raises `StoreError`."""
        from pyarrow.fs import FileType

        found = [info for info in self._listed(folder, recursive=True) if info.type == FileType.File]
        below = f"{folder}/" if folder else ""
        named = {info.path: self._key(info.path) for info in found}
        unnameable = sorted(key for key in named.values() if not is_nameable(key.removeprefix(below)))
        if unnameable:
            others = f" and {len(unnameable) - _NAMED_MAX} more" if len(unnameable) > _NAMED_MAX else ""
            log.warning(
                "%s: left out %s%s, because a part of the key is empty or dotted. Rename an object to have it read.",
                self._bucket.uri,
                ", ".join(repr(key) for key in unnameable[:_NAMED_MAX]),
                others,
            )
        return [
            {"path": named[info.path], "size": info.size, "last_modified": info.mtime}
            for info in found
            if named[info.path] not in unnameable
        ]

    def folders(self, folder: str | None) -> list[str]:
        """Return the paths of the folders right below a folder. Raises `StoreError`."""
        from pyarrow.fs import FileType

        below = f"{folder}/" if folder else ""
        keys = {self._key(info.path) for info in self._listed(folder, recursive=False) if info.type != FileType.File}
        return sorted(key for key in keys if key.startswith(below) and is_nameable(key.removeprefix(below)))

    def _listed(self, folder: str | None, recursive: bool) -> Iterator[Any]:
        from pyarrow.fs import FileSelector

        path = "/".join(part for part in (self._bucket.authority, folder) if part)
        try:
            system = self._file_system()
            yield from system.get_file_info(FileSelector(path, allow_not_found=True, recursive=recursive))
        except OSError as error:
            raise StoreError(f"cannot list {self._bucket.root}/{folder or ''}: {error}") from None

    def _key(self, path: str) -> str:
        return path.removeprefix(f"{self._bucket.authority}/")

    def _file_system(self) -> Any:
        try:
            from pyarrow.fs import S3FileSystem
        except ImportError as error:
            raise StoreError(f"{self._bucket.root}: this PyArrow has no client of S3 ({error})") from None
        config, provider = amazon_settings(self._bucket, self._settings)
        keys = {"access_key_id": "access_key", "secret_access_key": "secret_key", "session_token": "session_token"}
        given = {keys[name]: value for name, value in config.items() if name in keys}
        if provider is not None:
            found = provider()
            given = {
                "access_key": found["access_key_id"],
                "secret_key": found["secret_access_key"],
                "session_token": found.get("token"),
            }
        endpoint = config.get("endpoint")
        if endpoint:
            given["scheme"], _, given["endpoint_override"] = endpoint.rstrip("/").partition("://")
        if config.get("region") or endpoint:
            given["region"] = config.get("region") or "us-east-1"
        return S3FileSystem(
            **given,
            force_virtual_addressing=bool(config["virtual_hosted_style_request"]),
            connect_timeout=5,
            request_timeout=self._settings.get(ObjectStoreOptions.REQUEST_TIMEOUT).seconds,
        )


def is_nameable(path: str) -> bool:
    """Return whether obstore can ask for a path: no part of it is empty or dotted."""
    return not {"", ".", ".."} & set(path.split("/"))
