"""Tests that names of PyFlink which are not here say what to use in their place."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

import penstock.common
import penstock.datastream
from penstock.common import ExecutionConfig
from penstock.common.missing_names import ADVICE, advice_for
from penstock.datastream import (
    DataStream,
    JobClient,
    KeyedStream,
    RuntimeContext,
    StreamExecutionEnvironment,
    WindowedStream,
)
from penstock.datastream.connectors.file_system import FileSource, FileSourceBuilder, StreamFormat
from penstock.datastream.formats.csv import CsvSchemaBuilder

CLASSES: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        StreamExecutionEnvironment, DataStream, KeyedStream, WindowedStream, RuntimeContext, JobClient, ExecutionConfig,
        FileSourceBuilder, CsvSchemaBuilder,
    )
}  # fmt: skip
METHODS = [name for name in ADVICE if "." in name and not name.startswith("penstock.")]
MODULES = [name for name in ADVICE if name.startswith("penstock.")]


@pytest.mark.parametrize("name", METHODS)
def test_advice_is_given_only_for_methods_that_are_missing(name: str) -> None:
    owner, method = name.split(".")
    assert not hasattr(CLASSES[owner], method), "it is here: delete the advice"
    assert advice_for(CLASSES[owner], method)


@pytest.mark.parametrize("name", MODULES)
def test_a_missing_module_says_what_to_use(name: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=f"^there is no module {name}: ."):
        importlib.import_module(name)


@pytest.mark.parametrize("name", [name for name in ADVICE if "." not in name])
def test_a_missing_class_says_what_to_use(name: str) -> None:
    for module in ("penstock.common", "penstock.datastream"):
        with pytest.raises(ImportError, match=f"{module} has no {name}: ."):
            exec(f"from {module} import {name}")


def test_other_names_are_as_usual() -> None:
    for module in (penstock.common, penstock.datastream):
        assert not hasattr(module, "nothing_of_this_name")
    with pytest.raises(ModuleNotFoundError, match="No module named 'penstock.nothing'"):
        importlib.import_module("penstock.nothing")


@pytest.mark.parametrize(
    "line, says",
    [
        ("from penstock.datastream import NumberSequenceSource", "it is in penstock.datastream.connectors.number_seq"),
        ("from penstock.datastream import Types", "it is in penstock.common"),
        ("from penstock.datastream import SlidingProcessingTimeWindows", "it is in penstock.datastream.window"),
        ("from penstock.common import StreamExecutionEnvironment", "it is in penstock.datastream"),
        (
            "from penstock.datastream.connectors import FlinkKafkaConsumer",
            "it is in penstock.datastream.connectors.kafka",
        ),
        ("from penstock.datastream.connectors import HybridSource", r"connectors\.hybrid_source"),
    ],
)
def test_a_name_of_another_module_is_found(line: str, says: str) -> None:
    with pytest.raises(ImportError, match=f"{says}$"):
        exec(line)
    exec("from penstock.datastream import connectors, window")


def test_names_of_other_libraries_are_not_found() -> None:
    assert not hasattr(penstock.datastream, "Sequence") and not hasattr(penstock.common, "Nothing")


def test_objects_say_it_too() -> None:
    env: Any = StreamExecutionEnvironment.get_execution_environment()
    with pytest.raises(AttributeError, match=r"has no create_input\(\): sources are given to from_source"):
        env.create_input(None)
    with pytest.raises(AttributeError, match=r"did you mean 'from_collection'\?"):
        env.from_colection([1])
    with pytest.raises(AttributeError, match=r"a stream has no count_window\(\): it belongs to keyed streams"):
        env.from_collection([1]).count_window(5)
    builder: Any = FileSource.for_record_stream_format(StreamFormat.text_line_format(), "/tmp/none")
    with pytest.raises(AttributeError, match=r"has no set_split_assigner\(\): splits go to the subtask that asks next"):
        builder.set_split_assigner(None)
    assert not hasattr(env, "create_input") and not hasattr(env, "_nothing")
