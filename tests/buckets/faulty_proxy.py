"""Stands between a client and an object store: it loses answers, answers by itself, is slow, or counts."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from xml.sax.saxutils import unescape


@dataclass(frozen=True)
class Fault:
    """Says what happens to a request. `status`, `code` and `detail` (as Azure has it): the proxy's answer. `executed`:
    the store gets it all the same. `hangs`: there is no answer before the proxy is closed. `delay_s`: it is passed on
    so much later. `kills`: a process that is killed by SIGKILL in place of an answer, after the store has executed the
    request (`executed`), or before it gets it.
    """

    status: int = 503
    code: str = "SlowDown"
    executed: bool = False
    hangs: bool = False
    delay_s: float = 0.0
    kills: int = 0
    detail: str = ""


PASSED = Fault(status=0)


class _Server(ThreadingHTTPServer):
    """Serves clients that are killed."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report an error, if it is none of a connection that a killed client has left."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class FaultyProxy:
    """Runs the proxy on a free port of the loopback interface. `fault(method, path)` is asked for each request."""

    def __init__(self, target_port: int) -> None:
        self.target_port = target_port
        self.fault: Callable[[str, str], Fault] = lambda method, path: PASSED
        self.expired_keys: set[str] = set()
        """Access keys of S3: a request that is signed with one is answered by the proxy, whatever `fault` says."""
        self.requests: list[tuple[str, str]] = []
        self.bytes_per_second = 0.0
        """How much of a body or an answer goes through in a second; 0: all at once."""
        self.listed: list[list[str]] = []
        """The names of the objects that each answer to a list request has shown."""
        self.at_once = self.most_at_once = 0
        """How many requests wait for their answers now, and at most since this was set to 0."""
        self._lock = threading.Lock()
        self.closing = threading.Event()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                with proxy._lock:
                    proxy.at_once += 1
                    proxy.most_at_once = max(proxy.most_at_once, proxy.at_once)
                try:
                    proxy.handle(self)
                finally:
                    with proxy._lock:
                        proxy.at_once -= 1

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing."""

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self) -> FaultyProxy:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _tb: TracebackType | None
    ) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()

    def fail_once(self, method: str, mark: str, fault: Fault, times: int = 1) -> None:
        """Let the next `times` requests of this method, whose path contains `mark`, have the fault."""
        left = [times]
        lock = threading.Lock()

        def choose(asked: str, path: str) -> Fault:
            with lock:
                if asked == method and mark in path and left[0]:
                    left[0] -= 1
                    return fault
            return PASSED

        self.fault = choose

    def handle(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("content-length") or 0))
        self.requests.append((handler.command, handler.path))
        fault = self.fault(handler.command, handler.path)
        if any(f"Credential={key}/" in handler.headers.get("authorization", "") for key in self.expired_keys):
            fault = Fault(400, "ExpiredToken")
        if fault.delay_s:
            time.sleep(fault.delay_s)
        self._carry(len(body))
        status, answer = 0, b""
        headers: list[tuple[str, str]] = []
        if fault.executed or not (fault.status or fault.hangs):
            try:
                status, headers, answer = self._forwarded(handler, body)
            except (OSError, http.client.HTTPException):
                handler.close_connection = True
                return
        if b"<ListBucketResult" in answer:
            self.listed.append([unescape(key) for key in re.findall("<Key>(.*?)</Key>", answer.decode())])
        self._carry(len(answer))
        if fault.kills:
            os.kill(fault.kills, signal.SIGKILL)
            handler.close_connection = True
            return
        if fault.hangs:
            self.closing.wait()
            handler.close_connection = True
            return
        if fault.status:
            status = fault.status
            headers = [("content-type", "application/xml")]
            detail = f"<AuthenticationErrorDetail>{fault.detail}</AuthenticationErrorDetail>" if fault.detail else ""
            answer = f"<Error><Code>{fault.code}</Code><Message>the proxy says so</Message>{detail}</Error>".encode()
        handler.send_response(status)
        for key, text in headers:
            if key.lower() not in ("content-length", "transfer-encoding", "connection", "date", "server"):
                handler.send_header(key, text)
        length = str(len(answer))
        if handler.command == "HEAD":
            length = {key.lower(): text for key, text in headers}.get("content-length", "0")
        handler.send_header("content-length", length)
        with contextlib.suppress(OSError):  # its client was killed
            handler.end_headers()
            if handler.command != "HEAD":
                handler.wfile.write(answer)

    def _carry(self, size_bytes: int) -> None:
        if self.bytes_per_second:
            time.sleep(size_bytes / self.bytes_per_second)

    def _forwarded(self, handler: BaseHTTPRequestHandler, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.target_port, timeout=60)
        try:
            headers = {key: text for key, text in handler.headers.items() if key.lower() != "connection"}
            connection.request(handler.command, handler.path, body or None, headers)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()
