"""The table of changed verdicts: it asks every exhibit, says the same twice, and shows a change."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest", reason="PyTorch's operator database needs it")

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import verdicts  # noqa: E402

import museum  # noqa: E402


def test_no_two_cases_share_a_name_and_every_exhibit_is_one() -> None:
    parts = ("museum ", "point ")
    found = {part: [case.name for case in verdicts.cases(part)] for part in parts}
    names = [name for part in parts for name in found[part] if name.startswith(part)]
    assert len(set(names)) == len(names)
    assert {case.name for case in verdicts.cases("float64 amax")} == {"float64 amax"}
    for exhibit in museum.EXHIBITS:
        assert f"museum {exhibit.name} right" in names


def test_what_differs_is_told_and_what_only_one_knows_is_not() -> None:
    before = {"a": {"backward": "passed", "forward": "passed"}, "gone": {"backward": "passed"}}
    after = {"a": {"backward": "failed", "layout": "passed"}, "new": {"backward": "passed"}}
    assert verdicts.changes(before, after) == [
        ("a", "backward", "passed", "failed"),
        ("a", "forward", "passed", "-"),
        ("a", "layout", "-", "passed"),
    ]


def test_a_record_agrees_with_itself_and_a_changed_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch, "set_num_threads", lambda number: None)

    def run(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["verdicts.py", "--only", "point sqrt", *arguments])
        return verdicts.main()

    record = tmp_path / "before.json"
    assert run("--json", str(record)) == 0
    assert run("--against", str(record)) == 0
    content = json.loads(record.read_text())
    content["verdicts"]["point sqrt at 0"]["backward"] = "of another code"
    record.write_text(json.dumps(content))
    assert run("--against", str(record)) == 1
    assert "of another code" in capsys.readouterr().out
