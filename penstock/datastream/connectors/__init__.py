"""Sources and sinks, in PyFlink's modules."""

from penstock.datastream.connectors.base import Sink, Source

__all__ = ["Sink", "Source"]
