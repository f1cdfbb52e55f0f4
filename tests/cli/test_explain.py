"""`gradproof explain` and `gradproof completion`."""

from __future__ import annotations

import dataclasses
import sys

import pytest

from example_reports import REPORTS
from gradproof import cli
from gradproof._render import json, text


def test_one_report_is_printed_as_it_was(tmp_path, capsys):
    file = tmp_path / "r.json"
    file.write_text(json.dump(REPORTS["one_failure"]), encoding="utf-8")
    assert cli.main(["explain", str(file)]) == 0
    assert capsys.readouterr().out.rstrip() == text.render(REPORTS["one_failure"])


def test_many_reports_are_a_table_below_those_that_did_not_pass(tmp_path, capsys):
    file = tmp_path / "r.json"
    named = [("ops.py::right", REPORTS["passed"]), ("ops.py::wrong", REPORTS["one_failure"])]
    file.write_text(json.dump_many(named), encoding="utf-8")
    assert cli.main(["explain", str(file)]) == 0
    out = capsys.readouterr().out
    assert text.render(REPORTS["one_failure"]) in out
    assert text.render(REPORTS["passed"]) not in out
    [name] = [line for line in out.splitlines() if line.startswith("passed")]
    assert "ops.py::right" in name
    assert out.rstrip().endswith("1 derivative verified to 3e-11, 1 failed")


def test_against_an_earlier_file_it_says_what_is_new_gone_and_slower(tmp_path, capsys):
    right, wrong, open_ = (REPORTS[name] for name in ("passed", "one_failure", "inconclusive"))
    slow = dataclasses.replace(right, seconds=right.seconds * 3 + 1, calls={"function": 50})
    before = {"breaks": right, "opens": right, "heals": wrong, "went": right, "same": right}
    now = {"breaks": wrong, "opens": open_, "heals": right, "came": right, "same": right}
    before["drags"], now["drags"] = right, slow
    before["still"], now["still"] = wrong, wrong
    now["came wrong"] = wrong
    for name, named in (("last.json", before), ("now.json", now)):
        (tmp_path / name).write_text(json.dump_many(list(named.items())), encoding="utf-8")
    files = [str(tmp_path / "now.json"), "--against", str(tmp_path / "last.json")]
    assert cli.main(["explain", *files]) == 0
    out = capsys.readouterr().out.splitlines()
    rows = [line for line in out[1:] if line.strip() and not line.startswith(" ")]
    assert [line.split("  ")[0] for line in rows[:-1]] == [
        *("new failure", "new failure", "no longer passes", "repaired", "new", "gone", "slower")
    ]
    for line, name in zip(
        rows, ("breaks", "came wrong", "opens", "heals", "came", "went", "drags"), strict=False
    ):
        assert f" {name} " in line
    assert "50 calls" in " ".join(out)
    assert rows[-1] == "against the last: 7 changes, 2 of 8 as they were"
    assert cli.main(["explain", files[0], "--against", files[0]]) == 0
    assert capsys.readouterr().out == "against the last: 0 changes, 8 of 8 as they were\n"
    assert cli.main(["explain", files[0], "--against", str(tmp_path / "none.json")]) == 2
    assert capsys.readouterr().err.startswith("gradproof: --against: cannot read ")


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
