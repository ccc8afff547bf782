"""Answers HTTP requests: checks the token, limits what a request may take, and asks the API; serves the dashboard's
files and its stream of events.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import AsyncIterator
from importlib.resources import files
from typing import Any

from msgspec.json import encode
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.rest.api import JobApi, RequestRefused

log = logging.getLogger(__name__)

REQUEST_BYTES_MAX = 64 * 1024
METHODS = ["GET", "POST", "PATCH", "PUT", "DELETE", "OPTIONS"]
STREAMS_MAX = 32
"""The most pages that are kept informed at once."""
_SECURITY = {
    # Text of users stands in the pages: nothing but our own files may run there.
    "Content-Security-Policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def http_app(api: JobApi, token: str, where_token: str, request_timeout_s: float) -> ASGIApp:
    """Return the application. `where_token` tells users where the token is."""
    return _Limited(_Answers(api, token, where_token, request_timeout_s).application(), request_timeout_s)


class _Limited:
    """Gives up an answer whose reader takes nothing for `timeout_s`."""

    def __init__(self, app: ASGIApp, timeout_s: float) -> None:
        self._app = app
        self._timeout_s = timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def limited(message: Message) -> None:
            await asyncio.wait_for(send(message), self._timeout_s)

        try:
            await self._app(scope, receive, limited)
        except TimeoutError as error:
            raise ConnectionAbortedError(f"{scope.get('client')} takes nothing") from error


class _Answers:
    def __init__(self, api: JobApi, token: str, where_token: str, request_timeout_s: float) -> None:
        self._api = api
        self._authorization = f"Bearer {token}".encode()
        self._where_token = where_token
        self._timeout_s = request_timeout_s
        self._streams = 0

    def application(self) -> Starlette:
        routes = [
            Route("/", self._to_dashboard),
            Mount("/ui", StaticFiles(directory=str(files("penstock.rest") / "ui"), html=True)),
            Route("/jobs/{job}/events", self._events),
            Route("/{path:path}", self._answer, methods=METHODS),
        ]
        return Starlette(routes=routes, exception_handlers={HTTPException: self._refused, Exception: self._failed})

    async def _to_dashboard(self, request: Request) -> Response:
        if "text/html" in request.headers.get("Accept", ""):
            return RedirectResponse("/ui/", headers=_SECURITY)
        return await self._answer(request)

    async def _answer(self, request: Request) -> Response:
        try:
            body = await self._body(request)
            self._check_token(request)
            target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            status, document = self._api.answer(request.method, target, body)
        except RequestRefused as refused:
            return _json(refused.status, {"errors": [str(refused)]})
        if isinstance(document, str):
            return Response(document, status, _SECURITY, "text/plain; version=0.0.4; charset=utf-8")
        return _json(status, document)

    async def _body(self, request: Request) -> bytes:
        length = request.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in request.headers or not length.isdigit():
            raise RequestRefused(411, "a body needs its length: send Content-Length")
        if int(length) > REQUEST_BYTES_MAX:
            raise RequestRefused(413, f"a body may have {REQUEST_BYTES_MAX} bytes, not {length}")
        try:
            return await asyncio.wait_for(request.body(), self._timeout_s)
        except (TimeoutError, ClientDisconnect):
            raise RequestRefused(408, f"the body has not come within {self._timeout_s:g} s") from None

    def _check_token(self, request: Request) -> None:
        given = request.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode("utf-8", "replace"), self._authorization):
            what = "is wrong" if given else "is missing"
            log.info("%s %s was refused: its token %s", request.method, request.url.path, what)
            raise RequestRefused(
                401,
                f"the token {what}: send the header 'Authorization: Bearer <token>' with the token in "
                f"{self._where_token}, which only the user who started the job can read",
            )

    # ---- events --------------------------------------------------------------------------------------------------

    async def _events(self, request: Request) -> Response:
        """Send the job's summary each time that it changes, once a second at most, as server-sent events."""
        try:
            self._check_token(request)
            job = self._api.served(request.path_params["job"])
            if self._streams >= STREAMS_MAX:
                raise RequestRefused(503, f"{STREAMS_MAX} pages are open already: close one")
        except RequestRefused as refused:
            return _json(refused.status, {"errors": [str(refused)]})

        async def stream() -> AsyncIterator[bytes]:
            self._streams += 1
            try:
                before: object = None
                while True:
                    report = job.report
                    if report is not before:
                        before = report
                        yield b"data: " + encode(self._api.summary(job)) + b"\n\n"
                    else:
                        yield b": nothing has changed\n\n"  # finds out whether the reader is still there
                    await asyncio.sleep(1.0)
            finally:
                self._streams -= 1

        return StreamingResponse(stream(), 200, _SECURITY, "text/event-stream")

    # ---- errors --------------------------------------------------------------------------------------------------

    async def _refused(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return _json(error.status_code, {"errors": [f"{request.url.path}: {error.detail}"]})

    async def _failed(self, request: Request, error: Exception) -> Response:
        log.error("an error of Penstock's own in the control server", exc_info=error)
        return _json(500, {"errors": [f"an error of Penstock's own: {type(error).__name__}: {error}"]})


def _json(status: int, document: Any) -> Response:
    headers = _SECURITY | ({"WWW-Authenticate": "Bearer"} if status == 401 else {})
    return Response(encode(document), status, headers, "application/json; charset=UTF-8")
