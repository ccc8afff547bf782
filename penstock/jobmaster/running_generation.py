"""Holds what there is of the generation that runs: its sources, what is drained, and a way to all of its slots."""

from __future__ import annotations

from penstock.jobmaster.drain import JobDrain
from penstock.jobmaster.master_ports import SlotLinks
from penstock.jobmaster.sources import SplitDistribution
from penstock.protocol.driver.slots import SlotRoster
from penstock.protocol.values.elements import Generation
from penstock.protocol.values.messages import Message


class RunningGeneration:
    """Holds what `Generations` has started, for all parts that need to know. `id`: None between two generations."""

    def __init__(self, roster: SlotRoster, links: SlotLinks) -> None:
        self._roster = roster
        self._links = links
        self.id: Generation | None = None
        self.sources: SplitDistribution | None = None
        self.drain: JobDrain | None = None

    @property
    def is_draining(self) -> bool:
        return self.drain is not None and not self.drain.is_over

    @property
    def is_drained(self) -> bool:
        """Return whether nothing is left to read of what was recovered."""
        return self.drain is None or self.drain.is_drained

    def broadcast(self, message: Message) -> None:
        """Send to the process of every slot."""
        for member in self._roster.members():
            self._links.send(member.process, message)
