"""Wrong derivatives fail, in the right check, at the right place; right ones pass."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch.autograd import gradcheck

import gradproof
import museum
from gradproof import Finding, Place, Verdict
from museum import EXHIBITS, Exhibit
from seeds import seeds

WRONG = [exhibit for exhibit in EXHIBITS if exhibit.wrong is not None]
REQUIRED = (
    {f"M{row:02}" for row in range(1, 40)}
    | {f"W{row}" for row in range(1, 9)}
    | {f"C{row}" for row in range(1, 10)}
    | {"W2b", "W2c", "C2b", "J1"}
)

# What the slow mode of PyTorch's gradcheck answered when the exhibit was added.
RECORD = Path(__file__).parents[1] / "benchmarks" / "results" / "escapes.json"
TOLD_APART_BY_GRADCHECK = {
    name for _, name, slow, *_ in json.loads(RECORD.read_text())["rows"] if slow == "caught"
}


def named(exhibits):
    """One test each; those that load PyTorch's compiler are slow."""
    chosen = [
        pytest.param(each, marks=pytest.mark.slow) if each.check == "compiled" else each
        for each in exhibits
    ]
    return pytest.mark.parametrize("exhibit", chosen, ids=str)


def examine(exhibit: Exhibit, fn, make_inputs, seed: int) -> gradproof.Report:
    return gradproof.check(fn, make_inputs(), order=exhibit.order, seed=seed, **exhibit.options)


def verdicts(report: gradproof.Report) -> dict[str, str]:
    return {result.name: f"{result.verdict}: {result.summary}" for result in report.checks}


def failed_checks(report: gradproof.Report) -> set[str]:
    return {each.name for each in report.checks if each.verdict is Verdict.FAILED}


def concerns(place: Place | None, slot: int | None, index: tuple[int, ...] | None) -> bool:
    if slot is None:
        return True
    return place is not None and place.slot == slot and index in (None, place.index)


def is_where(finding: Finding, exhibit: Exhibit) -> bool:
    in_slot, in_index, out_slot, out_index = exhibit.place or (None, None, None, None)
    return concerns(finding.input, in_slot, in_index) and concerns(
        finding.output, out_slot, out_index
    )


@named(WRONG)
@seeds(0, more=(1, 2, 3, 4, 5))
def test_a_wrong_derivative_fails_in_the_right_check_at_the_right_place(
    exhibit: Exhibit, seed: int
) -> None:
    report = examine(exhibit, exhibit.wrong, exhibit.make_inputs, seed)
    failed = failed_checks(report)
    assert exhibit.check in failed, verdicts(report)
    assert failed <= {exhibit.check} | exhibit.also, verdicts(report)
    assert not report
    findings = report[exhibit.check].findings
    there = [finding for finding in findings if is_where(finding, exhibit)]
    assert there, [str(finding) for finding in findings]
    assert any(all(word in each.message for word in exhibit.words) for each in there), [
        finding.message for finding in there
    ]
    causes = [cause.name for cause in report[exhibit.check].causes]
    assert exhibit.cause in ("", *causes), causes
    lines = str(report).splitlines()
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 80


@named(EXHIBITS)
@seeds(1, more=(0, 2, 3, 4, 5))
def test_a_right_derivative_is_not_accused(exhibit: Exhibit, seed: int) -> None:
    before = torch.random.get_rng_state()
    report = examine(exhibit, exhibit.right, exhibit.make_inputs, seed)
    assert str(report.verdict) in exhibit.verdict_of_right, verdicts(report)
    assert not any(result.causes or result.where for result in report.checks)
    assert torch.equal(torch.random.get_rng_state(), before)


@named([exhibit for exhibit in WRONG if exhibit.hidden_inputs])
def test_a_mistake_does_not_show_where_it_hides(exhibit: Exhibit) -> None:
    report = examine(exhibit, exhibit.wrong, exhibit.hidden_inputs, seed=0)
    there = failed_checks(report) - {"second_point"}  # that asks at a second point
    assert not there, verdicts(report)


@pytest.mark.filterwarnings("ignore:Input #0 requires gradient and is not a double")
@named([exhibit for exhibit in WRONG if exhibit.name in TOLD_APART_BY_GRADCHECK])
def test_the_museum_is_honest_gradcheck_tells_twins_apart(exhibit: Exhibit) -> None:
    options = {"masked": "settings" in exhibit.options, "raise_exception": False}
    assert not gradcheck(exhibit.wrong, exhibit.make_inputs(), **options)
    assert gradcheck(exhibit.right, exhibit.make_inputs(), **options)


@named(WRONG)
def test_twins_have_the_same_values(exhibit: Exhibit) -> None:
    wrong, right = (fn(*exhibit.make_inputs()) for fn in (exhibit.wrong, exhibit.right))
    torch.testing.assert_close(wrong, right)


@named(EXHIBITS)
def test_inputs_are_the_same_at_every_call(exhibit: Exhibit) -> None:
    for one, other in zip(exhibit.make_inputs(), exhibit.make_inputs(), strict=True):
        if isinstance(one, torch.Tensor):
            assert one is not other
            torch.testing.assert_close(one, other, rtol=0, atol=0)
            assert one.layout is not torch.strided or one.stride() == other.stride()
        else:
            assert one == other


def test_every_row_of_the_field_work_is_exhibited() -> None:
    exhibited = {row for exhibit in EXHIBITS for row in exhibit.source.split()} - {"extra"}
    assert exhibited == REQUIRED


def test_exhibits_have_different_names_and_name_checks_that_exist() -> None:
    assert len({exhibit.name for exhibit in EXHIBITS}) == len(EXHIBITS)
    options = {"order": 3, "transforms": True, "budget": 1, "seed": 0}
    report = gradproof.check(torch.sin, (torch.ones(1, requires_grad=True),), **options)
    names = {result.name for result in report.checks}
    for exhibit in EXHIBITS:
        assert {exhibit.check} | exhibit.also <= names, exhibit
        assert exhibit.verdict_of_right <= {str(verdict) for verdict in Verdict}, exhibit


def test_importing_the_museum_leaves_the_global_generator_alone() -> None:
    import importlib

    before = torch.random.get_rng_state()
    importlib.reload(museum)
    assert torch.equal(torch.random.get_rng_state(), before)
