"""Tests who computes: one at a time, as long as that costs nobody more than a moment."""

from __future__ import annotations

import threading
import time

import pytest

from penstock.runtime.process import compute_lock
from penstock.runtime.process.compute_lock import ComputeLock

LIMIT_S = 10.0


def test_one_thread_has_the_turn_and_the_next_one_gets_it() -> None:
    turn = ComputeLock()
    order: list[str] = []
    inside, leave = threading.Event(), threading.Event()

    def first() -> None:
        with turn.held() as alone:
            assert alone
            inside.set()
            leave.wait(LIMIT_S)
            order.append("first")

    def second() -> None:
        with turn.held():
            order.append("second")

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    assert inside.wait(LIMIT_S)
    threads[1].start()
    leave.set()
    for thread in threads:
        thread.join(LIMIT_S)
    assert order == ["first", "second"]


def test_who_blocks_with_the_turn_holds_up_its_neighbours_for_a_moment_only() -> None:
    turn = ComputeLock()
    slices = 1000
    with turn.held():
        started = time.monotonic()
        alone = []

        def neighbour() -> None:
            for _ in range(slices):
                with turn.held() as got:
                    alone.append(got)

        thread = threading.Thread(target=neighbour)
        thread.start()
        thread.join(LIMIT_S)
        assert alone == [False] * slices
        # 20 ms, then half as long with each slice: not 20 ms each.
        assert time.monotonic() - started < slices * 0.020 / 2
    with turn.held() as got:
        assert got


def test_an_error_gives_the_turn_back() -> None:
    turn = ComputeLock()
    try:
        with turn.held():
            raise ValueError
    except ValueError:
        pass
    with turn.held() as alone:
        assert alone


@pytest.mark.parametrize("is_held_up", [True, False])
def test_a_holder_without_a_processor_is_waited_for_beyond_the_patience(
    is_held_up: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waits on: on a busy machine a holder is off its processor for longer than anybody's patience."""
    queued_ns = [0]

    def queued(thread: int) -> int:
        queued_ns[0] += 20_000_000 if is_held_up else 0
        return queued_ns[0]

    monkeypatch.setattr(compute_lock, "_queued_ns", queued)
    turn, got = ComputeLock(), []

    def neighbour() -> None:
        with turn.held() as alone:
            got.append(alone)

    with turn.held():
        thread = threading.Thread(target=neighbour)
        thread.start()
        # More than the patience of 20 ms, less than the limit of 200 ms.
        thread.join(0.08)
        assert bool(got) is not is_held_up
    thread.join(LIMIT_S)
    assert got == [is_held_up]


def test_what_a_thread_has_waited_for_a_processor_is_never_less_than_before() -> None:
    own = threading.get_native_id()
    assert 0 <= compute_lock._queued_ns(own) <= compute_lock._queued_ns(own)
    assert compute_lock._queued_ns(0) == 0
