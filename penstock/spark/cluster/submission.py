"""Ships our code and the modules next to the user's program to the slots."""

from __future__ import annotations

import atexit
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path

import penstock
from penstock.common.configuration import Configuration
from penstock.common.options import PythonOptions
from penstock.spark.session import Substrate


def search_path(substrate: Substrate, configuration: Configuration) -> tuple[str, ...]:
    """Return folders and archives that a slot adds to its module search path: on this machine all of the driver's, and
    those in `python.files`.
    """
    if not substrate.is_local:
        return ()
    files = [Path(str(file)) for file in configuration.get(PythonOptions.PYTHON_FILES)]
    named = [file.parent if file.suffix == ".py" else file for file in files]
    return tuple(str(entry.absolute()) for entry in (*named, *map(Path, sys.path)))


def ship_modules(substrate: Substrate, configuration: Configuration) -> list[str]:
    """Give executors elsewhere our own package and the modules that the program has imported from its own folder.

    Returns the names of the user's modules. Executors on this machine read the files themselves (`search_path`).
    """
    if substrate.is_local:
        return []
    context = substrate.context
    for file in configuration.get(PythonOptions.PYTHON_FILES):
        context.addPyFile(str(file))
    folder = Path(tempfile.mkdtemp(prefix="penstock-modules-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # Spark serves the files from here while it runs
    if context.applicationId not in _has_our_package:
        _has_our_package.add(str(context.applicationId))
        own = archive_modules(folder / f"{folder.name}-own.zip", Path(penstock.__file__).parents[1], ["penstock"])
        context.addPyFile(str(own))
    program = program_folder()
    found = [] if program is None else modules_below(program)
    if program is not None and found:
        # Spark refuses another file of the same name, and a worker finds the newest first.
        context.addPyFile(str(archive_modules(folder / f"{folder.name}-program.zip", program, found)))
    return found


_has_our_package: set[str] = set()
"""Spark applications that have been given it."""


def program_folder() -> Path | None:
    """Return the folder of the user's program; None in an interactive session."""
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    return Path(file).absolute().parent if file else None


def modules_below(folder: Path) -> list[str]:
    """Return the names of the top-level modules and packages in `folder` that have been imported, sorted."""
    found = set()
    for name, module in list(sys.modules.items()):
        top = name.partition(".")[0]
        file = getattr(module, "__file__", None)
        if top in ("__main__", "penstock") or not file:
            continue
        path = Path(file).absolute()
        if path.parent == folder or (folder in path.parents and (folder / top).is_dir()):
            found.add(top)
    return sorted(found)


def archive_modules(archive: Path, folder: Path, names: list[str]) -> Path:
    """Write a zip file that Python imports `names` (modules and packages in `folder`) from, with data files."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
        for name in names:
            package = folder / name
            files = package.rglob("*") if package.is_dir() else [folder / f"{name}.py"]
            for file in sorted(files):
                if file.is_file() and "__pycache__" not in file.parts:
                    out.write(file, file.relative_to(folder))
    return archive
