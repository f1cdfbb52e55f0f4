"""Every block of code on the README and on every page of docs/ runs, and prints what is shown."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import pages
from pages import Block

ROOT = Path(__file__).parents[1]
PAGES = pages.pages(ROOT)
BLOCKS = {name: list(pages.blocks_of(path.read_text("utf-8"))) for name, path in PAGES.items()}
WITH_CODE = [name for name, blocks in BLOCKS.items() if any(not b.not_run for b in blocks)]
SLOW = [name for name in WITH_CODE if any(block.slow for block in BLOCKS[name])]


def needs(name: str) -> pytest.MarkDecorator:
    return pytest.mark.needs(*sorted(pages.needed_by_code(BLOCKS[name])))


@pytest.mark.parametrize(
    ("name", "slow"),
    [pytest.param(name, False, marks=needs(name)) for name in WITH_CODE]
    + [pytest.param(name, True, marks=[needs(name), pytest.mark.slow]) for name in SLOW],
)
def test_the_blocks_of_a_page_run_and_print_what_is_shown(name, slow, monkeypatch, request):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "path", list(sys.path))
    names: dict = {"__name__": "page"}
    text = PAGES[name].read_text("utf-8")
    for block in BLOCKS[name]:
        if block.not_run or (block.slow and not slow):
            continue
        printed = run(block, names, name)
        if block.shown is None or pages.same(printed, block.shown, loose=block.loose):
            continue
        assert request.config.getoption("--update-golden"), f"{name}:{block.line}\n{printed}"
        text = pages.with_output(text, block, printed)
        PAGES[name].write_text(text, "utf-8")


def run(block: Block, names: dict, name: str) -> str:
    if block.language == "console":
        return pages.run_console(block)
    return pages.run_python(block, names, name)


@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_does_not_run_says_why(name):
    text = PAGES[name].read_text("utf-8")
    languages = set(re.findall(r"^```(\S+)", text, re.MULTILINE))
    data = {"text", "diff", "toml", "json", "{eval-rst}", "{toctree}"}
    assert languages <= {"python", "console"} | data
    assert all(block.not_run.count(" ") > 1 for block in BLOCKS[name] if "not run" in block.said)
    assert all(block.code.startswith("$ ") for block in BLOCKS[name] if block.language == "console")


@pytest.mark.parametrize("name", PAGES)
def test_the_test_that_runs_the_sessions_of_a_page_exists(name):
    for file in re.findall(r"<!-- sessions: (\S+) -->", PAGES[name].read_text("utf-8")):
        assert Path(name).name in (ROOT / file).read_text("utf-8")


def test_every_page_is_in_a_table_of_contents_and_linked_from_the_index():
    names = {name.removeprefix("docs/").removesuffix(".md") for name in PAGES} - {"README", "index"}
    index = PAGES["docs/index.md"].read_text("utf-8")
    assert set(re.findall(r"\]\((\S+)\.md\)", index)) == names
    listed = set(in_toctree("docs/index.md"))
    assert listed | {f"defects/{name}" for name in in_toctree("docs/defects/index.md")} == names


def in_toctree(page: str) -> list[str]:
    text = PAGES[page].read_text("utf-8")
    trees = re.findall(r"```{toctree}\n(?::[^\n]*\n)*(.*?)```", text, re.DOTALL)
    return "\n".join(trees).split()


def test_a_block_that_prints_something_else_is_seen():
    [block] = pages.blocks_of("```python\nprint(1 + 1)\n```\n\n```text\n5\n```\n")
    assert not pages.same(pages.run_python(block, {}, "page"), block.shown, loose=True)
    assert pages.same("2 of 0.12 s\n", "2 of 7.30 s", loose=False)
    assert not pages.same("2", "3", loose=False)
    assert pages.same("2", "3", loose=True)
