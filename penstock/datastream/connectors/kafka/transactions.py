"""Ends transactions of producers that live elsewhere, or do not live any more.

The client of the writers commits only what it has written itself. These requests do not care who sends them: a
transaction is named by its id, the producer's id and epoch, which a committable carries.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from penstock.datastream.connectors.base import SinkError
from penstock.datastream.connectors.kafka.client import protocol_library, protocol_properties

ANSWER_LIMIT_S = 60.0
"""The longest time for which brokers may be away, or busy with the transaction, until a commit fails and is repeated by
a restart."""

_PAUSE_S = 0.02
_PAUSE_S_MAX = 0.5
# The answer to a commit is looked for in versions in which an epoch outlives its transactions.
_END_VERSION_MAX = 3

T = TypeVar("T")


class End(Enum):
    """Lists the answers to the end of a transaction. All but the first say that it had ended, not how."""

    DONE = "done"
    FENCED = "its producer's epoch is over"
    INVALID = "it is not open"
    UNKNOWN = "its id is not known any more"


# Error codes of Kafka's protocol.
_ENDS = {0: End.DONE, 47: End.FENCED, 90: End.FENCED, 48: End.INVALID, 49: End.UNKNOWN, 105: End.UNKNOWN}
_AGAIN = frozenset({3, 5, 6, 7, 8, 9, 14, 15, 16, 51, 56})


class _TryAgain(Exception):
    """Signals an answer that will be another one later."""


@dataclass(frozen=True)
class TransactionName:
    """Names a transaction: the id that is used again, with the producer that has it now."""

    transactional_id: str
    producer_id: int
    epoch: int


class TransactionCoordinators:
    """Asks the brokers that coordinate transactions. Every call may block for `ANSWER_LIMIT_S`."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._properties = dict(properties)
        self._admin: Any = None

    def end(self, transaction: TransactionName, *, commits: bool) -> End:
        """Commit or abort a transaction.

        Args:
            transaction: Its name.
            commits: True to commit, False to abort.

        Returns:
            DONE if that is how it has ended, now or before.

        Raises:
            SinkError: The brokers have not answered in time.
        """
        library = protocol_library()

        async def ask(admin: Any, coordinator: int) -> int:
            request = library.protocol.producer.transaction.EndTxnRequest(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                producer_epoch=transaction.epoch,
                committed=commits,
                max_version=_END_VERSION_MAX,
            )
            return int((await admin._manager.send(request, node_id=coordinator)).error_code)

        verb = "commit" if commits else "abort"
        return self._until_answered(verb, transaction.transactional_id, ask)

    def fence(self, transactional_id: str) -> None:
        """End the epoch of whoever has this id, which aborts its open transaction.

        Args:
            transactional_id: The id.

        Raises:
            SinkError: The brokers have not answered in time, or refuse.
        """
        library = protocol_library()

        async def ask(admin: Any, coordinator: int) -> int:
            request = library.protocol.producer.transaction.InitProducerIdRequest(
                transactional_id=transactional_id,
                transaction_timeout_ms=60_000,
                producer_id=-1,
                producer_epoch=-1,
                max_version=4,
            )
            return int((await admin._manager.send(request, node_id=coordinator)).error_code)

        answer = self._until_answered("fence", transactional_id, ask)
        if answer is not End.DONE:
            raise SinkError(f"Kafka cannot fence the transactional id {transactional_id!r}: {answer.value}")

    def open_ids(self, pattern: re.Pattern[str]) -> list[str]:
        """Return the ids of open transactions.

        Args:
            pattern: What the whole id matches.

        Returns:
            The ids.

        Raises:
            SinkError: The brokers have not answered in time.
        """

        def listed(admin: Any) -> list[str]:
            by_broker = admin.list_transactions(state_filters=["Ongoing"])
            ids = [listing.transactional_id for found in by_broker.values() for listing in found]
            return sorted(name for name in ids if pattern.fullmatch(name))

        return self._tried("list the open transactions", listed)

    def fence_all(self, pattern: re.Pattern[str], kept: Collection[str]) -> list[str]:
        """Abort open transactions, except those that are kept.

        Args:
            pattern: What whole ids match.
            kept: Ids to leave alone.

        Returns:
            The ids whose transactions were aborted.

        Raises:
            SinkError: The brokers have not answered in time.
        """
        fenced = [name for name in self.open_ids(pattern) if name not in kept]
        for name in fenced:
            self.fence(name)
        return fenced

    def close(self) -> None:
        """Close the connections."""
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()

    # ---- asking until there is an answer ------------------------------------------------------------------------

    def _until_answered(self, verb: str, transactional_id: str, ask: Callable[[Any, int], Any]) -> End:
        library = protocol_library()

        async def found_and_asked(admin: Any) -> int:
            kind = library.protocol.metadata.CoordinatorType.TRANSACTION
            coordinators = await admin._find_coordinator_ids([transactional_id], key_type=kind)
            return int(await ask(admin, coordinators[transactional_id]))

        def once(admin: Any) -> End:
            code = admin._manager.run(found_and_asked, admin)
            if code in _AGAIN:
                raise _TryAgain(library.errors.for_code(code).__name__)
            if code not in _ENDS:
                raise SinkError(
                    f"Kafka refuses to {verb} the transaction {transactional_id!r}: "
                    f"{library.errors.for_code(code).__name__} (error {code})"
                )
            return _ENDS[code]

        return self._tried(f"{verb} the transaction {transactional_id!r}", once)

    def _tried(self, what: str, call: Callable[[Any], T]) -> T:
        library = protocol_library()
        deadline, pause_s = time.monotonic() + ANSWER_LIMIT_S, _PAUSE_S
        while True:
            try:
                if self._admin is None:
                    self._admin = library.KafkaAdminClient(
                        **protocol_properties(self._properties),
                        bootstrap_timeout_ms=int(1000 * max(0.1, min(5.0, deadline - time.monotonic()))),
                        request_timeout_ms=10_000,
                    )
                return call(self._admin)
            except (library.errors.KafkaError, _TryAgain, OSError) as error:
                if not isinstance(error, _TryAgain):
                    self.close()
                if time.monotonic() > deadline:
                    raise SinkError(
                        f"Kafka at {self._properties['bootstrap.servers']} has not answered for {ANSWER_LIMIT_S:.0f} s "
                        f"when asked to {what}: {type(error).__name__}: {error}"
                    ) from None
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_S_MAX)
