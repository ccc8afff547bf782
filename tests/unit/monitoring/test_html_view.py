"""Tests what a notebook shows of a job: facts, a link, a bar per checkpoint; text of users as text."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

from penstock.monitoring.html_view import job_html
from penstock.monitoring.report import CheckpointReport
from tests.unit.monitoring.test_diagnosis import job


def checkpoint(number: int, status: str, duration_ms: float | None) -> CheckpointReport:
    return CheckpointReport(number, status, 0, duration_ms, None, False, 0, 0, 0, 0, None)


def test_a_job_is_shown_with_its_vertices_and_checkpoints() -> None:
    checkpoints = (checkpoint(1, "completed", 10.0), checkpoint(2, "failed", 40.0), checkpoint(3, "in_progress", None))
    shown = job_html(replace(job(), checkpoints=checkpoints), "http://127.0.0.1:1/ui/#token=a&b")
    page = ElementTree.fromstring(shown)  # well-formed
    assert [link.get("href") for link in page.iter("a")] == ["http://127.0.0.1:1/ui/#token=a&b"]
    assert [row[0].text for row in page.iter("tr") if row[0].tag == "td"] == ["orders", "enrich", "totals"]
    assert [(bar.get("height"), bar[0].text) for bar in page.iter("rect")] == [
        ("15", "checkpoint 1: 10 ms"),
        ("60", "checkpoint 2: 40 ms"),
    ]


def test_text_of_users_is_no_markup() -> None:
    shown = job_html(replace(job(), job_name='<script>alert("x")</script>'), None)
    page = ElementTree.fromstring(shown)
    assert not list(page.iter("script")) and not list(page.iter("a"))
    assert page.findtext("p/b") == '<script>alert("x")</script>'
