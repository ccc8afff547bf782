"""Connects a driver to its slots: in order each way, delayed, in some runs as bytes of the real codec."""

from __future__ import annotations

from typing import Any, Callable

from penstock.network.control_codec import MessageDecoder, MessageOutbox, downward_decoder, upward_decoder
from penstock.protocol.values.messages import Deploy, Message
from simulation.world.trace import about_message, restored_checkpoint
from simulation.world.world import Process, World, of_connections


class ControlLink:
    """Implements one slot process's connection to its driver: `penstock.runtime.process.slot_ports.MasterLink`."""

    def __init__(self, network: ControlNetwork, process: Process) -> None:
        self._network = network
        self.process = process
        self.is_open = True
        self._up_free_ms = 0.0
        self._down_free_ms = 0.0
        self._up_ends_ms: float | None = None
        self.on_message: Callable[[Message], None] = lambda message: None
        self.on_master_lost: Callable[[str], None] = lambda detail: None

    def send(self, message: Message) -> None:
        """Send to the driver."""
        network = self._network
        if not self.is_open or not self.process.is_alive:
            return
        network.on_sent(self.process.name, message)
        world = network.world
        self._up_free_ms = max(self._up_free_ms, world.now_ms + world.chance() * network.latency_ms)
        data = network.encoded(message)
        world.after(self._up_free_ms - world.now_ms, network.driver, self._arrive_up, data)

    def _arrive_up(self, data: Any) -> None:
        ends_ms = self._up_ends_ms
        if self.is_open and (ends_ms is None or self._network.world.now_ms < ends_ms):
            message = self._network.decoded(data, self._network.upward)
            world = self._network.world
            if world.trace is not None:
                told = f"<- {self.process.name}: {short(message)}"
                world.tell(self._network.driver.name, told, about_message(message))
            if world.observer is not None:
                world.observer("up", self, message)
            self._network.on_message(self.process.name, message)

    def send_down(self, message: Message) -> None:
        network, world = self._network, self._network.world
        network.on_told(message)
        self._down_free_ms = max(self._down_free_ms, world.now_ms + world.chance() * network.latency_ms)
        data = network.encoded(message)
        world.after(self._down_free_ms - world.now_ms, self.process, self._arrive_down, data)

    def hold_back(self, delay_ms: float) -> None:
        """Delay the driver's messages from now on; order is kept."""
        self._down_free_ms = max(self._down_free_ms, self._network.world.now_ms + delay_ms)

    @of_connections
    def _arrive_down(self, data: Any) -> None:
        if self.is_open:
            message = self._network.decoded(data, self._network.downward)
            if self._network.world.trace is not None:
                told = f"<- {self._network.driver.name}: {short(message)}"
                self._network.world.tell(self.process.name, told, about_message(message))
            if self._network.world.observer is not None:
                self._network.world.observer("down", self, message)
            self.on_message(message)

    def break_up(self, driver_hears: bool = True) -> None:
        """Break the slot's end: what is on the way arrives or does not."""
        world = self._network.world
        if self._up_ends_ms is None:
            grace_ms = world.random.choice((0.0, 0.5, 1.0, 3.0)) * self._network.latency_ms
            self._up_ends_ms = world.now_ms + grace_ms
            if driver_hears:
                world.after(grace_ms, self._network.driver, self._lose)

    def _lose(self) -> None:
        if self.is_open:
            self.is_open = False
            self._network.forget(self)
            self._network.on_lost(self.process.name, "the control connection ended")

    def close_down(self, delay_ms: float) -> None:
        """Close the driver's end."""
        self._network.world.after(delay_ms, self.process, self._end_at_slot)

    @of_connections
    def _end_at_slot(self) -> None:
        self.is_open = False
        self.on_master_lost("the driver closed the control connection")


class ControlNetwork:
    """Holds all control connections of one driver. Implements `penstock.jobmaster.ports.SlotLinks`.

    `on_message(process, message)` and `on_lost(process, detail)` are the driver's; `on_sent` gets the messages of slots
    as they send them, `on_told` those of the driver.
    """

    def __init__(self, world: World, driver: Process, latency_ms: float, as_bytes: bool) -> None:
        self.world = world
        self.driver = driver
        self.latency_ms = latency_ms
        self._as_bytes = as_bytes
        self.upward = upward_decoder()
        self.downward = downward_decoder()
        self._links: dict[str, ControlLink] = {}
        self.on_message: Callable[[str, Message], None]
        self.on_lost: Callable[[str, str], None]
        self.on_sent: Callable[[str, Message], None] = lambda process, message: None
        self.on_told: Callable[[Message], None] = lambda message: None

    def connect(self, process: Process) -> ControlLink:
        link = self._links[process.name] = ControlLink(self, process)
        return link

    def forget(self, link: ControlLink) -> None:
        self._links.pop(link.process.name, None)

    def send(self, process: str, message: Message) -> None:
        link = self._links.get(process)
        if link is not None:
            link.send_down(message)

    def close(self, process: str) -> None:
        """Close a link; what was sent before still arrives."""
        link = self._links.pop(process, None)
        if link is not None:
            link._up_ends_ms = self.world.now_ms
            link.close_down(max(0.0, link._down_free_ms - self.world.now_ms))

    def end(self, notice_ms: float) -> None:
        """End all links: the driver has ended, and its slots notice within that time."""
        for link in self._links.values():
            link.close_down(self.world.chance() * notice_ms)
        self._links.clear()

    # ---- as bytes -----------------------------------------------------------------------------------------------

    def encoded(self, message: Message) -> Any:
        if not self._as_bytes:
            return message
        outbox = MessageOutbox()
        outbox.put(message)
        return b"".join(outbox.gather())

    def decoded(self, data: Any, decoder: MessageDecoder) -> Message:
        if not self._as_bytes:
            sent: Message = data
            return sent
        (message,) = decoder.feed(memoryview(data))
        return message


def short(message: Message) -> str:
    """Return a message in one line."""
    fields = []
    for name in message.__struct_fields__:
        value = getattr(message, name)
        if name in ("restore", "restore_root"):
            continue
        if value is None or isinstance(value, (tuple, int, str)):
            text = ".".join(map(str, value)) if isinstance(value, tuple) else str(value)
            fields.append(text if len(text) < 60 else f"{text[:57]}...")
        elif name == "barrier":
            fields.append(str(value.checkpoint_id))
    if isinstance(message, Deploy):
        restored = restored_checkpoint(message)
        fields.append("from scratch" if restored is None else f"from checkpoint {restored}")
    return f"{type(message).__name__} {' '.join(fields)}"
