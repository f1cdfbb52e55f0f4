"""What PyTorch's gradcheck says, the drop-in says too: verdicts, exceptions and phrases."""

from __future__ import annotations

import functools
import importlib
import warnings

import pytest
import torch

import gradproof.torch as ours
from faces.torch_cases import (
    C128,
    F64,
    changes,
    cplx,
    custom,
    hooked,
    makes_up_gradients,
    needs_defined_gradient,
    nondeterministic,
    real,
    scaled,
)

theirs = importlib.import_module("torch.autograd.gradcheck")

pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse"),
    pytest.mark.filterwarnings("ignore:Backwards compatibility"),
    pytest.mark.filterwarnings("ignore:There is a performance drop"),
    pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated"),
]


def outcome(check, func, inputs, **options):
    """True, False, or the exception."""
    try:
        return check(func, inputs, **options)
    except Exception as error:
        return error


def half():
    return torch.full((2,), 0.5, dtype=F64, requires_grad=True)


def imaginary_part_wrong(part):
    """Real to complex; the gradient of one part of the output is 10 % too large."""
    factors = (1.1, 1.0) if part == "real" else (1.0, 1.1)
    return custom(
        lambda x: torch.complex(x.sin(), x.cos()),
        lambda x, g: factors[0] * g.real * x.cos() - factors[1] * g.imag * x.sin(),
    )


def forward_part_wrong(part):
    """Complex to real; the tangent of one part of the input is 10 % too large."""
    factors = (1.1, 1.0) if part == "real" else (1.0, 1.1)
    return custom(
        lambda z: z.real**2 + 3 * z.imag,
        lambda z, g: torch.complex(2 * z.real * g, 3 * g),
        lambda z, t: factors[0] * 2 * z.real * t.real + factors[1] * 3 * t.imag,
    )


double = custom(lambda x: 2 * x, lambda x, g: 2.2 * g)
two_wrong = custom(lambda x: (x.sin(), x.cos()), lambda x, g, h: g * x.cos() - 1.1 * h * x.sin())
forward_wrong = custom(torch.sin, lambda x, g: g * x.cos(), lambda x, t: 1.1 * t * x.cos())
scalar_ignores = custom(lambda x: x.sum(), lambda x, g: torch.ones_like(x))
not_vmappable = custom(lambda x: 2 * x, lambda x, g: g * (2 + 0 * g.sum().item()))


def resparsified(x):
    y = x.clone()
    y.register_hook(lambda g: None if g is None else g.to_dense().to_sparse(1))
    return y.to_dense()


def vmap_wrong(x, g):
    functorch = torch._C._functorch
    batched = functorch.is_legacy_batchedtensor(g) or functorch.is_batchedtensor(g)
    return g * (2.5 if batched else 2.0)


FORWARD_ONLY = {"check_forward_ad": True, "check_backward_ad": False}

