"""What the JobMaster needs of the world."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.runtime.job_master.console import Console
from penstock.runtime.job_master.identity import OpenStore
from penstock.runtime.ports import BlockingWork, Clock, SlotLinks, SlotSubmitter


@dataclass(frozen=True)
class MasterPorts:
    """`random` returns the next number in [0, 1). `open_store(directory, whether to create it)`. `host` and `pid` name
    this driver in its fence. `commit_work` is where sinks commit, so that one that hangs holds up neither the log nor a
    recovery; None: with the other work."""

    clock: Clock
    links: SlotLinks
    slots: SlotSubmitter
    work: BlockingWork
    open_store: OpenStore
    console: Console
    random: Callable[[], float]
    host: str = ""
    pid: int = 0
    commit_work: BlockingWork | None = None


class RefreshingWork:
    """What comes back from blocking work is an event, too: the report is renewed after it."""

    def __init__(self, work: BlockingWork, refresh: Callable[[], None]) -> None:
        self._work = work
        self._refresh = refresh

    def submit(self, name: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        def then(result: Any) -> None:
            done(result)
            self._refresh()

        self._work.submit(name, work, then)
