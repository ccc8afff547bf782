"""Reads from the syntax tree which modules a file of the repository imports, and finds files that import each other.

Imports inside functions and under TYPE_CHECKING count too: a wall with a door behind a curtain is no wall.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OURS = ("penstock", "simulation")
"""The packages whose rooms and imports are checked: the one that users install, and the one that proves it."""


@dataclass(frozen=True)
class Import:
    """`module` is the full dotted name; `file` is relative to the repository's root."""

    file: str
    line: int
    room: str
    module: str

    @property
    def top(self) -> str:
        return self.module.partition(".")[0]


def python_files(*folders: str) -> list[Path]:
    return sorted(p for folder in folders for p in (ROOT / folder).rglob("*.py") if "__pycache__" not in p.parts)


def room_of_module(module: str) -> str | None:
    """The room of the house that a dotted name of ours lies in; None for `penstock` itself. What `python -m penstock`
    runs is the command's."""
    package, *parts = module.split(".")
    if package == "simulation":
        return package
    if not parts:
        return None
    if parts == ["__main__"]:
        return "cli"
    if parts[:3] == ["operators", "windows", "assigners"]:
        return "windows.assigners"
    if parts[0] == "protocol" or parts[:2] == ["connectors", "base"]:
        return ".".join(parts[:2])
    return parts[0]


def dotted_name(path: Path) -> str:
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path) -> list[Import]:
    is_package = path.name == "__init__.py"
    return imports_in(path.read_text(encoding="utf-8"), dotted_name(path), is_package, str(path.relative_to(ROOT)))


def imported_from(node: ast.ImportFrom, package: str) -> str:
    """Return the dotted name behind `from`, with the dots of a relative import resolved from `package`."""
    base = node.module or ""
    if not node.level:
        return base
    above = package.split(".")[: len(package.split(".")) - (node.level - 1)]
    return ".".join([*above, base] if base else above)


def imports_in(source: str, module: str, is_package: bool, file: str) -> list[Import]:
    package = module if is_package else module.rpartition(".")[0]
    room = room_of_module(module) or ""
    found = []
    for node in ast.walk(ast.parse(source, filename=file)):
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            continue
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            base = imported_from(node, package)
            # `from penstock import storage` names a room, `from penstock.storage import store` a module in one.
            names = [f"{base}.{alias.name}" for alias in node.names] if base in ("penstock", "unittest") else [base]
        for name in names:
            found.append(Import(file, node.lineno, room, name))
    return found


def circles(edges: dict[str, set[str]]) -> list[frozenset[str]]:
    """The strongly connected components of more than one node (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[frozenset[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in edges.get(node, ()):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            component = frozenset(stack[stack.index(node) :])
            del stack[stack.index(node) :]
            if len(component) > 1:
                found.append(component)

    for node in edges:
        if node not in index:
            visit(node)
    return found


def files_imported(source: str, package: str, files: set[str]) -> set[str]:
    """Return which of `files` (dotted names) a file of `package` imports, in whichever form and place."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = imported_from(node, package)
            inner = {f"{base}.{alias.name}" for alias in node.names}
            found |= inner if inner <= files else (inner | {base})
    return found & files
