"""Runs any source or sink under the interruptions that it must survive: programs import the kit from here."""

from penstock.connectors.testing.sink_kit import Kill, SinkRun, verify_sink
from penstock.connectors.testing.source_kit import SourceRun, SourceSnapshot, read_all, verify_source

__all__ = ["Kill", "SinkRun", "SourceRun", "SourceSnapshot", "read_all", "verify_sink", "verify_source"]
