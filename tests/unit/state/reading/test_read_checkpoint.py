"""Tests what `read_checkpoint` finds in checkpoints of real jobs: every kind of state, as Arrow, whatever the
backend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.common.types import Types
from penstock.state import read_checkpoint
from penstock.state.backend import StateError
from penstock.state.reading.state_rows import StateRows
from tests.unit.state.reading.jobs import (
    BACKENDS,
    EVENT_ROWS,
    KEYS,
    USERS,
    StoredJob,
    aggregates,
    columnar_windows,
    keyed,
    row_windows,
    stored,
    with_rules,
)


def pairs(rows: StateRows) -> dict[Any, Any]:
    table = rows.table()
    keys = table.column("key").to_pylist()
    assert len(set(keys)) == len(keys), "each key once"
    return dict(zip(keys, table.column("value").to_pylist()))


def expected(seen: list[int]) -> dict[int, list[int]]:
    """The rows of each key, in order."""
    found: dict[int, list[int]] = {}
    for number in sorted(seen):
        found.setdefault(number % KEYS, []).append(number)
    return found


def applied(path: str) -> list[int]:
    """The numbers that the job had processed: those in the list and value states say so, and all before them."""
    sums = read_checkpoint(path).keyed_state("everything", "most").table()
    return [
        n
        for key, most in zip(*(sums.column(c).to_pylist() for c in ("key", "value")))
        for n in range(key, most + 1, KEYS)
    ]


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_kind_of_keyed_state(tmp_path: Path, backend: str) -> None:
    path = stored(tmp_path / "job", keyed, backend=backend)
    checkpoint = read_checkpoint(path)
    of_key = expected(applied(path))
    assert of_key and pairs(checkpoint.keyed_state("everything", "sum")) == {k: sum(v) for k, v in of_key.items()}
    last = {k: v[-1] for k, v in of_key.items()}
    assert pairs(checkpoint.keyed_state("everything", "most")) == last
    assert pairs(checkpoint.keyed_state("everything", "point")) == {
        k: {"x": n, "label": f"label {n}"} for k, n in last.items()
    }
    assert pairs(checkpoint.keyed_state("everything", "mean")) == {
        k: {"f0": sum(v), "f1": len(v)} for k, v in of_key.items()
    }
    assert pairs(checkpoint.keyed_state("everything", "map")) == {k: [("last", n), ("key", k)] for k, n in last.items()}
    assert pairs(checkpoint.keyed_state("everything", "object")) == {k: repr({"last": n}) for k, n in last.items()}
    lists = {}
    for key, numbers in of_key.items():
        cleared = max((i + 1 for i, n in enumerate(numbers) if n % 5 == 4), default=0)
        if kept := [f"n{n}" for n in numbers[cleared:]]:
            lists[key] = kept
    assert pairs(checkpoint.keyed_state("everything", "list")) == lists
    typed = checkpoint.keyed_state("everything", "sum").table()
    assert [(f.name, f.type) for f in typed.schema] == [
        ("key", pa.int64()),
        ("key_group", pa.int32()),
        ("value", pa.int64()),
    ]


@pytest.mark.parametrize("backend", BACKENDS)
def test_timers_of_both_time_domains(tmp_path: Path, backend: str) -> None:
    path = stored(tmp_path / "job", keyed, backend=backend)
    found = [rows.table() for rows in read_checkpoint(path).timers("everything")]
    assert [set(table.column("time_domain").to_pylist()) for table in found] == [{"EVENT_TIME"}, {"PROCESSING_TIME"}]
    timers = {(k, t) for k, t in zip(*(found[0].column(c).to_pylist() for c in ("key", "timestamp")))}
    assert timers == {(n % KEYS, 10_000_000 + n) for n in applied(path)}
    assert set(found[1].column("timestamp").to_pylist()) == {4_000_000_000_000}


def test_keys_that_are_texts_and_names_instead_of_uids(tmp_path: Path) -> None:
    path = stored(tmp_path / "job", lambda env: keyed(env, texts=True))
    checkpoint = read_checkpoint(str(tmp_path / "job" / "chk-1" / "_metadata"))
    found = checkpoint.keyed_state("everything", "sum").table()
    assert found.schema.field("key").type == pa.string()
    assert set(found.column("key").to_pylist()) <= {f"k{i}" for i in range(KEYS)}
    operator = checkpoint.operator("everything")
    assert checkpoint.keyed_state(operator.id, "sum").table() == found
    assert checkpoint.keyed_state(operator.name, "sum").table() == found
    assert read_checkpoint(path).path == str(tmp_path / "job" / "chk-1")


def test_a_reader_takes_key_groups_and_shares_that_are_disjoint(tmp_path: Path) -> None:
    for backend in BACKENDS:
        rows = read_checkpoint(stored(tmp_path / backend, keyed, backend=backend)).keyed_state("everything", "sum")
        whole = rows.table().sort_by("key")
        shares = [share.table() for share in rows.split(5)]
        assert len(shares) >= 2 and pa.concat_tables(shares).sort_by("key") == whole
        some = rows.reader(range(10, 70)).read_all()
        assert some.sort_by("key") == whole.filter(
            (pa.compute.field("key_group") >= 10) & (pa.compute.field("key_group") < 70)
        )
        assert rows.count() == len(whole)
        assert sum(1 for _ in rows.entries()) == len(whole)


def test_operator_state_and_broadcast_state(tmp_path: Path) -> None:
    path = stored(tmp_path / "job", keyed)
    checkpoint = read_checkpoint(path)
    seen = checkpoint.operator_state("remembering", "seen")
    assert seen.column("subtask").to_pylist() == [0, 1] and sum(seen.column("value").to_pylist()) == len(applied(path))
    texts = [f"rows {n}" for n in seen.column("value").to_pylist()]
    assert checkpoint.operator_state("remembering", "all").column("value").to_pylist() == texts
    ruled = read_checkpoint(stored(tmp_path / "ruled", with_rules, turns=400)).broadcast_state("ruled", "rules")
    assert dict(zip(*(ruled.column(c).to_pylist() for c in ("key", "value")))) == {f"rule {i}": i for i in (1, 2, 3)}


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_table_of_built_in_aggregates(tmp_path: Path, backend: str) -> None:
    path = stored(tmp_path / "job", aggregates, turns=24, backend=backend)
    checkpoint = read_checkpoint(path)
    found = pairs(checkpoint.keyed_state("totals", "_aggregates"))
    assert len(found) > 100
    overriding = [len({run.segment for run in subtask.keyed}) > 1 for subtask in checkpoint.metadata.subtasks]
    assert any(overriding) is ("incremental" in backend)
    for user, kept in found.items():
        rows = range(int(user.removeprefix("user ")), EVENT_ROWS, USERS)[: kept["rows.count"]]
        assert rows and kept == {"total.sum": sum(rows), "total.seen": True, "rows.count": len(rows)}


def test_windows_over_rows(tmp_path: Path) -> None:
    table = read_checkpoint(stored(tmp_path / "rows", row_windows, turns=60)).windows("windows").table()
    assert table.column_names == ["key", "key_group", "window_start", "window_end", "value"]
    assert len(table) and all((s - 100) % 500 == 0 for s in table.column("window_start").to_pylist())
    assert {e - s for s, e in zip(*(table.column(c).to_pylist() for c in ("window_start", "window_end")))} == {500}


@pytest.mark.parametrize("backend", BACKENDS)
def test_windows_over_columns(tmp_path: Path, backend: str) -> None:
    at_start = read_checkpoint(stored(tmp_path / "start", columnar_windows, turns=0)).windows("windows").table()
    assert at_start.schema.field("window_start").type == pa.int64() and not len(at_start)
    checkpoint = read_checkpoint(stored(tmp_path / "job", columnar_windows, turns=24, backend=backend))
    table = checkpoint.windows("windows").table()
    watermark_ms = min(s.watermark_ms or 0 for s in checkpoint.metadata.subtasks if s.vertex == 1)
    windows = [(row["key"], row["window_start"], row["value"]["total.sum"]) for row in table.to_pylist()]
    assert len({window[:2] for window in windows}) == len(windows) > 30 and watermark_ms > 500
    newest = max(start for _, start, _ in windows)
    for user, start, total in windows:
        assert start + 500 > watermark_ms, "windows that have fired are gone"
        numbers = [n for n in range(start // 2, start // 2 + 250) if n % USERS == int(user.removeprefix("user "))]
        assert total == sum(numbers) if start < newest else total <= sum(numbers)


# ---- errors -------------------------------------------------------------------------------------------------------


def test_unknown_names_list_what_there_is(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(stored(tmp_path / "job", keyed))
    with pytest.raises(StateError, match=r"no operator with the uid 'no'; there are 'numbers', 'pairs', 'everything'"):
        checkpoint.keyed_state("no", "sum")
    with pytest.raises(StateError, match=r"operator 'everything' has no keyed state 'summ' .* 'sum', .*'object'"):
        checkpoint.keyed_state("everything", "summ")
    with pytest.raises(StateError, match=r"no keyed state 'seen' .* there are 'seen' \(split: use operator_state\)"):
        checkpoint.keyed_state("remembering", "seen")
    with pytest.raises(StateError, match=r"no broadcast state 'seen'.*'all' \(union: use operator_state\)"):
        checkpoint.broadcast_state("remembering", "seen")
    with pytest.raises(StateError, match="operator 'everything' has no windows"):
        checkpoint.windows("everything")


def test_keys_of_another_type_than_asked_for(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(stored(tmp_path / "job", keyed))
    with pytest.raises(StateError, match=r"state 'sum' of operator '.*': the key \d+ \(int\) is no STRING"):
        checkpoint.keyed_state("everything", "sum", Types.STRING()).table()
    as_doubles = checkpoint.keyed_state("everything", "sum", Types.DOUBLE()).table()
    assert as_doubles.schema.field("key").type == pa.float64()


def test_a_job_that_has_completed_two(tmp_path: Path) -> None:
    job = StoredJob(tmp_path / "job", keyed)
    job.run(20)
    first = job.checkpoint(1)
    job.run(20)
    second = job.checkpoint(2)
    job.close()
    assert len(applied(first)) < len(applied(second))
