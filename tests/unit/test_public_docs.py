"""Checks the docstrings of what users import: every public name of `penstock.common` and `penstock.datastream`.

An editor shows them beside the name, so each says what a call does (a sentence that begins with a verb), what it takes
(`Args:`), what comes back (`Returns:`), and what it raises (`Raises:`). A method that overrides a documented one may
leave its own docstring out: `help()` and editors show the inherited one.
"""

from __future__ import annotations

import ast
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import Any

import pytest

import penstock.common
import penstock.connectors
import penstock.datastream

PACKAGES = (penstock.common, penstock.connectors, penstock.datastream)
PENSTOCK = Path(penstock.common.__file__).parents[1]
SIMULATION = PENSTOCK.parent / "simulation"
FOLDERS = sorted(init.parent for top in (PENSTOCK, SIMULATION) for init in top.rglob("__init__.py"))

NO_BEGINNING = frozenset({"who", "what", "whether", "of", "for", "from", "how", "where", "as", "the"})
NO_SCHEDULE = (NO_BEGINNING - {"the"}) | {"which", "that", "whose", "when", "why", "from", "than", "but", "same"}

# In the imperative. The third person of each ("reads", "carries") is allowed, too.
VERBS = frozenset(
    re.findall(
        r"\w+",
        """
        abandon abort accept access acknowledge acquire add advance advise aggregate agree aim allocate allow
        answer append apply arrange arrive ask assemble assert assign assume attach attempt authenticate avoid
        await begin bind block borrow bound break bring broadcast buffer build bundle bypass cache calculate
        call cancel carry catch cease chain change check choose claim clamp clean clear clip clone close
        collect combine commit compact compare complete compute concern configure confirm connect construct
        contain continue convert coordinate copy correct count cover crash create cut deal decide declare
        decline decode decouple defer define delay delegate delete deliver deploy derive describe deserialize
        disable discard disconnect dispatch distinguish distribute disturb divide do drain draw drive drop
        dump duplicate emit enable encode encrypt end enforce enter escape estimate evaluate evict exclude execute
        exit expect expire explain expose extend extract fail fence fetch fill filter find finish fire fit
        flip flush fold follow force forget format forward freeze gate gather generate get give grant group
        grow guard guess hand handle hash have hold identify ignore implement import include inherit
        initialize inject inspect install introduce invoke isolate iterate join judge keep key kill know
        launch lay lead learn leave lend let limit link list live load locate lock log look loop lose lower
        make manage map mark match measure merge mirror mix monitor move name narrow need nest note notify
        number observe obtain offer open order override own pace pack page pair parse partition pass patch
        pause permit persist pick pickle ping place plan preload prepare print probe process produce promise
        propose protect prove provide prune publish pull purge push put queue raise reach read reassign
        rebalance rebuild receive reconnect record reduce refuse register reject release remember remove
        rename renew repeat replace reply report represent request require rescale reseed reserve reset
        resolve restart restore resume retrieve retry return reuse revoke rewrite roll root rotate round route
        run sample say scale scan scatter schedule score script seal seek select send separate serialize serve
        set settle share ship shorten show shuffle shut signal simulate size skip sleep slice slow snapshot
        sort spawn specify spend split spread stamp stand start stay steal steer step stop store strike strip
        submit subtract sum support suspend swap sweep switch synchronize take tell terminate test time
        tolerate touch trace track transform translate treat trigger trim truncate try tune turn type undo
        union unite unpack unwrap update use validate vary verify view visit wait wake warn watch widen
        withdraw wrap write yield
        """,
    )
)


@dataclass(frozen=True)
class PublicName:
    """A class, function, method or property, and the classes from which it may inherit its docstring."""

    path: str
    value: Any
    owner: type | None = None

    @cached_property
    def function(self) -> FunctionType | None:
        """Return the function behind a method or property; None for a class."""
        value = self.value
        if isinstance(value, (staticmethod, classmethod)):
            value = value.__func__
        if isinstance(value, property):
            value = value.fget
        value = getattr(value, "func", value)
        return value if isinstance(value, FunctionType) else None

    @cached_property
    def doc(self) -> str:
        """Return the docstring, inherited from an overridden method of ours if there is no own one."""
        own = self.value.__doc__ if self.function is None else self.function.__doc__
        if own or self.owner is None or self.function is None:
            return inspect.cleandoc(own or "")
        for base in self.owner.__mro__[1:]:
            if is_ours(base) and self.function.__name__ in vars(base):
                overridden = PublicName("", vars(base)[self.function.__name__], base)
                if overridden.doc:
                    return overridden.doc
        return ""


def is_ours(value: Any) -> bool:
    return str(getattr(value, "__module__", "")).startswith(("penstock.", __name__))


def is_private(module: str) -> bool:
    return any(part.startswith("_") for part in module.split("."))


def public_modules() -> list[ModuleType]:
    names = [
        found.name
        for package in PACKAGES
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        if not is_private(found.name)
    ]
    return [*PACKAGES, *map(import_module, names)]


