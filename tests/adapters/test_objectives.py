"""Derivatives of scipy.optimize and scipy.sparse, in every form in which users write them."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from scipy.optimize import rosen, rosen_der, rosen_hess, rosen_hess_prod
from scipy.sparse.linalg import aslinearoperator

from flat_options import check
from gradproof import Verdict
from gradproof.errors import UsageError

X = np.array([1.3, 0.7, 0.8])
seeds = pytest.mark.parametrize("seed", range(2))


def residuals(x):
    """The first example of scipy.optimize.root: a list of numbers."""
    return [x[0] + 0.5 * (x[0] - x[1]) ** 3 - 1.0, 0.5 * (x[1] - x[0]) ** 3 + x[1]]


def their_jacobian(x):
    slope = 1.5 * (x[0] - x[1]) ** 2
    return np.array([[1 + slope, -slope], [-slope, 1 + slope]])


@seeds
@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_array, np.ndarray.tolist])
def test_a_list_of_values_has_one_jacobian(kind, seed):
    at = np.array([0.3, 0.8])
    right = check(residuals, at, jac=lambda x: kind(their_jacobian(x)), seed=seed)
    assert right.verdict is Verdict.PASSED, str(right)
    factors = np.array([[1.0, 1.1], [1.0, 1.0]])
    wrong = check(residuals, at, jac=lambda x: kind(factors * their_jacobian(x)), seed=seed)
    found = {(one.output.slot, one.input_index) for one in wrong["backward"].findings}
    assert found == {(0, (1,))}, str(wrong)


def test_one_jacobian_of_several_outputs_and_inputs():
    def fn(x, y):
        return np.outer(x, y)[:, 0], x * y[0]

    def jac(x, y):
        block = np.hstack([y[0] * np.eye(2), np.outer(x, [1.0, 0.0, 0.0])])
        return np.vstack([block, block])

    inputs = (np.array([1.0, 2.0]), np.array([0.5, 1.5, 2.5]))
    assert check(fn, inputs, jac=jac, seed=0).verdict is Verdict.PASSED


@seeds
@pytest.mark.parametrize(
    "gradient",
    [
        lambda x: rosen_der(x)[:, None],
        lambda x: rosen_der(x)[None, :],
        lambda x: np.outer(rosen_der(x), np.ones(3)),
        lambda x: rosen_der(x) + 0j,
        lambda x: None,
    ],
    ids=["column", "row", "square", "complex", "none"],
)
def test_a_gradient_is_an_array_like_its_input(gradient, seed):
    report = check(rosen, X, grad=gradient, seed=seed)
    assert report["grad_metadata"].verdict is Verdict.FAILED, str(report)


@seeds
@pytest.mark.parametrize("gradient", [rosen_der, lambda x: rosen_der(x).tolist()])
def test_a_gradient_that_is_one_passes(gradient, seed):
    assert check(rosen, X, grad=gradient, seed=seed).verdict is Verdict.PASSED


def test_a_number_is_the_gradient_of_one_entry_and_integers_are_numbers():
    square = check(lambda x: (x**2).sum(), np.array([2.0]), grad=lambda x: 2 * float(x[0]), seed=0)
    assert square.verdict is Verdict.PASSED
    total = check(lambda x: x.sum(), X, grad=lambda x: np.ones(3, int), seed=0)
    assert total.verdict is Verdict.PASSED


OFF = 1 + 1e-3 * np.eye(3)


@seeds
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ({"hess": rosen_hess}, {"hess": lambda x: OFF * rosen_hess(x)}),
        ({"hess": rosen_hess}, {"hess": lambda x: 0 * rosen_hess(x)}),
        ({"hessp": rosen_hess_prod}, {"hessp": lambda x, p: 1.001 * rosen_hess_prod(x, p)}),
    ],
    ids=["matrix", "zero", "product"],
)
def test_a_hessian_beside_a_gradient(right, wrong, seed):
    report = check(rosen, X, grad=rosen_der, **right, seed=seed)
    assert report.verdict is Verdict.PASSED, str(report)
    assert report["second_order"].verdict is Verdict.PASSED
    report = check(rosen, X, grad=rosen_der, **wrong, seed=seed)
    assert report["second_order"].verdict is Verdict.FAILED, str(report)


@seeds
def test_the_hessian_of_a_linear_function_is_zero(seed):
    zero = check(np.sum, X, grad=np.ones_like, hess=lambda x: np.zeros((3, 3)), seed=seed)
    assert zero["second_order"].verdict is Verdict.PASSED, str(zero)
    wrong = check(np.sum, X, grad=np.ones_like, hess=lambda x: 1e-3 * np.eye(3), seed=seed)
    assert wrong["second_order"].verdict is Verdict.FAILED, str(wrong)


def test_two_second_derivatives_are_one_too_many():
    with pytest.raises(UsageError, match="hessp: beside hess= it would not be asked"):
        check(rosen, X, hess=rosen_hess, hessp=rosen_hess_prod)


MATRIX = np.random.default_rng(0).normal(size=(4, 3))


@seeds
@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_array, aslinearoperator])
def test_a_matrix_is_a_jacobian(kind, seed):
    for factor, verdict in ((1.0, Verdict.PASSED), (1.01, Verdict.FAILED)):
        report = check(lambda x: MATRIX @ x, X, jac=kind(factor * MATRIX), seed=seed)
        assert report.verdict is verdict