# name, function, inputs, options, phrase
PROVOKED = [
    (
        "scaled",
        double,
        lambda: real(3),
        {},
        "Jacobian mismatch for output 0 with respect to input 0",
    ),
    (
        "second output",
        two_wrong,
        lambda: real(3),
        {},
        "Jacobian mismatch for output 1 with respect to input 0",
    ),
    (
        "second input, after one without gradient",
        lambda x, y, z: x * y + double(z),
        lambda: (real(2), real(2, grad=False), real(2, seed=1)),
        {},
        "Jacobian mismatch for output 0 with respect to input 1",
    ),
    (
        "output after one without gradient",
        lambda x: (torch.ones(2, dtype=F64), double(x)),
        lambda: real(2),
        {},
        "Jacobian mismatch for output 0 with respect to input 0",
    ),
    (
        "real part",
        imaginary_part_wrong("real"),
        lambda: real(2),
        {},
        "While considering the real part of complex outputs only, Jacobian mismatch",
    ),
    (
        "imaginary part",
        imaginary_part_wrong("imag"),
        lambda: real(2),
        {},
        "While considering the imaginary part of complex outputs only, Jacobian mismatch",
    ),
    (
        "forward",
        forward_wrong,
        lambda: real(3),
        FORWARD_ONLY,
        "Jacobian computed with forward mode mismatch for output 0 with respect to input 0",
    ),
    (
        "forward, imaginary part",
        forward_part_wrong("imag"),
        lambda: cplx(2),
        {**FORWARD_ONLY, "check_undefined_grad": False},
        "While considering the imaginary part of complex inputs only, Jacobian computed with",
    ),
    (
        "not reentrant",
        nondeterministic(),
        lambda: real(2),
        {"atol": 0.1},
        "Backward is not reentrant",
    ),
    (
        "constant gradient",
        scalar_ignores,
        lambda: real(3),
        {},
        "backward not multiplied by grad_output",
    ),
    (
        "gradient with an offset below atol",
        hooked(lambda g: g + 1e-2),
        lambda: torch.ones(1, dtype=F64, requires_grad=True),
        {"atol": 0.1},
        "backward not multiplied by grad_output",
    ),
    (
        "undefined gradients not handled",
        needs_defined_gradient,
        lambda: real(2),
        {},
        "Expected backward function to handle undefined output grads",
    ),
    (
        "undefined gradients made up",
        makes_up_gradients,
        lambda: real(2),
        {},
        "Expected all input grads to be undefined or zero when all output grads are undefined",
    ),
    (
        "layout",
        custom(lambda x: x * 1, lambda x, g: g.to_sparse()),
        lambda: torch.ones(1, dtype=F64, requires_grad=True),
        {},
        "grad is incorrect layout",
    ),
    (
        "sparse_dim",
        resparsified,
        lambda: torch.ones(2, 2, dtype=F64).to_sparse().requires_grad_(),
        {"masked": True},
        "grad is sparse tensor, but has incorrect sparse_dim",
    ),
    (
        "detached",
        lambda x: x.detach() ** 2,
        lambda: real(3),
        {},
        "Numerical gradient for function expected to be zero",
    ),
    (
        "not vmappable",
        not_vmappable,
        lambda: real(3),
        {"check_batched_grad": True},
        "While computing batched gradients, got: ",
    ),
    (
        "wrong under vmap",
        custom(lambda x: 2 * x, vmap_wrong),
        lambda: real(3),
        {"check_batched_grad": True},
        "gradcheck or gradgradcheck failed while testing batched gradient computation",
    ),
    (
        "no input",
        torch.sin,
        lambda: real(2, grad=False),
        {},
        "at least one input tensor to require",
    ),
    (
        "stride 0",
        torch.sin,
        lambda: torch.ones(1, dtype=F64).expand(3).requires_grad_(),
        {},
        "The 0th input has a dimension with stride 0",
    ),
    (
        "sparse output",
        lambda x: x.to_sparse(),
        lambda: real(2, 2),
        {},
        "Sparse output is not supported at gradcheck yet",
    ),
    (
        "shape that changes",
        changes("shape"),
        half,
        {},
        "Expected `func` to return outputs with the same shape",
    ),
    (
        "dtype that changes",
        changes("dtype"),
        half,
        {},
        "Expected `func` to return outputs with the same dtype",
    ),
]


@pytest.mark.filterwarnings("ignore:Input #0 requires gradient")
@pytest.mark.parametrize(
    ("func", "make", "options", "phrase"),
    [pytest.param(*row[1:], id=row[0]) for row in PROVOKED],
)
def test_same_kind_of_exception_and_recognisable_phrase(func, make, options, phrase):
    expected = outcome(theirs.gradcheck, func, make(), **options)
    got = outcome(ours.gradcheck, func, make(), **options)
    assert phrase in str(expected), "PyTorch says something else: correct the row"
    assert isinstance(got, type(expected))
    assert phrase in str(got)


@pytest.mark.parametrize(
    ("func", "make", "options"),
    [pytest.param(*row[1:4], id=row[0]) for row in PROVOKED],
)
@pytest.mark.filterwarnings("ignore:Input #0 requires gradient")
def test_raise_exception_false_returns_false_where_pytorchs_does(func, make, options):
    expected = outcome(theirs.gradcheck, func, make(), raise_exception=False, **options)
    got = outcome(ours.gradcheck, func, make(), raise_exception=False, **options)
    if isinstance(expected, Exception):
        assert isinstance(got, type(expected))
    else:
        assert got is expected


