"""docs/pytest.md: what it shows is what happens."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gradproof import pytest_plugin

PAGE = (Path(__file__).parents[2] / "docs" / "pytest.md").read_text(encoding="utf-8")


def block(before: str) -> str:
    """The block behind a comment."""
    return PAGE.split(f"<!-- {before} -->\n")[1].split("\n", 1)[1].split("```")[0]


@pytest.mark.needs("torch")
def test_the_example_runs_and_fails_as_shown(pytester, monkeypatch):
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makepyfile(test_ops=block("test_ops.py"))
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "test_ops.py")
    assert result.parseoutcomes() == {"passed": 1, "failed": 1}
    shown = [line for line in block("$ pytest test_ops.py").splitlines() if line != "..."]
    result.stdout.fnmatch_lines([line.replace("[", "[[]") for line in shown])


def test_every_way_of_the_ini_option_is_listed_and_its_example_is_one():
    table = PAGE.split("## Inconclusive checks")[1].split("\n## ")[0]
    assert tuple(re.findall(r"^\| `(\w+)`", table, re.MULTILINE)) == pytest_plugin.WAYS
    [example] = re.findall(r'^gradproof_inconclusive = "(\w+)"$', PAGE, re.MULTILINE)
    assert example in pytest_plugin.WAYS


@pytest.mark.parametrize("option", ["report", "seed", "gradcheck"])
def test_the_options_of_the_page_exist(option, pytestconfig):
    assert f"--gradproof-{option}" in PAGE
    assert pytestconfig.getoption(f"--gradproof-{option}", default="missing") != "missing"
