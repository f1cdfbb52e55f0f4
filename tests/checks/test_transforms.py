"""AD transforms, by maps over NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from gradproof._data.records import Verdict
from gradproof._data.settings import Settings
from gradproof._maps.contract import Transform, Unsupported
from gradproof.errors import UsageError
from numpy_map import FunctionMap, result_of

POINT = np.array([0.3, -0.7, 1.1])
COSINE = np.cos(POINT)


def make(run=lambda v: v * COSINE, *, name="compiled", faults=(), forward=True, **kind):
    def take(_, asked):
        if asked != name:
            raise Unsupported("another")
        return run(_)

    extra = {
        "transforms": lambda: (Transform(name, "the run", **kind),),
        "vjp_transform": take,
        "jvp_transform": take,
        "transform_faults": lambda v, name: faults,
    }
    return FunctionMap(np.sin, POINT, np.diag(COSINE), forward=forward, extra=extra)


def verdict(map_, name="compiled"):
    return result_of(map_, name).verdict


def test_a_transform_to_the_same_gradient_passes():
    assert verdict(make()) is Verdict.PASSED


def test_a_transform_to_another_gradient_fails_at_its_entry():
    def run(v):
        return v * COSINE * [1, 1.001, 1]

    result = result_of(make(run), "compiled")
    assert result.verdict is Verdict.FAILED
    assert [finding.input.index for finding in result.findings] == [(1,)]
    assert "the run" in result.findings[0].message


def test_few_bits_of_a_transform_excuse_what_they_explain_and_no_more():
    def run(factor):
        return lambda v: v * COSINE * factor

    assert verdict(make(run(1.01), unit=2.0**-8)) is Verdict.PASSED
    assert verdict(make(run(1.5), unit=2.0**-8)) is Verdict.FAILED


@pytest.mark.parametrize("forward", [True, False])
def test_a_tangent_is_held_against_forward_mode_or_the_backward(forward):
    kind = {"name": "functional_jvp", "forward": forward}

    def result(run):
        map_ = make(run, **{**kind, "forward": True})
        map_._forward = forward
        return verdict(map_, "functional_jvp")

    assert result(lambda u: u * COSINE) is Verdict.PASSED
    assert result(lambda u: u * COSINE * [1, 1, 1.001]) is Verdict.FAILED
    assert result(lambda u: 0 * u) is Verdict.FAILED


def test_a_fault_beside_the_numbers_fails():
    result = result_of(make(faults=("it has no graph",)), "compiled")
    assert result.verdict is Verdict.FAILED
    assert result.findings[0].message == "it has no graph"


def test_a_transform_without_numbers_has_faults_only():
    def refused(_):
        raise AssertionError("asked for numbers")

    assert verdict(make(refused, numbers=False)) is Verdict.PASSED


def test_a_transform_that_a_framework_has_not_is_skipped():
    assert verdict(make(), "threads") is Verdict.SKIPPED
    assert verdict(FunctionMap(np.sin, POINT, np.diag(COSINE))) is Verdict.SKIPPED


def test_an_unknown_transform_is_refused_by_name():
    with pytest.raises(UsageError, match="transforms: unknown 'teleported'"):
        Settings(transforms=("teleported",))
