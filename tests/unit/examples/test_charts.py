"""Draws the charts of the examples: well-formed SVG whose points lie where their values are."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from charts import HEIGHT, LEFT, TOP, WIDTH, Axis, Series, chart, label, nice_step, value_axis

SVG = "{http://www.w3.org/2000/svg}"


def test_a_chart_is_well_formed_and_needs_nothing_from_outside() -> None:
    text = chart('a < b & "c"', [Series("x <1>", [(0, 1), (10, 5000)], [(4, "SIGKILL")])], "ms", logarithmic=True)
    root = ET.fromstring(text)
    assert root.tag == f"{SVG}svg"
    assert root.findtext(f"{SVG}title") == 'a < b & "c"'
    assert "SIGKILL" in [t.text for t in root.iter(f"{SVG}text")]
    assert "href" not in text and "script" not in text


def test_each_point_is_drawn_once_and_inside_the_frame() -> None:
    series = [Series("s", [(t, 10.0**t) for t in range(6)])]
    root = ET.fromstring(chart("t", series, "ms", logarithmic=True))
    (line,) = root.iter(f"{SVG}polyline")
    places = [tuple(map(float, p.split(","))) for p in line.attrib["points"].split()]
    assert len(places) == 6
    assert all(LEFT <= x <= WIDTH and TOP <= y <= HEIGHT for x, y in places)
    heights = [y for _, y in places]
    steps = [a - b for a, b in zip(heights, heights[1:])]
    assert max(steps) - min(steps) < 0.2, "equal ratios are equal distances on a logarithmic axis"


def test_more_is_higher_and_later_is_further_right() -> None:
    axis = Axis(0, 10, False, 100, 0)
    assert [axis.place(v) for v in (0, 5, 10)] == [100, 50, 0]
    assert axis.ticks() == [0, 2, 4, 6, 8, 10]


@pytest.mark.parametrize(("rough", "step"), [(0.9, 1), (1, 1), (1.3, 2), (3, 5), (7, 10), (0.013, 0.02), (2300, 5000)])
def test_steps_are_round(rough: float, step: float) -> None:
    assert nice_step(rough) == pytest.approx(step)


def test_axes_hold_the_largest_value_and_survive_no_points() -> None:
    assert value_axis([Series("s", [(0, 1000)])], True).high == 1000
    assert value_axis([Series("s", [(0, 1001)])], True).high == 10_000
    assert value_axis([Series("s", [(0, 37)])], False).high >= 37
    ET.fromstring(chart("empty", [Series("s", [])], "bytes"))
    ET.fromstring(chart("zeros", [Series("s", [(1, 0)])], "bytes"))


def test_labels_carry_units() -> None:
    assert [label(v, "bytes") for v in (0, 500, 200_000, 3e6)] == ["0 B", "500 B", "200 KB", "3 MB"]
    assert [label(v, "ms") for v in (10, 1000)] == ["10 ms", "1 s"]
