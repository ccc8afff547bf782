"""Pages of documentation as programs, commands and the output that they promise.

A page says in comments, which a reader does not see, what its blocks are:

    <!-- program: name.py -->             the next ```python block begins a program; those behind it go on with it
    <!-- program: name.py, run below -->  it is only written; a command further down the page runs it
    <!-- not run: why -->                 the next block is only shown
    <!-- fails -->                        the next script ends with an error, of which its output is a part

A ```sh block is a script. A ```text block is what the program or the script before it prints, all of it: `…` in a line
stands for anything, a line of it alone for any lines. `<!-- any order -->` before it: lines may come in any order.
A ```mermaid block is a diagram, and is not run.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

ELLIPSIS = "…"

_PIECE = re.compile(r"^<!-- (?P<comment>.*?) -->$|^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S)


class PageError(ValueError):
    """A page that is not written as it should be; the message names the block."""


@dataclass(frozen=True)
class Output:
    text: str
    any_order: bool
    is_part: bool = False

    def difference(self, printed: str) -> str | None:
        """Return what is wrong with what was printed; None: nothing."""
        expected, found = self.text.splitlines(), [line.rstrip() for line in printed.splitlines()]
        if self.any_order:
            missing = Counter(found)
            for line in expected:
                match = next((other for other in missing if _pattern(line).fullmatch(other)), None)
                if match is None:
                    return f"the line {line!r} was not printed, but:\n{printed}"
                missing = missing - Counter([match])
            return f"these lines were printed, too: {sorted(missing.elements())}" if missing else None
        pattern = "".join(r"(?:.*\n)*?" if line == ELLIPSIS else _pattern(line).pattern + r"\n" for line in expected)
        matches = re.search if self.is_part else re.fullmatch
        if matches(pattern, "".join(f"{line}\n" for line in found)):
            return None
        return f"promised:\n{self.text}\nprinted:\n{printed}"


def _pattern(line: str) -> re.Pattern[str]:
    """A gap of several spaces is as wide as the columns beside it ask for."""
    literal = ".*?".join(map(re.escape, line.split(ELLIPSIS)))
    return re.compile(re.sub(r"(?:\\ ){2,}", " {2,}", literal))


@dataclass
class Program:
    name: str
    text: str = ""
    is_run: bool = True
    output: Output | None = None


@dataclass
class Script:
    text: str
    fails: bool = False
    output: Output | None = None


@dataclass
class Page:
    """Lists what is to be done, in its order: a program is complete when the next step begins."""

    steps: list[Program | Script] = field(default_factory=list)


def read_page(markdown: str) -> Page:
    """Raises `PageError`."""
    page = Page()
    comments: list[str] = []
    current: Program | Script | None = None
    for comment, language, text in _pieces(markdown):
        if comment is not None:
            comments.append(comment)
            continue
        said, comments = comments, []
        if any(c.startswith("not run: ") for c in said):
            current = None
        elif language == "python":
            current = _python(page, current, said, text)
        elif language == "sh":
            current = Script(text, "fails" in said)
            page.steps.append(current)
        elif language == "text":
            if current is None or current.output is not None:
                raise PageError(f"nothing was run before this output:\n{text}")
            is_part = isinstance(current, Script) and current.fails
            current.output = Output(text, "any order" in said, is_part)
        elif language != "mermaid":
            raise PageError(f"a block is python, sh, text or mermaid, this one is {language!r}:\n{text}")
    return page


def _pieces(markdown: str) -> Iterator[tuple[str | None, str, str]]:
    for match in _PIECE.finditer(markdown):
        yield match["comment"], match["language"] or "", match["text"] or ""


def _python(page: Page, current: Program | Script | None, said: list[str], text: str) -> Program:
    for comment in said:
        if comment.startswith("program: "):
            name, _, rest = comment.removeprefix("program: ").partition(", ")
            if rest not in ("", "run below"):
                raise PageError(f"a program is run or 'run below', not {rest!r}")
            page.steps.append(Program(name, text, is_run=not rest))
            return page.steps[-1]  # type: ignore[return-value]
    if not isinstance(current, Program) or current.output is not None:
        raise PageError(f"to which program does this block belong?\n{text}")
    current.text += "\n" + text
    return current