def test_exceptions_of_the_function_reach_the_user():
    def broken(x):
        raise KeyError("mine")

    for check in (theirs.gradcheck, ours.gradcheck):
        with pytest.raises(KeyError, match="mine"):
            check(broken, real(2))


def matrix(rows=2, columns=4):
    values = real(rows, columns, grad=False)
    return values * (values.abs() > 0.7)


LAYOUTS = {
    "coo": lambda: matrix().to_sparse(),
    "coo, dense dim": lambda: matrix().to_sparse(1),
    "coo, uncoalesced": lambda: torch.sparse_coo_tensor(
        [[0, 0, 1], [1, 1, 2]], [1.0, 2.0, 3.0], (2, 3), dtype=F64
    ),
    "coo, zero-dim": lambda: torch.tensor(2.0, dtype=F64).to_sparse(),
    "coo, empty dense dim": lambda: torch.sparse_coo_tensor(
        [[0, 1]], torch.zeros(2, 0, dtype=F64), (3, 0)
    ),
    "csr": lambda: matrix().to_sparse_csr(),
    "csr, dense dim": lambda: torch.stack([matrix(), matrix() + 1], -1).to_sparse_csr(dense_dim=1),
    "csc": lambda: matrix().to_sparse_csc(),
    "bsr": lambda: matrix().to_sparse_bsr((1, 2)),
    "bsc": lambda: matrix().to_sparse_bsc((2, 2)),
}
SPARSE_FUNCTIONS = {
    "to_dense": lambda x: x.to_dense(),
    "to_dense, masked_grad": lambda x: x.to_dense(masked_grad=True),
    "to_dense, not masked_grad": lambda x: x.to_dense(masked_grad=False),
    "square": lambda x: x.to_dense() ** 2,
    "matmul": lambda x: x @ torch.arange(4.0, dtype=x.dtype).reshape(4, 1)[: x.shape[-1]],
    "sum": lambda x: torch.sparse.sum(x),
    "wrong": lambda x: hooked(scaled)(x.to_dense()),
}


def compare_verdicts(func, make, gradcheck=None, **options):
    """Ours must be PyTorch's; where PyTorch cannot do it at all, so may ours, but not wrongly."""
    wrap = gradcheck or (lambda check: check)
    expected = outcome(wrap(theirs.gradcheck), func, make(), **options)
    got = outcome(wrap(ours.gradcheck), func, make(), **options)
    if isinstance(expected, theirs.GradcheckError):
        assert isinstance(got, theirs.GradcheckError), got
    elif isinstance(expected, Exception):
        assert got is True or isinstance(got, type(expected)), got
    else:
        assert got is expected, got


@pytest.mark.parametrize("masked", [False, True, None])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", SPARSE_FUNCTIONS)
def test_sparse_inputs(name, layout, masked):
    make = lambda: LAYOUTS[layout]().requires_grad_()  # noqa: E731
    compare_verdicts(SPARSE_FUNCTIONS[name], make, masked=masked)


SPARSE_TO_SPARSE = {
    "twice": lambda x: x * 2,
    "to csr": lambda x: x.to_sparse(layout=torch.sparse_csr),
    "both": lambda x: (x * 2, x.to_dense() ** 2),
    "wrong": lambda x: hooked(scaled)(x.to_dense()).to_sparse(),
}


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", SPARSE_TO_SPARSE)
def test_sparse_outputs_through_the_sparse_wrapper(name, layout, masked):
    make = lambda: LAYOUTS[layout]().requires_grad_()  # noqa: E731
    wrapper = torch.sparse.as_sparse_gradcheck
    compare_verdicts(SPARSE_TO_SPARSE[name], make, wrapper, masked=masked)


def inplace_view(x):
    y = torch.zeros(4, dtype=x.dtype)
    y[1:3].copy_(x[:2])
    y[0] = x[2] * 3
    return y.view(2, 2).t()


