"""Watches whether Spark itself has ended: its Java process is gone, or the SparkContext was stopped.

Nobody submits slots then, and none of a driver's waits would ever be over. A Java that is only slow, or stopped for a
moment, is waited for.
"""

from __future__ import annotations

import logging
import socket
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pyspark import SparkContext

from penstock.spark.process.process_ends import describe_end, oom_kills

log = logging.getLogger(__name__)

_LOOK_S = 0.5
_CONNECT_S = 2.0
_ENDING_S = 10.0
"""A process that listens no more is gone by then."""
_WAY_OUT = "Start the program again; a job with checkpoints is resumed from its newest one"


def why_gone(context: SparkContext, oom_killed: int = 0) -> str | None:
    """Return why Spark cannot run anything any more; None if it can, as far as it is known. `oom_killed`: how many
    processes the kernel has ended for want of memory since the job started.
    """
    gateway: Any = context._gateway
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if process is not None and (code := process.poll()) is not None:
        return f"Spark's own process {process.pid} {describe_end(code, oom_killed)}. {_WAY_OUT}"
    if (java := context._jsc) is None:
        return _stopped()
    try:
        return _stopped() if java.sc().isStopped() else None
    except Exception as error:
        if process is not None and not _listens(gateway):
            # It is ending, and its memory is taken back first: on a busy machine for a while.
            with suppress(subprocess.TimeoutExpired):
                code = process.wait(_ENDING_S)
                return f"Spark's own process {process.pid} {describe_end(code, oom_killed)}. {_WAY_OUT}"
        if process is None and gateway is not None and not _listens(gateway):
            return f"Spark's own process does not run any more ({error}). {_WAY_OUT}"
        # A context that is stopped in this moment, or a process that ends; the next look tells which.
        log.debug("Spark does not tell whether it runs: %s", error)
        return None


def _stopped() -> str:
    return (
        "the SparkContext was stopped while the job ran: by this program (spark.stop()), or by whoever manages the "
        f"cluster. {_WAY_OUT}"
    )


def _listens(gateway: Any) -> bool:
    parameters = getattr(gateway, "java_parameters", None) or gateway.gateway_parameters
    with suppress(ConnectionRefusedError):
        try:
            socket.create_connection((parameters.address, parameters.port), _CONNECT_S).close()
        except TimeoutError:
            pass  # it is slow
        return True
    return False


def _is_no_news(record: logging.LogRecord) -> bool:
    """Leave out that a call to Java failed, with its stack: whoever made the call handles the error."""
    return not (record.msg == "Exception while sending command." and "py4j" in record.pathname)


class SparkWatch:
    """Looks twice a second whether Spark is there. `gone(why)` is called once, from a thread of its own."""

    def __init__(self, context: SparkContext, gone: Callable[[str], None]) -> None:
        self._context = context
        self._gone = gone
        self._oom_kills = oom_kills() or 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="penstock-spark", daemon=True)

    def start(self) -> None:
        logging.getLogger().addFilter(_is_no_news)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def _watch(self) -> None:
        while not self._stopped.wait(_LOOK_S):
            why = why_gone(self._context, (oom_kills() or 0) - self._oom_kills)
            if why is not None and not self._stopped.is_set():
                self._gone(why)
                return
