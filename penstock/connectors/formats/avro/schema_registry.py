"""Asks a Confluent Schema Registry for schemas, by HTTP, and remembers them."""

from __future__ import annotations

import base64
import json
import random
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.connectors.base import SinkError, SourceError
from penstock.connectors.formats.avro.avro_types import AvroSchema

ANSWER_BYTES_MAX = 16 << 20
UNKNOWN_FOR_S = 10.0
"""Says for how long an id that the registry does not know is not asked for again."""

_DEFAULTS = {"http.read.timeout.ms": 10_000, "max.retries": 3, "retries.wait.ms": 500, "retries.max.wait.ms": 5_000}
_TEXTS = (
    "basic.auth.credentials.source", "basic.auth.user.info", "bearer.auth.credentials.source", "bearer.auth.token",
    "auto.register.schemas", "ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.key.password",
)  # fmt: skip
_ID_NOT_FOUND = 40403


class RegistryError(SourceError, SinkError):
    """Reports that a registry does not answer, or refuses a request. The message names it, and the way out."""


class UnknownSchema(Exception):
    """Reports that the registry has no such schema, or one of another format."""


@dataclass(frozen=True)
class RegistrySettings:
    """Holds the address of a registry, and the settings of requests. It is not printed, because it has secrets.

    Raises ValueError for a property that is not known.
    """

    urls: tuple[str, ...]
    configs: Mapping[str, str] = field(repr=False, default_factory=dict)

    @staticmethod
    def of(url: str, configs: Mapping[str, str] | None) -> RegistrySettings:
        """Read the settings of a program.

        Args:
            url: The address, or several of the same registry with commas.
            configs: Properties by the names of Confluent's clients.

        Returns:
            The settings.

        Raises:
            ValueError: The address is none of HTTP, or a property is not known or no number.
        """
        found = {name.removeprefix("schema.registry."): str(value) for name, value in (configs or {}).items()}
        urls = []
        for each in url.split(","):
            parts = urllib.parse.urlsplit(each.strip())
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ValueError(
                    f"a schema registry is at http://host:port or https://host:port, not {_shown(parts)!r}"
                )
            if parts.username is not None:
                user = urllib.parse.unquote(parts.username)
                found["basic.auth.user.info"] = f"{user}:{urllib.parse.unquote(parts.password or '')}"
            urls.append(_shown(parts).rstrip("/"))
        for name, value in found.items():
            if name in _DEFAULTS:
                if not value.isdigit():
                    raise ValueError(f"property {name!r} of the schema registry is a whole number, got {value!r}")
            elif name not in _TEXTS:
                known = ", ".join([*_DEFAULTS, *_TEXTS])
                raise ValueError(f"property {name!r} of the schema registry is not known; there are {known}")
        return RegistrySettings(tuple(urls), found)

    @property
    def name(self) -> str:
        """Return the address without secrets."""
        return ", ".join(self.urls)

    @property
    def registers(self) -> bool:
        """Return True if schemas that are written may be registered."""
        return self.configs.get("auto.register.schemas", "true").lower() != "false"

    def number(self, name: str) -> int:
        """Return a property that is a number.

        Args:
            name: The property.

        Returns:
            Its value.
        """
        return int(self.configs.get(name, _DEFAULTS[name]))

    def headers(self) -> dict[str, str]:
        """Return the headers of requests: what authenticates us is among them."""
        found = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if token := self.configs.get("bearer.auth.token"):
            found["Authorization"] = f"Bearer {token}"
        elif user := self.configs.get("basic.auth.user.info"):
            found["Authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"
        return found

    def tls(self) -> ssl.SSLContext:
        """Return the TLS settings.

        Raises:
            RegistryError: A file of keys cannot be read.
        """
        try:
            context = ssl.create_default_context(cafile=self.configs.get("ssl.ca.location"))
            if certificate := self.configs.get("ssl.certificate.location"):
                key = self.configs.get("ssl.key.location")
                context.load_cert_chain(certificate, key, self.configs.get("ssl.key.password"))
        except OSError as error:
            raise RegistryError(f"the files of ssl.* for the schema registry cannot be read: {error}") from None
        return context


def _shown(parts: urllib.parse.SplitResult) -> str:
    host = parts.netloc.rpartition("@")[2]
    return urllib.parse.urlunsplit((parts.scheme, host, parts.path, "", ""))


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: our credentials are for the registry only."""

    def redirect_request(self, *_: Any) -> None:
        return None


class SchemaRegistry:
    """Asks for schemas by their ids, and for the ids of schemas. Caches the answers."""

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        self._schemas: dict[int, AvroSchema] = {}
        self._unknown: dict[int, float] = {}
        self._ids: dict[tuple[str, str], int] = {}
        self._opener: urllib.request.OpenerDirector | None = None

    def __reduce__(self) -> Any:
        return SchemaRegistry, (self._settings,)

    def check(self) -> None:
        """Ask for anything. Raises `RegistryError` if there is no answer."""
        self._ask("GET", "/schemas/types", "answer")

    def schema(self, schema_id: int) -> AvroSchema:
        """Return a schema.

        Args:
            schema_id: Its id.

        Returns:
            The schema.

        Raises:
            UnknownSchema: There is none, or it is none of Avro.
        """
        found = self._schemas.get(schema_id)
        if found is None:
            if time.monotonic() < self._unknown.get(schema_id, 0.0):
                raise UnknownSchema(self._no_such(schema_id))
            found = self._schemas[schema_id] = self._asked_schema(schema_id)
        return found

    def _asked_schema(self, schema_id: int) -> AvroSchema:
        answer = self._ask("GET", f"/schemas/ids/{schema_id}", f"return schema {schema_id}", none_if=_ID_NOT_FOUND)
        if answer is None:
            if len(self._unknown) > 1000:
                self._unknown.clear()
            self._unknown[schema_id] = time.monotonic() + UNKNOWN_FOR_S
            raise UnknownSchema(self._no_such(schema_id))
        if answer.get("schemaType", "AVRO") != "AVRO":
            raise UnknownSchema(f"schema {schema_id} of the registry is of {answer['schemaType']}, not of Avro")
        referenced: dict[tuple[str, int], str] = {}
        self._add_referenced(answer, referenced)
        return AvroSchema(answer["schema"], tuple(referenced.values()))

    def _add_referenced(self, answer: Mapping[str, Any], found: dict[tuple[str, int], str]) -> None:
        for each in answer.get("references") or ():
            subject, version = each["subject"], each["version"]
            if (subject, version) not in found:
                path = f"/subjects/{urllib.parse.quote(subject, safe='')}/versions/{version}"
                other = self._ask("GET", path, f"return version {version} of {subject!r}")
                assert other is not None
                self._add_referenced(other, found)
                found[subject, version] = other["schema"]

    def _no_such(self, schema_id: int) -> str:
        return f"the schema registry at {self._settings.name} has no schema {schema_id}"

    def id_of(self, subject: str, schema: str) -> int:
        """Return the id of a schema. It is registered, unless `auto.register.schemas` is false.

        Args:
            subject: Under what name.
            schema: Its text.

        Returns:
            The id.

        Raises:
            RegistryError: There is none, or the registry does not take the schema.
        """
        found = self._ids.get((subject, schema))
        if found is None:
            path, what = f"/subjects/{urllib.parse.quote(subject, safe='')}", f"find the schema of subject {subject!r}"
            if self._settings.registers:
                path, what = f"{path}/versions", f"register a schema for subject {subject!r}"
            answer = self._ask("POST", path, what, {"schema": schema})
            assert answer is not None
            found = self._ids[subject, schema] = int(answer["id"])
        return found

    # ---- HTTP ---------------------------------------------------------------------------------------------------

    def _ask(self, method: str, path: str, what: str, body: Any = None, none_if: int | None = None) -> Any:
        """Return the answer, or None for the error code `none_if`. Tries again where that may help."""
        settings = self._settings
        tries = settings.number("max.retries") + 1
        wait_ms = float(settings.number("retries.wait.ms"))
        reason = ""
        for tried in range(tries * len(settings.urls)):
            url = settings.urls[tried % len(settings.urls)]
            try:
                return self._ask_once(method, url + path, body)
            except urllib.error.HTTPError as error:
                code, said = _said(error)
                if none_if is not None and code == none_if:
                    return None
                reason = f"{error.code} {error.reason}" + (f": {said}" if said else "")
                if error.code < 500 and error.code not in (408, 429):
                    raise RegistryError(self._refused(what, error.code, reason)) from None
            except (OSError, ValueError) as error:
                reason = str(getattr(error, "reason", "") or error) or type(error).__name__
            if (tried + 1) % len(settings.urls) == 0 and tried + 1 < tries * len(settings.urls):
                time.sleep(random.uniform(0.5, 1.0) * wait_ms / 1000)
                wait_ms = min(2 * wait_ms, float(settings.number("retries.max.wait.ms")))
        raise RegistryError(
            f"the schema registry at {settings.name} did not {what}, tried {tries} times: {reason}. Check that it "
            "runs, and its address; max.retries, retries.wait.ms and http.read.timeout.ms set how long it is waited for"
        )

    def _ask_once(self, method: str, url: str, body: Any) -> Any:
        if self._opener is None:
            https = urllib.request.HTTPSHandler(context=self._settings.tls())
            self._opener = urllib.request.build_opener(https, _NoRedirect())
        headers = self._settings.headers()
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/vnd.schemaregistry.v1+json"
        request = urllib.request.Request(url, data, headers, method=method)
        with self._opener.open(request, timeout=self._settings.number("http.read.timeout.ms") / 1000) as answer:
            return json.loads(answer.read(ANSWER_BYTES_MAX))

    def _refused(self, what: str, status: int, reason: str) -> str:
        hint = ""
        if status in (401, 403):
            hint = ". Check basic.auth.user.info or bearer.auth.token, and what this user may do"
        return f"the schema registry at {self._settings.name} refused to {what}: {reason}{hint}"


def _said(error: urllib.error.HTTPError) -> tuple[int | None, str]:
    """Return the code and the message of the registry's own, where the answer has them."""
    try:
        found = json.loads(error.read(65_536))
        return found.get("error_code"), str(found.get("message", ""))[:300]
    except (OSError, ValueError, AttributeError):
        return None, ""
