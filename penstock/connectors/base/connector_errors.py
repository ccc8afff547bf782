"""Defines the errors of connectors: unreadable input, refused output, and faults that no restart repairs."""

from __future__ import annotations

from penstock.common.program.failures import Fault


class PermanentError(Exception):
    """Marks an error that no restart can repair: the job fails at once, whatever its restart strategy is."""


class SourceError(Fault):
    """Reports input that cannot be read. The message names file, row or split, and what to do."""


class SourceChanged(SourceError, PermanentError):
    """Reports input that is not what the job or its checkpoint began to read."""


class MalformedRecord(SourceError, PermanentError):
    """Reports a record that cannot be read, now or after a restart. The message names its place, and the way out."""


class SinkError(Fault):
    """Reports output that cannot be written. The message names the file and what to do."""


class RefusedRecord(SinkError, PermanentError):
    """Reports a row that the target never takes: a restart would write the same one again."""


class OutputGone(SinkError, PermanentError):
    """Reports output of a completed checkpoint that was removed or changed from outside before its commit."""
