"""Defines a slot that does nothing but answer: it runs in the real slot process, in place of the runtime's."""

from __future__ import annotations

import time
from collections.abc import Callable

from penstock.protocol.values.elements import Generation, SubtaskId
from penstock.protocol.values.frames import Frame
from penstock.protocol.values.messages import Cancel, Deploy, Left, Message, ReachedEndOfData
from penstock.runtime.process.context import set_current
from penstock.runtime.process.slot_ports import DataLinks, MasterLink
from penstock.spark.process.slot_main import SlotProcess
from penstock.spark.process.slot_task import SlotArguments


class TinySlot:
    """Answers `Cancel` with `Left`, and prints as subtask 1 when a peer's frame arrives."""

    def __init__(self, *, slot: int, master: MasterLink, links: DataLinks, **_others: object) -> None:
        self._slot, self._master, self._links = slot, master, links

    def on_message(self, message: Message) -> None:
        if isinstance(message, Cancel):
            set_current(1)
            print(f"slot {self._slot} prints")
            set_current(None)
            self._master.send(Left(message.generation, self._slot))
        else:
            assert isinstance(message, Deploy)
            self._links.connect(message.peers, message.generation)

    def on_peers_connected(self, generation: Generation) -> None:
        self._master.send(ReachedEndOfData(generation, self._slot, SubtaskId(0, self._slot)))

    def on_frame(self, peer_slot: int, frame: Frame) -> None:
        pass

    def on_peer_lost(self, peer_slot: int, detail: str) -> None:
        pass

    def on_master_lost(self, detail: str) -> None:
        pass

    def close(self, done: Callable[[], None]) -> None:
        done()


def main(arguments: SlotArguments) -> None:
    SlotProcess(arguments, TinySlot).run()


def fails(arguments: SlotArguments) -> None:
    raise ValueError(f"slot {arguments.slot} cannot start")


def slow_to_return(arguments: SlotArguments) -> None:
    """Return late, as with imports that take long: longer than the 8 s after which a submission was once given up."""
    if arguments.submission > 1:
        time.sleep(9.5)
    main(arguments)
