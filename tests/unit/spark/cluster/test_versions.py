"""Tests the versions of PySpark and Java that Penstock runs on."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from penstock.spark.cluster.versions import UnsupportedPySpark, check_pyspark, newest_java

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize("version", ["3.5.0", "3.5.9", "4.0.1", "4.1.0.dev0", "4.2.0", "4.3.0"])
def test_these_versions_of_pyspark_are_supported(version: str) -> None:
    check_pyspark(version, (3, 11))


@pytest.mark.parametrize("version", ["2.4.8", "3.4.4", "4.4.0", "5.0.0"])
def test_any_other_is_refused_with_the_way_out(version: str) -> None:
    with pytest.raises(UnsupportedPySpark, match=rf"this is PySpark {version}. .* pip install 'pyspark>=3.5,<4.4'"):
        check_pyspark(version, (3, 11))


def test_a_python_that_pyspark_does_not_start_on_is_refused() -> None:
    check_pyspark("4.0.0", (3, 13))
    with pytest.raises(UnsupportedPySpark, match="PySpark 3.5.9 runs on Python up to 3.11, and this is 3.12. Use that"):
        check_pyspark("3.5.9", (3, 12))


def test_the_package_declares_the_same_versions() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert "pyspark>=3.5,<4.4" in declared


def test_older_sparks_do_not_start_on_the_newest_java() -> None:
    assert [newest_java(version) for version in ("3.5.9", "4.0.2", "4.1.0", "4.3.0")] == [23, 23, None, None]
