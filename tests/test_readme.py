"""What the README shows is what the code prints."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import sys
from pathlib import Path

import pytest

from gradproof import cli
from gradproof._settings import CHECK_NAMES

ROOT = Path(__file__).parents[1]
FILE = ROOT / "README.md"
README = FILE.read_text(encoding="utf-8")


def without_time(text: str) -> str:
    """The text with the seed and the seconds, which differ from run to run, replaced."""
    text = re.sub(r"\bseed \d+", "seed N", text)
    text = re.sub(r"\b\d+\.\d+ s\b", "T s", text)
    return re.sub(r" {2,6}(?=seed N)", "  ", text).strip()


def blocks(language: str, followed_by: str = "") -> list[tuple[str, ...]]:
    fence = rf"```{language}\n(.*?)```"
    if followed_by:
        fence += rf"\n\n```{followed_by}\n(.*?)```"
    return [match.groups() for match in re.finditer(fence, README, re.DOTALL)]


def compare(printed: str, shown: str, request: pytest.FixtureRequest) -> None:
    """Fail unless the README shows what was printed; --update-golden makes it so."""
    if request.config.getoption("--update-golden"):
        readme = FILE.read_text(encoding="utf-8")
        FILE.write_text(readme.replace(shown.strip(), printed.strip()), encoding="utf-8")
    else:
        assert without_time(printed) == without_time(shown)


@pytest.mark.needs("torch")
def test_the_example_prints_the_report_shown(request):
    [(program, shown)] = blocks("python", followed_by="text")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(program, "README.md", "exec"), {"__name__": "readme"})
    compare(printed.getvalue(), shown, request)


@pytest.mark.needs("torch")
def test_the_test_shown_passes():
    [program] = [program for (program,) in blocks("python") if "assert_derivatives" in program]
    names: dict = {}
    exec(compile(program, "README.md", "exec"), names)
    names["test_my_op"]()


@pytest.mark.needs("torch")
def test_the_command_prints_the_report_shown(capsys, monkeypatch, request):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "path", list(sys.path))
    [(session,)] = blocks("console")
    command, _, shown = session.partition("\n")
    program, *argv = shlex.split(command.removeprefix("$ "))
    assert program == "gradproof"
    assert cli.main(argv) == 1
    compare(capsys.readouterr().out, shown, request)


def test_the_table_of_checks_is_complete_and_in_order():
    assert tuple(re.findall(r"^\| `(\w+)` \|", README, re.MULTILINE)) == CHECK_NAMES


@pytest.mark.parametrize("table", ["operators", "planted", "scale"])
def test_the_markers_of_the_tables_are_there(table):
    assert README.count(f"<!-- {table} -->") == README.count(f"<!-- /{table} -->") == 1


def test_links_lead_somewhere():
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for link in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
            assert "://" in link or (page.parent / link).exists(), f"{page.name}: {link}"
