"""Tests the sentences about slow checkpoints and late jobs, each cause from the figures that it leaves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.monitoring.diagnosis import Finding, JobFacts, bottleneck, diagnose
from penstock.monitoring.report import CheckpointReport, EdgeReport, JobReport, RecoveryReport, VertexReport
from penstock.monitoring.subtask_figures import SubtaskCheckpoint, SubtaskReport, packed

FACTS = JobFacts(interval_ms=10_000.0)
IDLE = SubtaskReport(0, 5000, 5000, 0, 0, 10.0, 10.0, 0.1, 0.0, 0, 1.0, None, None, 1000.0, 0.0, 0.0)
NAMES = ("orders", "enrich", "totals")


def job(*loads: tuple[float, float], **changes: Any) -> JobReport:
    """A source, a slow map and a sum in two slots; `loads`: the busy and the backpressured share of each vertex."""
    loads = loads or ((0.1, 0.0),) * 3
    vertices = tuple(
        VertexReport(
            name,
            2,
            10_000,
            10_000,
            20.0,
            20.0,
            busy,
            pressed,
            subtasks={n: IDLE._replace(busy_share=busy, backpressured_share=pressed) for n in range(2)},
        )
        for name, (busy, pressed) in zip(NAMES, loads)
    )
    edges = (EdgeReport(0, 1, "rebalance"), EdgeReport(1, 2, "hash"))
    report = JobReport("id", "shop", "RUNNING", 1, 0, vertices, (), 1, 0, (), 2, 2, edges=edges)
    return replace(report, **changes)


PRESSED = ((0.0, 1.0), (0.99, 0.0), (0.1, 0.0))


def part(vertex: int, subtask: int, **figures: Any) -> SubtaskCheckpoint:
    fast = SubtaskCheckpoint(vertex, subtask, False, 12.0, 1.0, 1.0, 0.2, 2.0, 1000, 1000, 0)
    return fast._replace(**figures)


def checkpoint(*slow: SubtaskCheckpoint, took_ms: float = 12.0, **changes: Any) -> CheckpointReport:
    slow_ones = {(p.vertex, p.subtask): p for p in slow}
    parts = [slow_ones.get((v, s), part(v, s))._replace(acknowledged_ms=took_ms) for v in range(3) for s in range(2)]
    report = CheckpointReport(
        7, "completed", 0, took_ms, took_ms + 3, False, 100, 0, 200, 3, "/c/chk-7", acknowledged=packed(parts)
    )
    return replace(report, **changes)


def only(report: JobReport, newest: CheckpointReport, facts: JobFacts = FACTS) -> Finding:
    return diagnose(replace(report, checkpoints=(newest,)), facts)[0]


def test_a_healthy_job_gets_no_sentence() -> None:
    assert diagnose(replace(job(), checkpoints=(checkpoint(),)), FACTS) == []
    assert diagnose(job((0.9, 0.0), (0.9, 0.0), (0.9, 0.0)), FACTS) == [], "busy, and nobody waits for it"
    assert diagnose(job(), JobFacts()) == [], "it takes no checkpoints"


def test_an_aligned_barrier_in_full_queues_is_named_with_the_vertex_that_is_slow() -> None:
    found = only(job(*PRESSED), checkpoint(part(2, 1, start_delay_ms=2400.0), took_ms=2500.0))
    assert (found.kind, found.vertex, found.subtask) == ("late-barrier", 2, 1)
    assert found.text == (
        "Checkpoint 7 took 2.5 s. Last was subtask 2 of 2 of 'totals': the barrier waited 2.4 s in the queues before "
        "it, because 'enrich' is busy 99 % of the time and takes no more"
    )
    assert "execution.checkpointing.unaligned.enabled" in found.advice and "about 17 ms" in found.advice


@pytest.mark.parametrize(
    ("facts", "advice"),
    [
        (JobFacts(unaligned=True), "give the job more slots"),
        (
            JobFacts(unaligned=True, aligned_timeout_ms=30_000),
            "lower execution.checkpointing.aligned-checkpoint-timeout",
        ),
    ],
)
def test_the_advice_knows_the_settings(facts: JobFacts, advice: str) -> None:
    assert advice in only(job(*PRESSED), checkpoint(part(2, 1, start_delay_ms=2400.0), took_ms=2500.0), facts).advice


def test_a_long_row_is_told_from_a_full_queue() -> None:
    report = job(*PRESSED)
    long = {0: IDLE, 1: IDLE._replace(step_ms_max=3000.0)}
    vertices = (report.vertices[0], replace(report.vertices[1], subtasks=long), report.vertices[2])
    found = only(replace(report, vertices=vertices), checkpoint(part(1, 1, start_delay_ms=2900.0), took_ms=3000.0))
    assert found.kind == "long-record" and "on a single row or batch (the longest took 3.0 s)" in found.text
    assert "asynchronous I/O" in found.advice


@pytest.mark.parametrize(
    ("slow", "kind", "text"),
    [
        ({"alignment_ms": 4000.0}, "alignment", "it waited 4.0 s from the first barrier to the last of its inputs"),
        ({"sync_ms": 4000.0, "async_ms": 4001.0}, "snapshot-stop", "the stream stood still there for 4.0 s"),
        ({"async_ms": 4000.0, "written_bytes": 1_000}, "slow-storage", "storing 1 KB took 4.0 s"),
        ({"async_ms": 4000.0, "written_bytes": 2 * 10**9}, "large-state", "storing 2.0 GB of state took 4.0 s"),
        ({}, "late-acknowledgement", "all parts were stored after 4 ms, and the driver heard"),
    ],
)
def test_the_longest_part_of_the_last_subtask_is_the_reason(slow: dict[str, Any], kind: str, text: str) -> None:
    found = only(job(), checkpoint(part(1, 0, **slow), took_ms=4100.0))
    assert found.kind == kind and text in found.text and found.advice
    assert found.text.startswith("Checkpoint 7 took 4.1 s. Last was subtask 1 of 2 of ")


def test_a_slow_log_is_no_subtasks_fault() -> None:
    found = only(job(), checkpoint(publication_ms=5_000.0))
    assert found.kind == "slow-publication" and "its metadata and its log entry took 5.0 s" in found.text


def test_who_has_not_acknowledged_a_failed_checkpoint_is_named() -> None:
    some = packed([part(0, 0), part(0, 1), part(1, 0)])
    failed = checkpoint(status="failed", failure="Checkpoint expired", acknowledged=some, duration_ms=None)
    found = only(job(*PRESSED), failed)
    assert found.kind == "not-acknowledged"
    assert "1 of 2 subtasks of 'enrich', 2 of 2 subtasks of 'totals'; 'enrich' is the bottleneck" in found.text
    nothing = replace(failed, acknowledged=b"")
    assert only(job(), nothing).text == "Checkpoint 7 failed: Checkpoint expired"


def test_a_checkpoint_that_is_asked_for_is_explained_however_fast_it_was() -> None:
    (found,) = diagnose(job(), FACTS, checkpoint(part(1, 0, async_ms=9.0)))
    assert found.kind == "slow-storage" and found.checkpoint_id == 7


def test_the_bottleneck_is_the_last_vertex_that_others_wait_for() -> None:
    assert bottleneck(job(*PRESSED)) == 1
    assert bottleneck(job((0.0, 1.0), (0.1, 0.9), (1.0, 0.0))) == 2
    assert bottleneck(job()) is None
    found = diagnose(job(*PRESSED), FACTS)[0]
    assert found.kind == "bottleneck" and "'enrich' is the bottleneck: it works 99 % of the time" in found.text


def test_skewed_keys_are_told_from_a_slow_vertex() -> None:
    report = job((0.0, 1.0), (0.0, 1.0), (0.99, 0.0))
    skewed = {0: IDLE._replace(rows_in=90_000, busy_share=1.0), 1: IDLE._replace(rows_in=10_000)}
    vertices = (*report.vertices[:2], replace(report.vertices[2], subtasks=skewed))
    found = diagnose(replace(report, vertices=vertices), FACTS)[0]
    assert (found.kind, found.vertex, found.subtask) == ("skew", 2, 0)
    assert "subtask 1 of 2 gets 90 % of the rows" in found.text


def test_a_job_that_fails_again_and_again_says_so_first() -> None:
    same = tuple(RecoveryReport(n, n, "ValueError: no\nmore", 5.0, None) for n in range(3))
    assert diagnose(job(recoveries=same), FACTS)[0].text == (
        "The job has restarted 3 times for the same reason: ValueError: no"
    )
    assert diagnose(job(recoveries=same[:2]), FACTS) == []
    assert diagnose(job(recoveries=same[:1], state="RESTARTING"), FACTS)[0].kind == "restarting"


def test_a_source_that_lags_and_rows_that_are_late_are_named() -> None:
    report = job((0.95, 0.0), (0.1, 0.0), (0.1, 0.0))
    lagging = replace(report.vertices[0], lag_rows=1_000_000)
    found = diagnose(replace(report, vertices=(lagging, *report.vertices[1:])), FACTS)[0]
    assert found.kind == "busy-source" and "1,000,000 rows wait to be read" in found.text
    late = replace(report.vertices[2], late_rows=500)
    found = diagnose(replace(job(), vertices=(*report.vertices[:2], late)), FACTS)[0]
    assert found.kind == "late-rows" and "'totals' has dropped 500 rows" in found.text
