"""Runs a schema registry for tests: a real HTTP server on a free loopback port that speaks the registry's requests.

It keeps schemas in memory, and checks nothing about them. It can demand a user, be slow, fail, and be stopped.

    python tools/schema_registry.py        # starts one, prints its address, and runs until Ctrl-C
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

Answer = tuple[int, Any]


class RegistryServer:
    """Runs a registry. Use it as a context manager, or call `start` and `stop`; `start` comes back on the same port.

    `user` is user:password, or None. `requests` are all that came, as "GET /schemas/ids/1". `failures` are answers for
    the next requests, before any other; a function is called for one.
    """

    def __init__(self, user: str | None = None) -> None:
        self.user = user
        self.requests: list[str] = []
        self.failures: list[Answer | Callable[[], Answer]] = []
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self._port = 0
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> RegistryServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Answer requests."""
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), _handler(self))
        self._server.daemon_threads = True
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def stop(self) -> None:
        """Answer no more."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()

    def register(self, subject: str, body: dict[str, Any]) -> int:
        """Register a schema, and return its id; that of an equal one if there is one."""
        known = [each for each, schema in self.schemas.items() if schema == body]
        schema_id = known[0] if known else len(self.schemas) + 1
        self.schemas[schema_id] = body
        versions = self.subjects.setdefault(subject, [])
        if schema_id not in versions:
            versions.append(schema_id)
        return schema_id

    def answer(self, method: str, path: str, headers: Any, body: Any) -> Answer:
        self.requests.append(f"{method} {path}")
        if self.failures:
            failure = self.failures.pop(0)
            return failure() if callable(failure) else failure
        if self.user is not None:
            wanted = f"Basic {base64.b64encode(self.user.encode()).decode()}"
            if headers.get("Authorization") != wanted:
                return 401, {"error_code": 401, "message": "Unauthorized"}
        match [method, *map(unquote, path.strip("/").split("/"))]:
            case ["GET", "schemas", "types"]:
                return 200, ["JSON", "PROTOBUF", "AVRO"]
            case ["GET", "schemas", "ids", schema_id]:
                found = self.schemas.get(int(schema_id))
                return (200, found) if found else (404, {"error_code": 40403, "message": "Schema not found"})
            case ["GET", "subjects", subject, "versions", version]:
                known = self.subjects[subject][int(version) - 1]
                return 200, {**self.schemas[known], "subject": subject, "version": int(version), "id": known}
            case ["POST", "subjects", subject, "versions"]:
                return 200, {"id": self.register(subject, body)}
            case ["POST", "subjects", subject]:
                for known in self.subjects.get(subject, ()):
                    if self.schemas[known] == body:
                        return 200, {"id": known, "subject": subject}
                return 404, {"error_code": 40403, "message": "Schema not found"}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}


def _handler(registry: RegistryServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(None)

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _answer(self, body: Any) -> None:
            status, answer = registry.answer(self.command, self.path, self.headers, body)
            data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            if status in (301, 302, 307):
                self.send_header("Location", answer["message"])
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


if __name__ == "__main__":
    with RegistryServer() as server:
        print(server.url, flush=True)
        threading.Event().wait()
