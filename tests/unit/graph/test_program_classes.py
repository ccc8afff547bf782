"""Tests that data refers to the program's classes by name: a driver that comes later has other class objects.

Each process here is a real one: the driver has the program as its main module, and a slot has none of its code.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]

PROGRAM = """
import sys
from collections import namedtuple
from dataclasses import dataclass, field
from enum import Enum, IntFlag
from typing import NamedTuple

from penstock.common import Configuration
from penstock.graph.builder import build_job_graph
from penstock.graph.logical import Input, LogicalGraph, Node, OperatorKind, Partitioner, PartitionerKind
from penstock.graph.pickling import dumps

VERSION = {version!r}


class Color(Enum):
    RED = 1
    BLUE = 2

    def shout(self):
        return VERSION


class Flags(IntFlag):
    A = 1
    B = 2


@dataclass
class Order:
    number: int
    color: Color = Color.BLUE
    tags: list = field(default_factory=list)

    def version(self):
        return VERSION


class Outer:
    class Inner:
        def __init__(self, number):
            self.number = number

        class Innermost:
            pass


class Point(NamedTuple):
    x: int
    y: int


Pair = namedtuple("TwoNumbers", "a b")
Shade = Enum("Shades", "LIGHT DARK")


class Oops(ValueError):
    pass


class Base:
    def derived(self):
        return Derived()


class Derived(Base):
    def base(self):
        return Base()


class Slotted:
    __slots__ = ("x",)

    def __init__(self, x):
        self.x = x


def local_class():
    class Local:
        pass

    return Local


Local = local_class()


class Unreferenced:
    def version(self):
        return VERSION


class Again:
    def version(self):
        return "old"


def again(value, kind=Again):
    return kind()


class Again:
    def version(self):
        return VERSION


class Unsendable:
    client = sys.stdin.buffer


def kinds():
    return [Color, Flags, Order, Outer.Inner, Outer.Inner.Innermost, Point, Pair, Oops, Derived, Base, Slotted, Local]


def objects():
    return [
        Color.RED, Flags.A, Order(1), Outer.Inner(2), Outer.Inner.Innermost(), Point(1, 2), Pair(1, 2), Oops("x"),
        Derived(), Base(), Slotted(5), Local(), [Color], {{Color.RED: Order}}, Order,
        Shade.DARK, Again(),
    ]


class Keep:
    def make(self):
        return objects()

    def check(self, found):
        for value, kind in zip(found, kinds()):
            assert type(value) is kind, (value, type(value), kind)
        assert found[0] is Color.RED and found[0] in {{Color.RED: 1}} and found[0].shout() == VERSION
        assert found[2] == Order(1) and found[2].color is Color.BLUE and found[2].version() == VERSION
        assert type(found[8].base()) is Base and type(found[9].derived()) is Derived
        assert found[10].x == 5 and found[12] == [Color] and found[13] == {{Color.RED: Order}} and found[14] is Order
        assert found[15] is Shade.DARK and type(found[16]) is Again and found[16].version() == VERSION

    def __init__(self):
        self.again = again

    def __call__(self, value):
        return value


def graph(function):
    logical = LogicalGraph()
    source = logical.add(Node(0, OperatorKind.SOURCE, "events", None, [], None))
    partitioner = Partitioner(PartitionerKind.HASH, abs)
    logical.add(Node(1, OperatorKind.MAP, "keep", function, [Input(source, partitioner)], None))
    return build_job_graph(logical, Configuration(), "job")


def main():
    open(sys.argv[1], "wb").write(dumps(graph(Keep())))
    if len(sys.argv) > 2:
        from penstock.common.row_types.scalar_types import pickled

        open(sys.argv[2], "wb").write(pickled(objects() if "driver" not in sys.argv else Unreferenced()))


if __name__ == "__main__":
    main()
"""

SLOT = """
import pickle, sys
import pyarrow as pa
from penstock.common.program.program_classes import become_program
from penstock.common.row_types.scalar_types import PICKLED, pickled

become_program()
graph = pickle.loads(open(sys.argv[1], "rb").read())
keep = graph.vertices[-1].operators[0].function
data = sys.argv[3]
if sys.argv[2] == "write":
    made = keep.make()
    keep.check(pickle.loads(pickled(made)))
    pickle.dumps(made[:11])  # what the code of a user can do
    open(data, "wb").write(pickled(made))
elif sys.argv[2] == "check":
    found = PICKLED.decode_column(pa.array([open(data, "rb").read()]))[0]
    keep.check(found)
    print("checked", found[0].shout(), repr(found[3]).split(" object")[0])
else:
    found = PICKLED.decode_column(pa.array([open(data, "rb").read()]))[0]
    print(type(found).__qualname__, found.version())
"""


class Processes:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "slot.py").write_text(SLOT)

    def driver(self, version: str, *arguments: str, without: str = "", module: str | None = None) -> str:
        """Pickle the graph of a program, and return the file."""
        text = PROGRAM.format(version=version)
        if without:
            assert without in text
            text = text.replace(without, "")
        folder = self.folder / (module or "").rpartition(".")[0].replace(".", "/")
        folder.mkdir(exist_ok=True)
        (folder / "job.py").write_text(text)
        plan = str(self.folder / f"plan-{version}")
        self._run(*(["-m", module] if module else [str(folder / "job.py")]), plan, *arguments)
        return plan

    def slot(self, *arguments: str) -> str:
        return self._run(str(self.folder / "slot.py"), *arguments)

    def refused(self, *arguments: str) -> str:
        with pytest.raises(AssertionError) as failure:
            self.slot(*arguments)
        return str(failure.value)

    def _run(self, *arguments: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        ran = subprocess.run(
            [sys.executable, *arguments], capture_output=True, text=True, cwd=self.folder, env=environment
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout


@pytest.fixture
def processes(tmp_path: Path) -> Any:
    return Processes(tmp_path)


@pytest.mark.parametrize("module", [None, "package.job"], ids=["script", "module"])
def test_objects_are_of_the_classes_of_the_program_that_runs_now(
    processes: Processes, tmp_path: Path, module: str | None
) -> None:
    data = str(tmp_path / "data")
    processes.slot(processes.driver("first"), "write", data)
    later = processes.driver("second", module=module)
    assert processes.slot(later, "check", data) == "checked second <__main__.Outer.Inner\n"
    processes.slot(later, "write", data)
    assert "checked third" in processes.slot(processes.driver("third"), "check", data)


def test_objects_of_the_driver_are_of_the_slots_classes(processes: Processes, tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    plan = processes.driver("first", data, "driver")
    assert processes.slot(plan, "show", data) == "Unreferenced first\n"
    assert processes.slot(processes.driver("second"), "show", data) == "Unreferenced second\n"


def test_a_class_that_is_gone_is_named(processes: Processes, tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    processes.driver("first", data, "driver")
    gone = """class Unreferenced:
    def version(self):
        return VERSION
""".replace("first", "second")
    told = processes.refused(processes.driver("second", without=gone), "show", data)
    assert "an object of class Unreferenced of the main program, which is not there" in told
    assert "the program does not define it" in told


def test_a_class_that_cannot_be_sent_says_why(processes: Processes, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.write_bytes(b"c__main__\nUnsendable\n.")
    told = processes.refused(processes.driver("first"), "show", str(data))
    assert "class Unsendable of the main program" in told and "cannot be sent to the slots" in told
