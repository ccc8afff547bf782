"""Lets the Java process of a Spark of our own start in a third of the CPU time.

That Java runs nothing of a job: it starts Python workers and watches them. So it compiles with its quick compiler only,
collects garbage in one thread, and maps Spark's classes from an archive (Java's "application class-data sharing")
instead of parsing them. The archive is written by the first Java that ends after an installation, in a second of its
own time, and lies in the user's cache folder. A Java that cannot use it ignores it.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import time
from contextlib import suppress
from pathlib import Path

import pyspark

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_OF_USERS = ("SPARK_SUBMIT_OPTS", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS")
# Without the last flag Java reports on standard output that an archive does not fit.
_QUIET = "-Xlog:disable"
_SETTLED_S = 20.0
"""An archive that was written so long ago is complete: writing takes a second."""
_ARCHIVES_MAX = 3
"""More archives are not waited for: those before were never complete."""


def java_flags(java_home: Path | None, is_quick: bool) -> str:
    """Return the flags for the Java process of our own Spark.

    Args:
        java_home: As from `ensure_java`.
        is_quick: False for a Spark that executes queries, too, which are faster once Java has optimized them.

    Returns:
        Nothing if the user has chosen flags of that kind: Java does not start with two kinds of collectors.
    """
    if not is_quick or any("-XX:" in os.environ.get(name, "") for name in _OF_USERS):
        return ""
    flags, folder = [QUICK], _folder(java_home)
    if folder is not None:
        archive = _archive_in(folder)
        if archive is not None:
            flags += [f"-XX:SharedArchiveFile={archive}", _QUIET]
        elif len(list(folder.glob("written-*.jsa"))) < _ARCHIVES_MAX:
            flags += [f"-XX:ArchiveClassesAtExit={folder}/written-{secrets.token_hex(4)}.jsa", _QUIET]
    return " ".join(flags)


def _archive_in(folder: Path) -> Path | None:
    """Return the archive; the first that was written becomes it."""
    archive = folder / "classes.jsa"
    with suppress(OSError):
        if not archive.exists():
            for written in sorted(folder.glob("written-*.jsa")):
                if written.stat().st_mtime < time.time() - _SETTLED_S:
                    os.replace(written, archive)
                    break
    return archive if archive.exists() else None


def _folder(java_home: Path | None) -> Path | None:
    """Return the folder for this Java with this Spark in this place: what is archived for them fits no others. None if
    there is no such folder, and none can be made."""
    java = Path(os.path.realpath(java_home / "bin" / "java" if java_home else shutil.which("java") or "java"))
    release = java.parents[1] / "release"
    named = [str(java), pyspark.__file__, pyspark.__version__]
    with suppress(OSError):
        named.append(release.read_text(encoding="utf-8", errors="replace"))
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock" / "spark-classes"
    folder = cache / hashlib.sha256("\n".join(named).encode()).hexdigest()[:16]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None
    # An option of Java's that holds a space is two.
    return None if any(c.isspace() or c in "\"'" for c in str(folder)) else folder
