"""AD transforms, by maps over NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from gradproof._data.records import Verdict
from gradproof._data.settings import run_settings
from gradproof._maps.contract import Transform, Unsupported
from gradproof.errors import UsageError
from numpy_map import FunctionMap, result_of

POINT = np.array([0.3, -0.7, 1.1])
COSINE = np.cos(POINT)


def make(run=lambda v: v * COSINE, *, name="compiled", forward=True):
    def take(_, asked):
        if asked != name:
            raise Unsupported("another")
        return run(_)

    extra = {
        "transforms": lambda: (Transform(name, "the run", forward=name == "functional_jvp"),),
        "vjp_transform": take,
        "jvp_transform": take,
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


@pytest.mark.parametrize("forward", [True, False])
def test_a_tangent_is_held_against_forward_mode_and_skipped_without(forward):
    def result(run):
        return verdict(make(run, name="functional_jvp", forward=forward), "functional_jvp")

    wrong = Verdict.FAILED if forward else Verdict.SKIPPED
    assert result(lambda u: u * COSINE) is (Verdict.PASSED if forward else Verdict.SKIPPED)
    assert result(lambda u: u * COSINE * [1, 1, 1.001]) is wrong
    assert result(lambda u: 0 * u) is wrong


def test_a_transform_that_a_framework_has_not_is_skipped():
    assert verdict(make(), "hooks") is Verdict.SKIPPED
    assert verdict(FunctionMap(np.sin, POINT, np.diag(COSINE))) is Verdict.SKIPPED


def test_an_unknown_transform_is_refused_by_name():
    with pytest.raises(UsageError, match="transforms: unknown 'teleported'"):
        run_settings(transforms=("teleported",))
