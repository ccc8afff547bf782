"""Connects slots: one connection per pair and generation, with the rules of `penstock.network.endpoint`.

Frames of one direction of a pair arrive in the order in which they left; directions and pairs know nothing of each
other. An urgent frame passes everything that has not left yet, but never an aligned barrier of its own channel. In
some runs frames cross as bytes, through the real queue and codec, in pieces of any size.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Callable, Protocol

from penstock.network.connection import Outbox
from penstock.network.frame_codec import FrameDecoder
from penstock.protocol.values.elements import Generation
from penstock.protocol.values.frames import (
    AlignedBarrier,
    CancelBarrier,
    CreditLimit,
    CreditWanted,
    Data,
    Event,
    Frame,
    UrgentBarrier,
)
from penstock.protocol.values.messages import Peer
from simulation.checkers.durations import Measured
from simulation.world.trace import EVERYONE, about_frame
from simulation.world.world import Process, World, of_connections

CONNECT_TIMEOUT_MS = 30_000.0


class FrameQueue:
    """Queues the messages of one connection, in the order of `penstock.network.connection.Outbox`."""

    def __init__(self) -> None:
        self._urgent: deque[Frame] = deque()
        self._ordered: deque[Frame] = deque()
        self._barriers: dict[Any, int] = {}
        self._behind: dict[int, list[Frame]] = {}

    def __bool__(self) -> bool:
        return bool(self._urgent or self._ordered)

    def put(self, frame: Frame) -> None:
        if not frame.urgent:
            if isinstance(frame, AlignedBarrier):
                self._barriers[frame.channel] = id(frame)
                self._behind[id(frame)] = []
            self._ordered.append(frame)
        elif frame.channel in self._barriers:
            self._behind[self._barriers[frame.channel]].append(frame)
        else:
            self._urgent.append(frame)

    def take(self) -> Frame:
        if self._urgent:
            return self._urgent.popleft()
        frame = self._ordered.popleft()
        if isinstance(frame, AlignedBarrier):
            if self._barriers[frame.channel] == id(frame):
                del self._barriers[frame.channel]
            self._urgent.extend(self._behind.pop(id(frame)))
        return frame


class _Pipe:
    """Carries one direction of a connection."""

    def __init__(self, world: World, latency_ms: float, as_bytes: bool, measured: Measured | None) -> None:
        self._world = world
        self._measured = measured
        self._put_ms: dict[int, float] = {}
        self.latency_ms = latency_ms
        self._frames = FrameQueue()
        self._outbox = Outbox() if as_bytes else None
        self._decoder = FrameDecoder()
        self._is_moving = False
        self.deliver: Callable[[Frame], None]
        self.receiver: Process
        self.frames_left_max: int | None = None
        """The number of frames that still arrive after the sender's end was lost; None while the connection stands."""
        self.lost: Callable[[], None]

    def put(self, frame: Frame) -> None:
        if self.frames_left_max is not None:
            return
        if self._measured is not None:
            self._put_ms[id(frame)] = self._world.now_ms
        if self._outbox is not None:
            self._outbox.put(frame)
        else:
            self._frames.put(frame)
        self._move()

    def _move(self) -> None:
        if not self._is_moving:
            self._is_moving = True
            self._world.after(self._world.chance() * self.latency_ms, self.receiver, self._arrive)

    def end(self) -> None:
        """End the sender: what is on the wire arrives or does not, then the receiver learns of the end."""
        if self.frames_left_max is None:
            self.frames_left_max = self._world.random.choice((0, 0, 1, 3, 1000))
            self._move()

    @of_connections
    def _arrive(self) -> None:
        self._is_moving = False
        frames = self._take()
        if self.frames_left_max is not None:
            frames = frames[: self.frames_left_max]
            self.frames_left_max -= len(frames)
            if not frames:
                self.lost()
                return
        for frame in frames:
            if self._measured is not None:
                put_ms = self._put_ms.pop(id(frame))
                self._measured.transit_ms = max(self._measured.transit_ms, self._world.now_ms - put_ms)
            self.deliver(frame)
        if self._outbox or self._frames or self.frames_left_max is not None:
            self._move()

    def _take(self) -> list[Frame]:
        if self._outbox is None:
            return [self._frames.take()] if self._frames else []
        frames: list[Frame] = []
        while self._outbox and not frames:
            data = b"".join(self._outbox.gather())
            sent = self._world.random.randint(1, len(data))
            self._outbox.advance(sent)
            frames = self._decoder.feed(memoryview(data)[:sent])
        return frames


class FrameListener(Protocol):
    """Declares the interface of a slot to connections."""

    def on_frame(self, peer: int, frame: Frame) -> None: ...
    def on_peers_connected(self, generation: Generation) -> None: ...
    def on_peer_lost(self, peer: int, detail: str) -> None: ...


