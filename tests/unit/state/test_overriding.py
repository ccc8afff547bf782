"""Runs that override and delete entries of earlier runs, against a dict, whatever the key is made of."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pytest

from penstock.common.typeinfo import KEY_COLUMN, KEY_GROUP_COLUMN
from penstock.state.codecs import RestoredRun
from penstock.state.overriding import consolidated

KEYS: dict[str, tuple[pa.Schema, Any]] = {
    "canonical": (pa.schema([(KEY_COLUMN, pa.binary())]), lambda n: (b"i%d" % n,)),
    "one column": (pa.schema([("key.id", pa.int64())]), lambda n: (n,)),
    "two columns": (
        pa.schema([("key.user", pa.string()), ("key.window_start", pa.int64())]),
        lambda n: (f"{n // 10}:{n % 7}"[: 1 + n % 3], n),
    ),
    "two texts": (pa.schema([("key.a", pa.string()), ("key.b", pa.string())]), lambda n: ("1:" * (n % 5), ":1" * n)),
    "bytes and a number": (
        pa.schema([("key.a", pa.binary()), ("key.b", pa.int32())]),
        lambda n: (b"\xff:" * (n % 3), n),
    ),
}


def run(kind: str, entries: list[tuple[int, int | None]], deletes: bool) -> RestoredRun:
    keys, key_of = KEYS[kind]
    fields = [*keys, *([] if deletes else [pa.field("value.v", pa.int64())]), pa.field(KEY_GROUP_COLUMN, pa.uint16())]
    columns = [list(column) for column in zip(*(key_of(n) for n, _ in entries))]
    values = [] if deletes else [[value for _, value in entries]]
    arrays = [pa.array(c, f.type) for c, f in zip([*columns, *values, [n % 8 for n, _ in entries]], fields)]
    half = len(entries) // 2
    batch = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
    return RestoredRun("columns x", pa.schema(fields), [batch.slice(0, half), batch.slice(half)], deletes)


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("seed", range(10))
def test_each_key_has_what_the_newest_run_says(kind: str, seed: int) -> None:
    random = Random(seed)
    kept: dict[Any, int] = {}
    runs = []
    for number in range(random.randrange(2, 6)):
        chosen = random.sample(range(40), random.randrange(1, 40))
        if random.random() < 0.4:
            runs.append(run(kind, [(n, None) for n in chosen], deletes=True))
            for n in chosen:
                kept.pop(KEYS[kind][1](n), None)
        else:
            runs.append(run(kind, [(n, number) for n in chosen], deletes=False))
            kept.update({KEYS[kind][1](n): number for n in chosen})
    assert len({KEYS[kind][1](n) for n in range(40)}) == 40
    found = consolidated(runs)
    rows = [tuple(row.values()) for run_ in found for batch in run_.batches for row in batch.to_pylist()]
    assert sorted(rows) == sorted(
        (*key, value, n % 8) for key, value in kept.items() for n in range(40) if KEYS[kind][1](n) == key
    )
    assert not any(run_.deletes for run_ in found)


def test_runs_that_do_not_overlap_stay_as_they_are() -> None:
    runs = [run("canonical", [(n, 1) for n in range(first, first + 5)], deletes=False) for first in (0, 10, 20)]
    assert [list(r.batches) for r in consolidated(runs)] == [r.batches for r in runs]
