"""docs/start.md: every command of the page does what the page shows."""

from __future__ import annotations

import re
import shlex
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from gradproof import cli

PAGE = (Path(__file__).parents[1] / "docs" / "start.md").read_text(encoding="utf-8")
SESSIONS = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)

pytestmark = pytest.mark.needs("torch", "scipy")


def is_shown(line: str, out: list[str]) -> bool:
    """Whether a line of the page, in which * is anything, is next or later in the output."""
    while out:
        if fnmatchcase(out.pop(0).rstrip(), line.replace("[", "[[]")):
            return True
    return False


@pytest.mark.parametrize("session", SESSIONS, ids=[text.partition("\n")[0] for text in SESSIONS])
def test_a_session_does_what_the_page_shows(session, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    source = PAGE.split("<!-- my_ops.py -->\n```python\n")[1].split("```")[0]
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
    assert {option for option in options - elsewhere if option not in PAGE} == set()
