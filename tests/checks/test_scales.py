"""Rows and columns of very different size: the smallest are checked like the largest."""

from __future__ import annotations

import numpy as np
import pytest

from gradproof._data.records import Verdict
from numpy_map import FunctionMap, Linear, result_of

# How J can be claimed: the name of the check and what the map is capable of.
MODES = {
    "backward only": ("backward", {}),
    "transposed": ("backward", {"transposes": True}),
    "forward": ("forward", {"forward": True}),
}
every_mode = pytest.mark.parametrize("mode", MODES)
every_size = pytest.mark.parametrize("size", [7, 600])


def spread_point(size: int) -> np.ndarray:
    """Exponents from -60 to 60, so that the exponentials span 52 powers of ten."""
    return np.random.default_rng(0).permutation(np.linspace(-60, 60, size))


def judged(mode: str, fn, point, claimed: Linear, **options):
    check, capable = MODES[mode]
    return result_of(FunctionMap(fn, point, claimed, **capable), check, **options)


@every_mode
@every_size
def test_exponentials_of_all_sizes_are_verified(mode: str, size: int) -> None:
    point = spread_point(size)
    result = judged(mode, np.exp, point, Linear.diagonal(np.exp(point)))
    assert result.verdict is Verdict.PASSED, result.summary


@every_mode
@every_size
@pytest.mark.parametrize("place", [0.0, 0.3, 0.6, 1.0])
@pytest.mark.parametrize("factor", [0.0, -1.0, 1.01])
def test_a_wrong_row_is_found_however_small_it_is(
    mode: str, size: int, place: float, factor: float
) -> None:
    point = spread_point(size)
    row = int(np.argsort(point)[int(place * (size - 1))])
    entries = np.exp(point)
    entries[row] *= factor
    result = judged(mode, np.exp, point, Linear.diagonal(entries))
    assert result.verdict is Verdict.FAILED, result.summary
    assert {finding.output_index for finding in result.findings} == {(row,)}


@every_mode
@pytest.mark.parametrize("size", [64, 2048])
def test_a_backward_that_rounds_small_rows_by_large_ones_is_right(mode: str, size: int) -> None:
    """The identity, by way of a Fourier transform: exact to rounding of the largest entry."""
    point = 10.0 ** np.random.default_rng(0).uniform(-8, 4, size)

    def mixed(u: np.ndarray) -> np.ndarray:
        return np.fft.irfft(np.fft.rfft(u), size)

    result = judged(mode, lambda x: x.copy(), point, Linear(mixed, mixed))
    assert result.verdict is Verdict.PASSED, result.summary


@every_mode
@every_size
def test_a_wrong_column_of_a_small_input_is_found(mode: str, size: int) -> None:
    point = 10.0 ** np.random.default_rng(0).uniform(-3, 3, size)
    smallest = int(np.argmin(point))
    row = np.ones((1, size))
    row[0, smallest] = 0.0
    right = Linear.dense(np.ones((1, size)))
    sums = lambda x: np.sum(x, keepdims=True)  # noqa: E731
    assert judged(mode, sums, point, right).verdict is Verdict.PASSED
    result = judged(mode, sums, point, Linear.dense(row))
    assert result.verdict is Verdict.FAILED, result.summary
    assert {finding.input_index for finding in result.findings} == {(smallest,)}


@every_mode
def test_an_output_that_drowns_in_its_rounding_is_listed(mode: str) -> None:
    """The last derivative, 1e-5, moves an output of 1e8 by a few units in the last place."""
    slopes, offsets = np.array([1e3, 1e3, 1e-5]), np.array([0.0, 0.0, 1e8])
    point = np.array([1.0, -2.0, 0.5])
    result = judged(mode, lambda x: offsets + slopes * x, point, Linear.diagonal(slopes))
    assert result.verdict is Verdict.PASSED, result.summary
    assert result.notes == (
        "the derivative of y[2] is too small to be told from rounding: not tested",
    )
