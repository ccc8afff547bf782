"""Connects endpoints of slots over loopback: frames arrive in order, and no peer of another generation gets in."""

from __future__ import annotations

import logging
import queue
import socket
import threading

import pytest

from penstock.network.link import RECEIVE_BYTES
from penstock.protocol.values.elements import Barrier, ChannelId, Generation, Watermark
from penstock.protocol.values.frames import AlignedBarrier, CreditLimit, Data, Event
from penstock.protocol.values.messages import Peer
from tests.unit.network.conftest import MakeSlots, Slot

G1, G2 = Generation(1, 0), Generation(1, 1)
WAIT_S = 20.0


def connected(generation: Generation, *slots: Slot) -> None:
    peers = [slot.peer for slot in slots]
    for slot in slots:
        slot.endpoint.connect(peers, generation)
    for slot in slots:
        assert slot.next() == ("connected", generation)


def test_three_slots_connect_and_frames_arrive_in_order(slots: MakeSlots) -> None:
    three = slots(0, 1, 2)
    connected(G1, *three)
    for sender in three:
        for receiver in three:
            if sender is not receiver:
                channel = ChannelId(0, sender.slot, receiver.slot)
                for number in range(50):
                    sender.endpoint.send(receiver.slot, Event(channel, number, Watermark(number)))
    for receiver in three:
        came: dict[int, list[int]] = {}
        for _ in range(100):
            kind, peer, frame = receiver.next()
            assert kind == "frame"
            came.setdefault(peer, []).append(frame.number)
        assert came == {s.slot: list(range(50)) for s in three if s is not receiver}


def test_a_slot_alone_is_connected_at_once(slots: MakeSlots) -> None:
    (only,) = slots(0)
    only.endpoint.connect([only.peer], G1)
    assert only.next() == ("connected", G1)


def test_more_than_the_socket_takes_arrives_whole(slots: MakeSlots) -> None:
    zero, one = slots(0, 1)
    connected(G1, zero, one)
    channel = ChannelId(0, 0, 1)
    payloads = [bytes([i]) * (RECEIVE_BYTES * 3 + i) for i in range(60)]
    for i, payload in enumerate(payloads):
        zero.endpoint.send(1, Data(channel, i, 1, len(payload), payload))
    for i, payload in enumerate(payloads):
        _, _, frame = one.next()
        assert frame.first == i
        assert frame.payload == payload


def test_threads_that_send_at_once_keep_each_channels_order(slots: MakeSlots) -> None:
    zero, one = slots(0, 1)
    connected(G1, zero, one)
    count = 400

    def send(edge: int) -> None:
        for number in range(count):
            frame = Data(ChannelId(edge, 0, 1), number, 1, 1, bytes(5000)) if number % 3 else None
            zero.endpoint.send(1, frame or AlignedBarrier(ChannelId(edge, 0, 1), number, Barrier(number, None)))

    threads = [threading.Thread(target=send, args=(edge,)) for edge in range(4)]
    for thread in threads:
        thread.start()
    came: dict[int, list[int]] = {edge: [] for edge in range(4)}
    for _ in range(4 * count):
        _, _, frame = one.next()
        came[frame.channel.edge].append(frame.position if isinstance(frame, AlignedBarrier) else frame.first)
    for thread in threads:
        thread.join()
    assert came == {edge: list(range(count)) for edge in range(4)}


def test_the_dialler_waits_for_a_slot_that_is_in_the_older_generation(slots: MakeSlots) -> None:
    zero, one = slots(0, 1)
    connected(G1, zero, one)
    one.endpoint.connect([zero.peer, one.peer], G2)
    assert zero.next()[:2] == ("lost", 1)
    with pytest.raises(queue.Empty):
        one.events.get(timeout=0.2)
    zero.endpoint.connect([zero.peer, one.peer], G2)
    assert one.next() == ("connected", G2)
    assert zero.next() == ("connected", G2)


def test_a_peer_of_an_older_generation_is_refused(slots: MakeSlots) -> None:
    zero, one = slots(0, 1, connect_timeout_s=0.5)
    zero.endpoint.connect([zero.peer, one.peer], G2)
    one.endpoint.connect([zero.peer, one.peer], G1)
    kind, peer, detail = one.next()
    assert (kind, peer) == ("lost", 0)
    assert "generation 1.0 is over, this slot is in 1.1" in detail


