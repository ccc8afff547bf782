"""Orders and payments from Kafka: each order becomes one invoice in Kafka, exactly once.

    penstock run --ha -p 2 -D execution.checkpointing.dir=/var/checkpoints examples/orders/job.py localhost:9092

An order that is paid within five seconds becomes a paid invoice with the tax of its country; any other order expires.
Event time decides which: when the timer of an order fires, every payment that was made before has been read, however
far one topic is ahead of the other. So the invoices are the same whatever is killed meanwhile.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from penstock.common import Row, TypeInformation, Types, WatermarkStrategy
from penstock.datastream import (
    DataStream,
    KeyedCoProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    ValueStateDescriptor,
)
from penstock.datastream.connectors.kafka import (
    DeliveryGuarantee,
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
    KafkaTopicPartition,
)
from penstock.datastream.formats.json import JsonRowDeserializationSchema, JsonRowSerializationSchema

PAY_WITHIN_MS = 5_000
TAX = {"AT": 0.20, "DE": 0.19, "FR": 0.20, "IE": 0.23, "IT": 0.22}
PARTITIONS = 2

LONG, STRING, DOUBLE = Types.LONG(), Types.STRING(), Types.DOUBLE()
ORDER = Types.ROW_NAMED(["id", "country", "amount", "at"], [LONG, STRING, DOUBLE, LONG])
PAYMENT = Types.ROW_NAMED(["order", "at"], [LONG, LONG])
DECIDED = Types.ROW_NAMED(["order", "state", "country", "amount"], [LONG, STRING, STRING, DOUBLE])
INVOICE = Types.ROW_NAMED(["order", "state", "amount", "tax"], [LONG, STRING, DOUBLE, DOUBLE])


class AwaitPayment(KeyedCoProcessFunction):
    """Decides about each order five seconds after it was placed."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.order = runtime_context.get_state(ValueStateDescriptor("order", ORDER))
        self.paid_at = runtime_context.get_state(ValueStateDescriptor("paid at", LONG))

    def process_element1(self, order: Row, ctx: KeyedCoProcessFunction.Context) -> None:
        self.order.update(order)
        ctx.timer_service().register_event_time_timer(order.at + PAY_WITHIN_MS)

    def process_element2(self, payment: Row, ctx: KeyedCoProcessFunction.Context) -> None:
        """A payment may be read before its order, and one that came too late has no order any more."""
        self.paid_at.update(payment.at)
        ctx.timer_service().register_event_time_timer(payment.at + PAY_WITHIN_MS)

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Iterator[object]:
        order, paid_at = self.order.value(), self.paid_at.value()
        self.order.clear()
        self.paid_at.clear()
        if order is not None:
            is_paid = paid_at is not None and paid_at <= timestamp
            state = "paid" if is_paid else "expired"
            yield Row(order=order.id, state=state, country=order.country, amount=order.amount)


def with_tax(decided: Row) -> tuple[int, str, float, float]:
    tax = decided.amount * TAX[decided.country] if decided.state == "paid" else 0.0
    return decided.order, decided.state, decided.amount, round(tax, 2)


def topic(brokers: str, name: str, row_type: TypeInformation, end: int | None) -> KafkaSource:
    schema = JsonRowDeserializationSchema.builder().type_info(row_type).build()
    source = KafkaSource.builder().set_bootstrap_servers(brokers).set_topics(name).set_group_id("invoices")
    source = source.set_value_only_deserializer(schema)
    if end is not None:
        ends = {KafkaTopicPartition(name, partition): end for partition in range(PARTITIONS)}
        source = source.set_bounded(KafkaOffsetsInitializer.offsets(ends))
    return source.build()


def invoices(env: StreamExecutionEnvironment, brokers: str, end: int | None) -> DataStream:
    times = WatermarkStrategy.for_monotonous_timestamps()  # those of the records, partition by partition
    orders = env.from_source(topic(brokers, "orders", ORDER, end), times, "orders").uid("orders")
    payments = env.from_source(topic(brokers, "payments", PAYMENT, end), times, "payments").uid("payments")
    both = orders.connect(payments).key_by(lambda order: order.id, lambda payment: payment.order, LONG)
    decided = both.process(AwaitPayment(), DECIDED).uid("await payment").name("Await payment")
    return decided.map(with_tax, INVOICE).uid("tax").name("Add tax")


def sink(brokers: str) -> KafkaSink:
    serializer = KafkaRecordSerializationSchema.builder().set_topic("invoices")
    serializer = serializer.set_value_serialization_schema(JsonRowSerializationSchema.builder().build())
    sink = KafkaSink.builder().set_bootstrap_servers(brokers).set_record_serializer(serializer.build())
    return sink.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE).set_transactional_id_prefix("invoices").build()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("brokers", help="host:port of a Kafka broker")
    parser.add_argument(
        "--end", type=int, help="the offset in each partition at which the job ends; else it never does"
    )
    given = parser.parse_args()
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(500)
    env.get_checkpoint_config().enable_unaligned_checkpoints()
    invoices(env, given.brokers, given.end).sink_to(sink(given.brokers)).uid("invoices")
    env.execute("invoices")
