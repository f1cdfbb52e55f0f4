"""The code blocks of the pages on NumPy and JAX run, each page from top to bottom."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(
    "page",
    [pytest.param("numpy.md", marks=pytest.mark.needs("scipy"))],
)
def test_blocks_run(page):
    text = (DOCS / page).read_text(encoding="utf-8")
    names: dict = {"__name__": page}
    for block in BLOCK.finditer(text):
        line = text.count("\n", 0, block.start(1))
        exec(compile("\n" * line + block[1], page, "exec"), names)
