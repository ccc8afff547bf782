"""Commits the transactions that writers have prepared, in the JobMaster."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.connectors.base import Committer, OutputGone, SinkError, decode_split, encode_split
from penstock.connectors.kafka.broker_requests import BrokerRequests
from penstock.connectors.kafka.client import client_library, make, reason_of
from penstock.connectors.kafka.hanging import HangingTransactions
from penstock.connectors.kafka.transactions import End, TransactionCoordinators, TransactionName

VISIBLE_LIMIT_S = 30.0
"""The longest time for which older transactions of the partition may hide whether this one was committed."""


@dataclass(frozen=True)
class PreparedTransaction:
    """Holds a transaction whose records are all at the brokers: its name, their number, and where they are.

    The first one is at `offset` of a partition; `written` has all partitions, by topic.
    """

    name: TransactionName
    rows: int
    topic: str
    partition: int
    offset: int
    written: Mapping[str, tuple[int, ...]]

    def encoded(self) -> bytes:
        """Return the transaction as a committable."""
        name = self.name
        return encode_split(
            {
                "id": name.transactional_id,
                "producer": name.producer_id,
                "epoch": name.epoch,
                "rows": self.rows,
                "first": [self.topic, self.partition, self.offset],
                "written": {topic: list(partitions) for topic, partitions in self.written.items()},
            }
        )

    @staticmethod
    def decoded(data: bytes) -> PreparedTransaction:
        """Read a committable.

        Args:
            data: What `encoded` returned.

        Returns:
            The transaction.
        """
        found = decode_split(data)
        name = TransactionName(found["id"], found["producer"], found["epoch"])
        topic, partition, offset = found["first"]
        # Before November 2026 the first record's partition was the only one that was kept.
        written = {key: tuple(numbers) for key, numbers in found.get("written", {topic: [partition]}).items()}
        return PreparedTransaction(name, found["rows"], topic, partition, offset, written)

    @property
    def partitions(self) -> set[tuple[str, int]]:
        """Return the topics and partitions that have records."""
        return {(topic, partition) for topic, partitions in self.written.items() for partition in partitions}


class KafkaCommitter(Committer):
    """Commits transactions of writers, alive or not.

    The broker answers a repeated commit with success, until the id is used again. Then it answers as if the transaction
    had been aborted. The first record of the transaction tells the two cases apart: a reader of committed records gets
    it only if the transaction was committed.
    """

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._properties = dict(properties)
        requests = BrokerRequests(properties)
        self._coordinators = TransactionCoordinators(requests)
        self._hanging = HangingTransactions(requests, self._coordinators)

    def commit(self, checkpoint_id: int, committables: list[bytes]) -> None:
        """Commit transactions, and wait until their partitions have ended them.

        Args:
            checkpoint_id: The checkpoint that named them first.
            committables: The transactions.

        Raises:
            OutputGone: One was aborted, so its rows are lost.
            SinkError: The brokers have not answered in time.
        """
        committed = []
        for data in committables:
            prepared = PreparedTransaction.decoded(data)
            end = self._coordinators.end(prepared.name, commits=True)
            if end is End.DONE:
                committed.append(prepared)
                continue
            self._hanging.await_ended([prepared.name], prepared.partitions, committed=False)
            if not self._is_visible(prepared):
                raise OutputGone(
                    f"{prepared.rows:,} rows of checkpoint {checkpoint_id} are lost, beginning at topic "
                    f"{prepared.topic!r}, partition {prepared.partition}, offset {prepared.offset}: their transaction "
                    f"{prepared.name.transactional_id!r} was aborted before its commit ({end.value}). Either "
                    "transaction.timeout.ms passed while the job was down, or another job uses the same "
                    "transactional_id_prefix, or this is a savepoint whose job has restarted before its next "
                    "checkpoint. To write the rows again, start from a checkpoint or savepoint before "
                    f"{checkpoint_id}; then give the sink a longer transaction.timeout.ms, or a prefix of its own"
                )
        partitions = {partition for prepared in committed for partition in prepared.partitions}
        self._hanging.await_ended([prepared.name for prepared in committed], partitions, committed=True)

    def _is_visible(self, prepared: PreparedTransaction) -> bool:
        library = client_library()
        of_producers = (
            "transaction",
            "linger.",
            "batch.",
            "compression.",
            "acks",
            "partitioner",
            "queue.",
            "delivery.",
        )
        properties = {name: v for name, v in self._properties.items() if not name.startswith(of_producers)}
        ours = {
            "group.id": "penstock",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
        consumer = make(library.Consumer, properties | ours, SinkError)
        where = f"topic {prepared.topic!r}, partition {prepared.partition}"
        try:
            at = library.TopicPartition(prepared.topic, prepared.partition, prepared.offset)
            consumer.assign([at])
            deadline = time.monotonic() + VISIBLE_LIMIT_S
            while (left_s := deadline - time.monotonic()) > 0:
                message = consumer.poll(min(left_s, 1.0))
                if message is None:
                    continue
                error = message.error()
                if error is None:
                    # A later one: this one was skipped, as aborted records are; an earlier one cannot come.
                    return bool(message.offset() == prepared.offset)
                if error.code() == library.KafkaError._PARTITION_EOF and message.offset() > prepared.offset:
                    return False
            raise SinkError(
                f"{where} has not shown within {VISIBLE_LIMIT_S:.0f} s whether {prepared.rows:,} rows from offset "
                f"{prepared.offset} on were committed: a transaction that is still open holds up all readers of "
                "committed records there (kafka-transactions.sh find-hanging names it, and abort ends it)"
            )
        except library.KafkaException as error:
            raise SinkError(f"{where} cannot be read: {reason_of(error)}") from None
        finally:
            consumer.close()
