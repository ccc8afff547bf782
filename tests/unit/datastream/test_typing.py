"""Holds the types of streams that an editor and mypy see. `make check` runs mypy over this file and the examples.

When it runs, `assert_type` does nothing; so the test checks that the same calls work.
"""

from __future__ import annotations

from typing import Any, assert_type

import pyarrow.compute as pc

from penstock.common import Row, Time, Types, WatermarkStrategy
from penstock.datastream import (
    AsyncDataStream,
    AsyncFunction,
    BlockingFunction,
    DataStream,
    FilterFunction,
    FlatMapFunction,
    KeyedStream,
    MapFunction,
    ReduceFunction,
    SingleOutputStreamOperator,
    StreamExecutionEnvironment,
)
from penstock.datastream.connectors.number_seq import NumberSequenceSource

PRICE = Types.ROW_NAMED(["name", "cents"], [Types.STRING(), Types.LONG()])


class Length(MapFunction[str, int]):
    def map(self, value: str) -> int:
        return len(value)


class Words(FlatMapFunction[str, str]):
    def flat_map(self, value: str) -> list[str]:
        return value.split()


class Long(FilterFunction[str]):
    def filter(self, value: str) -> bool:
        return len(value) > 3


class Longest(ReduceFunction[str]):
    def reduce(self, value1: str, value2: str) -> str:
        return max(value1, value2, key=len)


class Untyped(MapFunction):
    def map(self, value):  # type: ignore[no-untyped-def]
        return value


class AskForLength(AsyncFunction[str, int]):
    async def async_invoke(self, value: str) -> list[int]:
        return [len(value)]


class LookUpLength(BlockingFunction[str, int]):
    def invoke(self, value: str) -> list[int]:
        return [len(value)]


async def lengths(line: str) -> list[int]:
    return [len(line)]


def length(line: str) -> int:
    return len(line)


def priced(name: str) -> tuple[str, int]:
    return name, 250


def words(line: str) -> list[str]:
    return line.split()


def test_functions_of_rows(env: StreamExecutionEnvironment) -> None:
    lines = env.from_collection(["to be", "or not"], Types.STRING())
    assert_type(lines, SingleOutputStreamOperator[str])
    assert_type(lines.map(length), SingleOutputStreamOperator[int])
    assert_type(lines.map(lambda line: len(line), Types.LONG()), SingleOutputStreamOperator[int])
    assert_type(lines.map(Length()), SingleOutputStreamOperator[int])
    assert_type(lines.flat_map(words, Types.STRING()), SingleOutputStreamOperator[str])
    assert_type(lines.flat_map(Words()).filter(Long()), SingleOutputStreamOperator[str])
    assert_type(lines.filter(lambda line: "be" in line).name("with be").uid("be"), SingleOutputStreamOperator[str])
    assert_type(lines.map(Untyped()), SingleOutputStreamOperator[Any])


def test_functions_that_call_services(env: StreamExecutionEnvironment) -> None:
    lines = env.from_collection(["to be", "or not"], Types.STRING())
    assert_type(AsyncDataStream.ordered_wait(lines, AskForLength(), Time.seconds(5)), DataStream[int])
    assert_type(AsyncDataStream.unordered_wait(lines, LookUpLength(), Time.seconds(5), 10), DataStream[int])
    assert_type(AsyncDataStream.unordered_wait(lines, lengths, Time.seconds(5)), DataStream[int])
    assert_type(AsyncDataStream.unordered_wait(lines, words, Time.seconds(5)), DataStream[str])


def test_keys_and_partitions(env: StreamExecutionEnvironment) -> None:
    words = env.from_collection(["to", "be"])
    keyed = words.key_by(length, Types.INT())
    assert_type(keyed, KeyedStream[str])
    assert_type(keyed.reduce(Longest()), SingleOutputStreamOperator[str])
    assert_type(keyed.reduce(lambda a, b: a + b), SingleOutputStreamOperator[str])
    assert_type(keyed.map(length), SingleOutputStreamOperator[int])
    assert_type(words.rebalance().union(words), DataStream[str])
    numbers = env.from_source(NumberSequenceSource(1, 3), WatermarkStrategy.no_watermarks(), "numbers")
    untyped: DataStream = numbers  # a stream of any rows
    assert_type(untyped.map(length), SingleOutputStreamOperator[int])


def test_rows_with_fields(env: StreamExecutionEnvironment) -> None:
    prices = env.from_collection([("tea", 250)], PRICE)
    assert_type(prices, SingleOutputStreamOperator[Row])
    assert_type(prices.map(lambda price: price.cents * 2), SingleOutputStreamOperator[Any])
    assert_type(env.from_collection(["tea"]).map(priced, PRICE), SingleOutputStreamOperator[Row])
    # mypy does not look into a lambda where a declared type decides.
    assert_type(env.from_collection(["tea"]).map(lambda name: (name, 1), PRICE), SingleOutputStreamOperator[Any])
    assert_type(prices.select("name"), SingleOutputStreamOperator[Row])
    assert_type(prices.filter(pc.field("cents") > 100), SingleOutputStreamOperator[Row])
