"""Defines sources, sinks and their errors, for everything that runs or implements one."""

from penstock.connectors.base.connector_errors import (
    MalformedRecord,
    OutputGone,
    PermanentError,
    RefusedRecord,
    SinkError,
    SourceChanged,
    SourceError,
)
from penstock.connectors.base.sink import Committer, DeliveryGuarantee, Sink, SinkWriter, WriterContext
from penstock.connectors.base.source import NotReady, ReaderContext, Source, SourceReader, SplitEnumerator
from penstock.connectors.base.splits import FixedSplitEnumerator, decode_split, encode_split

__all__ = [
    "Committer", "DeliveryGuarantee", "FixedSplitEnumerator", "MalformedRecord", "NotReady", "OutputGone",
    "PermanentError", "ReaderContext", "RefusedRecord", "Sink", "SinkError", "SinkWriter", "Source",
    "SourceChanged", "SourceError", "SourceReader", "SplitEnumerator", "WriterContext", "decode_split",
    "encode_split",
]  # fmt: skip
