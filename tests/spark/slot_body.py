"""A slot that does nothing but answer: it runs in the real slot process, in place of the runtime's."""

from __future__ import annotations

import time

from penstock.protocol.values.messages import Cancel, Left, ReachedEndOfData
from penstock.runtime.process.context import set_current
from penstock.spark.slot_main import SlotProcess


class TinySlot:
    """Answers `Cancel` with `Left`, and prints as subtask 1 when a peer's frame arrives."""

    def __init__(self, *, slot, process, clock, master, links, **_others):
        self._slot, self._master, self._links = slot, master, links

    def on_message(self, message):
        if isinstance(message, Cancel):
            set_current(1)
            print(f"slot {self._slot} prints")
            set_current(None)
            self._master.send(Left(message.generation, self._slot))
        else:
            self._links.connect(message.peers, message.generation)

    def on_peers_connected(self, generation):
        self._master.send(ReachedEndOfData(generation, self._slot, (0, self._slot)))

    def on_frame(self, peer_slot, frame):
        pass

    def on_peer_lost(self, peer_slot, detail):
        pass

    def on_master_lost(self, detail):
        pass

    def close(self, done):
        done()


def main(arguments):
    SlotProcess(arguments, TinySlot).run()


def fails(arguments):
    raise ValueError(f"slot {arguments.slot} cannot start")


def slow_to_return(arguments):
    """As with imports that take long: longer than the 8 s after which a submission was once given up."""
    if arguments.submission > 1:
        time.sleep(9.5)
    main(arguments)
