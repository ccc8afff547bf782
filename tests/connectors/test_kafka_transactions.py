"""Tests what brokers answer about transactions: one suite for a real one and for the fake that the simulation runs
with."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any, Protocol

import pytest
from confluent_kafka import KafkaException, Producer

from penstock.connectors.kafka.producers import ProducerPool, TransactionalProducer
from penstock.connectors.kafka.transactions import End, TransactionName
from simulation.world.transaction_broker import Fenced, TransactionBroker
from tests.connectors.topics import LIMIT_S, coordinators_of, read_committed, topic
from tools.kafka_broker import KafkaBroker

_names = (f"suite{n}-one-0-0" for n in itertools.count())
UNUSED = "suite-unused-0-0"


class Brokers(Protocol):
    """Asks brokers for the suite. A producer is an epoch of an id."""

    def start(self, transactional_id: str) -> int: ...

    def write(self, transactional_id: str, epoch: int, records: Sequence[str]) -> None:
        """Write records to the producer's transaction. Raises `Fenced`."""

    def end(self, transactional_id: str, epoch: int, commits: bool) -> End: ...

    def end_itself(self, transactional_id: str, epoch: int) -> None:
        """Let the producer commit its transaction, as one does that lives and goes on."""

    def visible(self) -> list[str]: ...

    def open_ids(self, pattern: re.Pattern[str]) -> list[str]: ...


class Fake:
    def __init__(self) -> None:
        self._broker = TransactionBroker()
        self.start, self.write, self.open_ids = self._broker.start, self._broker.write, self._broker.open_ids

    def end(self, transactional_id: str, epoch: int, commits: bool) -> End:
        return self._broker.end(transactional_id, epoch, commits=commits)[0]

    def end_itself(self, transactional_id: str, epoch: int) -> None:
        assert self.end(transactional_id, epoch, True) is End.DONE

    def visible(self) -> list[str]:
        return list(self._broker.visible)


class Real:
    def __init__(self, broker: KafkaBroker) -> None:
        self._broker = broker
        self._topic = topic(broker)
        self._properties = {"bootstrap.servers": broker.bootstrap_servers, "error_cb": lambda error: None}
        self._coordinators = coordinators_of(broker)
        self._pool = ProducerPool(self._properties, "suite", "one", 0)
        self._producers: dict[tuple[str, int], TransactionalProducer] = {}
        self._begun: set[tuple[str, int]] = set()
        self.open_ids = self._coordinators.open_ids

    def start(self, transactional_id: str) -> int:
        made = self._pool._make(transactional_id)
        self._producers[transactional_id, made.name.epoch] = made
        return made.name.epoch

    def write(self, transactional_id: str, epoch: int, records: Sequence[str]) -> None:
        producer: Producer = self._producers[transactional_id, epoch].producer
        failures: list[Any] = []
        try:
            if (transactional_id, epoch) not in self._begun:
                producer.begin_transaction()
                self._begun.add((transactional_id, epoch))
            for record in records:
                producer.produce(
                    self._topic, record, on_delivery=lambda error, _: failures.append(error) if error else None
                )
            producer.flush(LIMIT_S)
        except (KafkaException, SystemError) as error:
            raise Fenced(str(error)) from error
        if failures:
            raise Fenced(str(failures[0]))

    def end(self, transactional_id: str, epoch: int, commits: bool) -> End:
        known = self._producers.get((transactional_id, epoch))
        name = TransactionName(transactional_id, 1, epoch) if known is None else known.name
        return self._coordinators.end(name, commits=commits)

    def end_itself(self, transactional_id: str, epoch: int) -> None:
        self._producers[transactional_id, epoch].producer.commit_transaction(LIMIT_S)
        self._begun.discard((transactional_id, epoch))

    def visible(self) -> list[str]:
        return [value.decode() for value in read_committed(self._broker, self._topic)]


@pytest.fixture(params=["fake", "real"])
def brokers(request: pytest.FixtureRequest) -> Brokers:
    return Fake() if request.param == "fake" else Real(request.getfixturevalue("kafka"))


def test_a_commit_may_be_repeated_and_an_end_is_final(brokers: Brokers) -> None:
    name = next(_names)
    epoch = brokers.start(name)
    brokers.write(name, epoch, ["a", "b"])
    assert brokers.visible() == [] and brokers.open_ids(re.compile(name)) == [name]
    assert brokers.end(name, epoch, True) is End.DONE
    assert brokers.visible() == ["a", "b"] and brokers.open_ids(re.compile(name)) == []
    assert brokers.end(name, epoch, True) is End.DONE
    assert brokers.end(name, epoch, False) is End.INVALID
    assert brokers.visible() == ["a", "b"]


def test_a_new_producer_of_an_id_aborts_the_transaction_of_the_one_before_and_fences_it(brokers: Brokers) -> None:
    name = next(_names)
    old = brokers.start(name)
    brokers.write(name, old, ["lost"])
    new = brokers.start(name)
    assert new > old and brokers.end(name, old, True) is End.FENCED
    with pytest.raises(Fenced):
        brokers.write(name, old, ["too late"])
    brokers.write(name, new, ["kept"])
    assert brokers.end(name, old, True) is End.FENCED and brokers.visible() == []
    assert brokers.end(name, new, True) is End.DONE and brokers.visible() == ["kept"]


def test_a_commit_that_is_repeated_under_an_id_in_use_is_fenced_if_its_producer_is_new(brokers: Brokers) -> None:
    name = next(_names)
    first = brokers.start(name)
    brokers.write(name, first, ["5"])
    assert brokers.end(name, first, True) is End.DONE
    second = brokers.start(name)
    brokers.write(name, second, ["7, half"])
    assert brokers.end(name, first, True) is End.FENCED
    assert brokers.visible() == ["5"]


def test_the_hazard_a_producer_that_goes_on_keeps_its_epoch(brokers: Brokers) -> None:
    """The repeated commit of the first transaction makes a part of the second one visible: why ids change producers."""
    name = next(_names)
    epoch = brokers.start(name)
    brokers.write(name, epoch, ["5"])
    brokers.end_itself(name, epoch)
    brokers.write(name, epoch, ["7, half"])
    assert brokers.visible() == ["5"]
    assert brokers.end(name, epoch, True) is End.DONE
    assert brokers.visible() == ["5", "7, half"]


def test_an_abort_and_an_id_that_nobody_knows(brokers: Brokers) -> None:
    name = next(_names)
    epoch = brokers.start(name)
    brokers.write(name, epoch, ["a"])
    assert brokers.end(name, epoch, False) is End.DONE
    assert brokers.end(name, epoch, True) is End.INVALID
    assert brokers.end(UNUSED, 0, True) is End.UNKNOWN
    assert brokers.visible() == []
