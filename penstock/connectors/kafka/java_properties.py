"""Maps the properties of Kafka's Java clients, which programs bring along.

The client here is librdkafka. A property of Java's consumer or producer (Kafka 4.3) is passed on (`SAME`), translated
(`TRANSLATED`), without effect (`WITHOUT_EFFECT`, which says why), or refused with the way out (`REFUSED`). A test holds
these four against the jars of the broker. Names that are in none of them are librdkafka's own, or wrong, which it says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

# fmt: off
SAME = frozenset({
    "acks", "allow.auto.create.topics", "bootstrap.servers", "check.crcs", "client.dns.lookup", "client.id",
    "client.rack", "compression.type", "connections.max.idle.ms", "delivery.timeout.ms", "enable.idempotence",
    "enable.metrics.push", "fetch.max.bytes", "fetch.min.bytes", "group.id", "heartbeat.interval.ms", "linger.ms",
    "max.in.flight.requests.per.connection", "max.partition.fetch.bytes", "max.poll.interval.ms",
    "metadata.max.age.ms", "metadata.recovery.rebootstrap.trigger.ms", "metadata.recovery.strategy",
    "reconnect.backoff.max.ms", "reconnect.backoff.ms", "retries", "retry.backoff.max.ms", "retry.backoff.ms",
    "sasl.kerberos.min.time.before.relogin", "sasl.kerberos.service.name", "sasl.mechanism",
    "sasl.oauthbearer.assertion.algorithm", "sasl.oauthbearer.assertion.claim.aud",
    "sasl.oauthbearer.assertion.claim.exp.seconds", "sasl.oauthbearer.assertion.claim.iss",
    "sasl.oauthbearer.assertion.claim.jti.include", "sasl.oauthbearer.assertion.claim.nbf.seconds",
    "sasl.oauthbearer.assertion.claim.sub", "sasl.oauthbearer.assertion.file",
    "sasl.oauthbearer.assertion.private.key.file", "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.scope", "sasl.oauthbearer.sub.claim.name", "sasl.oauthbearer.token.endpoint.url",
    "security.protocol", "session.timeout.ms", "socket.connection.setup.timeout.ms", "ssl.cipher.suites",
    "ssl.key.password", "transaction.timeout.ms",
})
"""The properties that librdkafka has by the same name, and with the same values."""

_SHARED_OUT = "the job divides the partitions among its subtasks, not the group"
_OFFSETS = "offsets belong to checkpoints: set_starting_offsets(), commit.offsets.on.checkpoint"
_SCHEMAS = "rows are read and written by the schemas of the builder"
_METRICS = "the metrics are those of the job"
_OPENSSL = "OpenSSL chooses it"
_TOKENS = "the brokers check tokens"
_LOGIN = "the client logs in again by itself"

WITHOUT_EFFECT = {
    "auto.commit.interval.ms": _OFFSETS, "auto.offset.reset": _OFFSETS, "enable.auto.commit": _OFFSETS,
    "key.deserializer": _SCHEMAS, "key.serializer": _SCHEMAS, "value.deserializer": _SCHEMAS,
    "value.serializer": _SCHEMAS,
    "group.instance.id": _SHARED_OUT, "group.protocol": _SHARED_OUT, "group.remote.assignor": _SHARED_OUT,
    "partition.assignment.strategy": _SHARED_OUT, "share.acknowledgement.mode": _SHARED_OUT,
    "share.acquire.mode": _SHARED_OUT,
    "default.api.timeout.ms": "each question to the brokers has a limit of its own",
    "internal.throw.on.fetch.stable.offset.unsupported": "it is for brokers before 2.5",
    "max.block.ms": "a full buffer slows the job down",
    "max.poll.records": "the job reads as many records as it can take",
    "metadata.max.idle.ms": "the client keeps what it writes to",
    "partitioner.adaptive.partitioning.enable": "records without a key go to any partition",
    "partitioner.availability.timeout.ms": "records without a key go to any partition",
    "socket.connection.setup.timeout.max.ms": "socket.connection.setup.timeout.ms is not raised",
    "auto.include.jmx.reporter": _METRICS, "metric.reporters": _METRICS, "metrics.num.samples": _METRICS,
    "metrics.recording.level": _METRICS, "metrics.sample.window.ms": _METRICS, "register.consumer.metrics": _METRICS,
    "sasl.kerberos.ticket.renew.jitter": _LOGIN, "sasl.kerberos.ticket.renew.window.factor": _LOGIN,
    "sasl.login.connect.timeout.ms": _LOGIN, "sasl.login.read.timeout.ms": _LOGIN,
    "sasl.login.refresh.buffer.seconds": _LOGIN, "sasl.login.refresh.min.period.seconds": _LOGIN,
    "sasl.login.refresh.window.factor": _LOGIN, "sasl.login.refresh.window.jitter": _LOGIN,
    "sasl.login.retry.backoff.max.ms": _LOGIN, "sasl.login.retry.backoff.ms": _LOGIN,
    "sasl.oauthbearer.clock.skew.seconds": _TOKENS, "sasl.oauthbearer.expected.audience": _TOKENS,
    "sasl.oauthbearer.expected.issuer": _TOKENS, "sasl.oauthbearer.header.urlencode": _TOKENS,
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": _TOKENS,
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": _TOKENS,
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": _TOKENS, "sasl.oauthbearer.jwks.endpoint.url": _TOKENS,
    "sasl.oauthbearer.jwt.validator.class": _TOKENS, "sasl.oauthbearer.scope.claim.name": _TOKENS,
    "ssl.enabled.protocols": _OPENSSL, "ssl.keymanager.algorithm": _OPENSSL, "ssl.protocol": _OPENSSL,
    "ssl.provider": _OPENSSL, "ssl.secure.random.implementation": _OPENSSL, "ssl.trustmanager.algorithm": _OPENSSL,
    "ssl.keystore.password": "PEM files have ssl.key.password", "ssl.truststore.password": "PEM files have none",
}
"""The properties that change nothing here, and why."""

OURS = frozenset({
    "client.id.prefix", "commit.offsets.on.checkpoint", "exclude.internal.topics",
    "flink.partition-discovery.interval-millis", "partition.discovery.interval.ms",
})
"""The properties that the source itself reads, or that other calls of Flink's builders set."""

