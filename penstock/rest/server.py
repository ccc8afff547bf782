"""Serves the jobs of this driver over HTTP, in one thread of its own.

Until somebody asks, the thread only waits at the listening socket: the web server (uvicorn) is imported and started at
the first connection, so that a job which nobody looks at pays nothing for it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import selectors
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from penstock.rest.api import JobApi, ServedJob

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_S = 5.0
CONNECTIONS_MAX = 256
LINGER_S = 3.0
"""The server outlives its jobs by this, so that whoever has stopped one learns how it ended."""
_LOOK_S = 0.1


class RestServer:
    """Serves jobs until all of them have ended. `where_token` tells users where the token is."""

    def __init__(
        self, listening: socket.socket, where_token: str, *, request_timeout_s: float = REQUEST_TIMEOUT_S
    ) -> None:
        self.token = secrets.token_urlsafe(32)
        self._listening = listening
        self._where_token = where_token
        self._request_timeout_s = request_timeout_s
        self._lock = threading.Lock()
        self._jobs: dict[str, ServedJob] = {}
        self._ended_at: dict[str, float] = {}
        self._users = 0
        self._is_used = self._is_closed = False
        self._bell, self._bell_rope = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="penstock-rest", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._listening.getsockname()[1])

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
        try:
            if self._wait_for_a_request():
                _serve_http(
                    self._listening,
                    JobApi(self._served),
                    (self.token, self._where_token, self._request_timeout_s),
                    self._forget_ended,
                )
        finally:
            self._listening.close()

    def _wait_for_a_request(self) -> bool:
        """Return True at the first connection, False once the server closes without one."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._listening, selectors.EVENT_READ)
            selector.register(self._bell, selectors.EVENT_READ)
            while not self._forget_ended():
                for key, _ in selector.select(self._patience_s()):
                    if key.fileobj is self._listening:
                        return True
                    self._bell.recv(1024)
        return False

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


def _serve_http(
    listening: socket.socket, api: JobApi, access: tuple[str, str, float], closes: Callable[[], bool]
) -> None:
    """Serve until `closes` returns True. `access`: the token, where it is, and the time for a request in seconds."""
    import uvicorn

    from penstock.rest.http_app import REQUEST_BYTES_MAX, http_app

    # It reports each client that goes away as an error. Errors of our own are logged by the application.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    token, where_token, timeout_s = access
    config = uvicorn.Config(
        http_app(api, token, where_token, timeout_s),
        http=_patient(timeout_s),
        loop="asyncio",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS_MAX,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=1,
        h11_max_incomplete_event_size=REQUEST_BYTES_MAX,
    )
    server = uvicorn.Server(config)

    async def serve() -> None:
        async def end_with_the_jobs() -> None:
            while not closes():
                await asyncio.sleep(_LOOK_S)
            server.should_exit = True

        ending = asyncio.create_task(end_with_the_jobs())
        await server.serve(sockets=[listening])
        ending.cancel()

    asyncio.run(serve())


def _patient(timeout_s: float) -> Any:
    """Return uvicorn's protocol with a limit: a connection on which no request is complete after `timeout_s` closes."""
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Patient(H11Protocol):
        def send_400_response(self, msg: str) -> None:
            """Answer in JSON, as all requests are."""
            body = json.dumps({"errors": [msg]}).encode()
            head = "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json; charset=UTF-8\r\n"
            head += f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            self.transport.write(head.encode() + body)
            self.transport.close()

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            asyncio.get_running_loop().call_later(timeout_s, self._close_if_silent)

        def _close_if_silent(self) -> None:
            if self.cycle is None and not self.transport.is_closing():
                self.transport.close()

    return Patient
