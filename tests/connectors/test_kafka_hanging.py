"""Tests transactions that a partition keeps open although their coordinator has ended them, on a real broker.

A broker makes them by chance when it starts. Here they are made on purpose, as Kafka's own tests make them: a record
that comes after its transaction's end is taken, because the broker does not ask the coordinator.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient

from penstock.common import SimpleStringSchema
from penstock.connectors.kafka.broker_requests import BrokerRequests
from penstock.connectors.kafka.committer import KafkaCommitter, PreparedTransaction
from penstock.connectors.kafka.hanging import HangingTransactions, was_committed
from penstock.connectors.kafka.kafka_writer import TransactionalWriter
from penstock.connectors.kafka.producers import ProducerPool
from penstock.connectors.kafka.transactions import End, ids_of_all_coordinators
from penstock.datastream.connectors.base import OutputGone, SinkError
from penstock.datastream.connectors.kafka import DeliveryGuarantee, KafkaRecordSerializationSchema
from tests.connectors.test_kafka_sink import batch, builder, context, exactly_once, seen
from tests.connectors.topics import LIMIT_S, coordinators_of, produced, topic
from tools.kafka_broker import KafkaBroker

CLUSTER_AUTHORIZATION_FAILED = 31


@pytest.fixture(scope="module")
def careless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A broker that takes records of transactions that it does not know to be open."""
    settings = "transaction.partition.verification.enable=false\ntransaction.state.log.num.partitions=7\n"
    with KafkaBroker(tmp_path_factory.mktemp("careless"), settings) as broker:
        yield broker


def looking_at(broker: KafkaBroker) -> HangingTransactions:
    requests = BrokerRequests({"bootstrap.servers": broker.bootstrap_servers})
    return HangingTransactions(requests, coordinators_of(broker))


def open_at(broker: KafkaBroker, name: str) -> int:
    return len(looking_at(broker).open_in([name]))


def hanging(broker: KafkaBroker, name: str, prefix: str, *, commits: bool) -> tuple[TransactionalWriter, list[bytes]]:
    """Write a transaction that hangs with the record "late", after it has committed or aborted "a"."""
    writer = exactly_once(broker, name, prefix).create_writer(context(), [])
    assert isinstance(writer, TransactionalWriter)
    writer.write(batch("a"))
    assert writer._open is not None
    producer, transaction = writer._open.producer, writer._open.name
    writer._records.flush(producer)
    assert writer._records.first is not None
    prepared = PreparedTransaction(transaction, 1, *writer._records.first, {name: (0,)}).encoded()
    assert coordinators_of(broker).end(transaction, commits=commits) is End.DONE
    deadline = time.monotonic() + LIMIT_S
    while open_at(broker, name):
        assert time.monotonic() < deadline, "the partition does not learn of the end"
    writer.write(batch("late"))
    writer._records.flush(producer)
    assert open_at(broker, name) == 1
    produced(broker, name, [b"somebody else's"])
    assert seen(broker, name) == (["a"] if commits else []), "nothing holds readers up"
    return writer, [prepared]


def test_a_commit_that_hangs_is_ended_before_its_id_is_free(careless: KafkaBroker) -> None:
    name = topic(careless)
    _, prepared = hanging(careless, name, "commits", commits=True)
    KafkaCommitter({"bootstrap.servers": careless.bootstrap_servers}).commit(1, prepared)
    assert open_at(careless, name) == 0
    assert seen(careless, name) == ["a", "late", "somebody else's"]


def test_rows_that_hang_aborted_are_named_as_lost(careless: KafkaBroker) -> None:
    name = topic(careless)
    _, prepared = hanging(careless, name, "aborts", commits=False)
    with pytest.raises(OutputGone, match=rf"1 rows of checkpoint 1 are lost, beginning at topic '{name}'"):
        KafkaCommitter({"bootstrap.servers": careless.bootstrap_servers}).commit(1, prepared)
    assert seen(careless, name) == ["somebody else's"]


@pytest.mark.parametrize("commits", [True, False])
def test_what_hangs_of_earlier_attempts_ends_as_their_coordinator_has_decided(
    careless: KafkaBroker, commits: bool
) -> None:
    name, prefix = topic(careless), f"attempts-{commits}"
    hanging(careless, name, prefix, commits=commits)
    next_attempt = exactly_once(careless, name, prefix).create_writer(context("two"), [])
    next_attempt.prepare_commit(1)
    assert open_at(careless, name) == 0
    assert seen(careless, name) == (["a", "late"] if commits else []) + ["somebody else's"]
    next_attempt.close()


def test_an_attempt_leaves_its_own_those_of_others_and_what_is_to_be_committed(careless: KafkaBroker) -> None:
    name = topic(careless)
    to_commit = exactly_once(careless, name, "mine").create_writer(context("one"), [])
    to_commit.write(batch("committed later"))
    pending = to_commit.prepare_commit(1)
    others = exactly_once(careless, name, "others").create_writer(context("one"), [])
    others.write(batch("another's"))
    kept = others.prepare_commit(1)
    second_subtask = exactly_once(careless, name, "mine").create_writer(context("two", subtask=1), [])
    second_subtask.write(batch("next"))
    own = second_subtask.prepare_commit(2)
    assert open_at(careless, name) == 3
    first_subtask = exactly_once(careless, name, "mine").create_writer(context("two", pending), [])
    assert first_subtask.prepare_commit(2) == []
    assert open_at(careless, name) == 3
    committer = KafkaCommitter({"bootstrap.servers": careless.bootstrap_servers})
    committer.commit(2, [*pending, *kept, *own])
    assert sorted(seen(careless, name)) == ["another's", "committed later", "next"]