FORWARD = {
    "in-place copy_ into a view": (inplace_view, lambda: real(3)),
    "select and transpose": (lambda x: x.t()[1] * x[0, 0], lambda: real(3, 2)),
    "complex view_as_real": (lambda z: torch.view_as_real(z * z), lambda: cplx(3)),
    "input without gradient": (lambda x, y: x * y, lambda: (real(3), real(3, seed=1, grad=False))),
    "unused input": (lambda x, y: x * 2, lambda: (real(3), real(2, seed=1))),
}


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("name", FORWARD)
def test_forward_mode_through_views_and_in_place(name, backward, batched):
    func, make = FORWARD[name]
    options = {"check_forward_ad": True, "check_backward_ad": backward}
    compare_verdicts(func, make, check_batched_forward_grad=batched, **options)


INTEGER = torch.tensor([3])
FLOAT = torch.tensor([2.0], dtype=F64)
DENSE = {
    "zero-dim": (torch.sin, lambda: real()),
    "no element": (torch.sin, lambda: real(0, 3)),
    "no element in one of two": (lambda x, y: x.sum() + y.sum(), lambda: (real(0), real(2))),
    "no element in the output": (lambda x: (x[:0], x * 2), lambda: real(2)),
    "other arguments": (
        lambda x, k, text, none, flag: x * k if flag else x,
        lambda: (real(2), 3, "text", None, True),
    ),
    "list of inputs": (lambda x, y: x * y, lambda: [real(2), real(2, seed=1)]),
    "tuple out": (lambda x: (x.sin(), x.cos()), lambda: real(2)),
    "integer before": (lambda x: (INTEGER, x.sin()), lambda: real(2)),
    "integer between": (lambda x: (x.cos(), INTEGER, x.sin()), lambda: real(2)),
    "float between": (lambda x: (x.cos(), FLOAT, x.sin()), lambda: real(2)),
    "only integers out": (lambda x: INTEGER, lambda: real(2)),
    "only constants out": (lambda x: FLOAT * 2, lambda: real(2)),
    "max with indices": (lambda x: x.max(0), lambda: real(3, 2)),
    "transposed": (lambda x: x * x, lambda: real(3, 2, grad=False).t().requires_grad_()),
    "a view with history": (torch.exp, lambda: real(6)[1:4]),
    "the same tensor twice": (lambda x, y: x * y, lambda: (x := real(2), x)),
    "view out": (lambda x: x.t(), lambda: real(2, 3)),
    "wrong entry": (
        custom(lambda x: x * 2, lambda x, g: g * torch.tensor([2.0, 2.0, 2.1], dtype=F64)),
        lambda: real(3),
    ),
    "missing term": (lambda x: x * x.detach(), lambda: real(3)),
    "C to R": (torch.abs, lambda: cplx(3)),
    "R to C": (lambda x: torch.complex(x, x**2), lambda: real(3)),
    "C to C, holomorphic": (lambda z: z.exp() * z, lambda: cplx(3)),
    "C to C, conj": (lambda z: z.conj() * z + z.conj(), lambda: cplx(3)),
    "C to C, lazily conjugated": (torch.conj, lambda: cplx(3)),
    "C to C, wrong conj": (custom(lambda z: z * z, lambda z, g: g * 2 * z), lambda: cplx(3)),
    "R and C out": (lambda z: (z.abs(), z * 2), lambda: cplx(2)),
}


# What PyTorch 2.13 raises for a right derivative: it indexes lists of all outputs with positions
# among some of them, and it perturbs a tensor that is passed twice at both places at once.
PYTORCH_RAISES = {"integer before": IndexError, "integer between": IndexError}
FALSE_ALARMS_IN_FORWARD_MODE = {"float before", "float between", "the same tensor twice"}


@pytest.mark.filterwarnings("ignore:.*no output with a derivative")  # PyTorch passes in silence
@pytest.mark.parametrize("options", [{}, {"fast_mode": True}], ids=["slow", "fast"])
@pytest.mark.parametrize("name", DENSE)
def test_dense_corpus_as_slow_mode_judges_it(name, options):
    func, make = DENSE[name]
    expected = outcome(theirs.gradcheck, func, make(), raise_exception=False)
    if name in PYTORCH_RAISES:
        assert isinstance(expected, PYTORCH_RAISES[name])
        expected = True
    assert ours.gradcheck(func, make(), raise_exception=False, **options) is expected


