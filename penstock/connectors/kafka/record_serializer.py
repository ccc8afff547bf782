"""Turns rows into records: their topics, keys and values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from penstock.common.serialization import SerializationSchema
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.messages.encoding import validate


class KafkaTopicSelector(ABC):
    """Chooses the topic of each row."""

    @abstractmethod
    def apply(self, data: Any) -> str:
        """Return the topic of a row.

        Args:
            data: The row.

        Returns:
            The topic's name.
        """


class KafkaRecordSerializationSchema:
    """Turns rows into records. Make it with `KafkaRecordSerializationSchema.builder()`."""

    def __init__(
        self,
        topic: str | None,
        selector: Callable[[Any], str] | None,
        value: SerializationSchema,
        key: SerializationSchema | None,
    ) -> None:
        self.topic = topic
        self.selector = selector
        self.value = value
        self.key = key

    @staticmethod
    def builder() -> KafkaRecordSerializationSchemaBuilder:
        """Return a builder of the schema."""
        return KafkaRecordSerializationSchemaBuilder()

    def validate(self, input_type: TypeInformation | None) -> None:
        """Check that rows of a type can be written.

        Args:
            input_type: The type of the stream; None: the rows are pickled.

        Raises:
            SinkError: They cannot.
        """
        validate(self.value, input_type, "the value")
        if self.key is not None:
            validate(self.key, input_type, "the key")


class KafkaRecordSerializationSchemaBuilder:
    """Builds a `KafkaRecordSerializationSchema`. A topic and the serializer of values must be set."""

    def __init__(self) -> None:
        self._topic: str | None = None
        self._selector: Callable[[Any], str] | None = None
        self._value: SerializationSchema | None = None
        self._key: SerializationSchema | None = None

    def set_topic(self, topic: str) -> KafkaRecordSerializationSchemaBuilder:
        """Write all rows to one topic.

        Args:
            topic: Its name.

        Raises:
            ValueError: There is a topic selector.
        """
        if self._selector is not None:
            raise ValueError("set a topic or a topic selector, not both")
        self._topic = topic
        return self

    def set_topic_selector(
        self, topic_selector: Callable[[Any], str] | KafkaTopicSelector
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Choose the topic of each row. It is called for each of them.

        Args:
            topic_selector: A function of a row, or a `KafkaTopicSelector`.

        Raises:
            ValueError: There is a topic.
        """
        if self._topic is not None:
            raise ValueError("set a topic or a topic selector, not both")
        self._selector = topic_selector.apply if isinstance(topic_selector, KafkaTopicSelector) else topic_selector
        return self

    def set_key_serialization_schema(
        self, key_serialization_schema: SerializationSchema
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Set the serializer of keys. Without it records have none, and are spread over all partitions.

        Args:
            key_serialization_schema: The schema.
        """
        self._key = _checked(key_serialization_schema)
        return self

    def set_value_serialization_schema(
        self, value_serialization_schema: SerializationSchema
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Set the serializer of values.

        Args:
            value_serialization_schema: `SimpleStringSchema`, `ByteArraySchema`, rows of JSON or CSV, or your
                own `SerializationSchema`, which is called for each row.
        """
        self._value = _checked(value_serialization_schema)
        return self

    def build(self) -> KafkaRecordSerializationSchema:
        """Return the schema.

        Returns:
            The schema.

        Raises:
            ValueError: The topic or the serializer of values is missing.
        """
        if self._topic is None and self._selector is None:
            raise ValueError("records need a topic: set_topic(...) or set_topic_selector(...)")
        if self._value is None:
            raise ValueError("records need a value: set_value_serialization_schema(...)")
        return KafkaRecordSerializationSchema(self._topic, self._selector, self._value, self._key)


def _checked(schema: Any) -> SerializationSchema:
    if not isinstance(schema, SerializationSchema):
        raise TypeError(f"a serializer is a SerializationSchema, got {schema!r}")
    return schema