_PEM = (
    "export them from Java's key stores to PEM files once (openssl pkcs12 -in STORE -nodes; for JKS, keytool "
    "-importkeystore -deststoretype PKCS12 first), and name those by ssl.ca.location, ssl.certificate.location and "
    "ssl.key.location"
)
_JAVA_CLASS = "classes of Java are not loaded here"

REFUSED = {
    "config.providers": f"{_JAVA_CLASS}: read secrets in the program, from os.environ or a file",
    "interceptor.classes": f"{_JAVA_CLASS}: do what they do in a map() behind the source, or before the sink",
    "sasl.client.callback.handler.class": f"{_JAVA_CLASS}: set sasl.username and sasl.password, or sasl.oauthbearer.*",
    "sasl.login.class": f"{_JAVA_CLASS}: set sasl.username and sasl.password, or sasl.oauthbearer.*",
    "security.providers": f"{_JAVA_CLASS}: {_PEM}",
    "ssl.engine.factory.class": f"{_JAVA_CLASS}: {_PEM}",
    "ssl.keystore.certificate.chain": "write it to a file, and name that by ssl.certificate.location",
    "ssl.keystore.key": "write it to a file, and name that by ssl.key.location",
    "ssl.truststore.certificates": "write them to a file, and name that by ssl.ca.location",
    "transactional.id": "each transaction has an id of its own: set_transactional_id_prefix(...)",
}
"""The properties that have a way out, which the error says, unless they are empty, as they are by default."""
# fmt: on

Properties = Mapping[str, str]
Translated = dict[str, str]


