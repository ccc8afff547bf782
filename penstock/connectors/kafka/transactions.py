"""Ends transactions of producers that live elsewhere, or do not live any more.

The client of the writers commits only what it has written itself. These requests do not care who sends them: a
transaction is named by its id, the producer's id and epoch, which a committable carries.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum
from typing import Any

from penstock.connectors.base import SinkError
from penstock.connectors.kafka.broker_requests import BrokerRequests, check_final, name_of
from penstock.connectors.kafka.client import protocol_library

# The answer to a commit is looked for in versions in which an epoch outlives its transactions.
_END_VERSION_MAX = 3

# Ids that differ in their last character have consecutive hashes, and the hash chooses the coordinator's partition.
# This number of ids reaches every partition (Kafka has 50 by default).
_IDS_OF_ALL_COORDINATORS = 256


class End(Enum):
    """Lists the answers to the end of a transaction. All but the first say that it had ended, not how."""

    DONE = "done"
    FENCED = "its producer's epoch is over"
    INVALID = "it is not open"
    UNKNOWN = "its id is not known any more"


# Error codes of Kafka's protocol.
_ENDS = {0: End.DONE, 47: End.FENCED, 90: End.FENCED, 48: End.INVALID, 49: End.UNKNOWN, 105: End.UNKNOWN}


@dataclass(frozen=True)
class TransactionName:
    """Names a transaction: its transactional id, which later ones use again, and its producer."""

    transactional_id: str
    producer_id: int
    epoch: int


@dataclass(frozen=True)
class CoordinatorView:
    """Holds the coordinator's view of a transactional id. `state`: Kafka's word."""

    name: TransactionName
    state: str

    @property
    def is_open(self) -> bool:
        """Return whether the producer may still write."""
        return self.state == "Ongoing"

    @property
    def is_over(self) -> bool:
        """Return whether the coordinator has nothing more to do for the id's last transaction."""
        return self.state in {"Empty", "CompleteCommit", "CompleteAbort", "Dead"}


def ids_of_all_coordinators(prefix: str) -> list[str]:
    """Return ids of which each coordinator has at least one.

    Args:
        prefix: What they begin with.

    Returns:
        The ids. Nobody uses them.
    """
    return [f"{prefix}-{chr(0x100 + number)}" for number in range(_IDS_OF_ALL_COORDINATORS)]


class TransactionCoordinators:
    """Asks the brokers that coordinate transactions. Every call may block for `ANSWER_LIMIT_S`.

    `prefix` is what ids begin with that this user may ask about.
    """

    def __init__(self, requests: BrokerRequests, prefix: str = "") -> None:
        self._requests = requests
        self._prefix = prefix

    def end(self, transaction: TransactionName, *, commits: bool) -> End:
        """Commit or abort a transaction.

        Args:
            transaction: Its name.
            commits: True to commit, False to abort.

        Returns:
            DONE if that is how it has ended, now or before. Its partitions learn of it a little later.

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
            by_broker = self._listed(admin, state_filters=["Ongoing"])
            return sorted(name for name, _ in by_broker if pattern.fullmatch(name))

        return self._requests.until_answered("list the open transactions", listed)

    def ids_by_producer(self, pattern: re.Pattern[str]) -> dict[int, str]:
        """Return the ids that are known, open or not, by producer id.

        Args:
            pattern: What the whole id matches.

        Returns:
            The ids.

        Raises:
            SinkError: The brokers have not answered in time.
        """

        def listed(admin: Any) -> dict[int, str]:
            return {producer_id: name for name, producer_id in self._listed(admin) if pattern.fullmatch(name)}

        return self._requests.until_answered("list the transactions", listed)

    def views(self, transactional_ids: Collection[str]) -> dict[str, CoordinatorView]:
        """Return the coordinators' views of ids.

        Args:
            transactional_ids: The ids.

        Returns:
            What is known, by id. Ids that are not known are missing.

        Raises:
            SinkError: The brokers have not answered in time, or refuse.
        """

        async def ask(admin: Any) -> dict[str, CoordinatorView]:
            found = {}
            for answer in await _described(admin, transactional_ids):
                if answer.error_code == 0:
                    name = TransactionName(answer.transactional_id, answer.producer_id, answer.producer_epoch)
                    found[answer.transactional_id] = CoordinatorView(name, answer.transaction_state)
                elif _ENDS.get(answer.error_code) is not End.UNKNOWN:
                    raise self._refusal("describe", answer.transactional_id, answer.error_code)
            return found

        return self._requests.until_answered("describe transactions", lambda admin: admin._manager.run(ask, admin))

    # ---- asking until there is an answer ------------------------------------------------------------------------

    def _listed(self, admin: Any, **filters: Any) -> list[tuple[str, int]]:
        """Return ids and producer ids of all transactions.

        A broker that does not coordinate yet what it is going to, for it has just started, lists nothing and has no
        error for that. So each coordinator is asked for itself, before and after.
        Without this: transactions of earlier attempts stay open, and hold up readers until they time out.
        """
        asked = ids_of_all_coordinators(self._prefix)
        admin._manager.run(_described, admin, asked)
        by_broker = admin.list_transactions(**filters)
        admin._manager.run(_described, admin, asked)
        return [(listing.transactional_id, listing.producer_id) for found in by_broker.values() for listing in found]

    def _until_answered(self, verb: str, transactional_id: str, ask: Callable[[Any, int], Any]) -> End:
        async def found_and_asked(admin: Any) -> int:
            coordinators = await _coordinators_of(admin, [transactional_id])
            return int(await ask(admin, coordinators[transactional_id]))

        def once(admin: Any) -> End:
            code = admin._manager.run(found_and_asked, admin)
            check_final(code)
            if code not in _ENDS:
                raise self._refusal(verb, transactional_id, code)
            return _ENDS[code]

        return self._requests.until_answered(f"{verb} the transaction {transactional_id!r}", once)

    def _refusal(self, verb: str, transactional_id: str, code: int) -> SinkError:
        return SinkError(
            f"Kafka at {self._requests.servers} refuses to {verb} the transaction {transactional_id!r}: "
            f"{name_of(code)} (error {code})"
        )


async def _coordinators_of(admin: Any, transactional_ids: Collection[str]) -> dict[str, int]:
    kind = protocol_library().protocol.metadata.CoordinatorType.TRANSACTION
    return dict(await admin._find_coordinator_ids(transactional_ids, key_type=kind))


async def _described(admin: Any, transactional_ids: Collection[str]) -> list[Any]:
    """Return the answers for ids that are final. Raises `AskAgain` if one is not."""
    by_coordinator: dict[int, list[str]] = defaultdict(list)
    for name, coordinator in (await _coordinators_of(admin, transactional_ids)).items():
        by_coordinator[coordinator].append(name)
    answers: list[Any] = []
    for coordinator, names in by_coordinator.items():
        request = protocol_library().protocol.admin.DescribeTransactionsRequest(transactional_ids=names)
        answers += (await admin._manager.send(request, node_id=coordinator)).transaction_states
    for answer in answers:
        check_final(answer.error_code)
    return answers
