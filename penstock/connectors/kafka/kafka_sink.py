"""Writes to topics of Kafka: the sink that a program builds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.common.typeinfo import TypeInformation
from penstock.connectors.base import Committer, DeliveryGuarantee, Sink, SinkError, SinkWriter, WriterContext
from penstock.connectors.kafka.client import (
    CALL_LIMIT_S,
    ClientErrors,
    admin_library,
    client_library,
    client_properties,
    make,
    protocol_library,
    reach,
    say_what_has_no_effect,
)
from penstock.connectors.kafka.committer import KafkaCommitter
from penstock.connectors.kafka.kafka_writer import KafkaWriter, TransactionalWriter, writer_properties
from penstock.connectors.kafka.record_serializer import KafkaRecordSerializationSchema

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
        """Check the type of the rows and the properties, and ask the brokers what they allow.

        Args:
            input_type: The type of the rows.

        Raises:
            SinkError: The rows cannot be written, the client refuses a property, the brokers do not answer, they have
                no such topic, or they allow shorter transactions only.
        """
        self._serializer.validate(input_type)
        wanted_ms = self._transaction_timeout_ms()
        self._make_producer()
        broker = self._ask_brokers()
        longest_ms = broker.longest_transaction_ms
        if self._serializer.topic is not None:
            broker.check_topic(self._serializer.topic, self._properties["bootstrap.servers"])
        if self._is_exactly_once:
            protocol_library()
            if longest_ms is not None and wanted_ms > longest_ms:
                raise SinkError(
                    f"{TRANSACTION_TIMEOUT} is {wanted_ms} for this sink, but the brokers allow {longest_ms} "
                    f"(transaction.max.timeout.ms): set_property({TRANSACTION_TIMEOUT!r}, '{longest_ms}'), or raise "
                    "theirs. Rows are lost if a job is down for longer between a checkpoint and its commit"
                )

    def _transaction_timeout_ms(self) -> int:
        given = self._properties.get(TRANSACTION_TIMEOUT, TRANSACTION_TIMEOUT_MS)
        try:
            return int(given)
        except ValueError:
            raise SinkError(f"{TRANSACTION_TIMEOUT} is in whole milliseconds, not {given!r}") from None

    def _make_producer(self) -> None:
        """Make a producer as writers do, and discard it. Without this: a wrong property fails each attempt of a job."""
        properties = writer_properties(self._writer_properties(), self._is_exactly_once)
        probe = {"transactional.id": f"{self._prefix}-probe"} if self._is_exactly_once else {}
        make(client_library().Producer, properties | probe, SinkError)

    def _ask_brokers(self) -> _Brokers:
        servers = self._properties["bootstrap.servers"]
        connection = {
            name: value
            for name, value in client_properties(self._properties).items()
            if name.startswith(("bootstrap.", "security.", "sasl.", "ssl.", "socket.", "client."))
        }
        errors = ClientErrors()
        admin = make(admin_library().AdminClient, connection | {"error_cb": errors}, SinkError)
        cluster = reach(admin, errors, servers, SinkError)
        resource = admin_library().ConfigResource(admin_library().ConfigResource.Type.BROKER, str(min(cluster.brokers)))
        (future,) = admin.describe_configs([resource], request_timeout=CALL_LIMIT_S).values()
        try:
            settings = {name: entry.value for name, entry in future.result().items()}
        except client_library().KafkaException:
            settings = {}
        return _Brokers(frozenset(cluster.topics), settings)

    def _writer_properties(self) -> dict[str, Any]:
        properties = client_properties(self._properties)
        if self._is_exactly_once:
            properties.setdefault(TRANSACTION_TIMEOUT, TRANSACTION_TIMEOUT_MS)
        return properties

    def create_writer(self, context: WriterContext, restored: list[bytes]) -> SinkWriter:
        properties = self._writer_properties()
        if self._is_exactly_once:
            return TransactionalWriter(properties, self._serializer, self._prefix, context)
        return KafkaWriter(properties, self._serializer, self._guarantee is DeliveryGuarantee.AT_LEAST_ONCE, context)

    def create_committer(self) -> Committer | None:
        return KafkaCommitter(client_properties(self._properties)) if self._is_exactly_once else None


@dataclass(frozen=True)
class _Brokers:
    """Holds the topics that a user sees, and the settings of a broker, as far as it tells them to this user."""

    topics: frozenset[str]
    settings: Mapping[str, str | None]

    @property
    def longest_transaction_ms(self) -> int | None:
        found = self.settings.get("transaction.max.timeout.ms")
        return None if found is None else int(found)

    def check_topic(self, topic: str, servers: str) -> None:
        """Raise `SinkError` if there is no such topic, and none will be made when the first record comes."""
        if topic not in self.topics and self.settings.get("auto.create.topics.enable") == "false":
            raise SinkError(
                f"there is no topic {topic!r} at {servers}, or this user may not see it, and the brokers make none by "
                "themselves (auto.create.topics.enable): make it, or correct set_topic(...)"
            )


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
        """Set the guarantee for rows after a failure. The default is NONE, as in Flink.

        Args:
            delivery_guarantee: NONE, AT_LEAST_ONCE or EXACTLY_ONCE.

        Raises:
            TypeError: It is no `DeliveryGuarantee`.
        """
        if not isinstance(delivery_guarantee, DeliveryGuarantee):
            raise TypeError(f"set_delivery_guarantee() takes a DeliveryGuarantee, got {delivery_guarantee!r}")
        self._guarantee = delivery_guarantee
        return self

    def set_transactional_id_prefix(self, transactional_id_prefix: str) -> KafkaSinkBuilder:
        """Set the prefix of the sink's transactional ids, for EXACTLY_ONCE.

        Each sink of each running job needs a prefix of its own: a job that starts aborts the open transactions of its
        prefix. Keep it over restarts, so that what an earlier attempt left open does not hold up readers.

        Args:
            transactional_id_prefix: The prefix.

        Raises:
            ValueError: It is empty, or longer than 6400 bytes.
        """
        if not 0 < len(transactional_id_prefix.encode()) <= _PREFIX_BYTES_MAX:
            raise ValueError(f"a transactional id prefix has 1 to {_PREFIX_BYTES_MAX} bytes")
        self._prefix = transactional_id_prefix
        return self

    def set_record_serializer(self, record_serializer: KafkaRecordSerializationSchema) -> KafkaSinkBuilder:
        """Set the serializer of rows to records.

        Args:
            record_serializer: The schema.

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
        say_what_has_no_effect(self._properties)
        assert self._serializer is not None
        return KafkaSink(self._properties, self._serializer, self._guarantee, self._prefix)
