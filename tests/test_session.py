"""The recorded session of the README: small, without a server, and what the command prints."""

from __future__ import annotations

import html
import importlib.util
import re
from pathlib import Path

import pytest

from pages import SECONDS

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docs" / "session.svg"


def words(svg: str) -> list[str]:
    """The words of a recording, without the seconds."""
    found = re.findall(r"<text [^>]*>(.*?)</text>", svg, re.DOTALL)
    text = html.unescape(" ".join(found)).replace("\xa0", " ")
    return SECONDS.sub("T s", text).split()


def test_it_is_small_fetches_nothing_and_is_on_the_readme():
    svg = FILE.read_text("utf-8")
    assert len(svg) < 60_000
    assert not re.search(r"url\((?!#)|<script|<image|@font-face", svg)
    assert "FAILED" in words(svg)
    assert "](docs/session.svg)" in (ROOT / "README.md").read_text("utf-8")


@pytest.mark.slow
@pytest.mark.needs("torch")
def test_it_shows_what_the_command_prints(monkeypatch):
    monkeypatch.chdir(ROOT)
    spec = importlib.util.spec_from_file_location("session", ROOT / "docs" / "session.py")
    session = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(session)
    assert words(session.record()) == words(FILE.read_text("utf-8"))
