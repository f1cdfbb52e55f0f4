"""Code on the README, on the pages of docs/ and in docstrings runs, and prints what is shown."""

from __future__ import annotations

import doctest
import importlib
import os
import re
import shlex
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

import pages
from gradproof import cli
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


# The first page --------------------------------------------------------------------------------

START = PAGES["docs/start.md"].read_text("utf-8")
SESSIONS = re.findall(r"```console\n(.*?)```", START, re.DOTALL)


def is_shown(line: str, out: list[str]) -> bool:
    """Whether a line of the page, in which * is anything, is next or later in the output."""
    while out:
        if fnmatchcase(out.pop(0).rstrip(), line.replace("[", "[[]")):
            return True
    return False


@pytest.mark.needs("torch", "scipy")
@pytest.mark.parametrize("session", SESSIONS, ids=[text.partition("\n")[0] for text in SESSIONS])
def test_a_session_does_what_the_page_shows(session, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    source = START.split("<!-- my_ops.py -->\n```python\n")[1].split("```")[0]
    (tmp_path / "my_ops.py").write_text(source, encoding="utf-8")
    for step in session.split("$ ")[1:]:
        command, *shown = step.strip().splitlines()
        program, *argv = shlex.split(command)
        assert program == "gradproof"
        status = cli.main(argv)
        out, err = capsys.readouterr()
        assert err == ""
        assert status == int(argv[0] == "check" and "Square.apply" in argv[1])
        left = out.splitlines()
        for line in shown:
            assert line == "..." or is_shown(line, left), f"{line!r} is not in {out}"


@pytest.mark.parametrize("command", ["check", "explain"])
def test_every_option_of_the_help_is_on_the_page(command, capsys):
    with pytest.raises(SystemExit):
        cli.main([command, "--help"])
    options = set(re.findall(r"--[a-z-]+[a-z]", capsys.readouterr().out))
    elsewhere = {"--help", "--atol", "--rtol", "--steps", "--small", "--gradproof-report"}
    assert {option for option in options - elsewhere if option not in START} == set()


# docs/distributed.md, whose example runs under torchrun ------------------------------------------

EXAMPLE = ROOT / "examples" / "column_parallel.py"


def first_block(language: str) -> str:
    page = PAGES["docs/distributed.md"].read_text("utf-8")
    return page.split(f"```{language}\n")[1].split("```")[0]


def test_the_distributed_page_shows_the_code_of_its_example():
    lines = {line.strip() for line in EXAMPLE.read_text("utf-8").splitlines()}
    assert {line.strip() for line in first_block("python").splitlines()} <= lines


@pytest.mark.slow
@pytest.mark.needs("torch")
def test_the_distributed_page_shows_what_its_example_prints():
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", str(EXAMPLE)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert pages.same(done.stdout, first_block("text"), loose=True), done.stdout


# Docstrings of public functions ------------------------------------------------------------------

CASES = [  # module, name, the package that the example imports
    *(("gradproof", name, "torch") for name in ("check", "compare", "assert_derivatives")),
    *(("gradproof", name, "numpy") for name in ("by_hand", "survey")),
    ("gradproof", "Settings", "torch"),
    *(("gradproof.torch", name, "torch") for name in ("gradcheck", "gradgradcheck", "record")),
    *(("gradproof.jax", name, "jax") for name in ("check_grads", "check_jvp", "check_vjp")),
    ("gradproof.strategies", "inputs", "torch"),
]


@pytest.mark.parametrize(
    ("module", "name"),
    [pytest.param(*case, marks=pytest.mark.needs(package)) for *case, package in CASES],
)
def test_the_example_of_a_docstring_runs(module: str, name: str) -> None:
    documented: Any = getattr(importlib.import_module(module), name)
    test = doctest.DocTestParser().get_doctest(documented.__doc__, {}, name, None, None)
    assert test.examples
    printed: list[str] = []
    results = doctest.DocTestRunner().run(test, out=printed.append)
    assert not results.failed, "".join(printed)