class DataEndpoint:
    """Holds one process's connections. Implements `penstock.runtime.process.slot_ports.DataLinks`."""

    def __init__(self, network: DataNetwork, process: Process, slot: int) -> None:
        self._network = network
        self.process = process
        self.slot = slot
        self.listener: FrameListener
        self.on_sent: Callable[[Frame], None] = lambda frame: None
        self.generation: Generation | None = None
        self.wanted: dict[int, str] = {}
        self.links: dict[int, _Pipe] = {}
        self.incoming: dict[int, _Pipe] = {}
        self._is_announced = False
        self._peers: dict[int, DataEndpoint] = {}

    def connect(self, peers: list[Peer], generation: Generation) -> None:
        self._drop()
        self.generation = generation
        self.slot = next((p.slot for p in peers if p.process == self.process.name), self.slot)
        self.wanted = {p.slot: p.process for p in peers if p.slot != self.slot}
        self._is_announced = False
        world = self._network.world
        for slot, process in self.wanted.items():
            world.after(world.chance() * self._network.latency_ms, None, self._network.pair, self, slot, process)
        world.after(world.chance() * self._network.latency_ms, self.process, self.announce, generation)
        world.after(CONNECT_TIMEOUT_MS, self.process, self._check_connected, generation)

    def send(self, peer_slot: int, frame: Frame) -> None:
        self.on_sent(frame)
        link = self.links.get(peer_slot)
        if link is not None:
            link.put(frame)

    def disconnect(self) -> None:
        self._drop()
        self.generation = None
        self.wanted = {}

    def _drop(self) -> None:
        for pipe in self.links.values():
            pipe.end()
        self.links = {}
        self.incoming = {}

    def end(self) -> None:
        """End all connections: the process has been killed."""
        self._drop()
        self.generation = None

    # ---- from the network ---------------------------------------------------------------------------------------

    def attach(self, peer: int, outgoing: _Pipe, incoming: _Pipe) -> None:
        self.links[peer] = outgoing
        self.incoming[peer] = incoming
        incoming.receiver = self.process
        incoming.deliver = lambda frame: self._on_frame(peer, incoming, frame)
        incoming.lost = lambda: self._on_lost(peer, incoming)

    def _on_frame(self, peer: int, pipe: _Pipe, frame: Frame) -> None:
        if self.incoming.get(peer) is pipe:
            world = self._network.world
            if world.trace is not None:
                about = about_frame(frame, self._network.edges)
                world.tell(self.process.name, f"<- slot {peer}: {_short(frame)}", about)
            if world.observer is not None:
                world.observer("frame", self, frame)
            self.listener.on_frame(peer, frame)

    def _on_lost(self, peer: int, pipe: _Pipe) -> None:
        if self.incoming.get(peer) is not pipe:
            return
        del self.incoming[peer]
        self.links.pop(peer).end()
        self._network.world.tell(self.process.name, f"data connection to slot {peer} lost", EVERYONE)
        self.listener.on_peer_lost(peer, f"the data connection to slot {peer} ended")

    def announce(self, generation: Generation) -> None:
        if self.generation == generation and not self._is_announced and self.links.keys() == self.wanted.keys():
            self._is_announced = True
            self.listener.on_peers_connected(generation)

    def _check_connected(self, generation: Generation) -> None:
        if self.generation == generation and not self._is_announced:
            for slot in [s for s in self.wanted if s not in self.links]:
                del self.wanted[slot]
                self.listener.on_peer_lost(slot, f"no connection with slot {slot} after 30 s")

    def break_link(self, peer: int) -> None:
        """Break the connection to a peer: both ends lose it."""
        if peer in self.links:
            self.links[peer].end()
            self.incoming[peer].end()


class DataNetwork:
    """Holds all endpoints, by process. `bytes_share`: in how many of the connections frames cross as bytes."""

    def __init__(self, world: World, latency_ms: float, bytes_share: float) -> None:
        self.world = world
        self.latency_ms = latency_ms
        self._bytes_share = bytes_share
        self.edges: list[tuple[int, int]] = []
        """The edges of the graph that the newest driver runs: (source vertex, target vertex). For the trace."""
        self.measured: Measured | None = None
        """The measure of how long frames are on their way. None where they cross as bytes."""
        self._endpoints: dict[str, DataEndpoint] = {}

    def endpoint(self, process: Process, slot: int) -> DataEndpoint:
        endpoint = self._endpoints[process.name] = DataEndpoint(self, process, slot)
        return endpoint

    def pair(self, one: DataEndpoint, slot: int, process: str) -> None:
        """Connect two processes that both want it, in the same generation. The first to ask is dialled later."""
        other = self._endpoints.get(process)
        if (
            other is None
            or not (one.process.is_alive and other.process.is_alive)
            or one.generation is None
            or one.generation != other.generation
            or one.wanted.get(slot) != process
            or other.wanted.get(one.slot) != one.process.name
            or slot in one.links
        ):
            return
        pipes = [self._pipe(), self._pipe()]
        one.attach(slot, pipes[0], pipes[1])
        other.attach(one.slot, pipes[1], pipes[0])
        for end in (one, other):
            self.world.after(self.world.chance() * self.latency_ms, end.process, end.announce, one.generation)

    def _pipe(self) -> _Pipe:
        # Some pairs are far slower than others, so that what is sent over three of them may overtake.
        slowness = self.world.random.choice((0.05, 1.0, 1.0, 5.0))
        return _Pipe(self.world, self.latency_ms * slowness, self.world.chance() < self._bytes_share, self.measured)


def _short(frame: Frame) -> str:
    edge, producer, consumer = frame.channel
    match frame:
        case Data(_, first, rows):
            what = f"[{first}, {first + rows})"
        case Event(_, number, event):
            what = f"{number} {type(event).__name__}"
        case AlignedBarrier():
            what = f"{frame.barrier.checkpoint_id} at {frame.position}"
        case UrgentBarrier():
            what = f"{frame.barrier.checkpoint_id} emitted {frame.emitted} handed {frame.handed}"
        case CancelBarrier():
            what = f"{frame.checkpoint_id}"
        case CreditWanted():
            what = f"{frame.wanted_bytes}"
        case CreditLimit():
            what = f"{frame.limit_bytes}"
    return f"{type(frame).__name__} {edge}[{producer}->{consumer}] {what}"
