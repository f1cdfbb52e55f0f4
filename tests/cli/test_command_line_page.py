"""docs/command-line.md: every command of the page does what the page shows."""

from __future__ import annotations

import re
import shlex
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from gradproof import cli
from gradproof._survey import pieces
from gradproof.cli._parser import make_parser

PAGE = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text(encoding="utf-8")
SESSIONS = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
STEPS = [step for session in SESSIONS for step in session.split("$ ")[1:]]

pytestmark = pytest.mark.needs("torch")


def block(before: str) -> str:
    """The block behind a comment."""
    return PAGE.split(f"<!-- {before} -->\n")[1].split("\n", 1)[1].split("```")[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The files of the page, and what its commands write."""
    place = tmp_path_factory.mktemp("page")
    for name in ("my_ops.py", "inputs.json"):
        (place / name).write_text(block(name), encoding="utf-8")
    return place


def prepare(argv):
    """Write what an earlier command of the page would have: tests may run in any order."""
    if argv[0] == "explain" and not Path(argv[1]).exists():
        [writes] = [s for s in STEPS if f"--json={argv[1]}" in s or f"--json {argv[1]}" in s]
        cli.main(shlex.split(writes.strip().splitlines()[0])[1:])


def is_shown(line: str, out: list[str]) -> bool:
    """Whether a line of the page, in which * is anything, is next or later in the output."""
    while out:
        if fnmatchcase(out.pop(0).rstrip(), line.replace("[", "[[]")):
            return True
    return False


@pytest.mark.parametrize("step", STEPS, ids=[step.partition("\n")[0] for step in STEPS])
def test_a_command_does_what_the_page_shows(step, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    pieces._imported.cache_clear()
    command, *shown = step.strip().splitlines()
    program, *argv = shlex.split(command)
    assert program == "gradproof"
    prepare(argv)
    capsys.readouterr()
    if shown == [] and "--json" not in argv:
        pytest.fail("the page shows nothing: write ... below the command")
    status = cli.main(argv)
    out, err = capsys.readouterr()
    assert err == ""
    fails = "square" in " ".join(argv).lower() or argv[:2] == ["run", "my_ops.py"]
    assert status == int(fails and "slow_square" not in argv[1])
    left = out.splitlines()
    for line in shown:
        assert line == "..." or is_shown(line, left), f"{line!r} is not in {out}"


def test_every_option_of_the_help_is_on_the_page_or_says_why_not():
    elsewhere = {"--help", "--atol", "--rtol", "--sweep"}  # options of gradproof.check
    [commands] = [action for action in make_parser()._actions if action.choices]
    for command in commands.choices.values():
        options = {word for a in command._actions for word in a.option_strings if word[:2] == "--"}
        assert {o for o in options - elsewhere - {"--jobs"} if o not in PAGE} == set()
