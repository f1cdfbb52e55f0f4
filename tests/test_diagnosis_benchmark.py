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
from gradproof._explain.diagnose import ADVICE  # noqa: E402

RESULTS = json.loads((BENCHMARKS / "results" / "diagnosis.json").read_text())
FORMULAS_RESULTS = json.loads((BENCHMARKS / "results" / "diagnosis-formulas.json").read_text())
PAGE = (Path(__file__).parent.parent / "docs" / "diagnosis.md").read_text()


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("planted", _more_mistakes.FUNCTIONS, ids=lambda planted: planted.name)
def test_a_mistake_of_a_formula_is_named_and_its_right_twin_given_no_cause(planted) -> None:
    wrong, right = diagnosis.run_case(planted.name, diagnosis.options_of([]))
    assert wrong.answer in (diagnosis.RIGHT, diagnosis.OTHER), wrong
    assert right.named == ""


def kinds() -> list[str]:
    return [mistake.name for mistake in (*mistakes(), *_more_mistakes.more_mistakes())]


@pytest.mark.parametrize("case", ["matmul float64", "outer complex128"])
def test_every_kind_is_named_in_a_product(case: str) -> None:
    """Of kinds that need random numbers or many calls, the slow test below."""
    (sample,) = _planting.picked(case, 1)
    site = site_of(sample, seed=0)
    wanted = ("factor 2", "transposed", "zero", "conjugated", "first row for all", "reversed")
    for mistake in (*mistakes(), *_more_mistakes.more_mistakes()):
        if mistake.name in wanted and mistake.fits(site):
            trial = diagnosis._planted(case, sample, mistake, site)
            assert not trial.counted or trial.answer in (diagnosis.RIGHT, diagnosis.OTHER), trial


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
    assert set().union(*_more_mistakes.EXPECTED.values()) <= ADVICE.keys()


def test_the_record_meets_the_bars() -> None:
    assert RESULTS["kinds"] >= 40
    assert RESULTS["shares"][diagnosis.RIGHT] >= diagnosis.MIN_RIGHT
    assert RESULTS["shares"][diagnosis.WRONG] <= diagnosis.MAX_WRONG
    assert RESULTS["right backwards with a cause"] == []


def test_functions_held_out_are_on_no_other_list() -> None:
    lists = (_formulas.FORMULAS, *diagnosis.HELD_OUTS.values())
    names = [formula.name for each in lists for formula in each]
    assert len(set(names)) == len(names)


def test_the_page_tells_the_recorded_shares_and_every_cause() -> None:
    for name in (diagnosis.RIGHT, diagnosis.OTHER, diagnosis.WRONG, diagnosis.SILENT):
        assert f"{RESULTS['shares'][name]:.1%}" in PAGE, name
    assert f"{RESULTS['mistakes']:,}" in PAGE
    for name in ADVICE:
        assert f"| {name} | " in PAGE
        assert ADVICE[name] in PAGE


def test_formulas_are_right_and_their_record_meets_the_bars() -> None:
    shares = FORMULAS_RESULTS["shares"]
    assert FORMULAS_RESULTS["cases"] - FORMULAS_RESULTS["mistakes"] == len(_formulas.FORMULAS) >= 25
    assert FORMULAS_RESULTS["right backwards with a cause"] == []
    assert shares[diagnosis.RIGHT] >= diagnosis.MIN_RIGHT_OF_FORMULAS
    assert shares[diagnosis.WRONG] <= diagnosis.MAX_WRONG
    for share in shares.values():
        assert f"{share:.1%}" in PAGE


@pytest.mark.parametrize("held_out", diagnosis.HELD_OUTS)
def test_the_page_tells_what_was_said_of_functions_held_out(held_out: str) -> None:
    file = BENCHMARKS / "results" / f"diagnosis-held-out-{held_out}.json"
    record = json.loads(file.read_text("utf-8"))
    edits = sum(len(formula.edits) for formula in diagnosis.HELD_OUTS[held_out])
    assert record["mistakes"] + record["not refuted"] == edits
    assert record["right backwards with a cause"] == []
    assert record["shares"][diagnosis.WRONG] * record["mistakes"] <= 1.01  # one of them at most
    assert "| " + " | ".join(f"{share:.1%}" for share in record["shares"].values()) + " |" in PAGE


@pytest.mark.parametrize("formula", _formulas.FORMULAS[:3], ids=lambda formula: formula.name)
def test_a_formula_is_right_and_its_edits_are_mistakes(formula: _formulas.Formula) -> None:
    import gradproof

    asked = functools.partial(gradproof.check, seed=0, checks=["backward"])
    assert asked(formula.function(), formula.inputs()).verdict == "passed"
    for old, new, names in formula.edits:
        assert set(names) <= ADVICE.keys()
        report = asked(formula.function((old, new)), formula.inputs())
        assert report.verdict == "failed", (old, new)


def test_an_answer_is_right_another_name_wrong_or_none() -> None:
    import gradproof
    from gradproof._explain.diagnose import cause

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
