"""What PyTorch's gradcheck says, the drop-in says too: verdicts, exceptions, phrases, signature."""

from __future__ import annotations

import functools
import importlib
import inspect
import pickle
import warnings

import pytest
import torch

import gradproof.torch as ours
from exhibits.frame import ruled
from faces.torch_cases import F64, custom, real
from gradproof.errors import DerivativeError

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


def cplx(*shape, seed=0, grad=True):
    parts = (real(*shape, seed=seed + k, grad=False) for k in (0, 1))
    return torch.complex(*parts).requires_grad_(grad)


def hooked(change):
    """The identity whose gradient goes through `change`."""

    def function(x):
        y = x.clone()
        y.register_hook(change)
        return y

    return function


def scaled(gradient):
    """A hook that makes gradients 10 % too large."""
    return None if gradient is None else 1.1 * gradient


def _double_where_defined(g, x):
    if g is None:
        raise RuntimeError("undefined gradient")
    return 2 * g


def _ones_where_undefined(g, x):
    return torch.ones(2, dtype=F64) if g is None else 2 * g


needs_defined_gradient = ruled(lambda x: 2 * x, _double_where_defined, materialize=False)
makes_up_gradients = ruled(lambda x: 2 * x, _ones_where_undefined, materialize=False)


def nondeterministic():
    """Backward that drifts by less than 7e-3, and is at no two runs the same."""
    runs = [0]

    def backward(x, g):
        runs[0] += 1
        return g * (2 + 7e-3 * (0.618034 * runs[0] % 1))

    return custom(lambda x: 2 * x, backward)


def changes(kind):
    """A function whose output has another shape or dtype above 0.5 than below."""

    def function(x):
        above = x.detach().max() > 0.5
        if kind == "shape":
            return torch.cat([x, x]) if above else x * 1
        return x.to(torch.float32) if above else x * 1

    return function


def half():
    return torch.full((2,), 0.5, dtype=F64, requires_grad=True)


def imaginary_part_wrong(part):
    """Real to complex; the gradient of one part of the output is 10 % too large."""
    factors = (1.1, 1.0) if part == "real" else (1.0, 1.1)
    return custom(
        lambda x: torch.complex(x.sin(), x.cos()),
        lambda x, g: factors[0] * g.real * x.cos() - factors[1] * g.imag * x.sin(),
    )


double = custom(lambda x: 2 * x, lambda x, g: 2.2 * g)
two_wrong = custom(lambda x: (x.sin(), x.cos()), lambda x, g, h: g * x.cos() - 1.1 * h * x.sin())
forward_wrong = custom(torch.sin, lambda x, g: g * x.cos(), lambda x, t: 1.1 * t * x.cos())
forward_part_wrong = custom(
    lambda z: z.real**2 + 3 * z.imag,
    lambda z, g: torch.complex(2 * z.real * g, 3 * g),
    lambda z, t: 2 * z.real * t.real + 3.3 * t.imag,
)
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


def matrix(rows=2, columns=4):
    values = real(rows, columns, grad=False)
    return values * (values.abs() > 0.7)


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


def no_grad_in_forward_mode(x, y):
    """Insists that duals require no gradient."""
    if torch.autograd.forward_ad._current_level >= 0:
        assert not x.requires_grad
        assert not y.requires_grad
    return x * y


def product_with_tangents(jvp):
    """A product whose forward mode is told which inputs carry no tangent, by None."""

    def backward(g, x, y):
        return (None, None) if g is None else (g * y, g * x)

    return ruled(torch.mul, backward, jvp, materialize=False)


def without_missing_terms(s, t, x, y):
    """A missing tangent is zero."""
    first = torch.zeros_like(x) if s is None else s * y
    return first if t is None else first + t * x


def with_ones_for_missing(s, t, x, y):
    """A missing tangent is one, which it must not be."""
    return (1 if s is None else s) * y + (1 if t is None else t) * x