def test_another_process_than_the_driver_named_is_refused(slots: MakeSlots) -> None:
    zero, one = slots(0, 1, connect_timeout_s=0.5)
    named = Peer(1, "127.0.0.1", one.endpoint.port, "process-before")
    zero.endpoint.connect([zero.peer, named], G1)
    one.endpoint.connect([zero.peer, one.peer], G1)
    kind, peer, detail = one.next()
    assert (kind, peer) == ("lost", 0)
    assert "process process-1 is not slot 1 of generation 1.0" in detail


def test_a_slot_that_never_dials_is_reported(slots: MakeSlots) -> None:
    zero, one = slots(0, 1, connect_timeout_s=0.3)
    zero.endpoint.connect([zero.peer, one.peer], G1)
    kind, peer, detail = zero.next()
    assert (kind, peer) == ("lost", 1)
    assert "after 0 s: it did not dial" in detail


def test_a_slot_that_goes_away_is_lost_to_its_peers(slots: MakeSlots) -> None:
    zero, one = slots(0, 1)
    connected(G1, zero, one)
    one.endpoint.close()
    kind, peer, detail = zero.next()
    assert (kind, peer) == ("lost", 1)
    assert "ended" in detail
    zero.endpoint.send(1, CreditLimit(ChannelId(0, 1, 0), 5))


def test_after_disconnect_nothing_is_delivered(slots: MakeSlots) -> None:
    zero, one = slots(0, 1)
    connected(G1, zero, one)
    channel = ChannelId(0, 0, 1)
    stop = threading.Event()

    def flood() -> None:
        number = 0
        while not stop.is_set():
            zero.endpoint.send(1, Data(channel, number, 1, 1, bytes(100)))
            number += 1

    thread = threading.Thread(target=flood)
    thread.start()
    while one.events.qsize() < 100:
        one.next()
    one.endpoint.disconnect()
    delivered = one.events.qsize()
    stop.set()
    thread.join()
    assert zero.next()[:2] == ("lost", 1)
    assert one.events.qsize() == delivered


def test_a_wrong_secret_is_refused_with_one_warning_on_each_side(
    slots: MakeSlots, caplog: pytest.LogCaptureFixture
) -> None:
    (zero,) = slots(0)
    (one,) = slots(1, secret=b"another secret", connect_timeout_s=0.3)
    zero.endpoint.connect([zero.peer, one.peer], G1)
    with caplog.at_level(logging.WARNING):
        one.endpoint.connect([zero.peer, one.peer], G1)
        kind, peer, detail = one.next()
    assert (kind, peer) == ("lost", 0)
    assert "does not know this job's secret" in detail
    assert any("127.0.0.1" in r.getMessage() and "secret" in r.getMessage() for r in caplog.records)


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\n\r\n", b"PNSK\x07" + bytes(40), bytes(2000)])
def test_garbage_is_closed_with_a_warning_that_names_the_address(
    slots: MakeSlots, caplog: pytest.LogCaptureFixture, garbage: bytes
) -> None:
    zero, one = slots(0, 1)
    connected(G1, zero, one)
    with caplog.at_level(logging.WARNING), socket.create_connection(("127.0.0.1", zero.endpoint.port)) as stranger:
        stranger.settimeout(WAIT_S)
        stranger.sendall(garbage)
        try:
            assert stranger.recv(10) == b""
        except ConnectionResetError:
            pass
        address = "{}:{}".format(*stranger.getsockname())
    assert [address in r.getMessage() for r in caplog.records] == [True]
    zero.endpoint.send(1, CreditLimit(ChannelId(0, 1, 0), 5))
    assert one.next()[0] == "frame"


def test_garbage_behind_a_good_handshake_ends_only_that_connection(
    slots: MakeSlots, caplog: pytest.LogCaptureFixture
) -> None:
    zero, one, two = slots(0, 1, 2)
    connected(G1, zero, one, two)
    link = one.endpoint._links[0]
    with caplog.at_level(logging.WARNING):
        link._sock.send(b"garbage" * 20)
        kind, peer, detail = zero.next()
    assert (kind, peer) == ("lost", 1)
    assert "where a frame should start" in detail
    two.endpoint.send(0, CreditLimit(ChannelId(0, 0, 2), 9))
    assert zero.next() == ("frame", 2, CreditLimit(ChannelId(0, 0, 2), 9))
