"""Ends hanging transactions: those that a partition keeps open although their coordinator has ended them.

A coordinator tells partitions how a transaction has ended, at once, or when it has started again. A partition without a
leader at that moment, because all its replicas were down, is taken for deleted (seen with Kafka 4.3), and never told.
Then readers of committed records wait there for good, the transaction's own records are hidden, and a later transaction
of the same producer decides about them. Kafka's tool `kafka-transactions.sh abort` (KIP-664) ends such a transaction;
the same request is sent here, with the end that the coordinator had decided on.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.datastream.connectors.base import SinkError
from penstock.datastream.connectors.kafka.broker_requests import (
    ANSWER_LIMIT_S,
    NOT_AUTHORIZED,
    BrokerRequests,
    check_final,
    name_of,
)
from penstock.datastream.connectors.kafka.client import protocol_library
from penstock.datastream.connectors.kafka.transactions import CoordinatorView, TransactionCoordinators, TransactionName

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


class HangingTransactions:
    """Waits until partitions have ended transactions, and ends those that hang.

    A user who may not read a topic learns nothing of its partitions: there is no wait then.
    """

    def __init__(self, requests: BrokerRequests, coordinators: TransactionCoordinators) -> None:
        self._requests = requests
        self._coordinators = coordinators

    def await_ended(self, names: Collection[TransactionName], topics: Collection[str], *, committed: bool) -> None:
        """Wait until no partition has transactions open. Before, the ids of committed ones must not be used again.

        Args:
            names: Transactions that their coordinator has ended.
            topics: The topics that they have written to.
            committed: True if their commit was answered; False if the coordinator knows what has become of them.

        Raises:
            SinkError: The brokers have not answered in time, or refuse.
        """
        ids = {(name.producer_id, name.epoch): name.transactional_id for name in names}

        def owners(found: list[OpenTransaction]) -> dict[OpenTransaction, str]:
            named = {it: ids.get((it.producer_id, it.epoch)) for it in found}
            return {it: name for it, name in named.items() if name is not None}

        self._until_closed(topics, owners, lambda view, it: committed or _was_committed(view, it))

    def await_aborted(self, pattern: re.Pattern[str], skipped: Callable[[str], bool], topics: Collection[str]) -> None:
        """Wait until nothing of producers that do not live any more is open; fence them.

        Args:
            pattern: What their whole ids match.
            skipped: Tells which ids to leave alone.
            topics: The topics that they have written to.

        Raises:
            SinkError: The brokers have not answered in time, or refuse.
        """

        def owners(found: list[OpenTransaction]) -> dict[OpenTransaction, str]:
            if not found:
                return {}
            ids = self._coordinators.ids_by_producer(pattern)
            named = {it: ids.get(it.producer_id) for it in found}
            return {it: name for it, name in named.items() if name is not None and not skipped(name)}

        self._until_closed(topics, owners, _was_committed, self._coordinators.fence)

    def _until_closed(
        self,
        topics: Collection[str],
        owners: Callable[[list[OpenTransaction]], dict[OpenTransaction, str]],
        commits: Callable[[CoordinatorView | None, OpenTransaction], bool],
        on_open: Callable[[str], None] | None = None,
    ) -> None:
        """Look at partitions until they have nothing open of these owners.

        A transaction hangs if it is open, over for its coordinator later, and still open after that.
        """
        deadline, pause_s = time.monotonic() + ANSWER_LIMIT_S, _PAUSE_S
        over: dict[OpenTransaction, bool] = {}
        while left := owners(self.open_at(topics)):
            for it in left.keys() & over.keys():
                self._end(it, left[it], commits=over[it])
            if time.monotonic() > deadline:
                raise self._still_open(left)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_S_MAX)
            views = self._coordinators.views(set(left.values()))
            over = {it: commits(views.get(name), it) for it, name in left.items() if _is_over(views.get(name))}
            if on_open is not None:
                for name in [name for name, view in views.items() if view.is_open]:
                    on_open(name)

    def open_at(self, topics: Collection[str]) -> list[OpenTransaction]:
        """Return what is open at the partitions of topics.

        Args:
            topics: The topics. One that does not exist has nothing open.

        Returns:
            The transactions of all producers.

        Raises:
            SinkError: The brokers have not answered in time.
        """

        async def ask(admin: Any) -> list[OpenTransaction]:
            found: list[OpenTransaction] = []
            for leader, wanted in (await _leaders(admin, topics)).items():
                for topic, partition in await _producers(admin, leader, wanted):
                    if partition.error_code in NOT_AUTHORIZED:
                        continue
                    check_final(partition.error_code)
                    found += [
                        OpenTransaction(
                            topic,
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

        if not topics:
            return []
        return self._requests.until_answered(
            f"name the open transactions of {', '.join(sorted(topics))}", lambda admin: admin._manager.run(ask, admin)
        )

    def _end(self, it: OpenTransaction, transactional_id: str, *, commits: bool) -> None:
        """Write the mark that the coordinator has not written."""

        verb = "commit" if commits else "abort"
        what = f"{verb} the hanging transaction {transactional_id!r} at {_where(it)}"
        code = self._requests.until_answered(what, lambda admin: admin._manager.run(_marked, admin, it, commits))
        if code not in _ENDED_MEANWHILE:
            by_hand = (
                "" if commits
                else f", or end it by kafka-transactions.sh abort --topic {it.topic} --partition {it.partition} "
                f"--start-offset {it.offset}"
            )  # fmt: skip
            raise SinkError(
                f"a transaction hangs at {_where(it)}: its coordinator has ended it, the partition has not, and "
                f"readers of committed records wait there for good. To {what} was refused ({name_of(code)}): permit "
                f"this user to Alter the cluster{by_hand}"
            )

    def _still_open(self, left: Mapping[OpenTransaction, str]) -> SinkError:
        first = min(left, key=lambda it: (it.topic, it.partition, it.offset))
        return SinkError(
            f"Kafka at {self._requests.servers} has not ended {len(left):,} transactions within {ANSWER_LIMIT_S:.0f} s"
            f", among them {left[first]!r} at {_where(first)}: readers of committed records wait there"
        )


def _is_over(view: CoordinatorView | None) -> bool:
    return view is None or view.is_over


def _was_committed(view: CoordinatorView | None, it: OpenTransaction) -> bool:
    return view is not None and view.state == "CompleteCommit" and view.name.epoch == it.epoch


def _where(it: OpenTransaction) -> str:
    return f"topic {it.topic!r}, partition {it.partition}, offset {it.offset}"


async def _leaders(admin: Any, topics: Collection[str]) -> dict[int, dict[str, list[int]]]:
    """Return partitions by leader and topic. Raises `AskAgain` if one has no leader."""
    found: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for topic in (await admin._get_cluster_metadata(list(topics)))["topics"]:
        if topic["error_code"] == _DELETED:
            continue
        check_final(topic["error_code"])
        for partition in topic["partitions"]:
            check_final(partition["error_code"])
            found[partition["leader_id"]][topic["name"]].append(partition["partition_index"])
    return found


async def _producers(admin: Any, leader: int, partitions: Mapping[str, list[int]]) -> list[tuple[str, Any]]:
    request = protocol_library().protocol.admin.DescribeProducersRequest
    topics = [request.TopicRequest(name=name, partition_indexes=indexes) for name, indexes in partitions.items()]
    answer = await admin._manager.send(request(topics=topics), node_id=leader)
    return [(topic.name, partition) for topic in answer.topics for partition in topic.partitions]


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
    for leader, partitions in (await _leaders(admin, [it.topic])).items():
        if it.partition in partitions.get(it.topic, ()):
            answer = await admin._manager.send(request, node_id=leader)
            (code,) = [p.error_code for m in answer.markers for t in m.topics for p in t.partitions]
            check_final(code)
            return int(code)
    return 0  # the topic is gone