@pytest.mark.filterwarnings("ignore:.*no output with a derivative")
@pytest.mark.parametrize("batched", [False, True], ids=["", "batched"])
@pytest.mark.parametrize("forward", [False, True], ids=["", "forward"])
@pytest.mark.parametrize("name", DENSE)
def test_dense_corpus_with_every_mode(name, forward, batched):
    func, make = DENSE[name]
    if forward and name in FALSE_ALARMS_IN_FORWARD_MODE:
        assert outcome(theirs.gradcheck, func, make(), check_forward_ad=True) is not True
        assert ours.gradcheck(func, make(), check_forward_ad=True)
        return
    compare_verdicts(
        func,
        make,
        check_forward_ad=forward,
        check_batched_grad=batched,
        check_batched_forward_grad=batched and forward,
        check_grad_dtypes=True,
    )


GRADGRAD = {
    "sin": (torch.sin, lambda: real(3)),
    "product": (lambda x, y: x * y, lambda: (real(2), real(2, seed=1))),
    "two outputs": (lambda x: (x.sin(), x**3), lambda: real(2)),
    "complex": (lambda z: z * z.conj() * z, lambda: cplx(2)),
    "output without gradient": (lambda x: (x.detach(), x.exp()), lambda: real(2)),
    "gradient not differentiable": (
        custom(torch.sin, lambda x, g: g * x.detach().cos()),
        lambda: real(2),
    ),
    "first order wrong, its derivative right": (
        custom(torch.sin, lambda x, g: g * x.exp()),
        lambda: real(2),
    ),
}


@pytest.mark.parametrize("noncontiguous", [False, True])
@pytest.mark.parametrize("forward", [False, True])
@pytest.mark.parametrize("name", GRADGRAD)
def test_gradgradcheck(name, forward, noncontiguous):
    func, make = GRADGRAD[name]
    options = {"check_fwd_over_rev": forward, "gen_non_contig_grad_outputs": noncontiguous}
    expected = outcome(theirs.gradgradcheck, func, make(), **options)
    got = outcome(ours.gradgradcheck, func, make(), **options)
    assert isinstance(got, type(expected)), (expected, got)


def test_float32_warns_as_pytorch_does():
    x = torch.ones(2, requires_grad=True)
    for check in (theirs.gradcheck, ours.gradcheck):
        with pytest.warns(UserWarning, match="Input #0 requires gradient and is not a double prec"):
            check(lambda x: x * 2, x, eps=1e-2, atol=1e-2)


# What PyTorch's own suite demands of gradcheck, re-created from behaviour. Each row is run by both;
# `True`, `False` or the kind of exception must be the same, and so must the kinds of warnings.


def drawing(x):
    """A backward that draws a random number and does not use it."""

    def backward(_, g):
        torch.rand(())
        return 2 * g

    return custom(lambda x: 2 * x, backward)(x)


def going_by_a_draw(x):
    """A backward whose gradient is off by up to a part in a million, by what it draws."""
    return custom(lambda x: 2 * x, lambda x, g: 2 * g * (1 + 1e-6 * torch.rand((), dtype=F64)))(x)


def registered(weight, x):
    layer = torch.nn.Linear(2, 3, bias=False, dtype=F64)
    layer.weight = weight
    return layer(x)


def weight_and_input():
    return torch.nn.Parameter(real(3, 2, grad=False)), real(2)


class NoGradInForwardMode(torch.autograd.Function):
    """Insists that duals require no gradient, and that each carries a tangent."""

    @staticmethod
    def forward(ctx, x, y):
        if torch.autograd.forward_ad._current_level >= 0:
            assert not x.requires_grad
            assert not y.requires_grad
        ctx.save_for_forward(x, y)
        return x * y

    @staticmethod
    def jvp(ctx, s, t):
        x, y = ctx.saved_tensors
        return s * y + t * x


def product_with_tangents(rule):
    """A product whose forward mode is told which inputs carry no tangent."""

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(x, y)
            ctx.save_for_forward(x, y)
            return x * y

        @staticmethod
        def backward(ctx, g):
            x, y = ctx.saved_tensors
            return (None, None) if g is None else (g * y, g * x)

        @staticmethod
        def jvp(ctx, s, t):
            return rule(*ctx.saved_tensors, s, t)

    return Product.apply


