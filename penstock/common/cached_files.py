"""Finds the files that a program has registered for its functions, by their names.

The option `pipeline.cached-files` has them as Flink writes it: "name:rates,path:/data/rates.csv;name:...". A slot on
another machine knows where its copies are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class CachedFile:
    """Describes a registered file. `is_executable`: its copies may be run as programs."""

    name: str
    path: str
    is_executable: bool = False


def parse_cached_files(text: str) -> tuple[CachedFile, ...]:
    """Read the option's text.

    Args:
        text: "name:rates,path:/data/rates.csv,executable:true;name:...".

    Returns:
        The files.

    Raises:
        ValueError: A part of the text has no name or path.
    """
    found = []
    for part in filter(None, (part.strip() for part in text.split(";"))):
        fields = dict(field.split(":", 1) for field in part.split(",") if ":" in field)
        if not fields.get("name") or not fields.get("path"):
            raise ValueError(
                f"{part!r} is no cached file: write name:<name>,path:<path>, and executable:true for a program"
            )
        found.append(CachedFile(fields["name"], fields["path"], fields.get("executable", "").lower() == "true"))
    return tuple(found)


def cached_files_text(files: Iterable[CachedFile]) -> str:
    """Write the option's text.

    Args:
        files: The files.

    Returns:
        The text, for `parse_cached_files`.

    Raises:
        ValueError: A name or path has a character that separates them.
    """
    parts = []
    for file in files:
        if any(mark in f"{file.name}{file.path}" for mark in ",;") or ":" in file.name:
            raise ValueError(
                f"a cached file's name has no ',', ';' or ':', and its path no ',' or ';': {file.name}, {file.path}"
            )
        executable = ",executable:true" if file.is_executable else ""
        parts.append(f"name:{file.name},path:{file.path}{executable}")
    return ";".join(parts)


class DistributedCache:
    """Gives functions the registered files. `RuntimeContext.get_distributed_cache()` returns it.

    Example:
        env.register_cached_file(path, "rates")  # then open(runtime_context.get_distributed_cache().get_file("rates"))
    """

    def __init__(self, paths: Mapping[str, str]) -> None:
        self._paths = dict(paths)

    def get_file(self, name: str) -> str:
        """Return the path of a registered file on the slot's machine.

        Args:
            name: Its name.

        Returns:
            The path.

        Raises:
            KeyError: No file was registered under this name.
        """
        if name not in self._paths:
            known = ", ".join(map(repr, self._paths)) or "none"
            raise KeyError(
                f"no file was registered as {name!r} (registered: {known}): env.register_cached_file(path, {name!r})"
            )
        return self._paths[name]


local_copies: dict[str, str] = {}
"""The paths of this process's copies, by name: a slot sets them before it runs functions."""
