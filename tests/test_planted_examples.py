"""A derivative of examples/ in a wrong wrapper fails, whatever the seed; unwrapped it passes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

import _wrappers  # noqa: E402

from gradproof import Verdict  # noqa: E402
from gradproof.torch import gradcheck  # noqa: E402

EXAMPLES = [each for each in _wrappers.examples() if not each.interpreted]
COTANGENTS = [
    each for each in _wrappers.WRAPPERS if "cotangent" in each.name or "skipped" in each.name
]
OTHERS = [each for each in _wrappers.WRAPPERS if each not in COTANGENTS]

examples = pytest.mark.parametrize("example", EXAMPLES, ids=lambda one: one.name)
seeds = pytest.mark.parametrize("seed", range(_wrappers.SEEDS))


@examples
@seeds
@pytest.mark.parametrize("wrapper", COTANGENTS, ids=lambda one: one.name)
def test_a_wrong_wrapper_of_the_cotangent_fails(example, wrapper, seed):
    report = _wrappers.asked(example, wrapper, seed)
    assert report["linearity"].verdict is Verdict.FAILED, str(report)


@seeds
@pytest.mark.parametrize(
    ("example", "wrapper"),
    [(example, wrapper) for example in EXAMPLES for wrapper in OTHERS if wrapper.fits(example)],
    ids=lambda one: one.name,
)
def test_a_wrong_wrapper_of_state_or_subsets_fails(example, wrapper, seed):
    report = _wrappers.asked(example, wrapper, seed)
    assert report.verdict is Verdict.FAILED, str(report)


@examples
@seeds
@pytest.mark.parametrize("wrapper", _wrappers.NONE, ids=lambda one: one.name)
def test_a_right_derivative_passes(example, wrapper, seed):
    report = _wrappers.asked(example, wrapper, seed)
    assert report.verdict is Verdict.PASSED, str(report)


@examples
@pytest.mark.parametrize("wrapper", COTANGENTS, ids=lambda one: one.name)
def test_the_drop_in_refuses_them_too(example, wrapper):
    inputs = example.inputs()
    assert not gradcheck(wrapper.wrap(example.function), inputs, raise_exception=False)
    assert gradcheck(example.function, inputs)
