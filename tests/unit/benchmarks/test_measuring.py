"""Checks what all benchmarks measure with: the peer's rows, the interval of a median, and their arguments."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from measuring import generate_pressure, median_interval, parse_arguments

WRAP = (1 << 64) - 1


def java_mix(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) & WRAP
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & WRAP
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & WRAP
    return x ^ (x >> 31)


@pytest.mark.parametrize("first", [0, 999, 3_000_000_000])
def test_rows_are_those_of_the_peer(first: int) -> None:
    batch = generate_pressure(first, 5)
    rows = list(zip(*(column.to_pylist() for column in batch.columns)))
    expected = [
        (i, i * 2654435761 % 10007, i // 1000, "".join(f"{java_mix(i * 7 + k):016x}" for k in range(7))[:100])
        for i in range(first, first + 5)
    ]
    assert rows == expected


def test_the_interval_covers_the_median_as_often_as_it_says() -> None:
    generator = random.Random(7)
    covered = 0
    for _ in range(2000):
        low, high = median_interval([generator.gauss(1, 0.1) for _ in range(15)])
        covered += low <= 1 <= high
    assert 0.95 <= covered / 2000 <= 0.985


def test_few_values_give_no_interval() -> None:
    assert median_interval([1.0] * 5) == (-math.inf, math.inf)
    assert median_interval([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) == (1.0, 6.0)
    low, high = median_interval(list(np.linspace(0.9, 1.1, 101)))
    assert 0.95 < low < 1.0 < high < 1.05


def test_arguments() -> None:
    args = parse_arguments(["seconds=5", "a.b=x=y"], {"seconds": "45", "busy": "false"})
    assert (args.number("seconds"), args.flag("busy"), args.options) == (5.0, False, {"a.b": "x=y"})
    with pytest.raises(SystemExit, match="'second=5'"):
        parse_arguments(["second=5"], {"seconds": "45"})
    with pytest.raises(SystemExit, match="workload=other: it is one of map, udf"):
        parse_arguments(["workload=other"], {"workload": "map"}, {"workload": ("map", "udf")})
