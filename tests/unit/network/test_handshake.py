"""Plays the handshake without sockets: neither end says anything to one that cannot prove the job's secret."""

from __future__ import annotations

import pytest

from penstock.network.handshake import (
    LATER,
    REFUSED,
    WELCOME,
    DiallerHandshake,
    HandshakeError,
    Identity,
    ListenerHandshake,
    NotYet,
)
from penstock.protocol.values.elements import Generation

DIALLER = Identity("job", 2, "p2", Generation(3, 4))
LISTENER = Identity("job", 0, "p0")
NONCES = bytes(range(32)), bytes(range(32, 64))


def shake(
    verdict: tuple[int, str] = (WELCOME, ""),
    secrets: tuple[bytes, bytes] = (b"s", b"s"),
    step: int = 1000,
    dialler: Identity = DIALLER,
) -> tuple[DiallerHandshake, ListenerHandshake, list[Identity]]:
    asked: list[Identity] = []

    def decide(identity: Identity) -> tuple[int, str]:
        asked.append(identity)
        return verdict

    d = DiallerHandshake(secrets[0], NONCES[0], dialler)
    listener = ListenerHandshake(secrets[1], NONCES[1], LISTENER, decide)
    to_listener = d.start()
    while to_listener:
        to_dialler = b"".join(listener.feed(to_listener[i : i + step]) for i in range(0, len(to_listener), step))
        to_listener = b"".join(d.feed(to_dialler[i : i + step]) for i in range(0, len(to_dialler), step))
    return d, listener, asked


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_both_ends_learn_who_the_other_is(step: int) -> None:
    dialler, listener, asked = shake(step=step)
    assert dialler.peer == LISTENER
    assert listener.peer == DIALLER
    assert asked == [DIALLER]


def test_the_dialler_is_told_to_come_back() -> None:
    with pytest.raises(NotYet, match="not there yet"):
        shake((LATER, "not there yet"))


def test_the_dialler_is_told_why_it_is_refused() -> None:
    with pytest.raises(HandshakeError, match="that generation is over"):
        shake((REFUSED, "that generation is over"))


def test_neither_end_trusts_a_wrong_secret() -> None:
    with pytest.raises(HandshakeError, match="does not know this job's secret"):
        shake(secrets=(b"s", b"t"))


def test_a_dialler_without_the_secret_is_not_even_asked_who_it_is() -> None:
    asked: list[Identity] = []

    def decide(identity: Identity) -> tuple[int, str]:
        asked.append(identity)
        return WELCOME, ""

    listener = ListenerHandshake(b"secret", NONCES[1], LISTENER, decide)
    thief = DiallerHandshake(b"guess", NONCES[0], DIALLER)
    answer = listener.feed(thief.start())
    forged = DiallerHandshake(b"guess", NONCES[0], DIALLER)
    forged._listener_nonce = answer[5:37]
    with pytest.raises(HandshakeError, match="secret"):
        listener.feed(forged._prove(b"dialler", NONCES[0], forged._listener_nonce, DIALLER))
    assert asked == []
    assert listener.peer is None


def test_a_listeners_own_proof_sent_back_proves_nothing() -> None:
    listener = ListenerHandshake(b"secret", NONCES[1], LISTENER, lambda i: (WELCOME, ""))
    answer = listener.feed(DiallerHandshake(b"x", NONCES[0], DIALLER).start())
    with pytest.raises(HandshakeError, match="secret"):
        listener.feed(answer[37:])


def test_another_job_with_the_same_secret_is_refused() -> None:
    with pytest.raises(HandshakeError, match="belongs to job job, not to other"):
        shake(dialler=Identity("other", 2, "p2", None))
