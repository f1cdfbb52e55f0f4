"""docs/inputs.md and its neighbours: every block runs, and prints what is shown below it."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
PAGES = ["inputs.md"]


def shown_as(text: str) -> str:
    """The text without the seconds, which differ from run to run."""
    return re.sub(r"\d+\.\d+ s\b", "T s", text).strip()


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_the_page_prints_what_it_shows(page):
    blocks = re.findall(
        r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?",
        (DOCS / page).read_text(encoding="utf-8"),
        re.DOTALL,
    )
    assert blocks
    names: dict = {"__name__": page}
    for program, shown in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(program, page, "exec", dont_inherit=True), names)
        assert shown_as(printed.getvalue()) == shown_as(shown)
