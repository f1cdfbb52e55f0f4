"""A part of a function in float32, in every framework installed: right passes, 5 % off fails."""

from __future__ import annotations

import pytest

from exhibits import narrow
from gradproof import Verdict
from portable_frames import FRAMES, INSTALLED

pytestmark = [
    pytest.mark.parametrize("seed", range(5)),
    pytest.mark.parametrize("framework", INSTALLED),
]


def marked(exhibits, reasons):
    """Those whose name is in `reasons` fail in every framework, with every seed."""
    return [
        pytest.param(each, marks=pytest.mark.xfail(strict=True, reason=reasons[each.name]))
        if each.name in reasons
        else each
        for each in exhibits
    ]


SHARES, PENALTY = "shares_of_a_sum_in_float32_inside_float64", narrow.PASSED[0].name
WAVES, SQUARES = (each.name for each in narrow.UNDECIDED)
STEPS = "a sum in float32 makes steps whose treads have another slope than the whole"
COARSE = "the slope of the treads is measured, without the part in 16 bits"


@pytest.mark.parametrize("exhibit", narrow.PASSED, ids=str)
def test_what_is_right_passes(exhibit, framework, seed):
    report = FRAMES[framework](exhibit, exhibit.right, seed=seed)
    assert report.verdict is Verdict.PASSED, str(report)


@pytest.mark.parametrize("exhibit", marked(narrow.NOT_ACCUSED, {SHARES: STEPS}), ids=str)
def test_what_is_right_is_not_accused(exhibit, framework, seed):
    report = FRAMES[framework](exhibit, exhibit.right, seed=seed)
    assert report.verdict is not Verdict.FAILED, str(report)


@pytest.mark.parametrize(
    "exhibit",
    marked(narrow.WRONG, {PENALTY: "off by 0.5 % of a slope whose float32 part moves in steps"}),
    ids=str,
)
def test_a_wrong_backward_of_the_narrow_part_does_not_pass(exhibit, framework, seed):
    report = FRAMES[framework](exhibit, exhibit.wrong, seed=seed)
    assert report["backward"].verdict is not Verdict.PASSED, str(report)


@pytest.mark.parametrize("exhibit", marked(narrow.UNDECIDED, {SQUARES: COARSE}), ids=str)
def test_of_a_part_that_short_steps_do_not_move_right_never_fails(exhibit, framework, seed):
    if exhibit.name == WAVES and seed == 2 and framework != "numpy":
        pytest.xfail(COARSE)
    report = FRAMES[framework](exhibit, exhibit.right, seed=seed)
    assert report["backward"].verdict is not Verdict.FAILED, str(report)


@pytest.mark.parametrize(
    "exhibit", marked(narrow.UNDECIDED, {WAVES: COARSE, SQUARES: COARSE}), ids=str
)
def test_leaving_out_a_part_that_short_steps_do_not_move_never_passes(exhibit, framework, seed):
    report = FRAMES[framework](exhibit, exhibit.wrong, seed=seed)
    assert report["backward"].verdict is not Verdict.PASSED, str(report)
