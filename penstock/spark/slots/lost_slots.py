"""Describes a slot whose connection has ended: which process, where, and how it ended."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from penstock.protocol.values.messages import Register
from penstock.spark.process.process_ends import describe_end, oom_kills, take_exit_code
from penstock.spark.session import Substrate
from penstock.spark.slots.task_placement import task_places

log = logging.getLogger(__name__)

# The daemon learns of a process's end at the same moment as its connections do.
_RECORD_S_MAX = 0.1
_LOOK_S = 0.005


@dataclass(frozen=True)
class _Known:
    slot: int
    pid: int
    host: str


class LostSlots:
    """Describes lost processes. `on_registered` and `on_lost` are called in the I/O thread, and return at once.

    Args:
        tag: Returns the tag of a slot's newest Spark job, or None.
        report: Is given a process's id, the text, and whether the text says how the process ended.
    """

    def __init__(
        self, substrate: Substrate, tag: Callable[[int], str | None], report: Callable[[str, str, bool], None]
    ) -> None:
        self._substrate = substrate
        self._tag = tag
        self._report = report
        self._known: dict[str, _Known] = {}
        self._executors: dict[str, str] = {}
        self._oom_kills = oom_kills()

    def on_registered(self, process: str, register: Register) -> None:
        self._known[process] = _Known(register.slot, register.pid, register.host)
        tag = self._tag(register.slot)
        if not self._substrate.is_local and tag is not None and not register.hosted:
            threading.Thread(target=self._find_executor, args=(process, tag), daemon=True).start()

    def on_lost(self, process: str, detail: str) -> None:
        known = self._known.pop(process, None)
        if known is None:
            self._report(process, detail, False)
        elif self._substrate.records_ends:
            threading.Thread(target=self._await_end, args=(process, known, detail), daemon=True).start()
        else:
            self._report(process, *self._described(process, known, None, detail))

    def _await_end(self, process: str, known: _Known, detail: str) -> None:
        deadline = time.monotonic() + _RECORD_S_MAX
        while (code := take_exit_code(known.pid)) is None and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
        self._report(process, *self._described(process, known, code, detail))

    def _described(self, process: str, known: _Known, code: int | None, detail: str) -> tuple[str, bool]:
        executor = self._executors.pop(process, None)
        where = f"{known.host}, executor {executor}" if executor is not None else known.host
        now = oom_kills() if self._substrate.is_local else None
        killed = 0 if now is None or self._oom_kills is None else now - self._oom_kills
        if code is None and not killed:
            return f"{detail} (process {known.pid} on {where})", False
        return f"its process {known.pid} on {where} {describe_end(code, killed)}", True

    def _find_executor(self, process: str, tag: str) -> None:
        try:
            running = [place for place in task_places(self._substrate, tag) if place.status == "RUNNING"]
        except Exception as error:
            log.debug("Spark does not say where process %s runs: %s", process, error)
            return
        if running:
            self._executors[process] = running[-1].executor
