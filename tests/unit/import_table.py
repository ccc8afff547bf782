"""Writes the last column of the table in docs/internals/packages.md: which packages each package may import.

python -m tests.unit.import_table
"""

from __future__ import annotations

from tests.unit.source_imports import ROOT, room_of_module
from tests.unit.test_house import EVERYTHING, MAY_IMPORT, PROTOCOL_PARTS

PAGE = ROOT / "docs" / "internals" / "packages.md"


def cell(allowed: frozenset[str]) -> str:
    """Return the text for what a room may import; `protocol` stands for all its parts."""
    if len(EVERYTHING - allowed) <= 5:
        return "everything but " + ", ".join(sorted(EVERYTHING - allowed))
    if allowed >= PROTOCOL_PARTS:
        allowed = allowed - PROTOCOL_PARTS | {"protocol"}
    return ", ".join(sorted(allowed)) or "nothing of ours"


def page() -> str:
    """Return the page with the column as `MAY_IMPORT` has it."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines):
        if not line.startswith(("| `penstock/", "| `simulation/`")):
            continue
        first, told, _ = line.strip("| ").split(" | ")
        room = room_of_module(first.strip("`/").removesuffix(".py").replace("/", "."))
        if room is not None:
            lines[number] = f"| {first} | {told} | {cell(MAY_IMPORT[room])} |"
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
