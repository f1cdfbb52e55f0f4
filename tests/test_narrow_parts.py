"""A part of a function in float32, in every framework installed: right passes, 5 % off fails."""

from __future__ import annotations

import pytest

from exhibits import narrow
from gradproof._data.records import Verdict
from portable_frames import FRAMES, INSTALLED

pytestmark = [
    pytest.mark.parametrize("seed", range(5)),
    pytest.mark.parametrize("framework", INSTALLED),
]


@pytest.mark.parametrize("exhibit", narrow.PASSED, ids=str)
def test_what_is_right_passes(exhibit, framework, seed):
    report = FRAMES[framework](exhibit, exhibit.right, seed=seed)
    assert report.verdict is Verdict.PASSED, str(report)


@pytest.mark.parametrize("exhibit", narrow.NOT_ACCUSED, ids=str)
def test_what_is_right_is_not_accused(exhibit, framework, seed):
    report = FRAMES[framework](exhibit, exhibit.right, seed=seed)
    assert report.verdict is not Verdict.FAILED, str(report)


@pytest.mark.parametrize("exhibit", narrow.WRONG, ids=str)
def test_a_wrong_backward_of_the_narrow_part_fails(exhibit, framework, seed):
    report = FRAMES[framework](exhibit, exhibit.wrong, seed=seed)
    assert report["backward"].verdict is Verdict.FAILED, str(report)


@pytest.mark.parametrize("exhibit", narrow.UNDECIDED, ids=str)
def test_of_a_part_that_short_steps_do_not_move_right_never_fails(exhibit, framework, seed):
    report = FRAMES[framework](exhibit, exhibit.right, seed=seed)
    assert report["backward"].verdict is not Verdict.FAILED, str(report)


@pytest.mark.parametrize("exhibit", narrow.UNDECIDED, ids=str)
def test_leaving_out_a_part_that_short_steps_do_not_move_never_passes(exhibit, framework, seed):
    report = FRAMES[framework](exhibit, exhibit.wrong, seed=seed)
    assert report["backward"].verdict is not Verdict.PASSED, str(report)