def names_in(module: ModuleType) -> Iterator[PublicName]:
    for name, value in vars(module).items():
        home = str(getattr(value, "__module__", ""))
        is_exported = is_private(home) and name in getattr(module, "__all__", ())
        if name.startswith("_") or not (home == module.__name__ or is_exported):
            continue
        if inspect.isclass(value):
            yield from names_of_class(value)
        elif isinstance(value, FunctionType):
            yield PublicName(f"{module.__name__}.{name}", value)


def names_of_class(cls: type, with_itself: bool = True) -> Iterator[PublicName]:
    """Yield the class, its public members, and those of private bases, which users see through it only."""
    path = f"{cls.__module__}.{cls.__qualname__}"
    if with_itself:
        yield PublicName(path, cls)
    for name, value in vars(cls).items():
        if name.startswith("_"):
            continue
        if inspect.isclass(value):
            if value.__qualname__.startswith(f"{cls.__qualname__}."):
                yield from names_of_class(value)
        elif PublicName("", value).function is not None:
            yield PublicName(f"{path}.{name}", value, cls)
    for base in cls.__bases__:
        if is_ours(base) and (base.__name__.startswith("_") or is_private(base.__module__)):
            yield from names_of_class(base, with_itself=False)


def all_names() -> dict[str, PublicName]:
    return {found.path: found for module in public_modules() for found in names_in(module)}


NAMES = all_names()


def is_verb(word: str) -> bool:
    stems = {word}
    if word.endswith("s"):
        stems |= {word[:-1], word.removesuffix("es"), word.removesuffix("ies") + "y"}
    return bool(stems & VERBS) or word in ("has", "does", "goes")


def first_word(doc: str) -> str:
    first = re.match(r"[\"'`(]*([\w-]+)", doc)
    return first[1].lower() if first else ""


def section(doc: str, title: str) -> str | None:
    """Return the text of `Args:`, `Returns:` or `Raises:`; None if there is no such section."""
    found = re.search(rf"^{title}:\n((?:[ \t]+.*\n?|\n)*)", doc, re.MULTILINE)
    return found[1] if found else None


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes of a function's body except those of functions and classes inside it."""
    for child in ast.iter_child_nodes(function):
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            yield child
            yield from own_nodes(child)


def tree_of(function: FunctionType | MethodType) -> ast.FunctionDef | ast.AsyncFunctionDef:
    tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(tree, ast.FunctionDef | ast.AsyncFunctionDef), function
    return tree


def returns_something(tree: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return False where only None or `self` comes back."""
    if tree.returns is not None and ast.unparse(tree.returns).strip("'\"") in ("None", "NoReturn"):
        return False
    returned = [node.value for node in own_nodes(tree) if isinstance(node, ast.Return) and node.value is not None]
    return not returned or any(not isinstance(v, ast.Name) or v.id != "self" for v in returned)


def raised_names(tree: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Return the names of exception classes in `raise Name(...)`."""
    raised = set()
    for node in own_nodes(tree):
        if isinstance(node, ast.Raise) and node.exc is not None:
            thrown = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            if isinstance(thrown, ast.Name) and thrown.id[:1].isupper():
                raised.add(thrown.id)
    return raised - {"StopIteration", "AssertionError"}


def problems_of(name: PublicName) -> list[str]:
    doc = name.doc
    if not doc:
        return ["has no docstring"]
    problems = []
    word = first_word(doc)
    if word in NO_BEGINNING or not is_verb(word):
        problems.append(f"begins with {word!r}, which is no verb (or one that VERBS lacks)")
    elif not re.search(r"[.:!)]$", doc.splitlines()[0]):
        problems.append("has a first sentence of more than one line")
    if ":param" in doc or ":raises" in doc or ":return" in doc:
        problems.append("uses :param fields; write Args:, Returns: and Raises: sections")
    function = name.function
    if function is None or isinstance(name.value, property) or hasattr(name.value, "func"):
        return problems
    tree = tree_of(function)
    arguments = tree.args
    given = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    parameters = [a.arg for a in given if a is not None and a.arg not in ("self", "cls") and a.arg.strip("_")]
    if not parameters:
        return problems
    described = section(doc, "Args") or ""
    entries = re.findall(r"^[ \t]+([\w*, ]+):", described, re.MULTILINE)
    listed = {name.strip("* ") for entry in entries for name in entry.split(",")}
    missing = [p for p in parameters if p not in listed]
    if missing:
        problems.append(f"its Args: lacks {', '.join(missing)}")
    if returns_something(tree) and section(doc, "Returns") is None and section(doc, "Yields") is None:
        problems.append("has no Returns:")
    unsaid = sorted(e for e in raised_names(tree) if not re.search(rf"\b{e}\b", section(doc, "Raises") or ""))
    if unsaid:
        problems.append(f"its Raises: lacks {', '.join(unsaid)}")
    return problems


def module_of(name: PublicName) -> str:
    module = (name.owner or name.value).__module__
    assert isinstance(module, str)
    return module


@pytest.mark.parametrize("module", sorted({module_of(name) for name in NAMES.values()}))
def test_public_names_are_documented(module: str) -> None:
    found = [
        f"  {path}: {'; '.join(problems)}"
        for path, name in NAMES.items()
        if module_of(name) == module and (problems := problems_of(name))
    ]
    assert not found, "\n".join(["docstrings to write or correct:", *found])


def bad_beginnings(path: Path) -> Iterator[str]:
    """Yield the docstrings of a file that begin with something other than a verb.

    The docstring of a named scenario describes its schedule, so any full sentence will do.
    """
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        doc = ast.get_docstring(node)
        if doc is None:
            continue
        is_schedule = isinstance(node, ast.ClassDef) and path.parent == SIMULATION / "scenarios"
        word = first_word(doc)
        if word in NO_SCHEDULE if is_schedule else not is_verb(word):
            yield f"  {path}:{getattr(node, 'lineno', 1)} {doc.splitlines()[0]}"


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(PENSTOCK.parent)))
def test_every_docstring_begins_with_a_verb(folder: Path) -> None:
    """Checks those of modules and private names, too: their first line is what `help()` and editors show."""
    found = [problem for path in sorted(folder.glob("*.py")) for problem in bad_beginnings(path)]
    assert not found, "\n".join(["begin with a verb (or add it to VERBS):", *found])


