"""`gradproof.scipy.check_grad` beside SciPy's."""

from __future__ import annotations

import inspect
import pickle

import numpy as np
import pytest
import scipy.optimize

from gradproof.errors import UsageError
from gradproof.scipy import check_grad

X0 = np.array([1.5, -1.5, 0.3])


def wrong(x):
    return scipy.optimize.rosen_der(x) * np.array([1, 1, 1.01])


def test_the_signature_is_scipys():
    def shape(function):
        parameters = inspect.signature(function).parameters.values()
        return [(p.name, p.kind, p.default) for p in parameters]

    theirs = shape(scipy.optimize.check_grad)
    hidden = [("seed", inspect.Parameter.KEYWORD_ONLY, None)]  # SciPy 1.15 takes it, and hides it
    assert shape(check_grad) in (theirs, theirs + hidden)


def test_a_right_gradient_is_nearer_than_scipy_can_tell():
    arguments = scipy.optimize.rosen, scipy.optimize.rosen_der, X0
    found = check_grad(*arguments)
    assert found <= found.error
    assert found < 1e-3 * scipy.optimize.check_grad(*arguments)
    assert found.report


def test_a_wrong_gradient_gives_scipys_number_and_the_entry():
    found = check_grad(scipy.optimize.rosen, wrong, X0)
    assert found == pytest.approx(scipy.optimize.check_grad(scipy.optimize.rosen, wrong, X0))
    assert not found.report
    assert [each.input_index for each in found.report["backward"].findings] == [(2,)]


@pytest.mark.parametrize("name", ["rng", "seed"])
def test_a_random_direction_is_scipys(name):
    options = {"direction": "random", name: 4}
    ours = check_grad(scipy.optimize.rosen, wrong, X0, **options)
    theirs = scipy.optimize.check_grad(
        scipy.optimize.rosen, wrong, X0, direction="random", rng=np.random.default_rng(4)
    )
    assert ours == pytest.approx(theirs, rel=1e-4)


def test_further_arguments_and_vector_valued_functions():
    def fn(x, a, b):
        return np.array([a * x[0] * x[1], x[0] ** b])

    def jac(x, a, b):
        return [[a * x[1], a * x[0]], [b * x[0] ** (b - 1), 0]]

    assert check_grad(fn, jac, [1.2, 0.7], 3.0, 2) < 1e-9
    with pytest.raises(ValueError, match="'random' can only be used with scalar valued func"):
        check_grad(fn, jac, [1.2, 0.7], 3.0, 2, direction="random")


def test_bad_input():
    with pytest.raises(ValueError, match="'sideways' is not a valid string"):
        check_grad(np.sum, np.ones_like, X0, direction="sideways")
    with pytest.raises(ValueError, match=r"x0\[0\] is inf"):
        check_grad(np.sum, np.ones_like, [np.inf])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((np.sum, np.ones_like, 1j * X0), r"x0: expected real numbers, got complex128\[3\]"),
        ((np.sum, np.ones_like, []), r"x0: expected real numbers, got float64\[0\]"),
        ((np.sum, lambda x: np.ones(2), X0), r"grad: expected a matrix of shape \(1, 3\)"),
    ],
    ids=["complex", "empty", "another shape"],
)
def test_odd_arguments_get_one_sentence(arguments, sentence):
    """An imaginary part was dropped, and passed."""
    with pytest.raises(ValueError, match=sentence):
        check_grad(*arguments)


def test_two_names_of_the_generator_are_one_too_many_and_steps_may_be_one_per_entry():
    with pytest.raises(TypeError, match="rng and seed are two names"):
        check_grad(np.sum, np.ones_like, X0, direction="random", rng=1, seed=1)
    assert check_grad(np.sum, np.ones_like, X0, epsilon=np.full(3, 1e-3)).report


def test_the_number_survives_pickling():
    found = check_grad(np.sum, np.ones_like, X0)
    again = pickle.loads(pickle.dumps(found))
    assert (again, again.error, str(again.report)) == (found, found.error, str(found.report))


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((None, np.cos, [1.0]), {}, "func: expected a function, got None"),
        ((np.sum, 3, [1.0]), {}, "grad: expected a function, got 3"),
        ((np.sum, np.ones_like, [[1.0], [1.0, 2.0]]), {}, "x0: expected numbers, got"),
        ((np.sum, np.ones_like, [1.0]), {"epsilon": "small"}, "epsilon: expected real numbers"),
        ((np.sum, np.ones_like, [1.0]), {"epsilon": -1.0}, "epsilon: expected a positive finite"),
        ((np.sum, np.ones_like, [1.0]), {"direction": np.ones(2)}, "is not a valid string"),
        (
            (np.sum, np.ones_like, [1.0]),
            {"direction": "random", "rng": "dice"},
            "rng: expected a Generator or a seed, got 'dice'",
        ),
    ],
)
def test_bad_input_is_refused_by_name(arguments, options, words):
    with pytest.raises(UsageError, match=words):
        check_grad(*arguments, **options)


@pytest.mark.parametrize("direction", ["all", "random"])
def test_a_gradient_is_asked_for_no_more_often_where_it_is_longer(direction):
    """Once for each entry of x0, it was."""

    def calls(size):
        asked = []

        def grad(x):
            asked.append(1)
            return np.cos(x)

        x = np.linspace(0.1, 1.0, size)
        gap = check_grad(lambda x: np.sin(x).sum(), grad, x, direction=direction, rng=0)
        assert gap <= gap.error
        assert gap.report
        return len(asked)

    assert calls(90) <= calls(30)


def test_a_long_jacobian_is_asked_for_by_its_columns_and_a_wide_one_by_its_rows():
    for matrix in (np.arange(12.0).reshape(6, 2), np.arange(12.0).reshape(2, 6)):
        wrong = matrix.copy()
        wrong[1, 1] += 3.0
        x = np.linspace(0.5, 1.0, matrix.shape[1])
        assert check_grad(lambda x, a=matrix: a @ x, lambda x, a=matrix: a, x) < 1e-10
        gap = check_grad(lambda x, a=matrix: a @ x, lambda x, a=wrong: a, x)
        assert gap == pytest.approx(3.0)
        assert not gap.report
