"""What the pages on orders, transforms and strength show is what their code prints."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
PAGES = ("second-order.md",)


def shown_blocks(page: str) -> list[tuple[str, str]]:
    """Each program, with the text that follows it, or nothing."""
    text = (DOCS / page).read_text(encoding="utf-8")
    pattern = r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?"
    return re.findall(pattern, text, re.DOTALL)


def without_time(text: str) -> str:
    text = re.sub(r"\b\d+\.\d+ s\b", "T s", text)
    return re.sub(r" +", " ", text).strip()


@pytest.mark.parametrize("page", PAGES)
def test_the_programs_of_a_page_print_what_it_shows(page, request):
    names: dict[str, object] = {"__name__": "page"}
    blocks = shown_blocks(page)
    assert blocks
    for program, shown in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(program, page, "exec"), names)
        if not shown:
            continue
        if request.config.getoption("--update-golden"):
            text = (DOCS / page).read_text(encoding="utf-8")
            (DOCS / page).write_text(text.replace(shown, printed.getvalue()), encoding="utf-8")
        else:
            assert without_time(printed.getvalue()) == without_time(shown)