class RefusedProperty(ValueError):
    """Reports a property that cannot be translated. The message names it, and the way out."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"property {name!r}: {why}")


def _as(name: str) -> Callable[[str, Properties], Translated]:
    return lambda value, _: {name: value}


def _buffer_of_socket(name: str) -> Callable[[str, Properties], Translated]:
    """Translate -1, by which Java leaves the size to the system; librdkafka does by 0."""
    return lambda value, _: {name: "0" if value.strip() == "-1" else value}


def _lower(name: str) -> Callable[[str, Properties], Translated]:
    return lambda value, _: {name: value.strip().lower()}


def _whole(name: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise RefusedProperty(name, f"it is a whole number, not {value!r}") from None


def _buffer_memory(value: str, _: Properties) -> Translated:
    return {"queue.buffering.max.kbytes": str(max(1, -(-_whole("buffer.memory", value) // 1024)))}


def _request_timeout(value: str, _: Properties) -> Translated:
    return {"socket.timeout.ms": str(min(300_000, _whole("request.timeout.ms", value)))}


def _request_size(value: str, _: Properties) -> Translated:
    return {"message.max.bytes": str(min(1_000_000_000, _whole("max.request.size", value)))}


def _batch_size(value: str, _: Properties) -> Translated:
    return {"batch.num.messages": "1"} if value.strip() == "0" else {"batch.size": value}


def _level_of(codec: str) -> Callable[[str, Properties], Translated]:
    """Translate the level of one codec. It counts if that is the codec which is used."""

    def translate(value: str, properties: Properties) -> Translated:
        if properties.get("compression.type", "none").strip().lower() != codec:
            return {}
        return {"compression.level": str(max(-1, min(12, _whole(f"compression.{codec}.level", value))))}

    return translate


_KEY_HASHES = ("DefaultPartitioner", "UniformStickyPartitioner", "BuiltInPartitioner")


def _partitioner(value: str, _: Properties) -> Translated:
    name = value.rpartition(".")[2]
    if not name or name in _KEY_HASHES:
        return {}
    raise RefusedProperty(
        "partitioner.class",
        f"{_JAVA_CLASS}. Records with equal keys go where Java's producer sends them by default; "
        "set_property('partitioner', 'random') spreads all of them",
    )


def _ignores_keys(value: str, _: Properties) -> Translated:
    return {"partitioner": "random"} if value.strip().lower() == "true" else {}


def _two_phases(value: str, _: Properties) -> Translated:
    if value.strip().lower() != "true":
        return {}
    raise RefusedProperty(
        "transaction.two.phase.commit.enable",
        "the job commits transactions with its checkpoints already: leave it out, and set transaction.timeout.ms",
    )


def _endpoint(value: str, _: Properties) -> Translated:
    return {"ssl.endpoint.identification.algorithm": value.strip().lower() or "none"}


def _store_type(value: str, _: Properties) -> Translated:
    """Return nothing: `ssl.keystore.location` and `ssl.truststore.location` say whether the type can be read."""
    return {}


def _store(kind: str, *names: str) -> Callable[[str, Properties], Translated]:
    def translate(value: str, properties: Properties) -> Translated:
        if properties.get(f"ssl.{kind}.type", "JKS").strip().upper() == "PEM":
            return dict.fromkeys(names, value)
        raise RefusedProperty(f"ssl.{kind}.location", f"key stores of Java are not read: {_PEM}")

    return translate


def _kinit(value: str, _: Properties) -> Translated:
    """Translate `sasl.kerberos.kinit.cmd`: drop Java's value, a path, because librdkafka takes a whole command."""
    return {"sasl.kerberos.kinit.cmd": value} if " " in value.strip() or "%" in value else {}


def _login_handler(value: str, _: Properties) -> Translated:
    if not value or value.rpartition(".")[2] == "OAuthBearerLoginCallbackHandler":
        return {"sasl.oauthbearer.method": "oidc"} if value else {}
    raise RefusedProperty(
        "sasl.login.callback.handler.class",
        f"{_JAVA_CLASS}: set sasl.oauthbearer.method to oidc, with sasl.oauthbearer.token.endpoint.url, client.id and "
        "client.secret",
    )


