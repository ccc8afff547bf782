"""Tests the programs that a reader of the README starts, small: its first program and the benchmarks, in one
process.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.run_programs import LIMIT_S, ROOT, Programs

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3 * LIMIT_S)]


COUNTED_WORDS = Counter(
    [("4", "gate", "1"), ("3", "dam", "1"), ("4", "pipe", "1"), ("3", "dam", "2"), ("7", "turbine", "1")]
)
"""The rows (length, word, count) of the README's first program."""


def first_program() -> str:
    """Return the text of the README's first program."""
    program: str
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S)
    return program


def counted_words(printed: str) -> Counter[tuple[str, str, str]]:
    """Return the rows that the README's first program has printed."""
    return Counter(re.findall(r"\((\d+), *'?(\w+)'?, *(\d+)\)", printed))


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    programs = Programs(tmp_path_factory.mktemp("programs"))
    yield programs
    programs.close()


def result_of(programs: Programs, benchmark: str, *arguments: str) -> dict[str, Any]:
    """Return what its last line says."""
    found: dict[str, Any] = json.loads(
        programs.run(ROOT / "benchmarks" / benchmark, *arguments).strip().splitlines()[-1]
    )
    return found


def test_the_first_program_of_the_readme_says_what_it_should(programs: Programs, tmp_path: Path) -> None:
    path = tmp_path / "word_lengths.py"
    path.write_text(first_program(), encoding="utf-8")
    assert counted_words(programs.run(path)) == COUNTED_WORDS


def test_pressure_prints_the_peers_fields(programs: Programs) -> None:
    option = "execution.checkpointing.unaligned.enabled=true"
    result = result_of(programs, "pressure.py", "seconds=4", option)
    assert result["completed"] >= 3 and result["failed"] == 0 and result["restarts"] == 0
    assert result["options"] == {"execution.checkpointing.unaligned.enabled": "true"}
    assert 0 < result["duration_ms_p50"] <= result["duration_ms_p90"] <= result["duration_ms_max"]
    assert result["publication_ms_p50"] >= result["duration_ms_p50"]
    assert result["persisted_bytes_p50"] > 0 and result["objects_written_max"] <= 4
    assert len(result["slots_rss_bytes_end"]) == 2


def test_recovery_counts_a_kill_and_checks_every_row(programs: Programs) -> None:
    result = result_of(programs, "recovery.py", "seconds=8", "kills=1", "rows_per_s=5000")
    assert result["exact"] is True and result["kills"] == 1 and result["restarts"] >= 1
    assert 0 < result["recovery_ms_p50"] <= result["committed_ms_p50"]


def test_overhead_takes_turns(programs: Programs) -> None:
    result = result_of(programs, "overhead.py", "seconds=6", "block_s=1", "warm_up_s=1")
    assert result["quads"] >= 1 and result["checkpoints"] >= 2 and result["failed"] == 0
    assert 0.3 < result["ratio"] < 3
