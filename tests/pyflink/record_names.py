"""Records the names and signatures of PyFlink's `common` and `datastream` in `names.json`.

Reads the source of an installed PyFlink and imports none of it. To run it again, in an environment that has PyFlink:

    pip install --target /tmp/pyflink --no-deps apache-flink
    python -m tests.pyflink.record_names /tmp/pyflink/pyflink
"""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path
from typing import Any

RECORD = Path(__file__).with_name("names.json")
PACKAGES = ("common", "datastream")


def recorded(pyflink: Path) -> dict[str, Any]:
    """Return the version, the modules with their exports, classes, functions and constants."""
    version = re.search(r'__version__ = "([^"]+)"', (pyflink / "version.py").read_text(encoding="utf-8"))
    modules = {}
    for package in PACKAGES:
        for path in sorted((pyflink / package).rglob("*.py")):
            parts = path.relative_to(pyflink).with_suffix("").parts
            if "tests" in parts or any(part.startswith("_") and part != "__init__" for part in parts):
                continue
            name = ".".join(part for part in parts if part != "__init__")
            modules[name] = _module(ast.parse(path.read_text(encoding="utf-8")))
    return {"version": version[1] if version else "?", "modules": modules}


def _module(tree: ast.Module) -> dict[str, Any]:
    found: dict[str, Any] = {"exports": [], "imports": [], "classes": {}, "functions": {}, "constants": []}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            _add_class(found["classes"], node, "")
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            found["functions"][node.name] = _parameters(node, is_method=False)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name == "__all__":
                found["exports"] = ast.literal_eval(node.value)
            elif not name.startswith("_"):
                found["constants"].append(name)
    return found


def _add_class(classes: dict[str, Any], node: ast.ClassDef, prefix: str) -> None:
    if node.name.startswith("_"):
        return
    name = f"{prefix}{node.name}"
    methods, constants = {}, []
    for child in node.body:
        if isinstance(child, ast.FunctionDef) and (child.name == "__init__" or not child.name.startswith("_")):
            methods[child.name] = _parameters(child)
        elif isinstance(child, ast.ClassDef):
            _add_class(classes, child, f"{name}.")
        elif isinstance(child, ast.Assign) and isinstance(child.targets[0], ast.Name):
            constants.append(child.targets[0].id)
    bases = [ast.unparse(base) for base in node.bases]
    classes[name] = {"bases": bases, "methods": methods, "constants": [c for c in constants if not c.startswith("_")]}


def _parameters(node: ast.FunctionDef, is_method: bool = True) -> list[str]:
    """Return each parameter as `name`, `name=default`, `*name` or `**name`, without `self` and `cls`."""
    given = node.args
    names = [a.arg for a in (*given.posonlyargs, *given.args)]
    defaults = [None] * (len(names) - len(given.defaults)) + [ast.unparse(d) for d in given.defaults]
    found = [n if d is None else f"{n}={d}" for n, d in zip(names, defaults)]
    static = any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in node.decorator_list)
    found = found if static or not is_method else found[1:]
    found += [f"*{given.vararg.arg}"] if given.vararg else []
    for argument, default in zip(given.kwonlyargs, given.kw_defaults):
        found.append(argument.arg if default is None else f"{argument.arg}={ast.unparse(default)}")
    return found + ([f"**{given.kwarg.arg}"] if given.kwarg else [])


def main(pyflink: str) -> None:
    found = recorded(Path(pyflink))
    modules = ",\n".join(f"{json.dumps(name)}: {_lines(module)}" for name, module in sorted(found["modules"].items()))
    text = f'{{"version": {json.dumps(found["version"])}, "modules": {{\n{modules}\n}}}}\n'
    RECORD.write_text(text, encoding="utf-8")


def _lines(module: dict[str, Any]) -> str:
    """Return a module as JSON with a line for each class."""
    classes = ",\n  ".join(f"{json.dumps(name)}: {json.dumps(kind)}" for name, kind in module["classes"].items())
    rest = {key: value for key, value in module.items() if key != "classes"}
    return f'{json.dumps(rest)[:-1]}, "classes": {{\n  {classes}}}}}'


if __name__ == "__main__":
    main(*sys.argv[1:])
