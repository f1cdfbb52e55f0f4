"""The benchmarks of second order, of escapes and of modules run, and say what they should."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = [pytest.mark.needs("torch"), pytest.mark.slow]


@pytest.fixture(autouse=True)
def scripts(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])


def test_pairs_passes_right_operators_and_knows_the_cause_of_a_wrong_one(tmp_path):
    import pairs

    record = tmp_path / "pairs.json"
    options = ["--ops", "tanh|linalg.det", "--samples", "2", "--json", str(record)]
    assert pairs.main(options) == 0
    found = json.loads(record.read_text())
    assert {group["op"] for group in found["failures"]} == {"linalg.det"}


def test_operators_in_all_pairs_are_those_of_pairs(monkeypatch, tmp_path):
    import operators
    import pairs

    asked = []
    monkeypatch.setattr(pairs, "main", lambda arguments: asked.append(arguments) or 0)
    given = [
        "--order",
        "2",
        "--pairs",
        "all",
        "--ops",
        "tanh",
        "--limit-samples",
        "3",
        "--jobs",
        "2",
    ]
    assert operators.main(given) == 0
    wanted = ["--jobs", "2", "--timeout", "120.0", "--ops", "tanh", "--samples", "3"]
    assert asked == [wanted]
    with pytest.raises(SystemExit):
        operators.main(["--pairs", "all"])


def test_escapes_tells_wrong_from_right_where_others_do_not(tmp_path, capsys):
    import escapes

    assert escapes.main(["--only", "M10"]) == 0
    assert "caught" in capsys.readouterr().out


def test_modules_passes_a_right_layer(capsys):
    import modules

    assert modules.main(["--modules", "nn.Tanh"]) == 0
    assert "ours passed" in capsys.readouterr().out
