"""Runs the shop, a Kafka broker and the job that writes invoices under a supervisor, and kills what it is told to."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from examples.orders.shop import PARTITIONS, Auditor, Invoice, Shop, make_topics
from examples.orders.supervisor import Supervisor
from tools.kafka_broker import KafkaBroker

JOB = Path(__file__).resolve().parent / "job.py"
RECOVERED = 20
"""So many new invoices show that the job has recovered."""
RECOVERY_LIMIT_S = 120.0
END_LIMIT_S = 400.0


class RunFailed(Exception):
    """Says what did not happen in time, and where the job's output is."""


class Run:
    """Use it as a context manager. `say` gets a line for whatever happens."""

    def __init__(self, shop: Shop, directory: Path, say: Callable[[str], None], seed: int = 0) -> None:
        self._shop = shop
        self._say = say
        self._chance = random.Random(seed)
        self._hurry = threading.Event()
        self.log = directory / "job.log"
        directory.mkdir(parents=True, exist_ok=True)
        self.broker = KafkaBroker(directory / "kafka")
        self._checkpoints = directory / "checkpoints"

    def __enter__(self) -> Run:
        self.broker.start()
        make_topics(self.broker.bootstrap_servers)
        self.auditor = Auditor(self.broker.bootstrap_servers)
        self._selling = threading.Thread(
            target=self._shop.open, args=(self.broker.bootstrap_servers, self._hurry), daemon=True
        )
        self._selling.start()
        run = [sys.executable, "-m", "penstock.cli.main", "run", "--ha", "-p", "2"]
        options = {"execution.checkpointing.dir": str(self._checkpoints), "restart-strategy.type": "exponential-delay"}
        defined = [part for key, value in options.items() for part in ("-D", f"{key}={value}")]
        end = ["--end", str(self._shop.orders // PARTITIONS)]
        command = [*run, *defined, str(JOB), self.broker.bootstrap_servers, *end]
        self.supervisor = Supervisor(command, self.log, self._say)
        self.supervisor.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._hurry.set()
        self.supervisor.stop()
        self.auditor.close()
        self.broker.stop()

    # ---- kills --------------------------------------------------------------------------------------------------

    def kill(self, victim: str) -> bool:
        """Kill a `slot`, the `driver` or the `broker` by SIGKILL; return False if there is none at the moment."""
        pid = self.supervisor.pid
        if victim == "broker":
            self.broker.kill()
            self.broker.start()
            return True
        slots = [] if pid is None else slots_of(pid)
        killed = pid if victim == "driver" else self._chance.choice(slots) if slots else None
        if killed is None:
            return False
        os.kill(killed, signal.SIGKILL)
        return True

    def await_invoices(self, more: int = RECOVERED) -> bool:
        """Wait until so many more invoices can be seen than could be now; return False if the job has finished."""
        while self.auditor.read(0.05):
            pass
        wanted, deadline = self.auditor.number + more, time.monotonic() + RECOVERY_LIMIT_S
        while self.auditor.number < wanted:
            if self.supervisor.has_finished:
                return False
            if time.monotonic() > deadline:
                raise RunFailed(f"no new invoices for {RECOVERY_LIMIT_S:.0f} s; the job's output is in {self.log}")
            self.auditor.read(0.1)
        return True

    # ---- the end ------------------------------------------------------------------------------------------------

    def finish(self) -> tuple[Counter[Invoice], Counter[Invoice]]:
        """Let the shop send the rest at once, wait until the job has finished; return what is lost, and what is
        doubled or wrong."""
        self._hurry.set()
        self._selling.join(END_LIMIT_S)
        if not self.supervisor.wait(END_LIMIT_S):
            raise RunFailed(f"the job has not finished within {END_LIMIT_S:.0f} s; its output is in {self.log}")
        self.auditor.start_again()
        self.auditor.read_to_the_end()
        expected = self._shop.expected()
        return expected - self.auditor.seen, self.auditor.seen - expected


def slots_of(driver: int) -> list[int]:
    """Return the processes that play the slots of a driver: Spark's Java starts a Python daemon, which forks them."""
    children: dict[int, list[int]] = {}
    names: dict[int, str] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            before, _, after = stat.read_text().rpartition(")")
        except OSError:  # it has ended
            continue
        pid = int(stat.parent.name)
        names[pid] = before.partition("(")[2]
        children.setdefault(int(after.split()[1]), []).append(pid)

    def below(pid: int) -> list[int]:
        return children.get(pid, [])

    java = [pid for pid in below(driver) if names[pid] == "java"]
    daemons = [pid for parent in java for pid in below(parent) if names[pid].startswith("python")]
    return sorted(pid for daemon in daemons for pid in below(daemon))
