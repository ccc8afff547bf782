"""Extracts the traceback of a user's Python function from the error of the Spark job that ran it."""

from __future__ import annotations

import re

_BEGIN = "Traceback (most recent call last):\n"
# What Spark appends: Java's frames, and in Spark 4 the class of the error.
_END = re.compile(r"\n+\tat |\n+ ?SQLSTATE: |\nDriver stacktrace:")
_FRAME = re.compile(r'  File "([^"]*)"')


def user_traceback(text: str) -> str | None:
    """Return the first Python traceback in `text` without the frames of PySpark; None if there is none."""
    _, found, rest = text.partition(_BEGIN)
    if not found:
        return None
    body = _END.split(rest, maxsplit=1)[0].rstrip()
    kept: list[str] = []
    is_ours = False
    for line in body.splitlines():
        frame = _FRAME.match(line)
        if frame is not None:
            is_ours = "/pyspark/" in frame[1]
        elif not line.startswith("    "):
            is_ours = False
        if not is_ours:
            kept.append(line)
    return _BEGIN + "\n".join(kept)
