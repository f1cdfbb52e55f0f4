"""Derivatives written by hand: right ones pass, wrong ones fail, at the right place."""

from __future__ import annotations

import numpy as np
import pytest

import flat_options
from gradproof import Verdict
from gradproof.errors import UsageError

RNG = np.random.default_rng(5)
A = RNG.normal(size=(5, 4))
B = RNG.normal(size=(4, 4)) + 1j * RNG.normal(size=(4, 4))
X = RNG.normal(size=4)
Z = RNG.normal(size=4) + 1j * RNG.normal(size=4)
KNOWN = {"seed": 7}


def f(x):
    return np.sin(A @ x)


def jac(x):
    return np.cos(A @ x)[:, None] * A


def vjp(x, v):
    return jac(x).T @ v


def verdict(report, name="backward"):
    return report[name].verdict


def check(fn, x, **options):
    return flat_options.check(fn, x, **{**KNOWN, **options})


RIGHT = {
    "vjp": {"vjp": vjp},
    "jvp and vjp": {"vjp": vjp, "jvp": lambda x, u: jac(x) @ u},
    "jac": {"jac": jac},
    "a matrix with the shape of output and input": {"jac": lambda x: jac(x).reshape(5, 4)},
    "layout of the gradient": {"vjp": lambda x, v: np.asfortranarray(vjp(x, v))},
}


@pytest.mark.parametrize("claims", RIGHT.values(), ids=RIGHT)
def test_a_right_derivative_passes(claims):
    report = check(f, X, **claims)
    assert report.verdict is Verdict.PASSED, str(report)
    assert report.inputs == ("x: float64[4]",)


def test_a_wrong_entry_of_a_jacobian_is_found():
    def wrong(x):
        matrix = jac(x)
        matrix[2, 1] *= 1.01
        return matrix

    found = check(f, X, jac=wrong)["backward"].findings
    assert [(each.output_index, each.input_index) for each in found] == [((2,), (1,))]


def test_several_inputs_outputs_and_further_arguments():
    def fn(x, w, power, *, shift):
        return x * w**power, (x + shift).sum()

    def right(x, w, v, power, *, shift):
        first, second = v
        return first * w**power + second, first * power * x * w ** (power - 1)

    def wrong(x, w, v, power, *, shift):
        return right(x, w, v, power, shift=shift)[0], v[0] * x * w ** (power - 1)

    point = (X, np.abs(X) + 1)
    options = {"args": (3,), "kwargs": {"shift": 2.0}}
    assert check(fn, point, vjp=right, **options).verdict is Verdict.PASSED
    report = check(fn, point, vjp=wrong, **options)
    assert {each.input_name for each in report["backward"].findings} == {"w"}


def test_objective_that_returns_its_gradient_too():
    def both(x):
        return np.sum(x**3), 3 * x**2

    assert check(both, X, grad=True).verdict is Verdict.PASSED
    assert check(lambda x: (f(x), jac(x)), X, jac=True).verdict is Verdict.PASSED
    assert not check(lambda x: (np.sum(x**3), 2 * x**2), X, grad=True)


def test_hessian():
    def fn(x):
        return np.sum(x**3) + x[0] * x[1]

    def grad(x):
        return 3 * x**2 + np.array([x[1], x[0], 0, 0])

    def hess(x):
        matrix = np.diag(6 * x)
        matrix[0, 1] = matrix[1, 0] = 1
        return matrix

    assert check(fn, X, grad=grad, hess=hess, order=2).verdict is Verdict.PASSED
    report = check(fn, X, grad=grad, hess=lambda x: np.diag(6 * x), order=2)
    places = {(e.output_index, e.input_index) for e in report["second_order"].findings}
    assert places == {((0,), (1,)), ((1,), (0,))}
    assert verdict(check(fn, X, grad=grad, order=2), "second_order") is Verdict.SKIPPED


@pytest.mark.parametrize("gradient", [None, {"x": X}, "x"])
def test_a_gradient_that_is_no_dense_array_is_named(gradient):
    report = check(lambda x: np.sum(x**2), X, grad=lambda x: gradient)
    said = f"TypeError: grad: expected a dense array per input, got {type(gradient).__name__}"
    assert report["backward"].findings[0].message == said


class Diagonal:
    """An operator of the user's own, which cannot be multiplied by a number."""

    def __init__(self, entries):
        self.matvec = self.rmatvec = lambda u: entries * u


def test_a_hessian_is_the_users_own_operator_and_its_numbers_are_those_returned():
    def cubes(x):
        return np.sum(x**3)

    def gradient(x):
        return 3 * x**2

    right = check(cubes, X, grad=gradient, hess=lambda x: Diagonal(6 * x), order=2)
    assert right.verdict is Verdict.PASSED
    wrong = check(cubes, X, grad=gradient, hess=lambda x: np.diag(3 * x), order=2)
    finding = wrong["second_order"].findings[0]
    assert np.isclose(finding.claimed, 3 * X[finding.input_index[0]])
    assert finding.output_name == "gradient of x"
    with pytest.raises(UsageError, match="hess: expected a matrix of shape"):
        check(cubes, X, grad=gradient, hess=lambda x: object(), order=2)


