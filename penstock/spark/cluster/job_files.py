"""Ships a job's archives, requirements and cached files to its slots, by Spark's own distribution of files."""

from __future__ import annotations

import atexit
import itertools
import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from penstock.common.configuration import Configuration
from penstock.common.options import OptionError, PipelineOptions, PythonOptions
from penstock.spark.process.slot_files import FileKind, SlotFile, unpacked_archives
from penstock.spark.session import Substrate

_numbers = itertools.count()


def with_files(substrate: Substrate, configuration: Configuration) -> Substrate:
    """Return the substrate of a job with its files and its Python. Raises `OptionError` for a file that is missing."""
    files = _ship_files(substrate, configuration)
    return replace(substrate, files=files, python=_python_of(substrate, configuration, files))


def _ship_files(substrate: Substrate, configuration: Configuration) -> tuple[SlotFile, ...]:
    """Give the files to Spark, unless executors run on this machine."""
    found = []
    for text in configuration.get(PythonOptions.PYTHON_ARCHIVES):
        path, _, target = text.partition("#")
        name = target or Path(path).name
        found.append(_shipped(substrate, PythonOptions.PYTHON_ARCHIVES.key, FileKind.ARCHIVE, name, path))
    if (requirements := configuration.get(PythonOptions.PYTHON_REQUIREMENTS)) is not None:
        path, _, cache = requirements.partition("#")
        key = PythonOptions.PYTHON_REQUIREMENTS.key
        found.append(_shipped(substrate, key, FileKind.REQUIREMENTS, "requirements", path))
        if cache:
            found.append(_shipped(substrate, key, FileKind.PACKAGES, "packages", cache))
    for file in configuration.get(PipelineOptions.CACHED_FILES):
        key = PipelineOptions.CACHED_FILES.key
        found.append(_shipped(substrate, key, FileKind.CACHED, file.name, file.path, file.is_executable))
    return tuple(found)


def _python_of(substrate: Substrate, configuration: Configuration, files: tuple[SlotFile, ...]) -> str | None:
    """Return the Python that slots run; None: the session's. One in an archive is named relative to it."""
    executable = configuration.get(PythonOptions.PYTHON_EXECUTABLE)
    if executable is None or os.path.isabs(executable) or "/" not in executable:
        return executable
    if substrate.is_local:
        archives = [file for file in files if file.kind is FileKind.ARCHIVE]
        candidate = Path(unpacked_archives(archives)) / executable if archives else Path(executable).absolute()
        if not candidate.exists():
            raise OptionError(
                f"{PythonOptions.PYTHON_EXECUTABLE.key}: there is no {executable} in the archives "
                f"({', '.join(file.name for file in archives) or 'none'}) or here",
                PythonOptions.PYTHON_EXECUTABLE.key,
            )
        return str(candidate)
    # Spark unpacks archives in the executor's working directory before it starts a Python there.
    for file in files:
        if file.kind is FileKind.ARCHIVE:
            substrate.context.addArchive(f"{file.source}#{file.name}")
    return f"./{executable}"


def _shipped(
    substrate: Substrate, key: str, kind: FileKind, name: str, path: str, is_executable: bool = False
) -> SlotFile:
    if "://" in path and not path.startswith("file://"):
        substrate.context.addFile(path)  # Spark fetches it from its store
        return SlotFile(kind, name, path.rpartition("/")[2], False, is_executable, path)
    here = Path(path.removeprefix("file://")).absolute()
    if not here.exists():
        raise OptionError(f"{key}: there is no {here}", key)
    is_folder = here.is_dir()
    if substrate.is_local:
        return SlotFile(kind, name, str(here), True, is_executable, str(here), is_folder)
    folder = Path(tempfile.mkdtemp(prefix="penstock-files-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # Spark serves the files from here while it runs
    # Spark refuses two files of one name, and tells an archive by its ending.
    unique = folder / f"{folder.name}-{next(_numbers)}-{here.name}"
    if is_folder:
        shipped = Path(shutil.make_archive(str(unique), "zip", here))
    elif kind is FileKind.ARCHIVE:
        shipped = unique.with_name(f"{unique.name}.zip")
        shipped.symlink_to(here)
    else:
        shipped = unique
        shipped.symlink_to(here)
    source = f"file://{shipped}"  # of a path without a scheme Spark would take the name behind the link
    substrate.context.addFile(source)
    return SlotFile(kind, name, shipped.name, False, is_executable, source, is_folder)
