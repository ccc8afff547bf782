"""Makes producers with open transactions ahead of their use, in a thread of their own."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import Any

from penstock.connectors.base import SinkError
from penstock.connectors.kafka.broker_requests import BrokerRequests
from penstock.connectors.kafka.client import client_library, make, reason_of
from penstock.connectors.kafka.hanging import HangingTransactions
from penstock.connectors.kafka.transactional_ids import TransactionalIds
from penstock.connectors.kafka.transactions import TransactionCoordinators, TransactionName

READY_LIMIT_S = 90.0
_STATISTICS_INTERVAL_MS = 100


def id_pattern(prefix: str) -> re.Pattern[str]:
    """Return the pattern of a prefix's transactional ids: it, then incarnation, subtask and number.

    Args:
        prefix: The prefix.

    Returns:
        The pattern.
    """
    return re.compile(re.escape(prefix) + r"-(?P<incarnation>[^-]+)-\d+-\d+")


@dataclass
class TransactionalProducer:
    """Holds a producer that may begin a transaction."""

    producer: Any
    name: TransactionName


class ProducerPool:
    """Has one producer ready for the next transaction, with an id that `TransactionalIds` hands out."""

    def __init__(self, properties: Mapping[str, Any], prefix: str, incarnation: str, subtask: int) -> None:
        self._properties = dict(properties)
        self._ids = TransactionalIds(f"{prefix}-{incarnation}-{subtask}")
        self._prefix = prefix
        self._incarnation = incarnation
        self._thread = ThreadPoolExecutor(1, "penstock-kafka")
        self._next: Future[TransactionalProducer] | None = None
        self._fencing: Future[None] | None = None
        self._requests = BrokerRequests(self._properties)

    def fence_others(self, kept: Collection[str], topics: Collection[str]) -> None:
        """Abort the open transactions that earlier attempts have left behind, except those to commit.

        Args:
            kept: Transactional ids of transactions that are going to be committed.
            topics: The topics that are written to, as far as they are known.
        """
        self._fencing = self._thread.submit(self._fence, frozenset(kept), frozenset(topics))

    def _fence(self, kept: frozenset[str], topics: frozenset[str]) -> None:
        pattern = id_pattern(self._prefix)
        coordinators = TransactionCoordinators(self._requests, self._prefix)

        def is_of_others(name: str) -> bool:
            found = pattern.fullmatch(name)
            return found is not None and found["incarnation"] != self._incarnation and name not in kept

        try:
            # Whatever comes later is of a newer attempt, whose transactions are not ours to end.
            known = coordinators.ids_by_producer(pattern)
            left = {producer_id: name for producer_id, name in known.items() if is_of_others(name)}
            for name in set(left.values()).intersection(coordinators.open_ids(pattern)):
                coordinators.fence(name)
            HangingTransactions(self._requests, coordinators).await_aborted(left, topics)
        finally:
            self._requests.close()

    def await_fencing(self) -> None:
        """Wait until the open transactions of earlier attempts are aborted.

        Without this: readers of committed records wait for them until they time out.
        """
        fencing, self._fencing = self._fencing, None
        if fencing is not None:
            self._result(fencing, "abort the transactions that earlier attempts of this job have left open")

    def make_ahead(self) -> None:
        """Begin to make the next producer, unless there is one."""
        if self._next is None:
            self._next = self._thread.submit(self._make, self._ids.take())

    def take(self) -> TransactionalProducer:
        """Return a producer, and begin to make the one after it."""
        self.make_ahead()
        assert self._next is not None
        ready, self._next = self._next, None
        producer: TransactionalProducer = self._result(ready, "start a transactional producer")
        self.make_ahead()
        return producer

    def retire(self, used: TransactionalProducer, checkpoint_id: int) -> None:
        """Discard a producer whose transaction is prepared. Its transaction stays open.

        Args:
            used: The producer.
            checkpoint_id: The checkpoint that it is prepared for.
        """
        self._ids.prepared(used.name.transactional_id, checkpoint_id)
        self._thread.submit(_destroy, used)

    def commits_confirmed(self, checkpoint_id: int) -> None:
        """Use ids again whose transactions no restore commits.

        Args:
            checkpoint_id: The newest checkpoint of such transactions.
        """
        self._ids.commits_confirmed(checkpoint_id)

    def close(self) -> None:
        """End the thread. Open transactions stay open."""
        self._requests.stop()
        self._thread.shutdown(wait=False, cancel_futures=True)

    # ---- in the thread ------------------------------------------------------------------------------------------

    def _make(self, transactional_id: str) -> TransactionalProducer:
        library = client_library()
        found: list[tuple[int, int]] = []

        def on_statistics(text: str) -> None:
            if not found:
                eos = json.loads(text)["eos"]
                if eos["producer_id"] >= 0:
                    found.append((eos["producer_id"], eos["producer_epoch"]))

        ours = {
            "transactional.id": transactional_id,
            "statistics.interval.ms": _STATISTICS_INTERVAL_MS,
            "stats_cb": on_statistics,
        }
        producer = make(library.Producer, self._properties | ours, SinkError)
        deadline = time.monotonic() + READY_LIMIT_S
        try:
            producer.init_transactions(READY_LIMIT_S)
        except library.KafkaException as error:
            raise SinkError(
                f"the transactional id {transactional_id!r} cannot be used: {reason_of(error)}. Check that this user "
                "may write with ids of this transactional_id_prefix, and that transaction.timeout.ms is not longer "
                "than the broker's transaction.max.timeout.ms"
            ) from None
        while not found and time.monotonic() < deadline:
            producer.poll(0.02)
        if not found:
            raise SinkError(f"the client has not said its producer id for {transactional_id!r}")
        return TransactionalProducer(producer, TransactionName(transactional_id, *found[0]))

    def _result(self, future: Future[Any], what: str) -> Any:
        try:
            return future.result(READY_LIMIT_S + 10)
        except FutureTimeoutError:
            raise SinkError(f"Kafka at {self._properties['bootstrap.servers']} did not {what} in time") from None


def _destroy(used: TransactionalProducer) -> None:
    used.producer = None
