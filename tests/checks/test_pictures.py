"""The data of pictures: the Jacobian around a failure, and how its measurement depends on steps."""

from __future__ import annotations

import numpy as np
import pytest

from gradproof._explain import pictures
from numpy_map import FunctionMap, Linear, result_of


def matrix_map(size: int, errors: dict[tuple[int, int], float], **more) -> FunctionMap:
    """x -> sin(x), wrong in some entries."""
    point = np.linspace(0.2, 1.4, size)
    claimed = Linear.diagonal(np.cos(point)).with_entries(errors)
    return FunctionMap(np.sin, point, claimed, **more)


def test_a_patch_holds_the_whole_of_a_small_jacobian():
    patch = result_of(matrix_map(5, {(1, 3): 0.5}), "backward").patch
    assert patch.outputs == tuple(f"y[{i}]" for i in range(5))
    assert patch.inputs == tuple(f"x[{i}]" for i in range(5))
    claimed, measured, wrong = map(np.asarray, (patch.claimed, patch.measured, patch.wrong))
    exact = np.diag(np.cos(np.linspace(0.2, 1.4, 5)))
    assert np.all(np.abs(measured - exact) <= np.asarray(patch.error))
    assert np.argwhere(wrong).tolist() == [[1, 3]]
    assert np.argwhere(np.abs(claimed - exact) > 1e-12).tolist() == [[1, 3]]


def test_a_patch_is_cut_around_the_largest_gap():
    patch = result_of(matrix_map(40, {(30, 20): 0.5, (3, 3): 0.1}), "backward").patch
    assert len(patch.outputs) == len(patch.inputs) == pictures.SIDE
    assert "y[30]" in patch.outputs
    assert "x[20]" in patch.inputs
    assert np.asarray(patch.wrong).sum() == 1


def test_a_large_jacobian_has_no_patch_and_its_entry_a_curve():
    result = result_of(matrix_map(2000, {(1000, 700): 0.5}), "backward")
    assert result.patch is None
    assert (result.curves[0].output, result.curves[0].input) == ("y[1000]", "x[700]")


def test_a_curve_has_the_plain_and_the_one_sided_differences_of_every_step():
    map_ = matrix_map(5, {(3, 3): 0.5})
    (curve,) = result_of(map_, "backward").curves
    assert (curve.output, curve.input) == ("y[3]", "x[3]")
    assert list(curve.steps) == sorted(curve.steps, reverse=True)
    assert len(curve.steps) >= 6
    x = map_.point[3]
    for h, value, right, left in zip(
        curve.steps, curve.values, curve.forward, curve.backward, strict=True
    ):
        assert value == pytest.approx((np.sin(x + h) - np.sin(x - h)) / (2 * h), abs=1e-3)
        assert right == pytest.approx((np.sin(x + h) - np.sin(x)) / h, abs=1e-3)
        assert (right + left) / 2 == pytest.approx(value, abs=1e-9)
    assert curve.chosen in curve.steps
    assert abs(curve.value - np.cos(x)) <= curve.error
    assert curve.claimed == pytest.approx(np.cos(x) + 0.5)


def test_a_curve_shows_the_two_slopes_of_a_kink():
    point = np.array([0.0, 1.0])
    map_ = FunctionMap(np.abs, point, np.diag([3.0, 1.0]))
    curve = result_of(map_, "backward").curves[0]
    assert curve.input == "x[0]"
    assert set(curve.forward) == {1.0}
    assert set(curve.backward) == {-1.0}


def test_a_curve_of_a_large_jacobian_costs_nothing_more():
    map_ = matrix_map(2000, {(1000, 1000): 0.5}, transposes=True)
    (curve,) = result_of(map_, "backward").curves
    assert (curve.output, curve.input) == ("y[1000]", "x[1000]")
    assert abs(curve.value - np.cos(map_.point[1000])) <= curve.error


def test_a_budget_spent_by_a_picture_costs_the_picture_and_not_the_verdict():
    needed = 5 * 8 + 2 + 8 + 20
    for budget in range(needed - 25, needed + 40):
        result = result_of(matrix_map(5, {(3, 3): 0.5}), "backward", budget=budget)
        if result.verdict == "failed" and not result.curves:
            assert result.patch is not None
            return
    pytest.fail("no budget ends while a curve is measured")