RELATION = re.compile(r"\w+(?: \w+){0,2} (?:what|who|where|how|when)\b")


def relations(path: Path) -> Iterator[str]:
    """Yield the first sentences that name a relation to a thing, and not the thing: "Return what is stored"."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            doc = " ".join((ast.get_docstring(node) or "").split())
            is_schedule = isinstance(node, ast.ClassDef) and path.parent == SIMULATION / "scenarios"
            if RELATION.match(doc) and not is_schedule:
                yield f"  {path}:{getattr(node, 'lineno', 1)} {doc[:100]}"


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(PENSTOCK.parent)))
def test_first_sentences_name_the_thing(folder: Path) -> None:
    """Refuses "Return what is stored": "Return the runs" is plainer. So is "Return the number of runs" than "Return how
    many there are"."""
    found = [problem for path in sorted(folder.glob("*.py")) for problem in relations(path)]
    assert not found, "\n".join(["name the thing:", *found])


@pytest.mark.parametrize("package", ["protocol", "runtime", "jobmaster"])
def test_every_class_on_the_way_of_a_record_or_a_barrier_has_a_docstring(package: str) -> None:
    """Checks private ones, too, because nobody understands a machine of which only some values are described."""
    bare = [
        f"  {path}:{node.lineno} {node.name}"
        for path in sorted((PENSTOCK / package).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and ast.get_docstring(node) is None
    ]
    assert not bare, "\n".join(["say what it holds, or does:", *bare])


def test_every_test_module_says_what_it_tests() -> None:
    """Looks for a docstring that is a sentence. Its first word may be the subject of one ("A slot dies, and ...")."""
    wrong = []
    for path in sorted((PENSTOCK.parent / "tests").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        doc = ast.get_docstring(tree)
        if tree.body and (doc is None or first_word(doc) in NO_SCHEDULE):
            wrong.append(f"  {path}: {'has no docstring' if doc is None else doc.splitlines()[0]}")
    assert not wrong, "\n".join(["say what is tested, and why it would fail:", *wrong])


def test_no_private_name_is_checked() -> None:
    assert "penstock.common.time.Duration.of_millis" in NAMES
    assert "penstock.datastream.functions._KeyedContext.get_current_key" in NAMES
    assert not [path for path in NAMES if path.startswith("penstock.datastream._streams.function_wrappers")]


def test_what_a_package_exports_from_a_private_module_is_checked() -> None:
    assert "penstock.datastream.register_executor" in NAMES


class _Base:
    def documented(self, rows: int) -> int:
        """Return `rows`.

        Args:
            rows: A number.

        Returns:
            The number.
        """
        return rows


class _Sample(_Base):
    def documented(self, rows: int) -> int:
        return rows

    def bare(self) -> None: ...

    def riddle(self) -> int:
        """From 0."""
        return 0

    def long(self) -> int:
        """Return a number that is described in so many words that
        its first sentence needs another line.
        """
        return 0

    def silent(self, rows: int, *columns: str) -> list[int]:
        """Return numbers.

        Args:
            rows: How many.
        """
        if rows < 0:
            raise ValueError(rows)
        return [rows]

    def fluent(self, rows: int) -> _Sample:
        """Set the rows.

        Args:
            rows: How many.
        """
        return self


@pytest.mark.parametrize(
    ("method", "problems"),
    [
        ("documented", []),
        ("bare", ["has no docstring"]),
        ("riddle", ["begins with 'from', which is no verb (or one that VERBS lacks)"]),
        ("long", ["has a first sentence of more than one line"]),
        ("silent", ["its Args: lacks columns", "has no Returns:", "its Raises: lacks ValueError"]),
        ("fluent", []),
    ],
)
def test_the_checks_find_what_is_missing(method: str, problems: list[str]) -> None:
    cls = _Sample
    assert problems_of(PublicName(method, vars(cls)[method], cls)) == problems
