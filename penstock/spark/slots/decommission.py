"""Treats executors that Spark is about to give up (`spark.decommission.enabled`) as a planned loss.

Such an executor takes no new task and waits for its running ones, which slots never end. So as soon as Spark reports
that an executor is being decommissioned, its slots are submitted again elsewhere, and keep running until the new
process has registered. If there is no place for one, another slot's process plays the slot, too. Then the job restarts
from its newest checkpoint, which the restart strategy does not count. Spark is asked once a second.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from penstock.spark.session import Substrate
from penstock.spark.slots.spark_slots import SparkSlots
from penstock.spark.slots.task_placement import task_places

log = logging.getLogger(__name__)

_LOOK_S = 1.0
# A process of its own is better than a share of another's, and takes about as long to start.
_PLACE_WAIT_S = 3.0


class DecommissionWatch:
    """Watches for decommissioned executors. `share(slot, submission)` has the slot played in another's process, if
    there is one; it is called again until another process has taken over.
    """

    def __init__(self, substrate: Substrate, slots: SparkSlots, share: Callable[[int, int], None]) -> None:
        self._substrate = substrate
        self._slots = slots
        self._share = share
        self._relieved_at_s: dict[int, float] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="penstock-decommission", daemon=True)

    def start(self) -> None:
        """Start watching; does nothing for a session that decommissions no executors."""
        setting = self._substrate.context.getConf().get("spark.decommission.enabled")
        if (setting or "false").lower() == "true" and not self._substrate.master.startswith("local["):
            self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def _watch(self) -> None:
        while not self._stopped.wait(_LOOK_S):
            try:
                self._look()
            except Exception as error:  # the session may be ending
                log.debug("Spark does not tell of decommissioned executors: %s", error)

    def _look(self) -> None:
        now_s = time.monotonic()
        for slot, relieved_s in list(self._relieved_at_s.items()):
            if not self._slots.waits_for_relief(slot):
                del self._relieved_at_s[slot]
            elif now_s - relieved_s >= _PLACE_WAIT_S:
                self._relieved_at_s[slot] = now_s
                self._share(slot, self._slots.shared_submission(slot))
        scheduler = self._substrate.context._jsc.sc().taskScheduler()
        if not scheduler.executorsPendingDecommission().size():
            return
        for slot, tag in self._slots.tags().items():
            running = [place.executor for place in task_places(self._substrate, tag) if place.status == "RUNNING"]
            if any(scheduler.isExecutorDecommissioned(executor) for executor in running):
                log.info("the executor of slot %d is being decommissioned", slot)
                self._slots.relieve(slot)
                self._relieved_at_s[slot] = now_s
