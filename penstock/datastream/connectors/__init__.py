"""Offers sources and sinks in PyFlink's modules, and the names that PyFlink had here before 1.16."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from penstock.common.missing_names import advising_getattr
from penstock.connectors.base import DeliveryGuarantee, Sink, Source

_ELSEWHERE = {
    "BucketAssigner": "file_system",
    "FileEnumeratorProvider": "file_system",
    "FileSink": "file_system",
    "FileSource": "file_system",
    "FileSourceBuilder": "file_system",
    "KafkaOffsetResetStrategy": "kafka",
    "KafkaOffsetsInitializer": "kafka",
    "KafkaRecordSerializationSchema": "kafka",
    "KafkaSink": "kafka",
    "KafkaSource": "kafka",
    "KafkaTopicPartition": "kafka",
    "NumberSequenceSource": "number_seq",
    "OutputFileConfig": "file_system",
    "RollingPolicy": "file_system",
    "StreamFormat": "file_system",
}
_advise = advising_getattr(__name__)


def __getattr__(name: str) -> Any:
    """Import a connector on the first access to its name: formats bring libraries with them."""
    if name in _ELSEWHERE:
        return getattr(import_module(f"{__name__}.{_ELSEWHERE[name]}"), name)
    return _advise(name)


__all__ = ["DeliveryGuarantee", "Sink", "Source"]
