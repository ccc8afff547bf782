"""Prepares the files of a job in a slot's process: unpacks archives, installs requirements, finds cached files.

All slots of a machine share what is unpacked and installed: the first one does it, and the others wait for it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from pyspark import SparkFiles

from penstock.common.cached_files import local_copies

_SHOWN_LINES = 15


class FileKind(Enum):
    """Lists the uses of a file in a slot."""

    ARCHIVE = "archive"
    REQUIREMENTS = "requirements"
    PACKAGES = "packages"
    """The folder from which requirements are installed, without the network."""
    CACHED = "cached"


@dataclass(frozen=True)
class SlotFile:
    """Locates a file. `path`: on this machine, or else its name in Spark's `SparkFiles`. `name`: the folder of an
    archive, or what the program calls a cached file. `source`: where the driver has it. `is_folder`: it is one, which
    travels as a zip file.
    """

    kind: FileKind
    name: str
    path: str
    is_here: bool
    is_executable: bool = False
    source: str = ""
    is_folder: bool = False

    def fields(self) -> tuple[Any, ...]:
        """Return plain values, for `of`: they arrive where our package cannot be imported yet."""
        return (self.kind.value, *astuple(self)[1:])

    @staticmethod
    def of(fields: Sequence[Any]) -> SlotFile:
        return SlotFile(FileKind(fields[0]), *fields[1:])

    def found(self) -> Path:
        return Path(self.path if self.is_here else SparkFiles.get(self.path))


def prepare(given: Sequence[tuple[Any, ...]]) -> None:
    """Make the files ready for user code. With archives, their folder becomes the working directory, as in PyFlink.
    `given`: the fields of each.
    """
    files = [SlotFile.of(fields) for fields in given]
    archives = [file for file in files if file.kind is FileKind.ARCHIVE]
    if archives:
        os.chdir(unpacked_archives(archives))
    requirements = [file for file in files if file.kind is FileKind.REQUIREMENTS]
    packages = [file for file in files if file.kind is FileKind.PACKAGES]
    if requirements:
        sys.path.insert(0, _installed(requirements[0], packages[0] if packages else None))
    local_copies.clear()
    local_copies.update({file.name: _cached(file) for file in files if file.kind is FileKind.CACHED})


def unpacked_archives(archives: Sequence[SlotFile]) -> str:
    """Return the folder that has the archives, each in a folder of its own."""

    def unpack(folder: Path) -> None:
        for archive in archives:
            target = folder / archive.name
            if archive.is_here and archive.is_folder:
                shutil.copytree(archive.found(), target, dirs_exist_ok=True)
                continue
            with zipfile.ZipFile(archive.found()) as opened:
                opened.extractall(target)
                for info in opened.infolist():  # extractall() forgets that a file is a program
                    if (mode := info.external_attr >> 16) and not info.is_dir():
                        (target / info.filename).chmod(mode & 0o777)

    return str(_shared("archives", [f"{a.name}={_identity(a.found())}" for a in archives], unpack))


def _installed(requirements: SlotFile, packages: SlotFile | None) -> str:
    """Return the folder with the installed requirements. Raises RuntimeError with the end of what pip has said."""
    file = requirements.found()

    def install(folder: Path) -> None:
        offline: list[str] = []
        if packages is not None:
            wheels = packages.found()
            if not packages.is_here and packages.is_folder:
                shutil.unpack_archive(wheels, folder / ".packages", "zip")
                wheels = folder / ".packages"
            offline = ["--no-index", "--find-links", str(wheels)]
        command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--target", str(folder)]
        made = subprocess.run([*command, *offline, "-r", str(file)], capture_output=True, text=True, check=False)
        if made.returncode:
            said = "\n".join((made.stdout + made.stderr).strip().splitlines()[-_SHOWN_LINES:])
            raise RuntimeError(
                f"python.requirements: pip cannot install {file.name} (exit code {made.returncode}):\n{said}"
            )

    identity = [sys.version, sys.executable, file.read_text(encoding="utf-8")]
    if packages is not None:
        identity.append(_identity(packages.found()))
    return str(_shared("requirements", identity, install))


def _cached(file: SlotFile) -> str:
    found = file.found()
    if file.is_folder and not file.is_here:
        return str(_shared("folder", [_identity(found)], lambda folder: shutil.unpack_archive(found, folder, "zip")))
    if not file.is_executable or os.access(found, os.X_OK):
        return str(found)

    def copy(folder: Path) -> None:
        shutil.copy(found, folder / found.name)
        (folder / found.name).chmod(0o755)

    return str(_shared("program", [_identity(found)], copy) / found.name)


def _identity(path: Path) -> str:
    """Return a text that changes when the file, or a file of the folder, does."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    stats = [(str(file), file.stat()) for file in files if file.is_file()]
    return repr([(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats])


def _shared(kind: str, identity: Sequence[str], make: Callable[[Path], None]) -> Path:
    """Return a folder of this machine that `make` fills once, for all that need it. One half made is made again."""
    digest = hashlib.sha256("\0".join(identity).encode()).hexdigest()[:24]
    folder = Path(tempfile.gettempdir()) / f"penstock-{kind}-{os.getuid()}-{digest}"
    complete = folder.with_name(f"{folder.name}.complete")
    with _locked(folder.with_name(f"{folder.name}.lock")):
        if not (complete.exists() and folder.is_dir()):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(mode=0o700)
            make(folder)
            complete.touch()
    return folder


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
