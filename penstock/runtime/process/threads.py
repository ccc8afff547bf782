"""Runs a slot with real threads: one per runner, and one that sends its heartbeat."""

from __future__ import annotations

import os
import resource
import secrets
import sys
import threading
import time
from typing import Callable

from penstock.common.clock import Clock
from penstock.runtime.process.slot import Slot
from penstock.runtime.process.slot_ports import DataLinks, MasterLink, Runner
from penstock.storage.opening import open_store
from penstock.storage.store_settings import StoreSettings


class ThreadScheduler:
    """Implements `penstock.runtime.process.slot_ports.StepScheduler`."""

    def __init__(self) -> None:
        self._threads: dict[int, threading.Thread] = {}

    def start(self, runner: Runner) -> None:
        thread = threading.Thread(target=self._run, args=(runner,), name=runner.name, daemon=True)
        self._threads[id(runner)] = thread
        thread.start()

    def run_apart(self, work: Callable[[], None]) -> None:
        threading.Thread(target=work, name="segment upload", daemon=True).start()

    @staticmethod
    def _run(runner: Runner) -> None:
        while not runner.done:
            wait_ms = runner.step()
            if wait_ms != 0:
                runner.wait(wait_ms)

    def when_done(self, runners: list[Runner], timeout_ms: float, done: Callable[[], None]) -> None:
        threads = {id(r): self._threads[id(r)] for r in runners if id(r) in self._threads}

        def join() -> None:
            deadline = time.monotonic() + timeout_ms / 1000
            for key, thread in threads.items():
                thread.join(max(0.0, deadline - time.monotonic()))
                if thread.is_alive():
                    print(
                        f"penstock: '{thread.name}' did not return within task.cancellation.timeout "
                        f"({timeout_ms / 1000:.0f} s); ending the process",
                        file=sys.__stderr__,
                        flush=True,
                    )
                    os._exit(70)
                if self._threads.get(key) is thread:  # another call may wait for it, too
                    del self._threads[key]
            done()

        threading.Thread(target=join, name="letting go", daemon=True).start()


def resident_bytes() -> int:
    """Return the resident memory of this process, now (Linux), or at its highest (elsewhere)."""
    try:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def start_slot(
    slot: int, process: str, clock: Clock, master: MasterLink, links: DataLinks, heartbeat_interval_ms: float
) -> Slot:
    """Start a slot whose runners have threads, whose stores are those that URIs name, and that sends heartbeats."""
    made = Slot(
        slot,
        clock,
        master,
        links,
        ThreadScheduler(),
        open_store=lambda root, configuration: open_store(root, StoreSettings.of(configuration)),
        new_random=lambda: secrets.token_hex(6),
    )

    def beat() -> None:
        while True:
            time.sleep(heartbeat_interval_ms / 1000)
            master.send(made.status(resident_bytes()))

    threading.Thread(target=beat, name="heartbeat", daemon=True).start()
    return made
