"""Tests a mailbox between real threads: nothing is lost, nobody sleeps through a ring, and order per sender stays."""

from __future__ import annotations

import sys
import threading
import time

import pytest

from penstock.runtime.process.mailbox import Mailbox

LIMIT_S = 20.0


def test_mail_comes_in_order_and_a_ring_wakes_without_mail() -> None:
    mailbox = Mailbox()
    assert not mailbox
    mailbox.post(1)
    mailbox.post(2)
    assert (mailbox.take(), mailbox.take(), bool(mailbox)) == (1, 2, False)
    with pytest.raises(IndexError):
        mailbox.take()
    mailbox.wait(None)  # what was posted has rung once
    mailbox.wake()
    mailbox.wake()
    mailbox.wait(None)
    started = time.monotonic()
    mailbox.wait(20.0)
    assert time.monotonic() - started >= 0.015, "one ring wakes once"


def test_waiting_with_mail_returns_at_once_and_a_limit_is_kept() -> None:
    mailbox = Mailbox()
    mailbox.post(1)
    mailbox.wait(None)
    mailbox.take()
    mailbox.wait(0.0)
    mailbox.wait(-5.0)


@pytest.mark.parametrize("timeout_ms", [1e12, 1e15, 1e300, float("inf")])
def test_a_limit_beyond_what_a_lock_can_wait_is_no_error(timeout_ms: float) -> None:
    """`execution.buffer-timeout.enabled: false` makes such limits."""
    mailbox = Mailbox()
    mailbox.wake()
    mailbox.wait(timeout_ms)


def test_no_mail_and_no_wake_up_is_lost_between_threads() -> None:
    """Four senders and one owner that waits without limit, while threads take turns every microsecond."""
    mailbox = Mailbox()
    senders, each = 4, 3_000
    received: list[tuple[int, int]] = []

    def send(sender: int) -> None:
        for nth in range(each):
            mailbox.post((sender, nth))

    def own() -> None:
        while len(received) < senders * each:
            if mailbox:
                received.append(mailbox.take())
            else:
                mailbox.wait(None)

    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        owner = threading.Thread(target=own, daemon=True)
        threads = [threading.Thread(target=send, args=(i,), daemon=True) for i in range(senders)]
        for thread in [owner, *threads]:
            thread.start()
        for thread in [*threads, owner]:
            thread.join(LIMIT_S)
            assert not thread.is_alive(), "the owner sleeps although there is mail"
    finally:
        sys.setswitchinterval(interval_s)
    for sender in range(senders):
        assert [nth for by, nth in received if by == sender] == list(range(each))


def test_every_single_post_wakes_a_waiting_owner() -> None:
    """Ping-pong: each side waits without limit for the other, so one lost wake-up ends it."""
    there, back = Mailbox(), Mailbox()
    rounds = 3_000

    def echo() -> None:
        for _ in range(rounds):
            while not there:
                there.wait(None)
            back.post(there.take())

    thread = threading.Thread(target=echo, daemon=True)
    thread.start()
    deadline = time.monotonic() + LIMIT_S
    for nth in range(rounds):
        there.post(nth)
        while not back:
            assert time.monotonic() < deadline, f"no answer to {nth}"
            back.wait(1_000.0)
        assert back.take() == nth
    thread.join(LIMIT_S)
    assert not thread.is_alive()