def _retriever(value: str, _: Properties) -> Translated:
    name = value.rpartition(".")[2]
    if name in ("", "DefaultJwtRetriever", "ClientCredentialsJwtRetriever"):
        return {}
    if name == "JwtBearerJwtRetriever":
        return {"sasl.oauthbearer.grant.type": "urn:ietf:params:oauth:grant-type:jwt-bearer"}
    raise RefusedProperty(
        "sasl.oauthbearer.jwt.retriever.class", f"{_JAVA_CLASS}: set sasl.oauthbearer.grant.type instead"
    )


_OPTION = re.compile(r'(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))')
_OF_JAAS = {
    "username": "sasl.username",
    "password": "sasl.password",
    "clientId": "sasl.oauthbearer.client.id",
    "clientSecret": "sasl.oauthbearer.client.secret",
    "scope": "sasl.oauthbearer.scope",
    "keyTab": "sasl.kerberos.keytab",
    "principal": "sasl.kerberos.principal",
    "serviceName": "sasl.kerberos.service.name",
}


def _credentials(value: str, _: Properties) -> Translated:
    fields = {
        name: re.sub(r"\\(.)", r"\1", quoted) if quoted or not bare else bare
        for name, quoted, bare in _OPTION.findall(value)
    }
    complete = ({"username", "password"}, {"clientId", "clientSecret"}, {"keyTab", "principal"})
    if not any(names <= fields.keys() for names in complete):
        raise RefusedProperty(
            "sasl.jaas.config",
            'it has no username="..." and password="...", nor clientId and clientSecret, nor keyTab and principal: set '
            "sasl.username and sasl.password, sasl.oauthbearer.* or sasl.kerberos.*, which this client reads",
        )
    return {_OF_JAAS[name]: text for name, text in fields.items() if name in _OF_JAAS}


TRANSLATED: dict[str, Callable[[str, Properties], Translated]] = {
    "batch.size": _batch_size,
    "buffer.memory": _buffer_memory,
    "compression.gzip.level": _level_of("gzip"),
    "compression.lz4.level": _level_of("lz4"),
    "compression.zstd.level": _level_of("zstd"),
    "fetch.max.wait.ms": _as("fetch.wait.max.ms"),
    "isolation.level": _lower("isolation.level"),
    "max.request.size": _request_size,
    "partitioner.class": _partitioner,
    "partitioner.ignore.keys": _ignores_keys,
    "receive.buffer.bytes": _buffer_of_socket("socket.receive.buffer.bytes"),
    "request.timeout.ms": _request_timeout,
    "sasl.jaas.config": _credentials,
    "sasl.kerberos.kinit.cmd": _kinit,
    "sasl.login.callback.handler.class": _login_handler,
    "sasl.oauthbearer.assertion.template.file": _as("sasl.oauthbearer.assertion.jwt.template.file"),
    "sasl.oauthbearer.jwt.retriever.class": _retriever,
    "send.buffer.bytes": _buffer_of_socket("socket.send.buffer.bytes"),
    "ssl.endpoint.identification.algorithm": _endpoint,
    "ssl.keystore.location": _store("keystore", "ssl.certificate.location", "ssl.key.location"),
    "ssl.keystore.type": _store_type,
    "ssl.truststore.location": _store("truststore", "ssl.ca.location"),
    "ssl.truststore.type": _store_type,
    "transaction.two.phase.commit.enable": _two_phases,
}
"""Functions (value, all properties) -> properties of librdkafka."""


def translated(properties: Properties) -> Translated:
    """Translate properties to librdkafka's.

    Args:
        properties: Those of the user, by the names of the Java client or of librdkafka.

    Returns:
        The client's properties.

    Raises:
        RefusedProperty: One cannot be translated.
    """
    texts = {name: _text(value) for name, value in properties.items()}
    found: Translated = {}
    for name, value in texts.items():
        if name in TRANSLATED:
            found.update(TRANSLATED[name](value, texts))
        elif name in REFUSED and value.strip():
            raise RefusedProperty(name, REFUSED[name])
        elif name not in WITHOUT_EFFECT and name not in OURS and name not in REFUSED:
            found[name] = value
    return found


def _text(value: object) -> str:
    """Return a value as Kafka writes it; programs pass numbers and truth values, too."""
    return str(value).lower() if isinstance(value, bool) else str(value)
