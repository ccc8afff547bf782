"""Turns the client's errors of a partition into errors of the source; passing ones are left out."""

from __future__ import annotations

from typing import Any

from penstock.connectors.base import SourceChanged, SourceError
from penstock.connectors.kafka.records_ahead import Partition


def fault_of(library: Any, message: Any, partition: Partition | None) -> SourceError | None:
    """Return the error to raise for a message of the client that is an error.

    Args:
        library: The client's.
        message: The message.
        partition: The partition that it names, if it is one that is read.

    Returns:
        The error; None if the client gets over it by itself.
    """
    error, codes = message.error(), library.KafkaError
    if partition is None and message.topic() is None:
        if error.fatal() or not (error.retriable() or error.code() in _passing(codes)):
            return SourceError(f"Kafka cannot be read: {error.str()}")
        return None
    if error.code() in _passing(codes):
        return None
    where = partition or f"topic {message.topic()!r}"
    if error.code() in (codes._AUTO_OFFSET_RESET, codes.OFFSET_OUT_OF_RANGE):
        at = "" if partition is None else f" {partition.next}"
        return SourceChanged(
            f"{where}: the offset{at} that the job continues at does not exist any more ({error.str()}): the "
            "records were deleted by the topic's retention, or the topic was made again. What lies between cannot "
            "be read. Start the job without this source's state, or keep records for longer (retention.ms)"
        )
    if error.code() in (codes.UNKNOWN_TOPIC_OR_PART, codes._UNKNOWN_PARTITION, codes._UNKNOWN_TOPIC):
        return SourceChanged(f"{where} was deleted while the job reads it ({error.str()})")
    return SourceError(f"{where} cannot be read: {error.str()}")


def _passing(codes: Any) -> frozenset[int]:
    """Return the errors that the client gets over by itself, once the brokers are there again."""
    names = (
        "_ALL_BROKERS_DOWN", "_TRANSPORT", "_RESOLVE", "_TIMED_OUT", "_MAX_POLL_EXCEEDED", "LEADER_NOT_AVAILABLE",
        "NOT_LEADER_FOR_PARTITION", "FENCED_LEADER_EPOCH", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR",
        "COORDINATOR_LOAD_IN_PROGRESS", "REQUEST_TIMED_OUT",
    )  # fmt: skip
    return frozenset(getattr(codes, name) for name in names if hasattr(codes, name))
