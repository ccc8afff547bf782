"""Serves the jobs of this driver over HTTP, in one thread. A request has limits of size and time, and needs the token.

One thread serves one request at a time: what it does for a request takes microseconds, and a client that is slow holds
up others for `REQUEST_TIMEOUT_S` at most.
"""

from __future__ import annotations

import hmac
import io
import json
import logging
import secrets
import selectors
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from penstock.rest.api import JobApi, RequestRefused, ServedJob

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_S = 5.0
REQUEST_BYTES_MAX = 64 * 1024
LINGER_S = 3.0
"""The server outlives its jobs by this, so that whoever has stopped one learns how it ended."""


class RestServer:
    """Serves jobs until all of them have ended. `where_token` tells users where the token is."""

    def __init__(
        self, listening: socket.socket, where_token: str, *, request_timeout_s: float = REQUEST_TIMEOUT_S
    ) -> None:
        self.token = secrets.token_urlsafe(32)
        self._lock = threading.Lock()
        self._jobs: dict[str, ServedJob] = {}
        self._ended_at: dict[str, float] = {}
        self._users = 0
        self._is_used = self._is_closed = False
        self._bell, self._bell_rope = socket.socketpair()
        self._http = _HttpServer(listening, JobApi(self._served), self.token, where_token, request_timeout_s)
        self._thread = threading.Thread(target=self._run, name="penstock-rest", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._http.socket.getsockname()[1])

    def acquire(self) -> bool:
        """Keep the server open for a job that will come. Return False if it is closed."""
        with self._lock:
            if not self._is_closed:
                self._users, self._is_used = self._users + 1, True
            return not self._is_closed

    def serve(self, job_id: str, job: ServedJob) -> None:
        with self._lock:
            self._jobs[job_id] = job
            self._ended_at.pop(job_id, None)

    def release(self, served: tuple[str, ServedJob] | None) -> None:
        """Release a job acquired with `acquire`; None: it was not served. The server stops with its last job."""
        with self._lock:
            self._users -= 1
            # A job that was started again in this process has taken the place of the one that ends.
            if served is not None and self._jobs.get(served[0]) is served[1]:
                self._ended_at[served[0]] = time.monotonic()
        self._bell_rope.send(b"!")

    def join(self, timeout_s: float) -> None:
        """Wait until the server has closed."""
        self._thread.join(timeout_s)

    def _served(self) -> dict[str, ServedJob]:
        with self._lock:
            return dict(self._jobs)

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._http.socket, selectors.EVENT_READ)
            selector.register(self._bell, selectors.EVENT_READ)
            while not self._forget_ended():
                for key, _ in selector.select(self._patience_s()):
                    if key.fileobj is self._bell:
                        self._bell.recv(1024)
                    else:
                        self._http.handle_request()
        self._http.server_close()

    def _patience_s(self) -> float | None:
        with self._lock:
            ends = [at + LINGER_S - time.monotonic() for at in self._ended_at.values()]
            return max(0.0, min(ends)) if ends else None

    def _forget_ended(self) -> bool:
        """Forget ended jobs whose outcomes were fetched, or waited long enough. Return True if the server closes."""
        with self._lock:
            for job_id, at in list(self._ended_at.items()):
                if self._jobs[job_id].operations.are_fetched or time.monotonic() >= at + LINGER_S:
                    del self._jobs[job_id], self._ended_at[job_id]
            self._is_closed = self._is_used and not self._users and not self._ended_at
            return self._is_closed


class _HttpServer(HTTPServer):
    timeout = 0

    def __init__(
        self, listening: socket.socket, api: JobApi, token: str, where_token: str, request_timeout_s: float
    ) -> None:
        super().__init__(listening.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.api = api
        self.authorization = f"Bearer {token}".encode()
        self.where_token = where_token
        self.request_timeout_s = request_timeout_s

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a request of %s failed", client_address, exc_info=True)


class _TooLarge(Exception):
    """Signals a request with more bytes than are read."""


class _Handler(BaseHTTPRequestHandler):
    server: _HttpServer
    request_version = "HTTP/1.0"
    server_version, sys_version = "penstock", ""

    def setup(self) -> None:
        self.request.settimeout(self.server.request_timeout_s)
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(_Limited(self.connection, self.server.request_timeout_s))

    def handle(self) -> None:
        try:
            self.handle_one_request()
        except _TooLarge:
            self.send_error(413, f"a request may have {REQUEST_BYTES_MAX} bytes")

    def do_GET(self) -> None:
        """Answer a request of any method."""
        try:
            body = self._body()
            self._check_token()
            self._send(*self.server.api.answer(self.command, self.path, body))
        except RequestRefused as refused:
            self._send(refused.status, {"errors": [str(refused)]})
        except (OSError, _TooLarge):
            raise
        except Exception as error:
            log.exception("an error of Penstock's own in the control server")
            self._send(500, {"errors": [f"an error of Penstock's own: {type(error).__name__}: {error}"]})

    do_POST = do_PATCH = do_PUT = do_DELETE = do_HEAD = do_OPTIONS = do_GET

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in self.headers or not length.isdigit():
            raise RequestRefused(411, "a body needs its length: send Content-Length")
        if int(length) > REQUEST_BYTES_MAX:
            raise RequestRefused(413, f"a body may have {REQUEST_BYTES_MAX} bytes, not {length}")
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            raise RequestRefused(400, f"the body ended after {len(body)} of {length} bytes")
        return body

    def _check_token(self) -> None:
        given = self.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode("utf-8", "replace"), self.server.authorization):
            what = "is wrong" if given else "is missing"
            raise RequestRefused(
                401,
                f"the token {what}: send the header 'Authorization: Bearer <token>' with the token in "
                f"{self.server.where_token}, which only the user who started the job can read",
            )

    def _send(self, status: int, document: dict[str, Any] | list[dict[str, Any]]) -> None:
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=UTF-8")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-store")
        if status == 401:
            self.send_header("WWW-Authenticate", "Bearer")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that is not valid HTTP, in JSON like all others."""
        self.command = self.command or "GET"
        self._send(code, {"errors": [message or self.responses[code][0]]})

    def log_message(self, format: str, *args: Any) -> None:
        log.debug("%s " + format, self.client_address[0], *args)


_Handler.command = ""


class _Limited(io.RawIOBase):
    """Reads a request from a socket, until its time or its bytes are used up: raises TimeoutError or `_TooLarge`."""

    def __init__(self, connection: socket.socket, timeout_s: float) -> None:
        self._connection = connection
        self._until = time.monotonic() + timeout_s
        self._left_bytes = 2 * REQUEST_BYTES_MAX

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left_s = self._until - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the request took too long")
        if self._left_bytes <= 0:
            raise _TooLarge
        before_s = self._connection.gettimeout()
        self._connection.settimeout(left_s)
        try:
            count = self._connection.recv_into(memoryview(buffer)[: self._left_bytes])
        finally:
            self._connection.settimeout(before_s)
        self._left_bytes -= count
        return count
