"""Offers what a connector is made of, which programs import from here: sources, sinks, and their errors."""

from penstock.datastream.connectors.base.connector_errors import (
    MalformedRecord,
    OutputGone,
    PermanentError,
    RefusedRecord,
    SinkError,
    SourceChanged,
    SourceError,
)
from penstock.datastream.connectors.base.sink import Committer, DeliveryGuarantee, Sink, SinkWriter, WriterContext
from penstock.datastream.connectors.base.source import (
    NotReady,
    ReaderContext,
    Source,
    SourceReader,
    SplitEnumerator,
)

__all__ = [
    "Committer",
    "DeliveryGuarantee",
    "MalformedRecord",
    "NotReady",
    "OutputGone",
    "PermanentError",
    "ReaderContext",
    "RefusedRecord",
    "Sink",
    "SinkError",
    "SinkWriter",
    "Source",
    "SourceChanged",
    "SourceError",
    "SourceReader",
    "SplitEnumerator",
    "WriterContext",
]
