"""Makes calls of a library that hangs: they end at their limit, and hold up no others."""

from __future__ import annotations

import threading
import time

import pytest

from penstock.storage import limited_calls
from penstock.storage.limited_calls import HANGING_MAX, LimitedCalls


def test_results_and_errors_are_those_of_the_call_and_a_thread_is_used_again() -> None:
    calls = LimitedCalls(10.0)
    names = {calls.call(lambda: threading.get_ident()) for _ in range(20)}
    assert len(names) == 1 and threading.get_ident() not in names

    def fail() -> None:
        raise TimeoutError("of the library")

    with pytest.raises(TimeoutError, match="of the library"):
        calls.call(fail)
    assert {calls.call(lambda: threading.get_ident())} == names


def test_a_call_that_hangs_is_left_and_others_are_not_held_up() -> None:
    calls, release = LimitedCalls(0.05), threading.Event()
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"no answer within 0\.05 s"):
        calls.call(lambda: release.wait(30))
    assert time.monotonic() - began < 10
    assert calls.call(lambda: 7) == 7
    release.set()


def test_not_more_than_so_many_calls_hang() -> None:
    calls, release = LimitedCalls(0.001), threading.Event()
    for _ in range(HANGING_MAX):
        with pytest.raises(TimeoutError, match="no answer within"):
            calls.call(lambda: release.wait(30))
    with pytest.raises(TimeoutError, match=f"{HANGING_MAX} earlier requests still have no answer"):
        calls.call(lambda: 7)
    release.set()
    deadline = time.monotonic() + 10
    while calls._hanging:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert calls._idle, "their threads are used again"


def test_an_idle_thread_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limited_calls, "_IDLE_S", 0.01)
    calls = LimitedCalls(10.0)
    (thread,) = {calls.call(threading.current_thread)}
    thread.join(10)
    assert not thread.is_alive()
    assert calls.call(lambda: 7) == 7
