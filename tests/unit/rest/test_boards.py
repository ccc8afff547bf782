"""Checks that the Grafana board and the alert rules ask for figures that a job has."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from tests.unit.rest.test_flink_answers import served

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
FIGURE = re.compile(r"flink_[A-Za-z_]+")


def figures() -> set[str]:
    text = served().answer("GET", "/metrics", b"")[1]
    assert isinstance(text, str)
    return {line.partition("{")[0] for line in text.splitlines() if not line.startswith("#")}


def expressions(name: str) -> list[str]:
    text = (DEPLOY / name).read_text(encoding="utf-8")
    if name.endswith(".json"):
        return [target["expr"] for panel in json.loads(text)["panels"] for target in panel["targets"]]
    return [rule["expr"] for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]


@pytest.mark.parametrize("name", ["grafana.json", "alerts.yml"])
def test_what_is_asked_for_is_there(name: str) -> None:
    asked = {figure for expression in expressions(name) for figure in FIGURE.findall(expression)}
    assert len(asked) >= 5
    assert asked <= figures(), asked - figures()


def test_an_alert_says_what_to_do() -> None:
    rules = yaml.safe_load((DEPLOY / "alerts.yml").read_text(encoding="utf-8"))["groups"][0]["rules"]
    assert {"CheckpointIsOld", "CheckpointsFail", "JobRestarts", "LagGrows", "KeysAreSkewed"} == {
        r["alert"] for r in rules
    }
    for rule in rules:
        assert rule["annotations"]["summary"] and rule["annotations"]["description"]
