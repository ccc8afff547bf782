"""Makes clients of Kafka: finds the library, and translates properties from the names of Kafka's Java client."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from penstock.common.program.failures import Fault
from penstock.connectors.kafka.java_properties import WITHOUT_EFFECT, translated

log = logging.getLogger(__name__)

client_log = logging.getLogger("penstock.librdkafka")
"""Gets the lines of Kafka's client: one for each attempt to connect, say. They are shown where a program has set up
logging, and nowhere else: what matters is in our errors."""
client_log.addHandler(logging.NullHandler())

CALL_LIMIT_S = 30.0
"""Limits how long a question to a broker may take."""

REACH_LIMIT_S = 10.0
"""Limits how long a first answer is waited for. A refusal is reported at once."""

# Loggers of kafka-python that show at DEBUG what is sent, passwords included.
_LOGS_OF_REQUESTS = ("kafka.protocol.parser", "kafka.net.connection", "kafka.net.transport")

_said_without_effect: set[str] = set()


def client_library() -> Any:
    """Import the client. Raises `ImportError`, which says what to install."""
    return _library("confluent_kafka", "Kafka's client for Python")


def admin_library() -> Any:
    """Import the administration part of the client."""
    client_library()
    return import_module("confluent_kafka.admin")


def protocol_library() -> Any:
    """Import the library that ends other producers' transactions, and keep it from logging passwords."""
    library = _library("kafka", "the library that commits Kafka's transactions")
    for name in _LOGS_OF_REQUESTS:
        logging.getLogger(name).addFilter(_is_no_request)
    return library


def _is_no_request(record: logging.LogRecord) -> bool:
    return record.levelno > logging.DEBUG


def _library(name: str, what: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(f"{what} is not installed ({error}): pip install 'penstock[kafka]'") from None


def client_properties(properties: Mapping[str, str]) -> dict[str, Any]:
    """Translate properties to librdkafka's names.

    Args:
        properties: Those of the user, by the names of the Java client or of librdkafka.

    Returns:
        The client's configuration.

    Raises:
        RefusedProperty: One cannot be translated. The message names it and the way out.
    """
    return dict(translated(properties))


def say_what_has_no_effect(properties: Mapping[str, str]) -> None:
    """Log the properties that have no effect, and why. Each is logged once.

    Args:
        properties: The user's properties.
    """
    for name in properties:
        if name in WITHOUT_EFFECT and name not in _said_without_effect:
            _said_without_effect.add(name)
            log.warning("Kafka's property %r has no effect here: %s", name, WITHOUT_EFFECT[name])


def make(factory: Callable[[dict[str, Any]], Any], properties: dict[str, Any], fault: type[Fault]) -> Any:
    """Make a client.

    Args:
        factory: Its class.
        properties: Its configuration.
        fault: What to raise if a property is wrong.

    Returns:
        The client, which connects in threads of its own.
    """
    library = client_library()
    try:
        return factory({"log_level": 3, "logger": client_log, **properties})
    except (library.KafkaException, TypeError, ValueError) as error:
        raise fault(f"Kafka's client does not take its properties: {reason_of(error)}") from None


class ClientErrors:
    """Keeps why a client cannot connect, which it reports on the side, by `error_cb`."""

    def __init__(self) -> None:
        self.refusal: str | None = None
        self.last: str | None = None

    def __call__(self, error: Any) -> None:
        codes = client_library().KafkaError
        if error.code() in (codes._AUTHENTICATION, codes.SASL_AUTHENTICATION_FAILED, codes._SSL):
            self.refusal = error.str()
        elif error.code() != codes._ALL_BROKERS_DOWN:
            self.last = error.str()


def reach(admin: Any, errors: ClientErrors, servers: str, fault: type[Fault]) -> Any:
    """Ask brokers for their metadata.

    Args:
        admin: The client.
        errors: Its `error_cb`.
        servers: The brokers, for the error.
        fault: What to raise if none answers, or they refuse us.

    Returns:
        The cluster: its brokers and topics.
    """
    deadline = time.monotonic() + REACH_LIMIT_S
    while True:
        try:
            return admin.list_topics(timeout=min(1.0, REACH_LIMIT_S))
        except client_library().KafkaException as error:
            admin.poll(0.1)
            if errors.refusal is not None:
                raise fault(
                    f"Kafka at {servers} refuses the connection: {errors.refusal}. Check security.protocol, "
                    "sasl.mechanism, sasl.username and sasl.password (or sasl.jaas.config), and ssl.ca.location"
                ) from None
            if time.monotonic() > deadline:
                raise fault(
                    f"Kafka at {servers} does not answer: {errors.last or reason_of(error)}. Check that the brokers "
                    "run, set_bootstrap_servers(...), and security.protocol and sasl.* if they want them"
                ) from None


def reason_of(error: BaseException) -> str:
    """Return the text of a client's error, without its codes.

    Args:
        error: The error.

    Returns:
        Its text.
    """
    inner = error.args[0] if error.args else error
    text = inner.str() if hasattr(inner, "str") and callable(inner.str) else str(inner)
    return text or type(error).__name__


_PROTOCOL_NAMES = {
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
}


_SECRETS = frozenset({"sasl_plain_password", "ssl_password"})


class Secret(str):
    """Holds a password that is not shown in a log of settings: kafka-python logs all of its own at DEBUG."""

    def __repr__(self) -> str:
        return "'***'"


def protocol_properties(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Translate librdkafka's names for connections to those of kafka-python.

    Args:
        properties: What `client_properties` returned.

    Returns:
        How to connect.
    """
    found: dict[str, Any] = {
        _PROTOCOL_NAMES[name]: value for name, value in properties.items() if name in _PROTOCOL_NAMES
    }
    found |= {name: Secret(value) for name, value in found.items() if name in _SECRETS}
    if "security_protocol" in found:
        found["security_protocol"] = str(found["security_protocol"]).upper()
    if str(properties.get("ssl.endpoint.identification.algorithm", "https")).lower() == "none":
        found["ssl_check_hostname"] = False
    found["bootstrap_servers"] = [server.strip() for server in str(properties["bootstrap.servers"]).split(",")]
    return found
