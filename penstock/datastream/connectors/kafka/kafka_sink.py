"""Writes to topics of Kafka: the sink that a program builds."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.common.typeinfo import TypeInformation
from penstock.datastream.connectors.base import (
    Committer,
    DeliveryGuarantee,
    Sink,
    SinkError,
    SinkWriter,
    WriterContext,
)
from penstock.datastream.connectors.kafka.client import (
    CALL_LIMIT_S,
    ClientErrors,
    admin_library,
    client_library,
    client_properties,
    make,
    protocol_library,
    reach,
)
from penstock.datastream.connectors.kafka.committer import KafkaCommitter
from penstock.datastream.connectors.kafka.kafka_writer import KafkaWriter, TransactionalWriter
from penstock.datastream.connectors.kafka.record_serializer import KafkaRecordSerializationSchema

TRANSACTION_TIMEOUT = "transaction.timeout.ms"
TRANSACTION_TIMEOUT_MS = "900000"
"""Ours by default, as long as a broker's `transaction.max.timeout.ms` is by default."""

_PREFIX_BYTES_MAX = 6400


class KafkaSink(Sink):
    """Writes to topics of Kafka. Make it with `KafkaSink.builder()`.

    With `DeliveryGuarantee.EXACTLY_ONCE` rows are written in transactions, which are committed when their checkpoint
    has completed: readers of committed records see each row once. With AT_LEAST_ONCE a checkpoint waits until all rows
    are at the brokers; after a failure rows are repeated. With NONE they may be lost, too.

    Example:
        serializer = (
            KafkaRecordSerializationSchema.builder()
            .set_topic("totals")
            .set_value_serialization_schema(SimpleStringSchema())
            .build()
        )
        sink = (
            KafkaSink.builder()
            .set_bootstrap_servers("localhost:9092")
            .set_record_serializer(serializer)
            .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .set_transactional_id_prefix("totals")
            .build()
        )
        lines.sink_to(sink)
    """

    def __init__(
        self,
        properties: Mapping[str, str],
        serializer: KafkaRecordSerializationSchema,
        guarantee: DeliveryGuarantee,
        prefix: str,
    ) -> None:
        self._properties = dict(properties)
        self._serializer = serializer
        self._guarantee = guarantee
        self._prefix = prefix

    @staticmethod
    def builder() -> KafkaSinkBuilder:
        """Return a builder of the sink."""
        return KafkaSinkBuilder()

    def describe(self) -> dict[str, str]:
        """Return the servers, topic, guarantee and format. Properties, which may be secrets, are left out."""
        found = {
            "connector": "Kafka",
            "servers": self._properties["bootstrap.servers"],
            "topic": self._serializer.topic or "chosen for each row",
            "guarantee": self._guarantee.name,
            "format": type(self._serializer.value).__name__,
        }
        return {**found, "transactional id prefix": self._prefix} if self._is_exactly_once else found

    @property
    def _is_exactly_once(self) -> bool:
        return self._guarantee is DeliveryGuarantee.EXACTLY_ONCE

    def validate(self, input_type: TypeInformation | None) -> None:
        """Check the type of the rows, and ask the brokers how long a transaction may take.

        Args:
            input_type: The type of the rows.

        Raises:
            SinkError: They cannot be written, the brokers do not answer, or they allow shorter transactions only.
        """
        self._serializer.validate(input_type)
        longest_ms = self._longest_transaction_ms()
        wanted_ms = int(self._properties.get(TRANSACTION_TIMEOUT, TRANSACTION_TIMEOUT_MS))
        if self._is_exactly_once:
            protocol_library()
            if longest_ms is not None and wanted_ms > longest_ms:
                raise SinkError(
                    f"{TRANSACTION_TIMEOUT} is {wanted_ms} for this sink, but the brokers allow {longest_ms} "
                    f"(transaction.max.timeout.ms): set_property({TRANSACTION_TIMEOUT!r}, '{longest_ms}'), or raise "
                    "theirs. Rows are lost if a job is down for longer between a checkpoint and its commit"
                )

    def _longest_transaction_ms(self) -> int | None:
        """Return the brokers' limit; None if they do not tell it to this user."""
        library, servers = client_library(), self._properties["bootstrap.servers"]
        connection = {
            name: value
            for name, value in client_properties(self._properties).items()
            if name.startswith(("bootstrap.", "security.", "sasl.", "ssl.", "socket.", "client."))
        }
        errors = ClientErrors()
        admin = make(admin_library().AdminClient, connection | {"error_cb": errors}, SinkError)
        brokers = reach(admin, errors, servers, SinkError).brokers
        resource = admin_library().ConfigResource(admin_library().ConfigResource.Type.BROKER, str(min(brokers)))
        (future,) = admin.describe_configs([resource], request_timeout=CALL_LIMIT_S).values()
        try:
            entry = future.result().get("transaction.max.timeout.ms")
        except library.KafkaException:
            return None
        return None if entry is None or entry.value is None else int(entry.value)

    def create_writer(self, context: WriterContext, restored: list[bytes]) -> SinkWriter:
        properties = client_properties(self._properties)
        if self._is_exactly_once:
            properties.setdefault(TRANSACTION_TIMEOUT, TRANSACTION_TIMEOUT_MS)
            return TransactionalWriter(properties, self._serializer, self._prefix, context)
        return KafkaWriter(properties, self._serializer, self._guarantee is DeliveryGuarantee.AT_LEAST_ONCE, context)

    def create_committer(self) -> Committer | None:
        return KafkaCommitter(client_properties(self._properties)) if self._is_exactly_once else None