def test_an_attempt_that_has_ended_fences_nobody(careless: KafkaBroker) -> None:
    """Its thread may still wait for brokers when the next attempt, which it does not know, has begun to write."""
    name = topic(careless)
    ended = ProducerPool({"bootstrap.servers": careless.bootstrap_servers}, "ended", "one", 0)
    newer = exactly_once(careless, name, "ended").create_writer(context("two"), [])
    newer.write(batch("a"))
    prepared = newer.prepare_commit(1)
    ended.close()
    with pytest.raises(SinkError, match="Kafka is not asked to list the transactions any more"):
        ended._fence(frozenset(), frozenset({name}))
    KafkaCommitter({"bootstrap.servers": careless.bootstrap_servers}).commit(1, prepared)
    assert seen(careless, name) == ["a"]


def test_a_commit_that_hangs_under_an_id_that_is_used_again_is_still_a_commit(careless: KafkaBroker) -> None:
    """Happens where a user was not permitted to read the topic at the time of the commit."""
    name = topic(careless)
    hanging(careless, name, "again", commits=True)
    ProducerPool({"bootstrap.servers": careless.bootstrap_servers}, "again", "one", 0)._make("again-one-0-0")
    next_attempt = exactly_once(careless, name, "again").create_writer(context("two"), [])
    next_attempt.prepare_commit(1)
    assert seen(careless, name) == ["a", "late", "somebody else's"]


def test_a_fenced_transaction_counts_as_aborted(careless: KafkaBroker) -> None:
    name, id_of_it = topic(careless), "fenced-one-0-0"
    writer = exactly_once(careless, name, "fenced").create_writer(context(), [])
    writer.write(batch("a"))
    writer.prepare_commit(1)
    coordinators = coordinators_of(careless)
    (it,) = looking_at(careless).open_in([name])
    assert coordinators.views([id_of_it])[id_of_it].is_open
    coordinators.fence(id_of_it)
    view = coordinators.views([id_of_it])[id_of_it]
    assert view.is_over and not was_committed(view, it)


def test_the_end_of_a_transaction_that_nobody_knows_any_more_is_not_guessed(careless: KafkaBroker) -> None:
    name = topic(careless)
    hanging(careless, name, "forgotten", commits=True)
    found = looking_at(careless)
    (it,) = found.open_in([name])
    wanted = (
        rf"offset 2: .*does not know the id 'never-used' any more.*abort --topic {name} --partition 0 --start-offset 2"
    )
    with pytest.raises(SinkError, match=wanted):
        found.await_aborted({it.producer_id: "never-used"}, [name])
    assert open_at(careless, name) == 1


def test_every_coordinator_is_asked_whether_it_is_ready() -> None:
    """Kafka spreads ids by Java's hash of a string, over 50 partitions by default."""

    def java_hash(text: str) -> int:
        value = 0
        for character in text:
            value = (31 * value + ord(character)) & 0xFFFFFFFF
        return value & 0x7FFFFFFF

    for partitions in (1, 7, 50, 200):
        assert len({java_hash(name) % partitions for name in ids_of_all_coordinators("totals")}) == partitions


def test_a_user_who_may_not_end_it_is_told_where_it_hangs(
    careless: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer of a broker that does not permit it is put in place of this one's, which permits everything."""
    name = topic(careless)
    _, prepared = hanging(careless, name, "forbidden", commits=True)
    committer = KafkaCommitter({"bootstrap.servers": careless.bootstrap_servers})
    where = rf"a transaction hangs at topic '{name}', partition 0, offset 2: .*Alter the cluster"
    with monkeypatch.context() as patched:
        patched.setattr("penstock.connectors.kafka.hanging._marked", _refused)
        with pytest.raises(SinkError, match=where):
            committer.commit(1, prepared)
    committer.commit(1, prepared)
    assert seen(careless, name) == ["a", "late", "somebody else's"]


async def _refused(*_: object) -> int:
    return CLUSTER_AUTHORIZATION_FAILED


def test_readers_see_the_rows_of_a_selector_s_topics_when_the_commit_returns(careless: KafkaBroker) -> None:
    names = [topic(careless), topic(careless)]
    serializer = KafkaRecordSerializationSchema.builder().set_topic_selector(lambda row: names[int(row)])
    serializer.set_value_serialization_schema(SimpleStringSchema())
    found = builder(careless, names[0], DeliveryGuarantee.EXACTLY_ONCE, "selects")
    sink = found.set_record_serializer(serializer.build()).build()
    writer = sink.create_writer(context(), [])
    committer = sink.create_committer()
    assert committer is not None
    for checkpoint_id in range(1, 20):
        writer.write(batch("0", "1"))
        prepared = writer.prepare_commit(checkpoint_id)
        assert PreparedTransaction.decoded(prepared[0]).partitions == {(name, 0) for name in names}
        committer.commit(checkpoint_id, prepared)
        assert [len(seen(careless, name)) for name in names] == [checkpoint_id, checkpoint_id]
    writer.write(batch("1"))
    assert PreparedTransaction.decoded(writer.prepare_commit(20)[0]).partitions == {(names[1], 0)}
    writer.close()


def test_a_topic_that_is_gone_has_nothing_open(careless: KafkaBroker) -> None:
    name = topic(careless)
    admin = AdminClient({"bootstrap.servers": careless.bootstrap_servers})
    admin.delete_topics([name])[name].result(LIMIT_S)
    assert open_at(careless, name) == 0