def test_an_imaginary_part_of_a_real_gradient_is_not_dropped():
    report = check(lambda x: np.sum(x**2), X, grad=lambda x: 2 * x * (1 + 0.1j))
    assert "an imaginary part of up to" in report["backward"].summary
    report = check(lambda x: np.sum(x**2), X, grad=lambda x: 2 * x + 0j)
    assert report["backward"].verdict is Verdict.PASSED
    assert "its dtype is complex128" in report["grad_metadata"].findings[0].message


@pytest.mark.parametrize(
    ("claims", "sentence"),
    [
        ({"vjp": lambda x, v: 2 * x * v, "grad": np.zeros_like}, "grad: beside vjp= it would not"),
        (
            {"vjp": np.multiply, "jvp": np.multiply, "jac": np.zeros_like},
            "jac: beside jvp= and vjp= it would not",
        ),
        ({"grad": np.sin, "jvp": np.multiply, "jac": np.sin}, "jac: beside jvp= and grad="),
    ],
    ids=["a gradient", "a Jacobian", "another"],
)
def test_a_claim_that_would_not_be_looked_at_is_refused(claims, sentence):
    """A wrong grad= beside a right vjp= passed."""
    with pytest.raises(UsageError, match=sentence):
        check(lambda x: np.sum(x**2), X, **claims)


def test_an_operator_without_an_adjoint_is_checked_forward_only():
    def missing(v):
        raise NotImplementedError("rmatvec is not defined")

    report = check(lambda x: A @ x, X, jac=Operator(lambda x: A @ x, missing))
    assert verdict(report) is Verdict.SKIPPED
    assert verdict(report, "forward") is Verdict.PASSED
    bent = check(lambda x: A @ x + 1e-3 * x.sum() ** 2, X, jac=Operator(lambda x: A @ x, missing))
    assert verdict(bent, "forward") is Verdict.FAILED


def test_hessian_of_several_values_is_that_of_their_sum_weighed_by_v():
    def hess(x, v):
        return -A.T @ np.diag(v * np.sin(A @ x)) @ A

    assert check(f, X, jac=jac, hess=hess, order=2).verdict is Verdict.PASSED
    assert not check(f, X, jac=jac, hess=lambda x, v: -hess(x, v), order=2)


def test_complex_arrays_follow_the_convention_of_rmatvec():
    def fn(z):
        return (B @ z) ** 2

    def jacobian(z):
        return 2 * (B @ z)[:, None] * B

    assert check(fn, Z, jac=jacobian).verdict is Verdict.PASSED
    assert check(fn, Z, vjp=lambda z, v: jacobian(z).conj().T @ v).verdict is Verdict.PASSED
    assert not check(fn, Z, vjp=lambda z, v: jacobian(z).T @ v)
    # Of a real function: the gradient is dL/dx + i dL/dy.
    energy = lambda z: np.sum(np.abs(z) ** 2)  # noqa: E731
    assert check(energy, Z, grad=lambda z: 2 * z).verdict is Verdict.PASSED
    assert not check(energy, Z, grad=lambda z: 2 * z.conj())
    # A real input of a complex output gets a real gradient.
    assert check(lambda x: B @ x, X, jac=B).verdict is Verdict.PASSED


class Operator:
    """A linear operator as PyLops has it."""

    def __init__(self, matvec, rmatvec):
        self.matvec, self.rmatvec = matvec, rmatvec


@pytest.mark.parametrize("matrix", [A, B], ids=["real", "complex"])
def test_operators_claim_their_adjoint(matrix):
    x = X if matrix is A else Z
    right = Operator(lambda x: matrix @ x, lambda v: matrix.conj().T @ v)
    report = check(right.matvec, x, jac=right)
    assert report.verdict is Verdict.PASSED, str(report)
    assert verdict(report, "forward_vs_backward") is Verdict.PASSED
    wrong = Operator(lambda x: matrix @ x, lambda v: 0.5 * (matrix.conj().T @ v))
    assert verdict(check(wrong.matvec, x, jac=wrong)) is Verdict.FAILED
    bent = Operator(lambda x: matrix @ x + 1e-3 * x.sum() ** 2, right.rmatvec)
    assert not check(bent.matvec, x, jac=bent)


def test_numbers_of_python():
    import math

    assert check(math.sin, 0.5, grad=math.cos).verdict is Verdict.PASSED
    assert not check(math.sin, 0.5, grad=math.sin)


