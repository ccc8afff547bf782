"""Sends brokers the requests for which the writers' client has no call, until they are answered."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from penstock.connectors.base import SinkError
from penstock.connectors.kafka.client import protocol_library, protocol_properties

ANSWER_LIMIT_S = 60.0
"""The longest time for which brokers may be away, or busy with the transaction, until a commit fails and is repeated by
a restart."""

_PAUSE_S = 0.02
_PAUSE_S_MAX = 0.5

# Error codes of Kafka's protocol.
NOT_AUTHORIZED = frozenset({29, 31, 53})
_BUSY = frozenset({7, 14, 19, 20, 51, 56})
_MOVED = frozenset({3, 5, 6, 8, 9, 15, 16})

T = TypeVar("T")


class AskAgain(Exception):
    """Signals an answer that will be another one later. `moved`: perhaps from another broker."""

    def __init__(self, why: str, *, moved: bool = False) -> None:
        super().__init__(why)
        self.moved = moved


def check_final(code: int) -> None:
    """Check that an answer stays.

    Args:
        code: Its error code, or 0.

    Raises:
        AskAgain: It does not.
    """
    if code in _BUSY or code in _MOVED:
        raise AskAgain(name_of(code), moved=code in _MOVED)


def name_of(code: int) -> str:
    """Return the name of an error code.

    Args:
        code: The code.

    Returns:
        The name that kafka-python has for it.
    """
    return str(protocol_library().errors.for_code(code).__name__)


class BrokerRequests:
    """Holds a connection that is made again where it breaks. Every call may block for `ANSWER_LIMIT_S`."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._properties = dict(properties)
        self._admin: Any = None
        self._stopped = False

    @property
    def servers(self) -> str:
        """Return the brokers to ask first."""
        return str(self._properties["bootstrap.servers"])

    def until_answered(self, what: str, call: Callable[[Any], T]) -> T:
        """Call with a connection, again and again until it returns.

        Args:
            what: What is asked, for the error.
            call: Gets kafka-python's admin client. It may raise `AskAgain`.

        Returns:
            What the call returns.

        Raises:
            SinkError: There was no answer in time, or `stop` was called.
        """
        library = protocol_library()
        deadline, pause_s = time.monotonic() + ANSWER_LIMIT_S, _PAUSE_S
        while True:
            if self._stopped:
                raise SinkError(f"Kafka is not asked to {what} any more: who wanted it has ended")
            try:
                if self._admin is None:
                    self._admin = library.KafkaAdminClient(
                        **protocol_properties(self._properties),
                        bootstrap_timeout_ms=int(1000 * max(0.1, min(5.0, deadline - time.monotonic()))),
                        request_timeout_ms=10_000,
                    )
                return call(self._admin)
            except (library.errors.KafkaError, AskAgain, OSError) as error:
                # The client keeps who coordinates and who leads for as long as it is connected.
                if not isinstance(error, AskAgain) or error.moved:
                    self.close()
                if time.monotonic() > deadline:
                    raise SinkError(
                        f"Kafka at {self.servers} has not answered for {ANSWER_LIMIT_S:.0f} s when asked to {what}: "
                        f"{type(error).__name__}: {error}"
                    ) from None
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_S_MAX)

    def stop(self) -> None:
        """Ask nothing more, from now on. May be called from another thread.

        Without this: an attempt that has ended fences producers of the next one, which it does not know.
        """
        self._stopped = True

    def close(self) -> None:
        """Close the connections."""
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()
