"""Holds the judge of the benchmarks to its bounds: one that says "met" of a missing peer or measure proves nothing."""

from __future__ import annotations

import pytest

from bench import GROUPS, HERE, cases, section
from measure import FLINK, OURS, PYFLINK, SPARK, Figures, Row
from measures import MEASURES, rows_of
from measuring import Arguments

ARGUMENTS = Arguments({"rounds": "1", "seconds": "60"}, {})


def results(ours_ms: float, flink_ms: float) -> dict[str, dict[str, list[dict[str, object]]]]:
    return {
        "unaligned": {
            OURS: [{"duration_ms_p50": ours_ms, "objects_written_max": 5, "persisted_bytes_p50": None}],
            FLINK: [{"duration_ms_p50": flink_ms, "persisted_bytes_p50": 700_000}],
        },
        "memory": {
            OURS: [
                {
                    "driver_rss_bytes_1min": 100,
                    "driver_rss_bytes_end": 105,
                    "slots_rss_bytes_1min": [100, 100],
                    "slots_rss_bytes_end": [101, 120],
                    "jvm_rss_bytes_1min": 100,
                    "jvm_rss_bytes_end": 200,
                }
            ],
        },
    }


def rows(found: dict[str, dict[str, list[dict[str, object]]]]) -> dict[str, Row]:
    return {row.measure: row for row in rows_of(Figures(found))}


@pytest.mark.parametrize(("ours_ms", "verdict"), [(9.0, "met"), (11.0, "**missed**")])
def test_a_ratio_is_judged_by_its_bound(ours_ms: float, verdict: str) -> None:
    text = section(rows_of(Figures(results(ours_ms, 20.0))), ARGUMENTS, "2026-11-22 16:00", "abc1234")
    (line,) = [row for row in text.splitlines() if "unaligned: duration p50" in row]
    assert f"{ours_ms / 20:.2f}×" in line and line.endswith(f"| {verdict} |")
    assert "20 ms (Flink)" in line and "≤ 0.5×" in line


def test_what_was_not_measured_is_left_out_and_the_worst_slot_counts() -> None:
    found = rows(results(9, 20))
    assert "pressure, unaligned: persisted p50" not in found
    assert found["objects written per checkpoint, 2 slots"].met is False
    assert found["resident memory after 11 min / after 1 min, slots"].met is False
    assert found["resident memory after 11 min / after 1 min, driver"].met is True
    assert found["resident memory after 11 min / after 1 min, jvm"].met is None


def test_without_its_peer_a_ratio_is_neither_met_nor_missed() -> None:
    found = results(9, 20)
    del found["unaligned"][FLINK]
    row = rows(found)["pressure, unaligned: duration p50"]
    assert (row.ratio, row.met, row.beside) == (None, None, "")


def test_the_better_of_two_peers_counts() -> None:
    process, thread = PYFLINK
    case: dict[str, list[dict[str, object]]]
    case = {OURS: [{"rows_per_s": 160_000}], process: [{"rows_per_s": 4_000}], thread: [{"rows_per_s": 10_000}]}
    row = rows({"udf": case})["map and reduce in Python, rows/s"]
    assert row.ratio == 16 and row.met is False and "PyFlink, thread" in row.beside


def test_more_is_better_of_rates_and_medians_count_over_rounds() -> None:
    case = {OURS: [{"rows_per_s": n} for n in (1, 900, 10)], FLINK: [{"rows_per_s": 4}], SPARK: [{"rows_per_s": 40}]}
    against_flink, against_spark = [r for r in rows_of(Figures({"window": case})) if "Python" not in r.measure]
    assert (against_flink.ratio, against_flink.met) == (2.5, True)
    assert (against_spark.ratio, against_spark.met) == (0.25, False)


def test_a_long_record_may_delay_a_checkpoint_by_itself_and_no_more() -> None:
    found = results(9, 20)
    for duration_ms, met in ((18.9, True), (19.1, False)):
        found["unaligned 10 ms"] = {OURS: [{"duration_ms_p50": duration_ms}]}
        row = rows(found)["pressure, unaligned, 10 ms per record: duration p50"]
        assert row.met is met and row.must == "≤ 19 ms"


def test_every_measure_has_a_case_and_every_case_a_program_and_a_group() -> None:
    known = cases("60")
    assert {m.case for m in MEASURES} | {m.beside for m in MEASURES if m.beside} == {c.name for c in known}
    assert {c.group for c in known} == set(GROUPS)
    assert all((HERE / c.ours[0]).is_file() for c in known)
    for measure in MEASURES:
        (case,) = [c for c in known if c.name == measure.case]
        assert set(measure.sides) <= set(case.peers)
