"""Asks a running job's driver over HTTP, for the command `penstock`."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import urlsplit

from penstock.rest.job_registry import RunningJob

ANSWER_TIMEOUT_S = 30.0


class DriverUnreachable(Exception):
    """Signals that a job's driver did not answer."""


class RequestFailed(Exception):
    """Signals that a job's driver refused a request. The message is the driver's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class RestClient:
    """Asks the driver of one job."""

    def __init__(self, job: RunningJob, *, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        self._job = job
        self._timeout_s = timeout_s

    def get(self, path: str = "") -> dict[str, Any]:
        return self._ask("GET", path, None)

    def post(self, path: str, **fields: Any) -> dict[str, Any]:
        return self._ask("POST", path, fields)

    def patch(self, path: str, **fields: Any) -> dict[str, Any]:
        return self._ask("PATCH", path, fields)

    def _ask(self, method: str, path: str, document: dict[str, Any] | None) -> dict[str, Any]:
        """Return the answer. Raises `DriverUnreachable` and `RequestFailed`."""
        job = self._job
        url = urlsplit(job.url)
        assert url.hostname is not None
        connection = http.client.HTTPConnection(url.hostname, url.port, timeout=self._timeout_s)
        try:
            body = None if document is None else json.dumps(document)
            headers = {"Authorization": f"Bearer {job.token}", "Content-Type": "application/json"}
            connection.request(method, f"/jobs/{job.job_id}{path}", body, headers)
            response = connection.getresponse()
            answer = json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise DriverUnreachable(
                f"the driver of job {job.job_id} ({job.job_name}; process {job.pid} on {job.host}) does not answer at "
                f"{job.url}: {error or type(error).__name__}"
            ) from error
        finally:
            connection.close()
        if response.status >= 400:
            errors = answer.get("errors") if isinstance(answer, dict) else None
            raise RequestFailed(response.status, "; ".join(errors or [f"HTTP status {response.status}"]))
        assert isinstance(answer, dict)
        return answer
