"""Rules that raise: who raised decides, and in which precision, in every framework installed."""

from __future__ import annotations

import pytest

from exhibits import refusals
from gradproof import Verdict
from portable_frames import FRAMES, INSTALLED

pytestmark = [
    pytest.mark.parametrize("seed", range(5)),
    pytest.mark.parametrize("framework", INSTALLED),
    pytest.mark.parametrize("exhibit", refusals.WRONG, ids=str),
]


def test_a_rule_that_raises_or_is_wrong_fails(exhibit, framework, seed):
    report = FRAMES[framework](exhibit, exhibit.wrong, seed=seed)
    found = report["backward"]
    assert found.verdict is Verdict.FAILED, str(report)
    slot, entry, output = exhibit.place or (None, None, None)
    assert slot is None or any(
        (one.input.slot, one.input_index, one.output_index) == (slot, entry, output)
        for one in found.findings
    ), str(report)


def test_its_right_twin_passes(exhibit, framework, seed):
    report = FRAMES[framework](exhibit, exhibit.right, seed=seed)
    assert report.verdict is Verdict.PASSED, str(report)
