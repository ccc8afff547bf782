"""Lists the files that a URI of a store means: an object, a folder or a pattern."""

from __future__ import annotations

import fnmatch
import glob

from penstock.connectors.base import SourceError
from penstock.connectors.files.input_file import reading
from penstock.storage.location import remote_location
from penstock.storage.opening import open_store
from penstock.storage.store import BrowsableStore, ObjectMissing
from penstock.storage.store_settings import StoreSettings

NOTHING_IN = "there are no files in directory {} (names that begin with . or _ are left out)"
NOTHING_AT = "{} is missing: there is no such file, and it is no directory and no pattern"
NOTHING_MATCHES = "no file matches {}"


def stored_files(uri: str, settings: StoreSettings) -> list[str]:
    """List the objects that a URI means, sorted, without hidden ones.

    Args:
        uri: An object, a folder or a pattern.
        settings: How stores are reached.

    Returns:
        Their URIs.

    Raises:
        SourceError: There are none, or the store cannot be read.
    """
    location = remote_location(uri)
    assert location is not None
    with reading(uri):
        store = open_store(location.root, settings)
        path = location.path
        listed = store.list(path)
        if found := _visible(listed, path):
            return [f"{location.root}/{name}" for name in found]
        if listed:
            raise SourceError(NOTHING_IN.format(uri))
        if _is_object(store, path):
            return [uri]
        names = path.split("/")
        fixed_names = _up_to_magic(names, store)
        if fixed_names == names:
            raise SourceError(NOTHING_AT.format(uri))
        fixed, pattern = "/".join(fixed_names), [*map(glob.escape, fixed_names), *names[len(fixed_names) :]]
        found = [name for name in _visible(store.list(fixed), fixed) if _matches(name.split("/"), pattern)]
        if not found:
            raise SourceError(NOTHING_MATCHES.format(uri))
        return [f"{location.root}/{name}" for name in found]


def is_hidden(name: str) -> bool:
    """Return True if Spark, too, skips files of this name.

    A bucket of a column whose name begins with "_" is not hidden.

    Args:
        name: The name of a file or folder.

    Returns:
        True or False.
    """
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _is_object(store: BrowsableStore, path: str) -> bool:
    try:
        store.stat(path)
    except (ObjectMissing, ValueError):
        return False
    return True


def _up_to_magic(names: list[str], store: BrowsableStore) -> list[str]:
    """Return the names before the first pattern. A folder's own name is no pattern, whatever characters it has."""
    for index, name in enumerate(names):
        if glob.has_magic(name) and (index == len(names) - 1 or name not in store.folders("/".join(names[:index]))):
            return names[:index]
    return names


def _visible(paths: list[str], folder: str) -> list[str]:
    start = f"{folder}/" if folder else ""
    return [path for path in paths if not any(map(is_hidden, path.removeprefix(start).split("/")))]


def _matches(names: list[str], pattern: list[str]) -> bool:
    """Return True if the pattern matches a path, or a folder above it."""
    if not pattern:
        return True
    if pattern[0] == "**":
        return len(pattern) == 1 or _matches(names, pattern[1:]) or (bool(names) and _matches(names[1:], pattern))
    return bool(names) and fnmatch.fnmatchcase(names[0], pattern[0]) and _matches(names[1:], pattern[1:])