class KafkaSinkBuilder:
    """Builds a `KafkaSink`. The servers and the record serializer must be set."""

    def __init__(self) -> None:
        self._properties: dict[str, str] = {}
        self._serializer: KafkaRecordSerializationSchema | None = None
        self._guarantee = DeliveryGuarantee.NONE
        self._prefix = ""

    def set_bootstrap_servers(self, bootstrap_servers: str) -> KafkaSinkBuilder:
        """Set the brokers to ask first.

        Args:
            bootstrap_servers: `host:port`, or several of them with commas.

        Returns:
            The builder.
        """
        return self.set_property("bootstrap.servers", bootstrap_servers)

    def set_delivery_guarantee(self, delivery_guarantee: DeliveryGuarantee) -> KafkaSinkBuilder:
        """Set what becomes of rows when something fails. The default is NONE, as in Flink.

        Args:
            delivery_guarantee: NONE, AT_LEAST_ONCE or EXACTLY_ONCE.

        Returns:
            The builder.

        Raises:
            TypeError: It is no `DeliveryGuarantee`.
        """
        if not isinstance(delivery_guarantee, DeliveryGuarantee):
            raise TypeError(f"set_delivery_guarantee() takes a DeliveryGuarantee, got {delivery_guarantee!r}")
        self._guarantee = delivery_guarantee
        return self

    def set_transactional_id_prefix(self, transactional_id_prefix: str) -> KafkaSinkBuilder:
        """Set what the names of the sink's transactions begin with, for EXACTLY_ONCE.

        Each sink of each running job needs a prefix of its own: a job that starts aborts the open transactions of its
        prefix. Keep it over restarts, so that what an earlier attempt left open does not hold up readers.

        Args:
            transactional_id_prefix: The prefix.

        Returns:
            The builder.

        Raises:
            ValueError: It is empty, or longer than 6400 bytes.
        """
        if not 0 < len(transactional_id_prefix.encode()) <= _PREFIX_BYTES_MAX:
            raise ValueError(f"a transactional id prefix has 1 to {_PREFIX_BYTES_MAX} bytes")
        self._prefix = transactional_id_prefix
        return self

    def set_record_serializer(self, record_serializer: KafkaRecordSerializationSchema) -> KafkaSinkBuilder:
        """Set how rows become records.

        Args:
            record_serializer: The schema.

        Returns:
            The builder.

        Raises:
            TypeError: It is none, or not built yet.
        """
        if not isinstance(record_serializer, KafkaRecordSerializationSchema):
            raise TypeError(
                "set_record_serializer() takes a KafkaRecordSerializationSchema (call .build()), got "
                f"{record_serializer!r}"
            )
        self._serializer = record_serializer
        return self

    def set_property(self, key: str, value: str) -> KafkaSinkBuilder:
        """Set a property of the producer, by the name that Kafka's Java client or librdkafka has for it.

        Args:
            key: The name.
            value: The value.

        Returns:
            The builder.
        """
        self._properties[key] = value
        return self

    def build(self) -> KafkaSink:
        """Return the sink.

        Returns:
            The sink.

        Raises:
            ValueError: Something is missing, or a property cannot be translated.
        """
        missing: list[str] = []
        if "bootstrap.servers" not in self._properties:
            missing.append("set_bootstrap_servers(...)")
        if self._serializer is None:
            missing.append("set_record_serializer(...)")
        if self._guarantee is DeliveryGuarantee.EXACTLY_ONCE and not self._prefix:
            missing.append("set_transactional_id_prefix(...), because it is to write exactly once")
        if missing:
            raise ValueError(f"a KafkaSink needs {', '.join(missing)}")
        client_properties(self._properties)
        assert self._serializer is not None
        return KafkaSink(self._properties, self._serializer, self._guarantee, self._prefix)
