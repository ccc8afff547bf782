"""Draws the protocol's tables of transitions as state diagrams in `docs/`. They are in the language of Mermaid, which
GitHub shows as a picture. Each diagram follows a comment that names it: `<!-- diagram: NAME -->`.

    python -m tools.diagrams    # renews the diagrams of all pages
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from penstock.protocol.driver import lifecycle, rescaling
from penstock.protocol.driver.pending_checkpoints import CHECKPOINT_TABLE
from penstock.protocol.machine import Table
from penstock.protocol.subtask import barrier_handler

DOCS = Path(__file__).resolve().parent.parent / "docs"
DIAGRAMS: dict[str, dict[str, Table[Any]]] = {
    "checkpointing.md": {
        "a checkpoint at a subtask": barrier_handler.TABLE,
        "a checkpoint at the coordinator": CHECKPOINT_TABLE,
        "the life of a job": lifecycle.TABLE,
    },
    "upgrading.md": {"a rescale": rescaling.TABLE},
}
"""Maps pages to their diagrams, and these to the tables that they show."""


_KEYWORDS = frozenset({"state", "note", "default", "class", "classDef", "style", "scale", "click"})
"""Words that Mermaid does not take for a state."""


def _checked(name: str, is_state: bool = False) -> str:
    """Return the name of an event or a state. Raises `ValueError` if Mermaid reads something else: what follows a `;`
    is cut off, `<` begins a tag, and a keyword is no state."""
    if not re.fullmatch(r"[\w ,'()-]+", name) or (is_state and name in _KEYWORDS):
        raise ValueError(f"{name!r} means something else in a diagram: give it another name")
    return name


def diagram(table: Table[Any]) -> str:
    """Return a table as a diagram: an arrow for each pair of states, with all events that lead from one to the other.
    Raises `ValueError` if an event or a state has a name that a diagram cannot show.

    Two kinds of arrows are left out, because they would hide the others: those of events that leave a machine in its
    state, and those to a last state if all their events also lead to a state from which one arrow leads there.
    """
    used = {state for cells in table.rows.values() for state in cells}
    states = [state for state in type(next(iter(used))) if state in used]
    arrows: dict[tuple[Any, Any], list[str]] = {}
    for event, cells in table.rows.items():
        for before, cell in cells.items():
            for after in cell.to:
                if after is not before:
                    arrows.setdefault((before, after), []).append(_checked(event))
    last = set(states) - {before for before, _ in arrows}

    def is_implied(before: Any, after: Any) -> bool:
        events = set(arrows[before, after])
        return after in last and any(
            (state, after) in arrows and events <= set(arrows.get((before, state), ())) for state in states
        )

    names = {state: _checked(str(state.value), is_state=True).replace(" ", "_") for state in states}
    lines = ["stateDiagram-v2"]
    lines += [f'state "{state.value}" as {names[state]}' for state in states if names[state] != state.value]
    lines += [f"[*] --> {names[states[0]]}"]
    lines += [
        f"{names[before]} --> {names[after]} : {'<br/>'.join(arrows[before, after])}"
        for before in states
        for after in states
        if (before, after) in arrows and not is_implied(before, after)
    ]
    lines += [f"{names[state]} --> [*]" for state in states if state in last]
    return "\n    ".join(lines)


def renewed(page: str, tables: dict[str, Table[Any]]) -> str:
    """Return the text of a page with present diagrams. Raises `ValueError` if the page has no place for one."""
    for name, table in tables.items():
        place = re.compile(rf"(<!-- diagram: {re.escape(name)} -->\n```mermaid\n).*?(^```$)", re.M | re.S)
        found = place.search(page)
        if found is None:
            raise ValueError(f"the page has no block ```mermaid behind the comment <!-- diagram: {name} -->")
        page = f"{page[: found.start()]}{found[1]}{diagram(table)}\n{found[2]}{page[found.end() :]}"
    return page


def main() -> None:
    for page, tables in DIAGRAMS.items():
        path = DOCS / page
        path.write_text(renewed(path.read_text(encoding="utf-8"), tables), encoding="utf-8")


if __name__ == "__main__":
    main()
