"""Knows which versions of PySpark, and which Java for each of them, Penstock runs on."""

from __future__ import annotations

import re

PYSPARK_MIN = (3, 5)
PYSPARK_END = (4, 4)
"""The first version that is not known to work."""

JAVA_MIN = 17
# Hadoop of earlier Sparks asks Java's security manager, which Java 24 no longer has.
_JAVA_MAX_BEFORE = ((4, 1), 23)
# It imports distutils, which Python 3.12 no longer has.
_PYTHON_MAX_BEFORE = ((4, 0), (3, 11))


class UnsupportedPySpark(ImportError):
    """Signals that the installed PySpark is too old or too new. The message says which versions work."""


def check_pyspark(version: str, python: tuple[int, int]) -> None:
    """Raise `UnsupportedPySpark` if Penstock does not run on this version of PySpark with this Python."""
    if not PYSPARK_MIN <= _parsed(version) < PYSPARK_END:
        least, end = ".".join(map(str, PYSPARK_MIN)), ".".join(map(str, PYSPARK_END))
        raise UnsupportedPySpark(
            f"Penstock runs on PySpark {least} or later, below {end}; this is PySpark {version}. "
            f"Install another: pip install 'pyspark>={least},<{end}'"
        )
    before, newest = _PYTHON_MAX_BEFORE
    if _parsed(version) < before and python > newest:
        raise UnsupportedPySpark(
            f"PySpark {version} runs on Python up to {newest[0]}.{newest[1]}, and this is {python[0]}.{python[1]}. Use "
            f"that Python, or PySpark {before[0]}.{before[1]} or later"
        )


def newest_java(pyspark_version: str) -> int | None:
    """Return the newest Java that this version of PySpark starts on; None if every one from `JAVA_MIN` on will do."""
    before, newest = _JAVA_MAX_BEFORE
    return newest if _parsed(pyspark_version) < before else None


def _parsed(version: str) -> tuple[int, int]:
    major, minor = re.findall(r"\d+", version)[:2]
    return int(major), int(minor)
