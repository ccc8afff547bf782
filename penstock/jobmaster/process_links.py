"""Remembers which processes have registered, to close each of their links once."""

from __future__ import annotations

from penstock.jobmaster.master_ports import SlotLinks


class ProcessLinks:
    """Knows the links of all processes that have registered, until they are lost or closed."""

    def __init__(self, links: SlotLinks) -> None:
        self._links = links
        self._registered: dict[str, None] = {}

    def registered(self, process: str) -> None:
        self._registered[process] = None

    def lost(self, process: str) -> None:
        self._registered.pop(process, None)

    def close(self, process: str) -> None:
        self._registered.pop(process, None)
        self._links.close(process)

    def close_all(self) -> None:
        for process in list(self._registered):
            self.close(process)
