"""Mistakes of PyTorch's operators and formulas are named by what they are."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest", reason="PyTorch's operator database needs it")

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import _formulas  # noqa: E402
import _more_mistakes  # noqa: E402
import _planting  # noqa: E402
import diagnosis  # noqa: E402
from _mistakes import mistakes  # noqa: E402
from planted import site_of  # noqa: E402

from gradproof._data.records import Verdict  # noqa: E402


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("planted", _more_mistakes.FUNCTIONS, ids=lambda planted: planted.name)
def test_a_mistake_of_a_formula_is_given_no_wrong_cause_and_its_right_twin_none(planted) -> None:
    wrong, right = diagnosis.run_case(planted.name, diagnosis.options_of([]))
    assert wrong.answer != diagnosis.WRONG, wrong
    assert right.named == ""


def kinds() -> list[str]:
    return [mistake.name for mistake in (*mistakes(), *_more_mistakes.more_mistakes())]


@pytest.mark.parametrize("case", ["matmul float64", "outer complex128"])
def test_no_kind_is_given_a_wrong_cause_in_a_product(case: str) -> None:
    """Of kinds that need random numbers or many calls, the slow test below."""
    (sample,) = _planting.picked(case, 1)
    site = site_of(sample, seed=0)
    wanted = ("factor 2", "transposed", "zero", "conjugated", "first row for all", "reversed")
    for mistake in (*mistakes(), *_more_mistakes.more_mistakes()):
        if mistake.name in wanted and mistake.fits(site):
            trial = diagnosis._planted(case, sample, mistake, site)
            assert trial.answer != diagnosis.WRONG, trial


@pytest.mark.slow
def test_the_quick_run_prints_a_table_and_meets_the_bars(tmp_path: Path) -> None:
    file = tmp_path / "diagnosis.json"
    command = [sys.executable, "diagnosis.py", "--quick", "--json", str(file)]
    done = subprocess.run(command, cwd=BENCHMARKS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "same numbers" in done.stdout
    assert json.loads(file.read_text())["shares"]["right"] >= diagnosis.MIN_RIGHT


def test_every_planted_kind_has_the_names_it_may_be_given() -> None:
    planned = {*kinds(), *(planted.kind for planted in _more_mistakes.FUNCTIONS)}
    assert planned == set(_more_mistakes.EXPECTED)
    assert len(planned) >= 40


def test_functions_held_out_are_on_no_other_list() -> None:
    lists = (_formulas.FORMULAS, *diagnosis.HELD_OUTS.values())
    names = [formula.name for each in lists for formula in each]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("formula", _formulas.FORMULAS[:3], ids=lambda formula: formula.name)
def test_a_formula_is_right_and_its_edits_are_mistakes(formula: _formulas.Formula) -> None:
    import gradproof

    asked = functools.partial(gradproof.check, seed=0, checks=["backward"])
    assert asked(formula.function(), formula.inputs()).verdict == "passed"
    for old, new, _ in formula.edits:
        report = asked(formula.function((old, new)), formula.inputs())
        assert report.verdict == "failed", (old, new)


def test_an_answer_is_right_another_name_wrong_or_none() -> None:
    import gradproof
    from gradproof._explain.causes import named_cause as cause

    def judged(*causes: gradproof.CheckResult) -> str:
        result = gradproof.CheckResult("backward", Verdict.FAILED, "", causes=causes)
        report = gradproof.Report("f", (), (), (result,), {}, 0.0, 0)
        return diagnosis.judged("case", "zero", report).answer

    assert judged(cause("zero", ""), cause("factor", "")) == diagnosis.RIGHT
    assert judged(cause("factor", ""), cause("zero", "")) == diagnosis.OTHER
    assert judged(cause("factor", ""), cause("zero", "", score=0.5)) == diagnosis.WRONG
    assert judged(cause("factor", "")) == diagnosis.WRONG
    assert judged() == diagnosis.SILENT


@pytest.mark.slow
def test_the_example_of_the_readme_names_its_cause_for_nearly_every_draw(monkeypatch) -> None:
    """Three of fifty draws had none while a fitted coefficient had no uncertainty."""
    import torch

    import gradproof

    monkeypatch.syspath_prepend(BENCHMARKS.parent / "examples")
    from wrong_layer_norm import layer_norm

    named = 0
    for seed in range(50):
        generator = torch.Generator().manual_seed(seed)
        drawn = [
            torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()
            for shape in ((8, 16), (16,), (16,))
        ]
        report = gradproof.check(layer_norm, drawn, seed=seed, checks=["backward"])
        causes = report["backward"].causes
        named += bool(causes) and causes[0].name == "missing term"
    assert named >= 49
