"""Writes records, in a slot: outside of transactions, or in one per checkpoint."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock.common.row_types.scalar_types import PICKLED
from penstock.connectors.base import RefusedRecord, SinkError, SinkWriter, WriterContext
from penstock.connectors.kafka.client import client_library, make, reason_of
from penstock.connectors.kafka.committer import PreparedTransaction
from penstock.connectors.kafka.producers import ProducerPool, TransactionalProducer
from penstock.connectors.kafka.record_serializer import KafkaRecordSerializationSchema
from penstock.connectors.messages.encoding import encoder_of

QUEUED_RECORDS_MAX = 100_000
FLUSH_LIMIT_S = 120.0
_RECORDS_AT_ONCE = 10_000
_CLOSE_LIMIT_S = 2.0
_IN_FLIGHT_MAX = 5
"""The most requests in flight of a producer that keeps the order of its records."""
_OF_FENCED_PRODUCERS = ("fenced", "old epoch", "invalid producer epoch", "producer id mapping")


def ignore_error(error: Any) -> None:
    """Ignore the client's asynchronous errors. Without such a callback any call of the client may raise one.

    Args:
        error: The client's error.
    """


_DEFAULTS = {
    # Records with equal keys go where Kafka's Java clients, Flink's among them, send them.
    "partitioner": "murmur2_random",
    "queue.buffering.max.messages": QUEUED_RECORDS_MAX,
    "queue.buffering.max.kbytes": 1 << 20,
    "linger.ms": 5,
    "enable.idempotence": True,
    # Fatal errors show where they matter: a record is not delivered, or the transaction cannot be prepared.
    "error_cb": ignore_error,
}


def writer_properties(properties: Mapping[str, Any], transactional: bool = False) -> dict[str, Any]:
    """Return the properties of a writer's producer: ours, as far as the user has not set them.

    As in Java's client, a producer is not idempotent if its acks, retries or requests in flight do not allow it, and
    nobody has asked for it.

    Args:
        properties: The user's, by librdkafka's names.
        transactional: True for a producer of transactions, which has to be idempotent.

    Returns:
        All of them.
    """
    found = _DEFAULTS | dict(properties)
    acks = str(properties.get("acks", properties.get("request.required.acks", "all"))).lower()
    in_flight = str(properties.get("max.in.flight.requests.per.connection", properties.get("max.in.flight", "5")))
    allowed = acks in ("all", "-1") and str(properties.get("retries", "1")) != "0"
    allowed = allowed and not (in_flight.isdigit() and int(in_flight) > _IN_FLIGHT_MAX)
    if not allowed and "enable.idempotence" not in properties and not transactional:
        found["enable.idempotence"] = False
    return found


class _Records:
    """Turns batches into records of one producer, and counts what the brokers have."""

    def __init__(self, serializer: KafkaRecordSerializationSchema, context: WriterContext) -> None:
        self._library = client_library()
        self._row_type = context.input_type or PICKLED
        self._value = encoder_of(serializer.value, context.input_type)
        self._key = None if serializer.key is None else encoder_of(serializer.key, context.input_type)
        self._serializer = serializer
        self._name = context.operator_name
        self.sent = self.delivered = 0
        self.written: dict[str, set[int]] = {}
        self.first: tuple[str, int, int] | None = None
        self._failure: SinkError | None = None

    def start(self) -> None:
        """Count from 0."""
        self.sent = self.delivered = 0
        self.written = {}
        self.first = None
        self._failure = None

    def send(self, producer: Any, batch: pa.RecordBatch) -> None:
        """Send rows. Raises `SinkError` if a record before them was refused."""
        values = self._value(batch)
        keys = None if self._key is None else self._key(batch)
        selector = self._serializer.selector
        if selector is None:
            assert self._serializer.topic is not None
            self._send(producer, self._serializer.topic, values, keys)
        else:
            by_topic: dict[str, list[int]] = {}
            for index, row in enumerate(self._row_type.decode(batch)):
                by_topic.setdefault(selector(row), []).append(index)
            for topic, rows in by_topic.items():
                own = None if keys is None else [keys[i] for i in rows]
                self._send(producer, topic, [values[i] for i in rows], own)

    def _send(
        self, producer: Any, topic: str, values: Sequence[bytes | None], keys: Sequence[bytes | None] | None
    ) -> None:
        for first in range(0, len(values), _RECORDS_AT_ONCE):
            part = values[first : first + _RECORDS_AT_ONCE]
            if keys is None:
                records: list[dict[str, Any]] = [{"value": value} for value in part]
            else:
                own = keys[first : first + _RECORDS_AT_ONCE]
                records = [{"value": value, "key": key} for value, key in zip(part, own)]
            self._wait_for_room(producer, len(records))
            self._enqueue(producer, topic, records)
            producer.poll(0)
            self.check()

    def _wait_for_room(self, producer: Any, records: int) -> None:
        deadline = time.monotonic() + FLUSH_LIMIT_S
        while len(producer) + records > QUEUED_RECORDS_MAX:
            producer.poll(0.05)
            self.check()
            if time.monotonic() > deadline:
                raise SinkError(f"Kafka has taken no record of sink '{self._name}' for {FLUSH_LIMIT_S:.0f} s")

    def _enqueue(self, producer: Any, topic: str, records: list[dict[str, Any]]) -> None:
        codes = self._library.KafkaError
        on_delivery = self._on_delivery_to(self.written.setdefault(topic, set()))
        self.sent += len(records)
        deadline = time.monotonic() + FLUSH_LIMIT_S
        while records:
            try:
                producer.produce_batch(topic, records, on_delivery=on_delivery)
            except BufferError:
                pass
            except self._library.KafkaException as error:
                raise self._refused(topic, error.args[0], reason_of(error)) from None
            records = [record for record in records if "_error" in record]
            for record in records:
                refusal = record.pop("_error")
                if refusal.code() != codes._QUEUE_FULL:
                    size = len(record.get("value") or b"") + len(record.get("key") or b"")
                    raise self._refused(topic, refusal, f"{refusal.str()} (key and value have {size:,} bytes)")
            if records:
                producer.poll(0.05)
                if time.monotonic() > deadline:
                    raise SinkError(f"Kafka has taken no record of sink '{self._name}' for {FLUSH_LIMIT_S:.0f} s")

    def _refused(self, topic: str, error: Any, why: str) -> SinkError:
        codes = self._library.KafkaError
        text = f"a record for topic {topic!r} cannot be written: {why}"
        if error.code() in (codes.MSG_SIZE_TOO_LARGE, codes.INVALID_MSG_SIZE):
            way_out = "raise max.request.size of the sink and max.message.bytes of the topic, or make the rows smaller"
            return RefusedRecord(f"{text}: {way_out}")
        is_of_record = error.code() in (codes.TOPIC_EXCEPTION, codes.INVALID_RECORD)
        return (RefusedRecord if is_of_record else SinkError)(text)

    def _on_delivery_to(self, partitions: set[int]) -> Callable[[Any, Any], None]:
        add_partition = partitions.add

        def on_delivery(error: Any, message: Any) -> None:
            if error is not None:
                if self._failure is None:
                    self._failure = self._refused(message.topic(), error, error.str())
                return
            self.delivered += 1
            add_partition(message.partition())
            if self.first is None:
                self.first = (message.topic(), message.partition(), message.offset())

        return on_delivery

    def check(self) -> None:
        """Raise `SinkError` if a record was refused."""
        if self._failure is not None:
            raise self._failure

    def flush(self, producer: Any) -> None:
        """Wait until the brokers have all records. Raises `SinkError` if they do not."""
        try:
            left = producer.flush(FLUSH_LIMIT_S)
        except (self._library.KafkaException, SystemError) as error:  # SystemError: after a fatal error
            raise SinkError(f"records of sink '{self._name}' could not be written: {reason_of(error)}") from None
        self.check()
        if left or self.delivered != self.sent:
            raise SinkError(
                f"{self.sent - self.delivered:,} records of sink '{self._name}' have not reached the brokers within "
                f"{FLUSH_LIMIT_S:.0f} s: they are unreachable, or too slow"
            )


class KafkaWriter(SinkWriter):
    """Writes outside of transactions. `flushes`: a checkpoint waits until the brokers have all records."""

    def __init__(
        self,
        properties: Mapping[str, Any],
        serializer: KafkaRecordSerializationSchema,
        flushes: bool,
        context: WriterContext,
    ) -> None:
        self._producer = make(client_library().Producer, writer_properties(properties), SinkError)
        self._records = _Records(serializer, context)
        self._flushes = flushes

    def write(self, batch: pa.RecordBatch) -> None:
        self._records.send(self._producer, batch)

    def prepare_commit(self, checkpoint_id: int) -> list[bytes]:
        if self._flushes:
            self._records.flush(self._producer)
        else:
            self._producer.poll(0)
            self._records.check()
        return []

    def finish(self) -> None:
        self._records.flush(self._producer)

    def close(self) -> None:
        self._producer.purge()


class TransactionalWriter(SinkWriter):
    """Writes one transaction per checkpoint, which the first row after the checkpoint before begins."""

    def __init__(
        self,
        properties: Mapping[str, Any],
        serializer: KafkaRecordSerializationSchema,
        prefix: str,
        context: WriterContext,
    ) -> None:
        self._library = client_library()
        self._prefix = prefix
        self._records = _Records(serializer, context)
        self._pool = ProducerPool(
            writer_properties(properties, transactional=True), prefix, context.incarnation, context.subtask
        )
        if context.subtask == 0:
            pending = [PreparedTransaction.decoded(data) for data in context.pending]
            topics = {topic for prepared in pending for topic in prepared.written}
            topics |= set() if serializer.topic is None else {serializer.topic}
            self._pool.fence_others([prepared.name.transactional_id for prepared in pending], topics)
        self._pool.make_ahead()
        self._open: TransactionalProducer | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Send rows, in a transaction that their checkpoint commits.

        Args:
            batch: The rows.

        Raises:
            SinkError: A record was refused, or the transaction was aborted.
        """
        if self._open is None:
            self._open = self._pool.take()
            self._records.start()
            try:
                self._open.producer.begin_transaction()
            except self._library.KafkaException as error:
                raise SinkError(f"a transaction cannot begin: {reason_of(error)}{self._way_out}") from None
        try:
            self._records.send(self._open.producer, batch)
        except SinkError as error:
            raise self._explained(error, self._open.producer) from None

    def prepare_commit(self, checkpoint_id: int) -> list[bytes]:
        """Wait until all records of the transaction are at the brokers.

        Args:
            checkpoint_id: The checkpoint.

        Returns:
            The transaction's name, if there is one.

        Raises:
            SinkError: They are not, or the transaction was aborted.
        """
        self._pool.await_fencing()
        used, self._open = self._open, None
        if used is None:
            return []
        try:
            self._records.flush(used.producer)
        except SinkError as error:
            raise self._explained(error, used.producer) from None
        if (why := self._why_aborted(used.producer)) is not None:
            raise SinkError(f"a transaction of this sink was aborted: {why}{self._way_out}")
        assert self._records.first is not None
        written = {topic: tuple(sorted(partitions)) for topic, partitions in self._records.written.items()}
        prepared = PreparedTransaction(used.name, self._records.delivered, *self._records.first, written)
        self._pool.retire(used, checkpoint_id)
        return [prepared.encoded()]

    def _why_aborted(self, producer: Any) -> str | None:
        """Return why the open transaction cannot be committed any more; None if it can.

        The client has no question for that. To begin a transaction is refused in each state, for a reason of its own.
        """
        try:
            producer.begin_transaction()
        except self._library.KafkaException as error:
            inner = error.args[0]
            is_open = inner.code() == self._library.KafkaError._STATE and not inner.fatal()
            return None if is_open and not inner.txn_requires_abort() else reason_of(error)
        return "it was not open"

    def commits_confirmed(self, checkpoint_id: int) -> None:
        self._pool.commits_confirmed(checkpoint_id)

    def close(self) -> None:
        """Abort the transaction that no checkpoint names, so that readers do not wait for it."""
        used, self._open = self._open, None
        if used is not None and used.producer is not None:
            try:
                used.producer.purge()
                used.producer.abort_transaction(_CLOSE_LIMIT_S)
            except self._library.KafkaException:
                pass  # the next attempt of this writer aborts the transaction
        self._pool.close()

    def _explained(self, error: SinkError, producer: Any) -> SinkError:
        """Return the cause that ended the transaction, of which an error may be the result only."""
        why = self._why_aborted(producer)
        fenced = why is not None and any(word in why.lower() for word in _OF_FENCED_PRODUCERS)
        return SinkError(f"a transaction of this sink was aborted: {why}{self._way_out}") if fenced else error

    @property
    def _way_out(self) -> str:
        return (
            ". Either transaction.timeout.ms passed between two checkpoints, or another job, or a newer attempt of "
            f"this one, writes with transactional_id_prefix {self._prefix!r}: each sink of each running job needs a "
            "prefix of its own"
        )
