"""The benchmark that counts what a call walks through counts right, and runs."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import walk  # noqa: E402


def test_it_runs_and_records_what_it_counted(tmp_path):
    file = tmp_path / "walk.json"
    command = [sys.executable, BENCHMARKS / "walk.py", "--json", file, "--deepest"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    recorded = json.loads(file.read_text())
    assert {row["of"] for row in recorded["rows"]} == {*walk.CALLS, "source"}
    assert all(row["now"] > 0 for row in recorded["rows"])
    assert "_engine/__init__.py: check" in done.stdout
    shipped = json.loads((BENCHMARKS / "results" / "walk.json").read_text())
    assert recorded["rows"][0].keys() == shipped["rows"][0].keys()


def test_a_walk_counts_ours_only():
    from gradproof._data.options import flag, optional

    found = walk.walked(lambda: optional(flag)("sweep", True))
    assert found.files == ("_data/options.py",)
    assert found.functions == 3  # optional, its lambda, flag
    assert [one.rpartition(".")[2] for one in found.deepest] == ["<lambda>", "py: flag"]


@pytest.mark.parametrize(
    ("text", "named", "inline"),
    [
        ("A = 3", 1, 0),
        ("A, B = 3, 'b'", 2, 0),
        ("A = {'x': (1, 2.5)}", 1, 0),
        ("A = 'three'\nB = True", 0, 0),
        ("def f(x):\n    return 2 * x + 1 - 0.5", 0, 1),
        ("class A:\n    b: int = 512", 0, 1),
        ("A: float = 1e-3", 1, 0),
    ],
)
def test_constants_are_counted_by_the_rule(text, named, inline):
    assert walk.constants(ast.parse(text)) == (named, inline)
