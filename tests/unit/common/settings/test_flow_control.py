"""Flink's options for buffer debloating mean here what they mean there; data in flight is bounded without them, too."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.common.configuration import Configuration
from penstock.common.options.option import OptionError
from penstock.common.settings.flow_control_settings import FlowControl, flow_control

DEBLOAT = "taskmanager.network.memory.buffer-debloat."


def bounds_of(**options: Any) -> FlowControl:
    return flow_control(Configuration({f"{DEBLOAT}{key.replace('_', '-')}": value for key, value in options.items()}))


@pytest.mark.parametrize(
    ("options", "bounds"),
    [
        ({}, FlowControl(25.0, 25.0, 9, 0.0)),
        ({"enabled": True}, FlowControl(25.0, 25.0, 9, 0.0)),
        ({"enabled": True, "target": "3 s", "period": "1 s"}, FlowControl(1_500.0, 1_000.0, 9, 0.0)),
        ({"enabled": True, "samples": 5, "threshold_percentages": 50}, FlowControl(25.0, 25.0, 5, 0.5)),
        ({"target": "100 ms"}, FlowControl(50.0, 50.0, 9, 0.0)),
        ({"samples": 5}, FlowControl(25.0, 25.0, 5, 0.0)),
        ({"enabled": False, "target": "100 ms"}, FlowControl(0.0, 0.0, 9, 0.0)),
    ],
)
def test_what_the_options_give(options: dict[str, Any], bounds: FlowControl) -> None:
    assert bounds_of(**options) == bounds


def test_flinks_target_replaces_ours() -> None:
    configuration = Configuration({"penstock.network.bound-target": "10 ms"})
    assert flow_control(configuration).target_ms == 10.0
    configuration.set(f"{DEBLOAT}enabled", True)
    assert flow_control(configuration).target_ms == 10.0
    configuration.set(f"{DEBLOAT}target", "1 s")
    assert flow_control(configuration).target_ms == 500.0


@pytest.mark.parametrize(
    ("key", "value"),
    [("target", "0 ms"), ("period", "0 s"), ("samples", 0), ("threshold-percentages", 101), ("enabled", "maybe")],
)
def test_values_that_make_no_sense_are_refused_by_name(key: str, value: Any) -> None:
    with pytest.raises(OptionError, match=f"buffer-debloat.{key}"):
        Configuration({f"{DEBLOAT}{key}": value}).validate()
