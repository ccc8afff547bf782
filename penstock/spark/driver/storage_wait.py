"""Waits for a checkpoint storage that is slow or away, before a job is started or resumed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from penstock.storage.store import StoreAway

T = TypeVar("T")

SLOW_S = 5.0
"""The time without an answer after which a line says what the start waits for."""
_PAUSE_S = (1.0, 30.0)
_TOLD_EVERY_S = 60.0


def look_at_storage(look: Callable[[], T], tell: Callable[[str], None], limit_s: float) -> T:
    """Return the result of `look`. While the storage is away, `look` is repeated for `limit_s` (0: not at all).

    An outage is no answer: neither is the job's log damaged, nor is there none. Raises what `look` raises; `StoreAway`
    only when the limit is over.
    """
    began, pause_s, told_s = time.monotonic(), _PAUSE_S[0], -_TOLD_EVERY_S
    while True:
        slow = threading.Timer(SLOW_S, tell, ["waiting for the checkpoint storage, which is slow to answer"])
        slow.daemon = True
        slow.start()
        try:
            return look()
        except StoreAway as error:
            passed_s = time.monotonic() - began
            if passed_s + pause_s > limit_s:
                raise
            if passed_s - told_s >= _TOLD_EVERY_S:
                told_s = passed_s
                tell(f"the checkpoint storage is away: {error}. Trying again for {limit_s - passed_s:,.0f} s")
        finally:
            slow.cancel()
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _PAUSE_S[1])