def two():
    return real(2), real(2, seed=1)


def one():
    return torch.ones(1, dtype=F64, requires_grad=True)


def one_of_three(x, y, z):
    return x * z.sum(), (y.detach(), z)[1] * y


def refuses(*_):
    raise RuntimeError("mine, not gradcheck's")


def case(func, make=lambda: real(2), says="", **options):
    """A row of a table: a function, its inputs, a phrase of PyTorch's message, and options."""
    return func, make, says, options


def mismatch(output=0, input=0, mode=""):
    return f"Jacobian {mode}mismatch for output {output} with respect to input {input}"


FORWARD_TOO = {"check_forward_ad": True}
FORWARD_ONLY = {"check_forward_ad": True, "check_backward_ad": False}
EVERY_BATCH = {"check_batched_grad": True, "check_batched_forward_grad": True, **FORWARD_TOO}
UNDEFINED_OFF = {"check_undefined_grad": False}
PART = "While considering the {} part of complex {} only, Jacobian "

CASES = {
    "scaled": case(double, says=mismatch()),
    "second output": case(two_wrong, says=mismatch(output=1)),
    "second input, after one without gradient": case(
        lambda x, y, z: x * y + double(z),
        lambda: (real(2), real(2, grad=False), real(2, seed=1)),
        mismatch(input=1),
    ),
    "output after one without gradient": case(
        lambda x: (torch.ones(2, dtype=F64), double(x)), says=mismatch()
    ),
    "real part": case(imaginary_part_wrong("real"), says=PART.format("real", "outputs")),
    "imaginary part": case(imaginary_part_wrong("imag"), says=PART.format("imaginary", "outputs")),
    "forward": case(
        forward_wrong, says=mismatch(mode="computed with forward mode "), **FORWARD_ONLY
    ),
    "forward, imaginary part": case(
        forward_part_wrong,
        lambda: cplx(2),
        PART.format("imaginary", "inputs"),
        **FORWARD_ONLY,
        **UNDEFINED_OFF,
    ),
    "not reentrant": case(nondeterministic(), says="Backward is not reentrant", atol=0.1),
    "constant gradient": case(scalar_ignores, says="backward not multiplied by grad_output"),
    "gradient with an offset below atol": case(
        hooked(lambda g: g + 1e-2), one, "backward not multiplied by grad_output", atol=0.1
    ),
    "undefined gradients not handled": case(
        needs_defined_gradient, says="Expected backward function to handle undefined output grads"
    ),
    "the same, not asked for": case(needs_defined_gradient, **UNDEFINED_OFF),
    "undefined gradients made up": case(
        makes_up_gradients,
        says="Expected all input grads to be undefined or zero when all output grads are undefined",
    ),
    "the same, not asked for either": case(makes_up_gradients, **UNDEFINED_OFF),
    "layout": case(
        custom(lambda x: x * 1, lambda x, g: g.to_sparse()), one, "grad is incorrect layout"
    ),
    "sparse_dim": case(
        resparsified,
        lambda: torch.ones(2, 2, dtype=F64).to_sparse().requires_grad_(),
        "grad is sparse tensor, but has incorrect sparse_dim",
        masked=True,
    ),
    "detached": case(
        lambda x: x.detach() ** 2, says="Numerical gradient for function expected to be zero"
    ),
    "not vmappable": case(
        not_vmappable, says="While computing batched gradients, got: ", check_batched_grad=True
    ),
    "wrong under vmap": case(
        custom(lambda x: 2 * x, vmap_wrong),
        says="gradcheck or gradgradcheck failed while testing batched gradient computation",
        check_batched_grad=True,
    ),
    "no input": case(
        torch.sin, lambda: real(2, grad=False), "at least one input tensor to require"
    ),
    "stride 0": case(
        torch.sin,
        lambda: one().detach().expand(3).requires_grad_(),
        "The 0th input has a dimension with stride 0",
    ),
    "sparse output": case(
        lambda x: x.to_sparse(),
        lambda: real(2, 2),
        "Sparse output is not supported at gradcheck yet",
    ),
    "shape that changes": case(
        changes("shape"), half, "Expected `func` to return outputs with the same shape"
    ),
    "dtype that changes": case(
        changes("dtype"), half, "Expected `func` to return outputs with the same dtype"
    ),
    "the function raises": case(lambda x: {}["mine"], says="mine"),
    "a backward that raises": case(custom(torch.sin, refuses)),
    "forward mode that raises": case(
        custom(torch.sin, lambda x, g: g * x.cos(), refuses), **FORWARD_TOO
    ),
    "forward mode without backward": case(
        custom(torch.sin, refuses, lambda x, t: t * x.cos()), **FORWARD_ONLY
    ),
    "forward mode of what requires no gradient then": case(
        ruled(no_grad_in_forward_mode, refuses, without_missing_terms),
        two,
        **FORWARD_ONLY,
        **UNDEFINED_OFF,
    ),
    "tangents that are missing": case(
        product_with_tangents(without_missing_terms), two, **FORWARD_TOO
    ),
    "tangents made up": case(product_with_tangents(with_ones_for_missing), two, **FORWARD_TOO),
    "the same, not looked at": case(
        product_with_tangents(with_ones_for_missing), two, **FORWARD_TOO, **UNDEFINED_OFF
    ),
    "a draw that the gradient does not use": case(drawing),
    "the same, with a tolerance": case(drawing, nondet_tol=1e-5),
    "a gradient that goes by a draw": case(going_by_a_draw),
    "the same, within the tolerance": case(going_by_a_draw, nondet_tol=1e-3),
    "a parameter that is registered": case(registered, weight_and_input),
    "no output at all": case(lambda x: ()),
    "a negative atol": case(torch.sin, atol=-1),
    "an atol that is no number": case(torch.sin, atol=float("nan")),
    "products, every batch": case(
        torch.mm, lambda: (real(2, 3), real(3, 2, seed=1)), **EVERY_BATCH
    ),
    "several outputs, one of them without gradient": case(
        one_of_three, lambda: (*two(), real(2, seed=2))
    ),
    "outputs of different dtypes": case(lambda x: (x.sin(), x.to(torch.complex128) * 1j)),
    "real and complex inputs, forward": case(
        lambda x, z: (x * z, z.imag * x),
        lambda: (real(2), cplx(2)),
        check_grad_dtypes=True,
        **FORWARD_TOO,
    ),
    "float16": case(
        lambda x: 2 * x,
        lambda: torch.ones(2, dtype=torch.float16, requires_grad=True),
        eps=1e-1,
        atol=1e-1,
    ),
    "dense and sparse": case(
        lambda x, y: (x @ y.to_dense()).sin(),
        lambda: (real(2, 2), matrix(2, 3).to_sparse().requires_grad_()),
    ),
    "a hook that keeps what it gets": case(hooked(lambda g: g)),
    "arguments as keywords of a partial": case(
        functools.partial(lambda x, power: x**power, power=3)
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


def compare_answers(face, row, **more):
    """Answer and warnings are PyTorch's; both messages hold the phrase."""
    func, make, phrase, options = row
    options = {**options, **more}
    expected, theirs_said = warned(getattr(theirs, face), func, make(), **options)
    got, ours_said = warned(getattr(ours, face), func, make(), **options)
    assert_alike(got, expected)
    assert ours_said == theirs_said
    if isinstance(expected, Exception):
        assert phrase in str(expected), "PyTorch says something else: correct the row"
        assert phrase in str(got)


raises_or_returns = pytest.mark.parametrize("raising", [True, False], ids=["raises", "returns"])


@raises_or_returns
@pytest.mark.parametrize("name", CASES)
def test_gradcheck(name, raising):
    compare_answers("gradcheck", CASES[name], raise_exception=raising)


def test_float32_warns_as_pytorch_does():
    x = torch.ones(2, requires_grad=True)
    for check in (theirs.gradcheck, ours.gradcheck):
        with pytest.warns(UserWarning, match="Input #0 requires gradient and is not a double prec"):
            check(lambda x: x * 2, x, eps=1e-2, atol=1e-2)


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
SPARSE_TO_SPARSE = {
    "twice": lambda x: x * 2,
    "to csr": lambda x: x.to_sparse(layout=torch.sparse_csr),
    "both": lambda x: (x * 2, x.to_dense() ** 2),
    "wrong": lambda x: hooked(scaled)(x.to_dense()).to_sparse(),
}


def compare_verdicts(func, make, gradcheck=lambda check: check, **options):
    """Ours must be PyTorch's; where PyTorch cannot do it at all, so may ours, but not wrongly."""
    expected = outcome(gradcheck(theirs.gradcheck), func, make(), **options)
    got = outcome(gradcheck(ours.gradcheck), func, make(), **options)
    if isinstance(expected, Exception) and not isinstance(expected, theirs.GradcheckError):
        assert got is True or isinstance(got, type(expected)), got
    else:
        assert_alike(got, expected)


@pytest.mark.parametrize("masked", [False, True, None])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", SPARSE_FUNCTIONS)
def test_sparse_inputs(name, layout, masked):
    make = lambda: LAYOUTS[layout]().requires_grad_()  # noqa: E731
    compare_verdicts(SPARSE_FUNCTIONS[name], make, masked=masked)


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
    "in-place copy_ into a view": (inplace_view, lambda: real(3)),
    "select and transpose": (lambda x: x.t()[1] * x[0, 0], lambda: real(3, 2)),
    "complex view_as_real": (lambda z: torch.view_as_real(z * z), lambda: cplx(3)),
    "input without gradient": (lambda x, y: x * y, lambda: (real(3), real(3, grad=False))),
    "unused input": (lambda x, y: x * 2, two),
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


MODES = {
    "backward": {},
    "both": FORWARD_TOO,
    "forward": FORWARD_ONLY,
    "batched": {"check_batched_grad": True},
    "batched both": EVERY_BATCH,
    "batched forward": {"check_batched_forward_grad": True, **FORWARD_ONLY},
}


@pytest.mark.filterwarnings("ignore:.*no output with a derivative")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", DENSE)
def test_dense_corpus_with_every_mode(name, mode):
    func, make = DENSE[name]
    options = MODES[mode]
    if "check_forward_ad" in options and name in FALSE_ALARMS_IN_FORWARD_MODE:
        assert outcome(theirs.gradcheck, func, make(), **options) is not True
        assert ours.gradcheck(func, make(), **options)
    else:
        compare_verdicts(func, make, check_grad_dtypes=True, **options)


THIRD_POWER = (lambda x: x**3, lambda: real(2))
detached_cosine = custom(torch.sin, lambda x, g: g * x.detach().cos())
OVER_REVERSE = {"check_fwd_over_rev": True, "check_rev_over_rev": False}


def cotangent(*shape):
    return real(*shape, seed=5)


SECOND_ORDER = {
    "sin": case(torch.sin),
    "product": case(lambda x, y: x * y, two),
    "two outputs": case(lambda x: (x.sin(), x**3)),
    "complex": case(lambda z: z * z.conj() * z, lambda: cplx(2)),
    "output without gradient": case(lambda x: (x.detach(), x.exp())),
    "gradient not differentiable": case(detached_cosine),
    "the same, with a loose atol": case(detached_cosine, atol=10.0),
    "first order wrong, its derivative right": case(custom(torch.sin, lambda x, g: g * x.exp())),
    "a double backward that is wrong": case(
        lambda x: custom(torch.sin, lambda y, g: custom(torch.cos, lambda z, h: 2 * h)(y) * g)(x)
    ),
    "cotangents of another shape": case(torch.sin, grad_outputs=cotangent(3)),
    "fewer cotangents than outputs": case(lambda x: (x.sin(), x.cos()), grad_outputs=cotangent(2)),
    "cotangents that need no gradient": case(
        lambda x: (x.sin(), x**3), grad_outputs=(cotangent(2), cotangent(2).detach())
    ),
    "cotangents with gaps": case(lambda x: x.t() @ x, lambda: real(2, 3)),
    "forward over reverse alone": case(*THIRD_POWER, **OVER_REVERSE, **UNDEFINED_OFF),
    "undefined without reverse": case(*THIRD_POWER, **OVER_REVERSE),
    "sparse": case(
        lambda x: torch.sparse.mm(x, torch.ones(4, 2, dtype=F64)).sin(),
        lambda: matrix().to_sparse().requires_grad_(),
        masked=True,
    ),
    "single precision": case(
        lambda x: x**2,
        lambda: real(2).detach().float().requires_grad_(),
        "",
        eps=1e-2,
        atol=1e-2,
        rtol=1e-2,
    ),
}


@raises_or_returns
@pytest.mark.parametrize("name", SECOND_ORDER)
def test_gradgradcheck(name, raising):
    compare_answers("gradgradcheck", SECOND_ORDER[name], raise_exception=raising)


@pytest.mark.parametrize("forward", [False, True])
@pytest.mark.parametrize("name", SECOND_ORDER)
def test_gradgradcheck_with_cotangents_that_have_gaps(name, forward):
    options = {"gen_non_contig_grad_outputs": True, "check_fwd_over_rev": forward}
    compare_answers("gradgradcheck", SECOND_ORDER[name], **options)


# Arguments, and what is refused of them.


@pytest.mark.parametrize("name", ["gradcheck", "gradgradcheck"])
def test_names_order_kinds_and_defaults_equal_the_installed_pytorch(name):
    def shape(function):
        parameters = inspect.signature(function).parameters.values()
        return [(p.name, p.kind, p.default) for p in parameters]

    extra = ("inconclusive", inspect.Parameter.KEYWORD_ONLY, None)  # ours alone
    assert shape(getattr(ours, name)) == [*shape(getattr(theirs, name)), extra]


def test_error_is_pytorchs_and_ours():
    error = ours.GradcheckError("text", None)
    assert isinstance(error, theirs.GradcheckError)
    assert isinstance(error, DerivativeError)
    assert isinstance(error, RuntimeError)
    assert isinstance(error, AssertionError)
    assert str(error) == "text"
    assert error.report is None


def test_error_survives_pickling_as_test_runners_do():
    again = pickle.loads(pickle.dumps(ours.GradcheckError("text", None)))
    assert str(again) == "text"
    assert again.report is None


REFUSED = [
    ("gradcheck", {"check_forward_ad": False, "check_backward_ad": False}),
    ("gradcheck", {"check_batched_grad": True, "check_backward_ad": False}),
    ("gradcheck", {"check_batched_grad": True, **FORWARD_ONLY}),
    ("gradcheck", {"check_batched_forward_grad": True}),
    ("gradgradcheck", {"check_fwd_over_rev": False, "check_rev_over_rev": False}),
    ("gradgradcheck", OVER_REVERSE),
    ("gradgradcheck", {"check_batched_grad": True, **OVER_REVERSE, **UNDEFINED_OFF}),
]


@pytest.mark.parametrize(("name", "options"), REFUSED)
def test_refused_combinations_of_options(name, options):
    with pytest.raises(AssertionError) as expected:
        getattr(theirs, name)(torch.sin, real(2), **options)
    with pytest.raises(AssertionError) as got:
        getattr(ours, name)(torch.sin, real(2), **options)
    assert type(got.value) is type(expected.value)
    assert str(got.value) == str(expected.value)
