"""Ends hanging transactions: those that a partition keeps open although their coordinator has ended them.

A coordinator tells partitions how a transaction has ended, at once, or when it has started again. A partition without a
leader at that moment, because all its replicas were down, is taken for deleted (seen with Kafka 4.3), and never told.
Then readers of committed records wait there for good, the transaction's own records are hidden, and a later transaction
of the same producer decides about them. Kafka's tool `kafka-transactions.sh abort` (KIP-664) ends such a transaction;
the same request is sent here, with the end that the coordinator had decided on.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from penstock.connectors.base import SinkError
from penstock.connectors.kafka.broker_requests import (
    ANSWER_LIMIT_S,
    NOT_AUTHORIZED,
    AskAgain,
    BrokerRequests,
    check_final,
    name_of,
)
from penstock.connectors.kafka.client import protocol_library
from penstock.connectors.kafka.transactions import CoordinatorView, TransactionCoordinators, TransactionName

_PAUSE_S = 0.002
_PAUSE_S_MAX = 0.5
# Of a topic that does not exist any more, and of a marker that comes too late.
_DELETED = 3
_ENDED_MEANWHILE = frozenset({0, 47, 52, 90})


@dataclass(frozen=True)
class OpenTransaction:
    """Holds a transaction that a partition has open: where its first record is, and whose it is."""

    topic: str
    partition: int
    offset: int
    producer_id: int
    epoch: int
    coordinator_epoch: int


class EndUnknown(Exception):
    """Signals that nobody knows any more how a transaction has ended."""


def was_committed(view: CoordinatorView | None, it: OpenTransaction) -> bool:
    """Return the coordinator's decision about a transaction that is over for it.

    An id is used again only after its transaction has committed (PROTOCOL.md 11.20), with the next epoch. To fence it,
    or to let its time run out, aborts the transaction and leaves another state.

    Args:
        view: What the coordinator knows of the id; None if nothing.
        it: The transaction.

    Returns:
        True if it committed, False if it was aborted.

    Raises:
        EndUnknown: The id is not known any more, or was made again.
    """
    if view is None or view.name.producer_id != it.producer_id:
        raise EndUnknown
    if view.state == "CompleteCommit":
        return True
    return view.state == "Empty" and view.name.epoch == it.epoch + 1


class HangingTransactions:
    """Waits until partitions have ended transactions, and ends those that hang.

    A user who may not read a topic learns nothing of its partitions: there is no wait then.
    """

    def __init__(self, requests: BrokerRequests, coordinators: TransactionCoordinators) -> None:
        self._requests = requests
        self._coordinators = coordinators

    def await_ended(
        self, names: Collection[TransactionName], partitions: Collection[tuple[str, int]], *, committed: bool
    ) -> None:
        """Wait until no partition has transactions open. Before, the ids of committed ones must not be used again.

        Args:
            names: Transactions that their coordinator has ended.
            partitions: The topics and partitions that they have written to.
            committed: True if their commit was answered; False if the coordinator knows what has become of them.

        Raises:
            SinkError: The brokers have not answered in time, or refuse.
        """
        ids = {(name.producer_id, name.epoch): name.transactional_id for name in names}

        def owned() -> dict[OpenTransaction, str]:
            found = {it: ids.get((it.producer_id, it.epoch)) for it in self.open_at(partitions)}
            return {it: name for it, name in found.items() if name is not None}

        self._until_closed(owned, lambda view, it: committed or was_committed(view, it))

    def await_aborted(self, ids: Mapping[int, str], topics: Collection[str]) -> None:
        """Fence producers that do not live any more, and wait until none of their transactions is open.

        A partition without a leader is left to the next attempt: nobody can read there now.

        Args:
            ids: Their transactional ids, by producer id.
            topics: The topics that they have written to.

        Raises:
            SinkError: The brokers have not answered in time, or refuse.
        """

        def owned() -> dict[OpenTransaction, str]:
            found = {it: ids.get(it.producer_id) for it in self.open_in(topics)} if ids else {}
            return {it: name for it, name in found.items() if name is not None}

        self._until_closed(owned, was_committed, self._coordinators.fence)

    def _until_closed(
        self,
        owned: Callable[[], dict[OpenTransaction, str]],
        commits: Callable[[CoordinatorView | None, OpenTransaction], bool],
        on_open: Callable[[str], None] | None = None,
    ) -> None:
        """Ask the partitions repeatedly, until `owned` returns no open transaction.

        A transaction hangs if a partition still shows it open after its coordinator has reported its end.
        """
        deadline, pause_s = time.monotonic() + ANSWER_LIMIT_S, _PAUSE_S
        over: dict[OpenTransaction, CoordinatorView | None] = {}
        while left := owned():
            for it in left.keys() & over.keys():
                try:
                    is_commit = commits(over[it], it)
                except EndUnknown:
                    raise self._unknown(it, left[it]) from None
                self._end(it, left[it], commits=is_commit)
            if time.monotonic() > deadline:
                raise self._still_open(left)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_S_MAX)
            views = self._coordinators.views(set(left.values()))
            over = {it: view for it, name in left.items() if (view := views.get(name)) is None or view.is_over}
            if on_open is not None:
                for name in [name for name, view in views.items() if view.is_open]:
                    on_open(name)

    def open_at(self, partitions: Collection[tuple[str, int]]) -> list[OpenTransaction]:
        """Return the open transactions at partitions.

        Args:
            partitions: Topics and partitions. Those of a topic that does not exist have nothing open.

        Returns:
            The transactions of all producers.

        Raises:
            SinkError: The brokers have not answered in time, or a partition had no leader for so long.
        """
        if not partitions:
            return []

        async def leaders(admin: Any) -> _Leaders:
            found = await _leaders(admin, {topic for topic, _ in partitions})
            if any(leader < 0 and at in partitions for at, leader in found.items()):
                raise AskAgain("a partition has no leader", moved=True)
            return {at: leader for at, leader in found.items() if at in partitions}

        return self._open(leaders, {topic for topic, _ in partitions})

    def open_in(self, topics: Collection[str]) -> list[OpenTransaction]:
        """Return the open transactions in topics, at the partitions that have a leader.

        Args:
            topics: The topics. One that does not exist has nothing open.

        Returns:
            The transactions of all producers.

        Raises:
            SinkError: The brokers have not answered in time.
        """
        if not topics:
            return []

        async def leaders(admin: Any) -> _Leaders:
            return {at: leader for at, leader in (await _leaders(admin, topics)).items() if leader >= 0}

        return self._open(leaders, topics)

    def _open(self, leaders: Callable[[Any], Awaitable[_Leaders]], topics: Collection[str]) -> list[OpenTransaction]:
        errors = protocol_library().errors

        async def ask(admin: Any) -> list[OpenTransaction]:
            by_leader: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
            for (topic, partition), leader in (await leaders(admin)).items():
                by_leader[leader][topic].append(partition)
            return [it for leader, wanted in by_leader.items() for it in await _open_at_leader(admin, leader, wanted)]

        def once(admin: Any) -> list[OpenTransaction]:
            try:
                return list(admin._manager.run(ask, admin))
            except (errors.UnsupportedVersionError, errors.IncompatibleBrokerVersion):
                return []  # brokers that do not tell

        return self._requests.until_answered(f"name the open transactions of {', '.join(sorted(topics))}", once)

    def _end(self, it: OpenTransaction, transactional_id: str, *, commits: bool) -> None:
        """Write the mark that the coordinator has not written."""
        verb = "commit" if commits else "abort"
        what = f"{verb} the hanging transaction {transactional_id!r} at {_where(it)}"
        code = self._requests.until_answered(what, lambda admin: admin._manager.run(_marked, admin, it, commits))
        if code not in _ENDED_MEANWHILE:
            advice = ": permit this user to Alter the cluster" if code in NOT_AUTHORIZED else ""
            if not commits:
                advice += f"{', or' if advice else ':'} {_by_hand(it)}"
            raise SinkError(f"{_hangs(it)}. To {what} was refused ({name_of(code)}){advice}")

    def _unknown(self, it: OpenTransaction, transactional_id: str) -> SinkError:
        return SinkError(
            f"{_hangs(it)}. Its coordinator does not know the id {transactional_id!r} any more, so whether it was "
            f"committed has to be found out: its records are from that offset on. To abort it, {_by_hand(it)}"
        )

    def _still_open(self, left: Mapping[OpenTransaction, str]) -> SinkError:
        first = min(left, key=lambda it: (it.topic, it.partition, it.offset))
        return SinkError(
            f"Kafka at {self._requests.servers} has not ended {len(left):,} transactions within {ANSWER_LIMIT_S:.0f} s"
            f", among them {left[first]!r} at {_where(first)}: readers of committed records wait there"
        )


def _where(it: OpenTransaction) -> str:
    return f"topic {it.topic!r}, partition {it.partition}, offset {it.offset}"


def _hangs(it: OpenTransaction) -> str:
    return (
        f"a transaction hangs at {_where(it)}: its coordinator has ended it, the partition has not, and readers of "
        "committed records wait there for good"
    )


def _by_hand(it: OpenTransaction) -> str:
    return f"kafka-transactions.sh abort --topic {it.topic} --partition {it.partition} --start-offset {it.offset}"


# ---- requests -------------------------------------------------------------------------------------------------------

_Leaders: TypeAlias = dict[tuple[str, int], int]


async def _leaders(admin: Any, topics: Collection[str]) -> _Leaders:
    """Return the leaders of partitions; -1 if there is none. Topics that do not exist are missing."""
    found: _Leaders = {}
    for topic in (await admin._get_cluster_metadata(list(topics)))["topics"]:
        if topic["error_code"] != _DELETED:
            check_final(topic["error_code"])
            found |= {(topic["name"], it["partition_index"]): it["leader_id"] for it in topic["partitions"]}
    return found


async def _open_at_leader(admin: Any, leader: int, partitions: Mapping[str, list[int]]) -> list[OpenTransaction]:
    request = protocol_library().protocol.admin.DescribeProducersRequest
    topics = [request.TopicRequest(name=name, partition_indexes=indexes) for name, indexes in partitions.items()]
    answer = await admin._manager.send(request(topics=topics), node_id=leader)
    found: list[OpenTransaction] = []
    for name, partition in [(topic.name, partition) for topic in answer.topics for partition in topic.partitions]:
        if partition.error_code in NOT_AUTHORIZED:
            continue
        check_final(partition.error_code)
        found += [
            OpenTransaction(
                name,
                partition.partition_index,
                producer.current_txn_start_offset,
                producer.producer_id,
                producer.producer_epoch,
                producer.coordinator_epoch,
            )
            for producer in partition.active_producers
            if producer.current_txn_start_offset >= 0
        ]
    return found


async def _marked(admin: Any, it: OpenTransaction, commits: bool) -> int:
    """Send a partition the end of a transaction. Returns its error code."""
    library = protocol_library().protocol.producer.transaction
    marker = library.WriteTxnMarkersRequest.WritableTxnMarker
    topic = marker.WritableTxnMarkerTopic(name=it.topic, partition_indexes=[it.partition])
    request = library.WriteTxnMarkersRequest(
        markers=[
            marker(
                producer_id=it.producer_id,
                producer_epoch=it.epoch,
                transaction_result=commits,
                topics=[topic],
                coordinator_epoch=it.coordinator_epoch,
            )
        ]
    )
    leader = (await _leaders(admin, [it.topic])).get((it.topic, it.partition))
    if leader is None:
        return 0  # the topic is gone
    if leader < 0:
        raise AskAgain("the partition has no leader", moved=True)
    answer = await admin._manager.send(request, node_id=leader)
    (code,) = [p.error_code for m in answer.markers for t in m.topics for p in t.partitions]
    check_final(code)
    return int(code)