def without_missing_terms(x, y, s, t):
    """A missing tangent is zero."""
    first = torch.zeros_like(x) if s is None else s * y
    return first if t is None else first + t * x


def with_ones_for_missing(x, y, s, t):
    """A missing tangent is one, which it must not be."""
    return (1 if s is None else s) * y + (1 if t is None else t) * x


def two():
    return real(2), real(2, seed=1)


def one_of_three(x, y, z):
    return x * z.sum(), (y.detach(), z)[1] * y


def refuses(*_):
    raise RuntimeError("mine, not gradcheck's")


UNDEFINED_OFF = {"check_undefined_grad": False}
FORWARD_TOO = {"check_forward_ad": True}
WITHOUT_BACKWARD = {"check_forward_ad": True, "check_backward_ad": False}
EVERY_BATCH = {"check_batched_grad": True, "check_batched_forward_grad": True, **FORWARD_TOO}

# name -> function, inputs, options
SUITE = {
    "a draw that the gradient does not use": (drawing, lambda: real(3), {}),
    "the same, with a tolerance": (drawing, lambda: real(3), {"nondet_tol": 1e-5}),
    "a gradient that goes by a draw": (going_by_a_draw, lambda: real(3), {}),
    "the same, within the tolerance": (going_by_a_draw, lambda: real(3), {"nondet_tol": 1e-3}),
    "a parameter that is registered": (registered, weight_and_input, {}),
    "no output at all": (lambda x: (), lambda: (real(2),), {}),
    "a negative atol": (torch.sin, lambda: real(2), {"atol": -1}),
    "an atol that is no number": (torch.sin, lambda: real(2), {"atol": float("nan")}),
    "the same, not asked for": (needs_defined_gradient, lambda: real(2), UNDEFINED_OFF),
    "the same, not asked for either": (makes_up_gradients, lambda: real(2), UNDEFINED_OFF),
    "products, every batch": (torch.mm, lambda: (real(2, 3), real(3, 2, seed=1)), EVERY_BATCH),
    "forward mode of what requires no gradient then": (
        NoGradInForwardMode.apply,
        lambda: (real(2), real(2, seed=1)),
        {**WITHOUT_BACKWARD, **UNDEFINED_OFF},
    ),
    "forward mode without backward": (
        custom(torch.sin, refuses, lambda x, t: t * x.cos()),
        lambda: real(2),
        WITHOUT_BACKWARD,
    ),
    "forward mode that raises": (
        custom(torch.sin, lambda x, g: g * x.cos(), refuses),
        lambda: real(2),
        FORWARD_TOO,
    ),
    "a backward that raises": (custom(torch.sin, refuses), lambda: real(2), {}),
    "several outputs, one of them without gradient": (
        one_of_three,
        lambda: (real(2), real(2, seed=1), real(2, seed=2)),
        {},
    ),
    "outputs of different dtypes": (lambda x: (x.sin(), x.to(C128) * 1j), lambda: real(2), {}),
    "dtypes of gradients, forward": (
        lambda z: (z.abs(), z * 2),
        lambda: cplx(2),
        {**FORWARD_TOO, "check_grad_dtypes": True},
    ),
    "real and complex inputs, forward": (
        lambda x, z: (x * z, z.imag * x),
        lambda: (real(2), cplx(2)),
        {**FORWARD_TOO, "check_grad_dtypes": True},
    ),
    "no dimension, forward": (lambda x: x * x, lambda: real(), {**FORWARD_TOO, **EVERY_BATCH}),
    "float16": (
        lambda x: 2 * x,
        lambda: torch.ones(2, dtype=torch.float16, requires_grad=True),
        {"eps": 1e-1, "atol": 1e-1},
    ),
    "dense and sparse": (
        lambda x, y: (x @ y.to_dense()).sin(),
        lambda: (real(2, 2), matrix(2, 3).to_sparse().requires_grad_()),
        {},
    ),
    "tangents that are missing": (product_with_tangents(without_missing_terms), two, FORWARD_TOO),
    "tangents made up": (product_with_tangents(with_ones_for_missing), two, FORWARD_TOO),
    "the same, not looked at": (
        product_with_tangents(with_ones_for_missing),
        two,
        {**FORWARD_TOO, **UNDEFINED_OFF},
    ),
    "a hook that keeps what it gets": (hooked(lambda g: g), lambda: real(2), {}),
    "arguments as keywords of a partial": (
        functools.partial(lambda x, power: x**power, power=3),
        lambda: real(2),
        {},
    ),
}


