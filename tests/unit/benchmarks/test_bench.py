from __future__ import annotations

import pytest

from bench import NEWEST_BELOW, RESULTS, Figures, insert, rows_of, section
from measuring import Arguments


def results(ours_ms: float, flink_ms: float) -> dict[str, dict[str, list[dict[str, object]]]]:
    return {
        "unaligned": {
            "ours": [{"duration_ms_p50": ours_ms, "objects_written_max": 5, "persisted_bytes_p50": None}],
            "peer": [{"duration_ms_p50": flink_ms, "persisted_bytes_p50": 700_000}],
        },
        "memory": {
            "ours": [
                {
                    "driver_rss_bytes_1min": 100,
                    "driver_rss_bytes_end": 105,
                    "slots_rss_bytes_1min": [100, 100],
                    "slots_rss_bytes_end": [101, 120],
                }
            ],
            "peer": [],
        },
    }


@pytest.mark.parametrize(("ours_ms", "verdict"), [(9.0, "met"), (11.0, "**missed**")])
def test_a_ratio_is_judged_by_its_bound(ours_ms: float, verdict: str) -> None:
    rows = rows_of(Figures(results(ours_ms, 20.0)), "60")
    text = section(rows, Arguments({"rounds": "1", "seconds": "60"}, {}))
    (line,) = [row for row in text.splitlines() if "unaligned: duration p50" in row]
    assert f"{ours_ms / 20:.2f}×" in line and line.endswith(f"| {verdict} |")


def test_what_was_not_measured_is_left_out_and_the_worst_slot_counts() -> None:
    rows = {row.measure: row for row in rows_of(Figures(results(9, 20)), "60")}
    assert "pressure, unaligned: persisted p50" not in rows
    assert rows["objects written per checkpoint, 2 slots"].met is False
    assert rows["resident memory after 11 min / after 1 min, slots"].met is False
    assert rows["resident memory after 11 min / after 1 min, driver"].met is True


def test_the_newest_section_comes_first_and_older_ones_stay() -> None:
    text = RESULTS.read_text(encoding="utf-8")
    once = insert(text, "## one\n")
    twice = insert(once, "## two\n")
    assert twice.index(NEWEST_BELOW) < twice.index("## two") < twice.index("## one")
    with pytest.raises(ValueError, match="has lost its line"):
        insert("nothing here", "## one")
