"""The verdict is the same by whichever route it is reached.

A large Jacobian is searched, a small one measured whole. A size tells them apart: here it is set so
that small functions take the route of large ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gradproof._data.records import CheckResult, Verdict
from numpy_map import FunctionMap, found_entries, result_of

MODES = {"backward only": {}, "transposed": {"transposes": True}, "forward": {"forward": True}}
SEARCHED = {"full_jacobian": 1}
ROUTES: dict[str, dict[str, Any]] = {
    "whole": {},
    "searched": SEARCHED,
    "plain differences": {"classic_step": 1e-6, "atol": 1e-5, "rtol": 1e-3},
    "searched, plain differences": {"classic_step": 1e-6, "atol": 1e-5, "rtol": 1e-3, **SEARCHED},
}
every_route = pytest.mark.parametrize("route", ROUTES)
every_mode = pytest.mark.parametrize("mode", MODES)

MATRIX = np.random.default_rng(0).uniform(0.5, 1.5, (12, 8))
POINT = np.linspace(0.2, 1.0, 8)


def judged(fn: Callable, point, jacobian, mode: str, **options: Any) -> CheckResult:
    map_ = FunctionMap(fn, point, np.asarray(jacobian, dtype=float), **MODES[mode])
    return result_of(map_, "forward" if mode == "forward" else "backward", **options)


def smooth(x):
    return np.sin(MATRIX @ x)


RIGHT = np.cos(MATRIX @ POINT)[:, None] * MATRIX


@every_route
@every_mode
def test_a_right_derivative_passes(route: str, mode: str) -> None:
    assert judged(smooth, POINT, RIGHT, mode, **ROUTES[route]).verdict is Verdict.PASSED


@every_route
@every_mode
@pytest.mark.parametrize("at", [(0, 0), (11, 7), (4, 3)])
def test_one_wrong_entry_is_found(route: str, mode: str, at: tuple[int, int]) -> None:
    wrong = RIGHT.copy()
    wrong[at] += 0.25
    result = judged(smooth, POINT, wrong, mode, **ROUTES[route])
    assert result.verdict is Verdict.FAILED
    assert found_entries(result) == {at: pytest.approx(0.25, rel=1e-4)}


# Kinks, jumps and outputs without a value, in one row among smooth ones.


def beside(own: Callable[[Any], Any], slope: float, x0: float = 0.0, row: int = 7):
    """The smooth function, whose row 7 has one more input: its point and claim, to which is added
    a function of the first input with this slope."""
    point = POINT.copy()
    point[0] = x0

    def fn(x):
        value = smooth(x)
        value[row] += own(x[0])
        return value

    jacobian = np.cos(MATRIX @ point)[:, None] * MATRIX
    jacobian[row, 0] += slope
    return fn, point, jacobian


@every_route
@every_mode
@pytest.mark.parametrize(
    ("slope", "verdict"), [(0.5, Verdict.PASSED), (3.0, Verdict.FAILED), (-2.0, Verdict.FAILED)]
)
def test_a_claim_is_held_against_the_slopes_of_a_kink(
    route: str, mode: str, slope: float, verdict: Verdict
) -> None:
    result = judged(*beside(abs, slope), mode, **ROUTES[route])
    if verdict is Verdict.PASSED and "searched" in route:  # neighbours would decide; it has none
        assert result.verdict is not Verdict.FAILED, result.summary
    else:
        assert result.verdict is verdict, result.summary
    if verdict is Verdict.FAILED:
        assert {at[0] for at in found_entries(result)} <= {7}


@every_route
@every_mode
def test_a_row_without_a_value_is_never_passed(route: str, mode: str) -> None:
    result = judged(*beside(lambda x: math.nan, 0.0), mode, **ROUTES[route])
    assert result.verdict is not Verdict.PASSED


@every_route
@every_mode
@pytest.mark.parametrize("wrong", [False, True])
def test_a_fast_oscillation_is_not_accused_and_hides_no_mistake(
    route: str, mode: str, wrong: bool
) -> None:
    fn, point, jacobian = beside(lambda x: math.sin(1e9 * x), 1e9)
    if wrong:
        jacobian[2, 5] += 0.5
    result = judged(fn, point, jacobian, mode, **ROUTES[route])
    if wrong:
        assert result.verdict is Verdict.FAILED
        assert (2, 5) in found_entries(result)
    elif "plain" not in route:
        assert result.verdict is not Verdict.FAILED, result.summary


@pytest.mark.parametrize("route", [route for route in ROUTES if "plain" in route])
@every_mode
@pytest.mark.parametrize(("slope", "verdict"), [(0.0, Verdict.PASSED), (0.5, Verdict.FAILED)])
def test_a_row_that_no_step_resolves_is_not_decided_against_its_plain_difference(
    route: str, mode: str, slope: float, verdict: Verdict
) -> None:
    """A row that oscillates so fast that no step resolves it, and is zero at the step given."""
    fn, point, jacobian = beside(lambda x: 1e-4 * math.sin(2e13 * math.pi * x), slope)
    result = judged(fn, point, jacobian, mode, **ROUTES[route])
    assert result.verdict in (verdict, Verdict.INCONCLUSIVE), result.summary
    if result.verdict is Verdict.FAILED:
        assert found_entries(result).keys() == {(7, 0)}
