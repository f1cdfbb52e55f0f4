"""The exhibits that make sense in every framework, in each that is installed.

PyTorch runs most of them in the museum (`exhibits.in_torch`), and here those that are not there.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from exhibits import everywhere as further
from exhibits import narrow, portable, refusals, sizes
from exhibits.portable import Portable
from gradproof import Finding, Report, Verdict
from portable_frames import FRAMES, INSTALLED
from seeds import seeds

IN_THE_MUSEUM = (*portable.EXHIBITS, *further.WRONG, *sizes.WRONG)
RIGHT = (*IN_THE_MUSEUM, *further.RIGHT)
ONLY_HERE = refusals.WRONG
OTHERS = [framework for framework in INSTALLED if framework != "torch"]
WRONG_PAIRS = [
    *((exhibit, framework) for framework in OTHERS for exhibit in IN_THE_MUSEUM),
    *((exhibit, framework) for framework in INSTALLED for exhibit in refusals.WRONG),
]


def is_where(finding: Finding, exhibit: Portable) -> bool:
    slot, entry, output = exhibit.place or (None, None, None)
    return (
        (slot is None or (finding.input is not None and finding.input.slot == slot))
        and entry in (None, finding.input_index)
        and output in (None, finding.output_index)
    )


def options_of(exhibit: Portable, framework: str, seed: int) -> dict:
    """With JAX the first run asks for the one check that the exhibit is about.

    Compiling the programs of all checks takes ten times as long: that is left to the slow runs.
    """
    only = {"checks": [exhibit.check]} if framework == "jax" and seed == 0 else {}
    return {"seed": seed, **only}


def report_of_wrong(exhibit: Portable, framework: str, seed: int) -> Report:
    options = options_of(exhibit, framework, seed)
    return FRAMES[framework](exhibit, exhibit.wrong, exhibit.wrong_push, **options)


def report_of_right(exhibit: Portable, framework: str, seed: int) -> Report:
    options = options_of(exhibit, framework, seed)
    return FRAMES[framework](exhibit, exhibit.right, exhibit.right_push, **options)


@seeds(0, more=(1, 2))
@pytest.mark.parametrize(("exhibit", "framework"), WRONG_PAIRS, ids=str)
def test_a_wrong_rule_fails_in_the_right_check_at_the_right_place(exhibit, seed, framework):
    report = report_of_wrong(exhibit, framework, seed)
    found = report[exhibit.check]
    assert found.verdict is Verdict.FAILED, str(report)
    assert any(is_where(finding, exhibit) for finding in found.findings), str(report)


# JAX compiles each of them: a default run takes every fourth there.
RIGHT_PAIRS = [
    pytest.param(exhibit, framework, marks=pytest.mark.slow if framework == "jax" and k % 4 else [])
    for framework in INSTALLED
    for k, exhibit in enumerate((*RIGHT, *ONLY_HERE) if framework in OTHERS else ONLY_HERE)
]


@seeds(0, more=(1, 2))
@pytest.mark.parametrize(("exhibit", "framework"), RIGHT_PAIRS, ids=str)
def test_what_is_right_passes(exhibit, seed, framework):
    report = report_of_right(exhibit, framework, seed)
    assert report.verdict is Verdict.PASSED, str(report)


def test_the_portable_exhibits_have_names_of_their_own():
    names = [exhibit.name for exhibit in (*RIGHT, *ONLY_HERE)]
    assert len(set(names)) == len(names)


# A part of the function in fewer bits than its arrays --------------------------------------------


SHARES = "shares_of_a_sum_in_float32_inside_float64"
STEPS = "a sum in float32 makes steps whose treads have another slope than the whole"


# Loops over rows in two widths are slow to compile in JAX.
without_jax = pytest.mark.parametrize(
    "framework",
    [pytest.param(each, marks=pytest.mark.slow) if each == "jax" else each for each in INSTALLED],
)


@without_jax
@seeds(0, more=(1, 2, 3, 4))
@pytest.mark.parametrize("exhibit", narrow.NOT_ACCUSED, ids=str)
def test_what_is_right_is_not_accused(exhibit, framework, seed, request):
    if exhibit.name == SHARES and framework == "numpy":  # whose casts are not seen
        request.applymarker(pytest.mark.xfail(strict=True, reason=STEPS))
    report = report_of_right(exhibit, framework, seed)
    assert report.verdict is not Verdict.FAILED, str(report)


@without_jax
@seeds(0, more=(1, 2, 3, 4))
@pytest.mark.parametrize("exhibit", narrow.NOT_ACCUSED, ids=str)
def test_a_wrong_backward_of_the_narrow_part_does_not_pass(exhibit, framework, seed):
    verdict = report_of_wrong(exhibit, framework, seed)["backward"].verdict
    assert verdict is Verdict.FAILED or (framework == "numpy" and verdict is not Verdict.PASSED)


# Sweeps -----------------------------------------------------------------------------------------

QUOTIENT = dataclasses.replace(
    next(each for each in portable.EXHIBITS if each.name == "product_divided_by_a_zero_entry"),
    inputs=lambda: (np.array([2.0, 3.0, 5.0]),),
)


@pytest.mark.parametrize("framework", OTHERS)
def test_a_sweep_finds_what_the_point_hides_and_spares_the_right_twin(framework):
    options = {"seed": 0, "sweep": True, "checks": ["backward"], "budget": 5000}
    report = FRAMES[framework](QUOTIENT, QUOTIENT.wrong, **options)
    assert report["backward"].verdict == "passed"
    assert report["sweep"].verdict == "failed", str(report)
    assert report["sweep"].summary.startswith("wrong at one zero (")
    right = FRAMES[framework](QUOTIENT, QUOTIENT.right, **options)
    assert right["sweep"].verdict == "passed", str(right)
