"""Keys: equal keys are equal bytes and one key group, however they are declared, and the values are pinned for good."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from typing import Any, Literal, NamedTuple
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from penstock.protocol.values.keys import (
    KeyDecoder,
    KeyEncoder,
    KeyGroups,
    UnsupportedKey,
    decode,
    encode,
    hash_int64,
    hash_strings,
    key_group,
    key_group_range,
    key_groups,
    key_hash,
    owner,
    splitmix64,
)

scalars = st.one_of(
    st.integers(),
    st.booleans(),
    st.floats(),
    st.sampled_from([math.nan, -math.nan, math.inf, -0.0, 1e300, 2.0**63]),
    st.decimals(allow_nan=False, allow_infinity=False, places=3),
    st.text(),
    st.binary(),
    st.dates(),
    st.datetimes(),
    st.datetimes(timezones=st.just(UTC)),
    st.times(),
    st.timedeltas(),
    st.uuids(),
)
composites = st.recursive(
    st.none() | scalars,
    lambda inner: st.lists(inner, max_size=4).map(tuple) | st.frozensets(inner, max_size=3),
    max_leaves=8,
)
keys = composites.filter(lambda key: key is not None)


def same(left: object, right: object) -> bool:
    """Equality under which all NaNs are one."""
    return with_one_nan(left) == with_one_nan(right)


def with_one_nan(key: object) -> object:
    if isinstance(key, tuple):
        return tuple(map(with_one_nan, key))
    if isinstance(key, frozenset):
        return frozenset(map(with_one_nan, key))
    return "the only NaN" if key != key else key


class Number(IntEnum):
    A = 1


class Point(NamedTuple):
    x: float
    y: str


def canonical(values: list[Any], max_parallelism: int = 128) -> tuple[list[bytes], KeyGroups]:
    """Encode keys whose type is not declared."""
    column, groups = KeyEncoder("canonical", max_parallelism).encode(values)
    data = [key for key in column if isinstance(key, bytes)]
    assert len(data) == len(column)
    return data, groups


@pytest.mark.parametrize(
    "equal",
    [
        (1, 1.0, True, Decimal("1.00"), np.int64(1), np.int8(1), np.float32(1), np.True_, Number(1)),
        (0, 0.0, -0.0, False, Decimal("-0")),
        (10**40, Decimal(10) ** 40),
        (1e300, int(1e300)),
        (0.5, Decimal("0.5"), np.float64(0.5)),
        (Decimal("0.1"), Decimal("0.100")),
        (math.nan, -math.nan, float("nan"), Decimal("nan"), np.float64("nan")),
        (math.inf, Decimal("Infinity")),
        ("a", np.str_("a")),
        (b"a", bytearray(b"a"), np.bytes_(b"a")),
        ((1, "a"), [True, "a"], Point(1.0, "a")),
        ({1, 2}, frozenset({2.0, True})),
        ({math.nan, float("nan")}, {float("nan")}),
        (datetime(2020, 1, 1, tzinfo=UTC), datetime(2020, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))),
        (datetime(2020, 1, 1), datetime(2020, 1, 1, fold=1)),
    ],
)
def test_equal_keys_are_equal_bytes_and_hashes(equal: tuple[object, ...]) -> None:
    assert len({encode(key) for key in equal}) == 1
    assert len({key_hash(key) for key in equal}) == 1


def test_what_is_not_equal_differs() -> None:
    different = [
        1,
        2,
        "1",
        b"1",
        (1,),
        ((1,),),
        (),
        "",
        b"",
        0.1,
        Decimal("0.1"),
        date(1970, 1, 1),
        datetime(1970, 1, 1),
        datetime(1970, 1, 1, tzinfo=UTC),
        time(0),
        timedelta(0),
        UUID(int=0),
        frozenset(),
        (None,),
        ("a", "b"),
        ("ab", ""),
        (("a",), "b"),
        (1, None),
        (None, 1),
        2**63,
        -(2**63) - 1,
        math.nan,
        math.inf,
        -math.inf,
    ]
    assert len({encode(key) for key in different}) == len(different)


@given(keys)
def test_decode_returns_an_equal_hashable_key(key: object) -> None:
    again = decode(encode(key))
    hash(again)
    assert same(again, key)
    assert encode(again) == encode(key)


@given(keys, keys)
def test_bytes_are_equal_exactly_when_keys_are(left: object, right: object) -> None:
    assert (encode(left) == encode(right)) == same(left, right)


@given(keys, st.integers(0, 20))
def test_a_cut_encoding_is_refused(key: object, cut: int) -> None:
    data = encode(key)
    with pytest.raises(ValueError):
        decode(data[: max(0, len(data) - 1 - cut)])
    with pytest.raises(ValueError):
        decode(data + b"N")


def test_splitmix64_is_the_published_one() -> None:
    assert splitmix64(0) == 0xE220A8397B1DCDAF
    assert splitmix64(1234567) == 6457827717110365317


@pytest.mark.parametrize(
    ("key", "data", "hash_value"),
    [
        (0, "690000000000000000", 0xE220A8397B1DCDAF),
        (1, "690100000000000000", 0x910A2DEC89025CC1),
        (-1, "69ffffffffffffffff", 0xE4D971771B652C20),
        ("", "7300000000", 0x2D06800538D394C2),
        ("a", "730100000061", 0xE6C632B61E964E1F),
        (b"a", "620100000061", 0xE6C632B61E964E1F),
        ((None,), "74010000004e", splitmix64(0x9E3779B97F4A7C15)),
        ((1,), "7401000000690100000000000000", splitmix64(0x910A2DEC89025CC1)),
        (
            ("a", 1),
            "7402000000730100000061690100000000000000",
            splitmix64(splitmix64(0xE6C632B61E964E1F) ^ 0x910A2DEC89025CC1),
        ),
        (0.5, "66000000000000e03f", xxh3_64_intdigest(bytes.fromhex("66000000000000e03f"))),
        (2**63, "4909000000000000000000008000", xxh3_64_intdigest(bytes.fromhex("4909000000000000000000008000"))),
    ],
)
def test_golden_vectors(key: object, data: str, hash_value: int) -> None:
    assert encode(key).hex() == data
    assert key_hash(key) == hash_value


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1), st.integers(1, 32768))
def test_a_long_column_lands_where_the_same_keys_by_lambda_do(values: list[int], max_parallelism: int) -> None:
    hashes = hash_int64(np.array(values, dtype=np.int64))
    assert hashes.tolist() == [key_hash(value) for value in values]
    assert key_groups(hashes, max_parallelism).tolist() == [key_group(h, max_parallelism) for h in hashes.tolist()]
    column, groups = KeyEncoder("long", max_parallelism).encode(values)
    by_lambda, groups_by_lambda = canonical(values, max_parallelism)
    assert isinstance(column, np.ndarray)
    assert column.tolist() == values == [decode(data) for data in by_lambda]
    assert groups.dtype == np.uint16
    assert groups.tolist() == groups_by_lambda.tolist()


@given(st.lists(st.text()), st.integers(1, 32768))
def test_a_string_column_lands_where_the_same_keys_by_lambda_do(values: list[str], max_parallelism: int) -> None:
    assert hash_strings(values).tolist() == [key_hash(value) for value in values]
    column, groups = KeyEncoder("string", max_parallelism).encode(values)
    _, groups_by_lambda = canonical(values, max_parallelism)
    assert column == values
    assert groups.tolist() == groups_by_lambda.tolist()


@given(st.lists(keys), st.integers(0, 3))
def test_encoder_and_decoder_agree_with_the_functions_however_little_they_remember(
    values: list[object], memo_keys_max: int
) -> None:
    encoder = KeyEncoder("canonical", 128, memo_keys_max)
    decoder = KeyDecoder(memo_keys_max)
    for _ in range(3):
        data, groups = encoder.encode(values)
        encoded = [encode(value) for value in values]
        assert data == encoded
        assert groups.tolist() == [key_group(key_hash(value), 128) for value in values]
        assert all(map(same, decoder.decode(encoded), values))


def test_keys_that_cannot_be_hashed_by_python_are_encoded_all_the_same() -> None:
    data, groups = canonical([[1, 2], "a", ([1], 2)])
    assert [decode(d) for d in data] == [(1, 2), "a", ((1,), 2)]
    assert groups.tolist() == [key_group(key_hash(key), 128) for key in [(1, 2), "a", ((1,), 2)]]


def test_equal_keys_decode_to_one_object() -> None:
    first, second = KeyDecoder().decode([encode((math.nan, "a")), encode((math.nan, "a"))])
    assert first is second


class Colour(Enum):
    RED = 1


@pytest.mark.parametrize(
    ("declared", "values", "row_index", "message"),
    [
        ("canonical", ["a", None], 1, "must not be None"),
        ("string", ["a", None], 1, "must not be None"),
        ("long", [1, None], 1, "must not be None"),
        ("canonical", [1, Colour.RED], 1, "Colour.*name or value"),
        ("canonical", [(1, object())], 0, "builtins.object"),
        ("canonical", [[1], [Fraction(1, 3)]], 1, "Fraction"),
        ("canonical", [time(1, tzinfo=UTC)], 0, "zone"),
        ("canonical", [np.timedelta64(1, "ns")], 0, "timedelta64"),
        ("canonical", [{"a": 1}], 0, "dict"),
        ("string", ["a", 1], 1, "declared STRING"),
        ("string", [["a"]], 0, "declared STRING"),
        ("long", [1, 1.5], 1, "declared LONG"),
        ("long", [1, "1"], 1, "declared LONG"),
        ("long", [2**63], 0, "64 bits"),
        ("long", [[1], [2]], 0, "declared LONG"),
    ],
)
def test_refused_keys_are_named_with_their_row(
    declared: Literal["long", "string", "canonical"], values: list[object], row_index: int, message: str
) -> None:
    with pytest.raises(UnsupportedKey, match=message) as caught:
        KeyEncoder(declared, 128).encode(values)
    assert caught.value.row_index == row_index


def test_equal_keys_of_other_types_fit_a_long_column() -> None:
    values, _ = KeyEncoder("long", 128).encode([True, 2.0, np.int32(3), 2**62 + 1])
    assert isinstance(values, np.ndarray)
    assert values.tolist() == [1, 2, 3, 2**62 + 1]


def test_empty_batches() -> None:
    for declared in ("long", "string", "canonical"):
        values, groups = KeyEncoder(declared, 128).encode([])
        assert len(values) == len(groups) == 0


@given(st.integers(1, 512), st.data())
def test_ranges_partition_the_key_groups_and_agree_with_owner(max_parallelism: int, data: st.DataObject) -> None:
    parallelism = data.draw(st.integers(1, max_parallelism))
    ranges = [key_group_range(max_parallelism, parallelism, subtask) for subtask in range(parallelism)]
    assert [group for r in ranges for group in r] == list(range(max_parallelism))
    assert all(owner(group, max_parallelism, parallelism) == i for i, r in enumerate(ranges) for group in r)


@pytest.mark.parametrize(
    ("max_parallelism", "parallelism", "expected"),
    [(128, 3, [(0, 42), (43, 85), (86, 127)]), (10, 4, [(0, 2), (3, 4), (5, 7), (8, 9)])],
)
def test_ranges_are_flinks(max_parallelism: int, parallelism: int, expected: list[tuple[int, int]]) -> None:
    ranges = [key_group_range(max_parallelism, parallelism, i) for i in range(parallelism)]
    assert [(r[0], r[-1]) for r in ranges] == expected


def test_key_groups_are_evenly_used() -> None:
    groups = key_groups(hash_int64(np.arange(128_000)), 128)
    counts = np.bincount(groups, minlength=128)
    assert counts.min() > 850 and counts.max() < 1150


def test_parallelism_beyond_max_parallelism_is_refused() -> None:
    with pytest.raises(ValueError, match="max parallelism 4"):
        key_group_range(4, 5, 0)
    with pytest.raises(ValueError, match="32768"):
        KeyEncoder("long", 40_000)
