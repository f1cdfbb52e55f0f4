"""The benchmark scripts run, their formulas are right, and escapes.md is theirs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import gradproof

pytest.importorskip("expecttest", reason="PyTorch's operator database needs it")

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import _formulas  # noqa: E402
import _more_mistakes  # noqa: E402
import diagnosis  # noqa: E402
import escapes  # noqa: E402
import operators  # noqa: E402
import planted  # noqa: E402

import museum  # noqa: E402

# The scripts -------------------------------------------------------------------------------------

SCRIPTS = {
    "operators": ("operators.py", "--quick", "--ops", "sub|mul"),
    "operators in few bits": ("operators.py", "--dtype", "bfloat16", "--ops", "mul|sub"),
    "planted": ("planted.py", "--quick", "--case", "mul float64", "--delta", "1e-3"),
    "planted in few bits": ("planted.py", "--dtype", "float32", "--case", "matmul float32"),
    "examples in wrong wrappers": ("planted.py", "--examples"),
    "scale": ("scale.py", "--functions", "tanh", "--sizes", "100", "--repetitions", "1"),
    "scales": ("scales.py", "--functions", "exp,log", "--scales", "1", "--dtypes", "float64"),
    "diagnosis": ("diagnosis.py", "--quick"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_prints_a_table_and_records_it(name: str, tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    script, *options = SCRIPTS[name]
    command = [sys.executable, str(BENCHMARKS / script), *options, "--json", str(record)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.count("\n") > 3, done.stderr
    assert done.returncode == 0 or script == "scale.py", done.stdout + done.stderr
    assert json.loads(record.read_text())


@pytest.mark.parametrize("script", [operators, planted], ids=lambda script: script.__name__)
def test_an_unknown_name_is_a_usage_error(script) -> None:
    option = "--ops" if script is operators else "--case"
    assert script.main([option, "no_such_operator float64"]) == 2


# What is planted ---------------------------------------------------------------------------------


@pytest.mark.parametrize("formula", _formulas.FORMULAS[:3], ids=lambda formula: formula.name)
def test_a_formula_is_right_and_its_edits_are_mistakes(formula: _formulas.Formula) -> None:
    def verdict(*edits):
        return gradproof.check(
            formula.function(*edits), formula.inputs(), seed=0, checks=["backward"]
        ).verdict

    assert verdict() == "passed"
    assert {verdict((old, new)) for old, new, _ in formula.edits} == {"failed"}


@pytest.mark.parametrize("case", _more_mistakes.FUNCTIONS, ids=lambda case: case.name)
def test_a_mistake_of_a_formula_is_given_no_wrong_cause_and_its_right_twin_none(case) -> None:
    wrong, right = diagnosis.run_case(case.name, diagnosis.options_of([]))
    assert wrong.answer != diagnosis.WRONG, wrong
    assert right.named == ""


# What was recorded -------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_record_of_escapes_names_the_exhibits_of_the_museum():
    """Add those that are missing, in seconds:

    benchmarks/escapes.py --missing --json benchmarks/results/escapes.json --page docs/escapes.md
    """
    rows = escapes.recorded(BENCHMARKS / "results" / "escapes.json")
    assert {row.name for row in rows} == {exhibit.name for exhibit in museum.EXHIBITS}
    assert escapes.page(rows) in (ROOT / "docs" / "escapes.md").read_text()


@pytest.mark.needs("jinja2")
def test_the_demo_writes_a_page_about_the_wrong_layer_norm(tmp_path):
    page = tmp_path / "page.html"
    script = ROOT / "examples" / "page_of_a_mistake.py"
    subprocess.run([sys.executable, script, page], check=True, capture_output=True)
    assert "layer_norm" in page.read_text("utf-8")
