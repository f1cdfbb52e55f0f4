"""Second derivatives by maps over NumPy: no framework, any mistake."""

from __future__ import annotations

import numpy as np
import pytest

from gradproof._data.records import Verdict
from numpy_map import FunctionMap, Linear, result_of

POINT = np.array([0.3, -0.7, 1.1, 0.4])
N = len(POINT)
WEIGHT = np.arange(1.0, N * N + 1).reshape(N, N) / 10


def hessian(v):
    """Of sum v_i tanh(W x)_i."""
    y = np.tanh(WEIGHT @ POINT)
    return WEIGHT.T @ np.diag(v * -2 * y * (1 - y**2)) @ WEIGHT


def jacobian(x):
    return (1 - np.tanh(WEIGHT @ x) ** 2)[:, None] * WEIGHT


def second(u):
    """J u differentiated in x: one row per output."""
    y = np.tanh(WEIGHT @ POINT)
    return np.diag(-2 * y * (1 - y**2) * (WEIGHT @ u)) @ WEIGHT


def make(mistake_in_reverse=0.0, mistake_in_forward=0.0, *, skew=0.0, offset=0.0):
    """tanh(W x) with claimed second derivatives that may be wrong."""

    def derivative(v):
        wrong = hessian(v) + mistake_in_reverse * np.eye(N)
        wrong[0, 1] += skew
        claimed = Linear.dense(np.hstack([wrong, jacobian(POINT).T]))
        pulled = Linear(claimed.forward, lambda w: claimed.backward(w) + offset)
        return FunctionMap(
            lambda xv: jacobian(xv[:N]).T @ xv[N:], np.concatenate([POINT, v]), pulled, forward=True
        )

    def forward_derivative(u):
        wrong = second(u) + mistake_in_forward * np.eye(N)
        claimed = Linear.dense(np.hstack([wrong, jacobian(POINT)]))
        return FunctionMap(
            lambda xu: jacobian(xu[:N]) @ xu[N:],
            np.concatenate([POINT, u]),
            claimed,
            forward=True,
        )

    return FunctionMap(
        lambda x: np.tanh(WEIGHT @ x),
        POINT,
        jacobian(POINT),
        forward=True,
        extra={"derivative": derivative, "forward_derivative": forward_derivative},
    )


ALL = (
    "second_order",
    "forward_over_reverse",
    "reverse_over_forward",
    "forward_over_forward",
)


@pytest.mark.parametrize("check", ALL)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_right_second_derivative_passes(check, seed):
    result = result_of(make(), check, seed=seed, order=2)
    assert result.verdict is Verdict.PASSED, result


IN_REVERSE = {"second_order", "forward_over_reverse"}
IN_FORWARD = {"reverse_over_forward", "forward_over_forward"}


@pytest.mark.parametrize(
    ("mistake", "failing"),
    [
        ({"mistake_in_reverse": 0.1}, IN_REVERSE),
        ({"mistake_in_forward": 0.1}, IN_FORWARD),
        ({"skew": 0.1}, IN_REVERSE),
        ({"offset": 0.1}, {"second_order"}),
    ],
    ids=["reverse", "forward", "skew", "offset"],
)
def test_a_mistake_fails_in_the_checks_that_can_see_it(mistake, failing):
    found = {
        check for check in ALL if not_passed(result_of(make(**mistake), check, seed=0, order=2))
    }
    assert found == failing


def not_passed(result):
    return result.verdict is Verdict.FAILED


def test_a_map_without_second_derivatives_is_skipped():
    map_ = FunctionMap(np.sin, POINT, np.diag(np.cos(POINT)))
    for check in ALL:
        assert result_of(map_, check, order=2).verdict is Verdict.SKIPPED
