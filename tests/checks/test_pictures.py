"""The data of a picture: the Jacobian around a failure."""

from __future__ import annotations

import numpy as np

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


def test_a_large_jacobian_has_no_patch():
    assert result_of(matrix_map(2000, {(1000, 700): 0.5}), "backward").patch is None