def warned(check, func, inputs, **options):
    """The outcome, and the classes of the warnings that are not of PyTorch's inside."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = outcome(check, func, inputs, **options)
    kinds = [each.category for each in caught if "Sparse" not in str(each.message)]
    return found, {kind for kind in kinds if kind is UserWarning}


def assert_alike(got, expected):
    """The same answer; of exceptions, PyTorch's kind."""
    if isinstance(expected, Exception):
        assert isinstance(got, type(expected)), (expected, got)
    else:
        assert got is expected, (expected, got)


@pytest.mark.parametrize("raising", [True, False], ids=["raises", "returns"])
@pytest.mark.parametrize("name", SUITE)
def test_as_pytorchs_own_suite_has_it(name, raising):
    func, make, options = SUITE[name]
    expected, theirs_said = warned(
        theirs.gradcheck, func, make(), raise_exception=raising, **options
    )
    got, ours_said = warned(ours.gradcheck, func, make(), raise_exception=raising, **options)
    assert_alike(got, expected)
    assert theirs_said == ours_said


def cotangent(*shape, dtype=F64):
    return real(*shape, seed=5, grad=False).to(dtype).requires_grad_()


# name -> function, inputs, cotangents or None, options
SECOND_ORDER = {
    "cotangents of another shape": (torch.sin, lambda: real(2), lambda: cotangent(3), {}),
    "fewer cotangents than outputs": (
        lambda x: (x.sin(), x.cos()),
        lambda: real(2),
        lambda: cotangent(2),
        {},
    ),
    "cotangents that need no gradient": (
        lambda x: (x.sin(), x**3),
        lambda: real(2),
        lambda: (cotangent(2), cotangent(2).detach()),
        {},
    ),
    "cotangents with gaps": (
        lambda x: x.t() @ x,
        lambda: real(2, 3),
        None,
        {"gen_non_contig_grad_outputs": True},
    ),
    "forward over reverse": (lambda x: x**3, lambda: real(2), None, {"check_fwd_over_rev": True}),
    "forward over reverse alone": (
        lambda x: x**3,
        lambda: real(2),
        None,
        {"check_fwd_over_rev": True, "check_rev_over_rev": False, **UNDEFINED_OFF},
    ),
    "undefined without reverse": (
        lambda x: x**3,
        lambda: real(2),
        None,
        {"check_fwd_over_rev": True, "check_rev_over_rev": False},
    ),
    "a loose atol": (
        custom(torch.sin, lambda x, g: g * x.detach().cos()),
        lambda: real(2),
        None,
        {"atol": 10.0},
    ),
    "a double backward that is wrong": (
        lambda x: custom(torch.sin, lambda y, g: custom(torch.cos, lambda z, h: 2 * h)(y) * g)(x),
        lambda: real(2),
        None,
        {},
    ),
    "sparse": (
        lambda x: torch.sparse.mm(x, torch.ones(4, 2, dtype=F64)).sin(),
        lambda: matrix().to_sparse().requires_grad_(),
        None,
        {"masked": True},
    ),
    "single precision": (
        lambda x: x**2,
        lambda: real(2).detach().float().requires_grad_(),
        None,
        {"eps": 1e-2, "atol": 1e-2, "rtol": 1e-2},
    ),
}


@pytest.mark.parametrize("raising", [True, False], ids=["raises", "returns"])
@pytest.mark.parametrize("name", SECOND_ORDER)
def test_second_order_as_pytorchs_own_suite_has_it(name, raising):
    func, make, cotangents, options = SECOND_ORDER[name]
    answers = []
    for check in (ours.gradgradcheck, theirs.gradgradcheck):
        given = () if cotangents is None else (cotangents(),)
        face = lambda f, x, check=check, given=given, **k: check(f, x, *given, **k)  # noqa: E731
        answers.append(warned(face, func, make(), raise_exception=raising, **options))
    (got, ours_said), (expected, theirs_said) = answers
    assert_alike(got, expected)
    assert theirs_said == ours_said
