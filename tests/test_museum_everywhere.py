"""The exhibits that make sense in every framework, in each that is installed."""

from __future__ import annotations

import pytest

from exhibits import everywhere as further
from exhibits import portable, sizes
from gradproof import Verdict
from portable_frames import FRAMES, INSTALLED

EXHIBITS = (*portable.EXHIBITS, *further.WRONG, *sizes.WRONG)
each = pytest.mark.parametrize("exhibit", EXHIBITS, ids=str)
ALL = (*EXHIBITS, *further.RIGHT)
right = pytest.mark.parametrize("exhibit", ALL, ids=str)
everywhere = pytest.mark.parametrize("framework", INSTALLED)


@everywhere
@each
def test_a_wrong_rule_fails_in_the_right_check_at_the_right_place(exhibit, framework):
    report = FRAMES[framework](exhibit, exhibit.wrong, exhibit.wrong_push, seed=0)
    found = report[exhibit.check]
    assert found.verdict is Verdict.FAILED, str(report)
    slot, entry, output = exhibit.place or (None, None, None)
    assert any(
        (slot is None or (one.input is not None and one.input.slot == slot))
        and (entry is None or one.input_index == entry)
        and (output is None or one.output_index == output)
        for one in found.findings
    ), [str(one) for one in found.findings]


@everywhere
@right
def test_what_is_right_passes(exhibit, framework):
    report = FRAMES[framework](exhibit, exhibit.right, exhibit.right_push, seed=0)
    assert report.verdict is Verdict.PASSED, str(report)


@everywhere
@pytest.mark.parametrize("seed", [1, 2, 3, 4])
@pytest.mark.parametrize("exhibit", sizes.WRONG, ids=str)
def test_a_rule_right_for_dense_probes_alone_fails_whatever_the_seed(exhibit, seed, framework):
    wrong = FRAMES[framework](exhibit, exhibit.wrong, exhibit.wrong_push, seed=seed)
    assert wrong["linearity"].verdict is Verdict.FAILED, str(wrong)
    right = FRAMES[framework](exhibit, exhibit.right, exhibit.right_push, seed=seed)
    assert right.verdict is Verdict.PASSED, str(right)


def test_the_portable_exhibits_have_names_of_their_own():
    assert len({exhibit.name for exhibit in ALL}) == len(ALL)
