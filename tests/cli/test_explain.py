"""`gradproof explain` and `gradproof completion`."""

from __future__ import annotations

import sys

import pytest

from example_reports import REPORTS
from gradproof import cli
from gradproof._render import json, many, text


def test_one_report_is_printed_as_it_was(tmp_path, capsys):
    file = tmp_path / "r.json"
    file.write_text(json.dump(REPORTS["one_failure"]), encoding="utf-8")
    assert cli.main(["explain", str(file)]) == 0
    assert capsys.readouterr().out.rstrip() == text.render(REPORTS["one_failure"])


def test_many_reports_are_a_table_below_those_that_did_not_pass(tmp_path, capsys):
    file = tmp_path / "r.json"
    named = [("ops.py::right", REPORTS["passed"]), ("ops.py::wrong", REPORTS["one_failure"])]
    file.write_text(many.dump(named), encoding="utf-8")
    assert cli.main(["explain", str(file)]) == 0
    out = capsys.readouterr().out
    assert text.render(REPORTS["one_failure"]) in out
    assert text.render(REPORTS["passed"]) not in out
    [name] = [line for line in out.splitlines() if line.startswith("passed")]
    assert "ops.py::right" in name
    assert out.rstrip().endswith("1 derivative verified to 3e-11, 1 failed")


@pytest.mark.parametrize("content", [None, "{", '{"format_version": 99}', b"\xff\xfe"])
def test_what_is_no_report_is_refused_in_one_sentence(tmp_path, capsys, content):
    file = tmp_path / "r.json"
    if content is not None:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert cli.main(["explain", str(file)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("gradproof: FILE: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_the_commands_and_their_options(shell, capsys):
    assert cli.main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for word in ("check", "explain", "reference", "budget"):
        assert word in script


def test_without_the_package_for_it_completion_says_what_to_install(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert cli.main(["completion", "bash"]) == 2
    assert "pip install 'gradproof[completion]'" in capsys.readouterr().err
