"""The README is complete, and its links lead somewhere; its code is run by test_docs_code.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gradproof._data.settings import CHECK_NAMES

ROOT = Path(__file__).parents[1]
FILE = ROOT / "README.md"
README = FILE.read_text(encoding="utf-8")


def test_the_table_of_checks_is_complete_and_in_order():
    assert tuple(re.findall(r"^\| `(\w+)` \|", README, re.MULTILINE)) == CHECK_NAMES


@pytest.mark.parametrize("table", ["operators", "planted", "scale"])
def test_the_markers_of_the_tables_are_there(table):
    assert README.count(f"<!-- {table} -->") == README.count(f"<!-- /{table} -->") == 1


def test_links_lead_somewhere():
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for link in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
            assert "://" in link or (page.parent / link).exists(), f"{page.name}: {link}"
