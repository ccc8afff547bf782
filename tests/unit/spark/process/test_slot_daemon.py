"""Checks which PySpark slots import: an installed one in place of its zip, and never another Spark's."""

from __future__ import annotations

from pathlib import Path

from penstock.spark.process.slot_daemon import with_compiled_pyspark


def test_zips_of_an_installed_pyspark_give_way_to_it_and_those_of_another_spark_stay(tmp_path: Path) -> None:
    installed, other = tmp_path / "site-packages", tmp_path / "opt"
    for home in (installed / "pyspark", other / "spark"):
        (home / "python" / "lib").mkdir(parents=True)
    (installed / "pyspark" / "__init__.py").touch()
    zips = [str(installed / "pyspark" / "python" / "lib" / name) for name in ("pyspark.zip", "py4j-0.10-src.zip")]
    others = [str(other / "spark" / "python" / "lib" / "pyspark.zip"), str(tmp_path / "modules.zip"), ""]
    assert with_compiled_pyspark([*zips, *others, str(installed)]) == [*others, str(installed)]
    assert with_compiled_pyspark([*zips, *others]) == [*zips, *others], "it could not be imported from anywhere else"
