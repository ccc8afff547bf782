"""Tests that what runs the documentation sees where a page is wrong; and no page is left out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.spark.documentation import Output, PageError, Program, Script, read_page

DOCS = Path(__file__).resolve().parents[3] / "docs"

PAGE = """
<!-- program: one.py -->
```python
a = 1
```
Words in between.
```python
print(a)
```
```text
1
```
<!-- not run: it would take years -->
```sh
sleep 1000000000
```
<!-- program: two.py, run below -->
```python
print("zwei")
```
```mermaid
stateDiagram-v2
```
<!-- fails -->
```sh
penstock run two.py
```
```text
no
```
"""


def test_a_page_is_read_as_programs_and_scripts_with_their_outputs() -> None:
    one, two, script = read_page(PAGE).steps
    assert one == Program("one.py", "a = 1\n\nprint(a)\n", True, Output("1\n", any_order=False))
    assert two == Program("two.py", 'print("zwei")\n', is_run=False)
    assert script == Script("penstock run two.py\n", True, Output("no\n", any_order=False, is_part=True))


@pytest.mark.parametrize(
    "page",
    [
        "```python\na = 1\n```\n",
        "```text\n1\n```\n",
        "<!-- program: a.py, sometimes -->\n```python\na = 1\n```\n",
        "```java\nint a;\n```\n",
        "<!-- program: a.py -->\n```python\n1\n```\n```text\n1\n```\n```text\n2\n```\n",
    ],
)
def test_a_block_that_nobody_would_run_is_refused(page: str) -> None:
    with pytest.raises(PageError):
        read_page(page)


@pytest.mark.parametrize(
    ("promised", "any_order", "printed", "same"),
    [
        ("a\nb\n", False, "a\nb\n", True),
        ("a\nb\n", False, "b\na\n", False),
        ("a\nb\n", True, "b\na\n", True),
        ("a\n", True, "a\na\n", False),
        ("a\na\n", True, "a\n", False),
        ("a\n", False, "a\nb\n", False),
        ("a\n…\nd\n", False, "a\nb\nc\nd\n", True),
        ("a\n…\nd\n", False, "a\nd\n", True),
        ("chk-… (1.5)\n", False, "chk-17 (1.5)\n", True),
        ("chk-… (1.5)\n", False, "chk-17 (1x5)\n", False),
    ],
)
def test_outputs_are_compared_line_by_line(promised: str, any_order: bool, printed: str, same: bool) -> None:
    assert (Output(promised, any_order).difference(printed) is None) == same


def test_what_a_script_says_of_its_error_is_a_part() -> None:
    assert Output("b\n", any_order=False, is_part=True).difference("a\nb\nc\n") is None
    assert Output("b\n", any_order=False, is_part=True).difference("a\nbc\n") is not None


def test_every_page_is_in_the_index_and_every_block_of_it_is_run() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    for page in sorted(DOCS.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        assert page.name == "README.md" or f"]({page.name})" in index
        assert text.count("```") == 2 * len(re.findall(r"^```\w+$", text, re.M)), f"{page.name}: fences begin lines"
        read_page(text)