def test_a_cotangent_read_as_contiguous_is_found():
    def careless(x, v):
        return np.frombuffer(v.base if v.base is not None else v)[: x.size] * np.cos(x)

    report = check(np.sin, X, vjp=careless)
    assert verdict(report, "memory_layout") is Verdict.FAILED


@pytest.mark.parametrize(
    ("fn", "backward", "what"),
    [
        (lambda x: x.__imul__(2), lambda x, v: 2 * v, "changed its input x"),
        (np.sin, lambda x, v: v.__imul__(np.cos(x)), "changed its cotangent"),
        (np.sin, lambda x, v: np.random.seed(1) or v * np.cos(x), "random"),  # noqa: NPY002
    ],
    ids=["input", "cotangent", "random"],
)
def test_side_effects_are_findings(fn, backward, what):
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    report = check(fn, X, vjp=backward)
    assert what in report["side_effects"].findings[0].message
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


def test_a_draw_is_a_fault_only_where_the_gradient_depends_on_it():
    def drawing(x, v):
        return v * np.cos(x) + 0 * np.random.rand()  # noqa: NPY002

    def going_by_it(x, v):
        return v * np.cos(x) * (1.1 if np.random.rand() < 0.5 else 1)  # noqa: NPY002

    report = check(np.sin, X, vjp=drawing)
    assert verdict(report) is Verdict.PASSED
    assert "drew from NumPy's global random state" in report["side_effects"].notes[0]
    assert verdict(check(np.sin, X, vjp=going_by_it), "side_effects") is Verdict.FAILED


def test_a_cotangent_beside_a_number_is_laid_out_otherwise_too():
    def backward(x, v):
        of_path, of_cost = v
        of_path = of_path if of_path.flags.c_contiguous else 2 * of_path
        return of_path * np.cos(x) + 2 * x * of_cost

    report = check(lambda x: (np.sin(x), (x**2).sum()), X, vjp=backward)
    assert verdict(report, "memory_layout") is Verdict.FAILED


def test_a_gradient_of_another_shape_is_a_finding():
    report = check(np.sin, X, vjp=lambda x, v: (v * np.cos(x))[:, None])
    assert "shape" in report["grad_metadata"].findings[0].message
    report = check(np.sin, X, vjp=lambda x, v: np.ones(3))
    assert verdict(report) is Verdict.FAILED
    assert "expected shape (4,), got (3,)" in report["backward"].findings[0].message


@pytest.mark.parametrize(
    ("arguments", "options", "sentence"),
    [
        ((np.sin, np.arange(3)), {"vjp": vjp}, "holds whole numbers, which have no derivative"),
        ((np.sin, 2), {"vjp": vjp}, "inputs: 2 holds whole numbers"),
        ((np.sin, "word"), {"vjp": vjp}, "at least one array of real or complex"),
        ((np.sin, X), {"grad": np.cos}, "grad: sin has 4 real values"),
        ((lambda x: "word", X), {"vjp": vjp}, "returned no array"),
        ((lambda x: (x, [2 * x]), X), {"vjp": vjp}, "output 1: floating numbers in a list"),
        ((lambda x: {"a": [(x,)]}, X), {"vjp": vjp}, "output 0: floating numbers in a dict"),
        ((f, ()), {"vjp": vjp, "kwargs": {"x": X}}, "keyword arguments are not differentiated"),
        ((np.sin, X), {"vjp": vjp, "names": ["a", "b"]}, "names: expected 1"),
        ((np.multiply, (X, X.astype("g"))), {"vjp": vjp}, "pass it as float64 or complex128"),
    ],
)
def test_bad_input_gets_one_sentence(arguments, options, sentence):
    with pytest.raises(UsageError) as caught:
        check(*arguments, **options)
    assert sentence in str(caught.value)


def test_numbers_in_the_byte_order_of_a_file_are_inputs():
    def claims(x, y, v):
        return v * y, 0 * v

    right = check(np.multiply, (X, X.astype(">f8")), vjp=lambda x, y, v: (v * y, v * x))
    assert right.verdict is Verdict.PASSED
    report = check(lambda x, y: x * y, (X, X.astype(">f8")), vjp=claims)
    assert report.inputs == ("x: float64[4]", "y: float64[4]")
    assert {finding.input.name for finding in report.findings} == {"y"}


def test_an_infinite_entry_is_held():
    def size(x):
        return np.exp(-np.abs(x)).sum()

    def gradient(x):
        return -np.sign(x) * np.exp(-np.abs(x))

    x = np.array([0.5, np.inf, -1.5])
    assert check(size, x, grad=gradient).verdict is Verdict.PASSED
    wrong = check(size, x, grad=lambda x: np.where(np.isinf(x), 1.0, gradient(x)))
    assert wrong.findings[0].claimed == 1.0
