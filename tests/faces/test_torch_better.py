"""What PyTorch 2.13's gradcheck gets wrong stays right here."""

from __future__ import annotations

import importlib

import pytest
import torch

import gradproof
import gradproof.torch as ours
from exhibits.cotangents import over_what_was_saved
from exhibits.frame import ruled
from faces.torch_cases import F64, custom, real
from gradproof.errors import DerivativeWarning, UsageError

theirs = importlib.import_module("torch.autograd.gradcheck")


def test_an_output_wrongly_detached_among_good_ones_is_found():
    def function(x):
        return x.sin(), x.detach() * 2

    assert theirs.gradcheck(function, real(3))
    assert theirs.gradcheck(function, real(3), fast_mode=True)
    with pytest.raises(ours.GradcheckError, match="expected to be zero") as caught:
        ours.gradcheck(function, real(3))
    assert {finding.output_name for finding in caught.value.report.findings} == {"output 1"}


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
@pytest.mark.parametrize(
    "options",
    [
        {"check_batched_grad": True},
        {"check_forward_ad": True, "check_batched_forward_grad": True},
    ],
    ids=["backward", "forward"],
)
def test_the_users_random_state_stays(options):
    before = torch.get_rng_state()
    assert theirs.gradcheck(torch.sin, real(2), **options)
    assert not torch.equal(before, torch.get_rng_state())
    before = torch.get_rng_state()
    assert ours.gradcheck(torch.sin, real(2), **options)
    assert torch.equal(before, torch.get_rng_state())


def raises_from_the_third_call_on():
    calls = [0]

    def function(x):
        calls[0] += 1
        if calls[0] >= 3:
            raise KeyError("third")
        return x.sin()

    return function


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_inputs_are_restored_when_the_function_raises():
    x = real(3)
    before = x.detach().clone()
    with pytest.raises(KeyError):
        theirs.gradcheck(raises_from_the_third_call_on(), x)
    assert not torch.equal(x, before)

    x = real(3)
    with pytest.raises(KeyError):
        ours.gradcheck(raises_from_the_third_call_on(), x)
    assert torch.equal(x, before)


@pytest.mark.parametrize("nested", [lambda y: (y.sin(), [y]), lambda y: {"a": y}])
def test_gradgradcheck_looks_into_containers(nested):
    once = custom(lambda x: x**3, lambda x, g: g * 3 * x.detach() ** 2)
    assert ours.gradgradcheck(lambda x: nested(x**3), real(3))
    with pytest.raises(ours.GradcheckError, match="Jacobian mismatch"):
        ours.gradgradcheck(lambda x: nested(once(x)), real(3))


@pytest.mark.parametrize("gradcheck", [ours.gradcheck, ours.gradgradcheck])
def test_nothing_of_the_callers_is_written_into(gradcheck):
    def writing(x, shift):
        shift.mul_(3)
        x.register_hook(lambda grad: grad)
        return norm(x)

    norm, x, shift = torch.nn.BatchNorm1d(3, dtype=torch.float64), real(4, 3), torch.ones(3)
    assert gradcheck(writing, (x, shift))
    assert norm.num_batches_tracked == 0
    assert (shift == 1).all()
    assert not x._backward_hooks


def test_the_gradient_of_a_zero_cotangent_is_zero_whatever_is_tolerated():
    off = ruled(torch.sin, lambda g, x: g * x.cos() + 1e-9)
    for options in ({}, {"eps": 1e-5}):
        with pytest.raises(ours.GradcheckError, match="undefined or zero"):
            ours.gradcheck(off, real(3), **options)


@pytest.mark.parametrize(
    ("function", "point"),
    [
        (lambda x: x**2, 1e10),
        (torch.log, 1e-7),
        (lambda x: 1e8 + x.sin(), 0.3),
    ],
    ids=["square far out", "log near zero", "large constant"],
)
def test_right_derivatives_at_points_that_one_fixed_step_cannot_measure(function, point):
    x = torch.tensor([point], dtype=F64, requires_grad=True)
    with pytest.raises(theirs.GradcheckError):
        theirs.gradcheck(function, x)
    assert ours.gradcheck(function, x)


def test_the_tolerance_does_not_grow_with_the_size():
    n = 1000
    factors = torch.ones(n, dtype=F64)
    factors[500] = 2.0
    function = custom(lambda x: x.clone(), lambda x, g: g * factors)
    assert theirs.gradcheck(function, real(n), fast_mode=True)
    with pytest.raises(ours.GradcheckError) as caught:
        ours.gradcheck(function, real(n), fast_mode=True)
    [finding] = [f for f in caught.value.report.findings if f.check == "backward"]
    assert finding.input_index == finding.output_index == (500,)


@pytest.mark.parametrize("seen", [False, True])  # whether PyTorch notices, and raises
@pytest.mark.parametrize("off", [1.0, 1.1])
def test_a_backward_that_spoils_its_call_is_refused_and_its_mismatch_reported(off, seen):
    function = over_what_was_saved(off=off, seen=seen)
    with pytest.raises(RuntimeError, match="modified by an inplace" if seen else "not reentrant"):
        theirs.gradcheck(function, real(2))
    for options in ({}, {"fast_mode": True}):
        with pytest.raises(RuntimeError, match=r"modified by|not reentrant|changed the") as caught:
            ours.gradcheck(function, real(2), **options)
        if not seen:
            failed = {finding.check for finding in caught.value.report.findings}
            assert "side_effects" in failed
            assert off == 1 or "backward" in failed


def test_the_message_says_where_how_much_and_how_much_was_allowed():
    factors = torch.tensor([1.0, 1.1], dtype=F64)
    function = custom(lambda weight: weight * 3, lambda weight, g: 3 * g * factors)
    with pytest.raises(ours.GradcheckError) as caught:
        ours.gradcheck(
            lambda weight: function(weight), torch.ones(2, dtype=F64, requires_grad=True)
        )
    text = str(caught.value)
    assert text.startswith("Jacobian mismatch for output 0 with respect to input 0,\n")
    [finding] = [f for f in caught.value.report.findings if f.check == "backward"]
    assert finding.input_name == "weight"
    assert finding.input_index == (1,)
    assert finding.claimed == pytest.approx(3.3)
    assert finding.measured == pytest.approx(3.0)
    assert finding.allowed == pytest.approx(1e-5 + 3e-3, rel=1e-3)
    assert "'weight'[1]" in text
    assert "allowed" in text


def no_backward(x, g):
    raise NotImplementedError("no backward")


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
@pytest.mark.parametrize("size", [(), (2,)])
def test_forward_mode_alone_must_be_linear(size):
    right = custom(torch.sin, no_backward, lambda x, t: t * x.cos())
    wrong = custom(torch.sin, no_backward, lambda x, t: t.abs() * x.cos())
    options = {"check_forward_ad": True, "check_backward_ad": False}
    assert theirs.gradcheck(wrong, real(*size), **options)  # by tangents that are positive
    for _ in range(5):
        assert ours.gradcheck(right, real(*size), **options)
        with pytest.raises(ours.GradcheckError, match="two parts of a tangent"):
            ours.gradcheck(wrong, real(*size), **options)


def test_a_zero_backward_in_few_bits_is_not_excused_by_its_error_bar():
    """An error bar as wide as the derivative excuses nothing: the plain difference decides."""
    coarse = custom(lambda x: x.bfloat16().sin().double(), lambda x, g: torch.zeros_like(x))
    with pytest.raises(ours.GradcheckError):
        ours.gradcheck(coarse, real(3), eps=0.1)


@pytest.mark.filterwarnings("error")
def test_a_pass_that_only_atol_grants_is_a_warning_an_error_or_nothing():
    """PyTorch passes a backward of zero without a word wherever the derivative is below atol."""
    tiny = custom(lambda x: 1e-6 * x.sin(), lambda x, g: torch.zeros_like(x))
    assert theirs.gradcheck(tiny, real(4))
    with pytest.warns(DerivativeWarning, match="both below atol"):
        assert ours.gradcheck(tiny, real(4))
    with pytest.raises(ours.GradcheckError, match=r"no wrong .*both below atol") as caught:
        ours.gradcheck(tiny, real(4), inconclusive="error")
    assert caught.value.report
    assert not ours.gradcheck(tiny, real(4), inconclusive="error", raise_exception=False)
    assert ours.gradcheck(tiny, real(4), inconclusive="ignore")
    assert ours.gradgradcheck(torch.sin, real(4), inconclusive="error")
    with pytest.raises(UsageError, match="inconclusive: expected one of warn, error, ignore"):
        ours.gradcheck(tiny, real(4), inconclusive=1)


def test_no_grad_around_the_check_is_none_inside():
    """PyTorch finds an output without gradient, and calls every function wrong."""
    wrong = custom(torch.sin, lambda x, g: 1.1 * g * x.cos())
    with torch.no_grad():
        with pytest.raises(theirs.GradcheckError, match="expected to be zero"):
            theirs.gradcheck(torch.sin, real(3))
        assert ours.gradcheck(torch.sin, real(3))
        assert ours.gradgradcheck(torch.sin, real(3))
        with pytest.raises(ours.GradcheckError, match="Jacobian mismatch"):
            ours.gradcheck(wrong, real(3))
        assert not torch.is_grad_enabled()


@pytest.mark.filterwarnings("ignore:Input #0 requires gradient")
def test_single_precision_with_default_options_is_no_mismatch():
    wrong = custom(torch.sin, lambda x, g: 1.01 * g * x.cos())
    for fast in (True, False):
        with pytest.raises(theirs.GradcheckError, match="Jacobian mismatch"):
            theirs.gradcheck(torch.sin, single(), fast_mode=fast)
        assert ours.gradcheck(torch.sin, single(), fast_mode=fast)
        with pytest.raises(ours.GradcheckError, match="Jacobian mismatch"):
            ours.gradcheck(wrong, single(), fast_mode=fast)


def single():
    return torch.linspace(0.1, 1.2, 5).requires_grad_()


@pytest.mark.parametrize("nothing", [(), []])
def test_a_function_without_outputs_passes_with_a_warning_that_nothing_was_tested(nothing):
    assert theirs.gradcheck(lambda x: nothing, real(2))
    with pytest.warns(DerivativeWarning, match="nothing was tested"):
        assert ours.gradcheck(lambda x: nothing, real(2))
    with pytest.raises(UsageError, match="without any tensor"):
        gradproof.check(lambda x: nothing, real(2))


@pytest.mark.parametrize("size", [500, 600])  # measured whole, and searched
@pytest.mark.parametrize(("slope", "right"), [(0.0, True), (0.5, True), (2.0, False)])
def test_a_slope_at_a_kink_is_accepted_in_inputs_of_any_size(size, slope, right):
    def backward(x, g):
        return g * torch.where(x == 0, slope, (x > 0).double())

    function = custom(lambda x: x.relu(), backward)
    x = torch.linspace(-1, 1, size, dtype=F64)
    x[5] = 0
    x.requires_grad_()
    if slope != 0.5:  # which a central difference measures
        assert not theirs.gradcheck(function, x, raise_exception=False)
    if right:
        with pytest.warns(DerivativeWarning, match="lies? between the one-sided slopes"):
            assert ours.gradcheck(function, x)
    else:
        assert not ours.gradcheck(function, x, raise_exception=False)


def test_a_claim_of_nan_where_the_function_is_nan_is_not_right_as_in_pytorch():
    x = torch.tensor([-4.8], dtype=F64, requires_grad=True)
    for gradcheck in (ours.gradcheck, torch.autograd.gradcheck):
        assert not gradcheck(lambda x: x**-7.5, x, raise_exception=False)


@pytest.mark.parametrize(
    ("part", "rtol", "passes"),
    [(1e-4, 1e-3, True), (1e-6, 1e-4, True), (1e-2, 1e-3, False), (1e-4, 1e-6, False)],
)
def test_a_backward_must_be_linear_to_the_callers_tolerance(part, rtol, passes):
    """As an adaptive solver: the cotangent goes through a rounding of its own to this part."""
    solved = custom(torch.sin, lambda x, g: g * x.cos() * (1 + part * torch.sin(1e3 * g)))
    x = torch.linspace(0.2, 1.0, 4, dtype=F64).requires_grad_()
    assert ours.gradcheck(solved, x, rtol=rtol, atol=0.0, raise_exception=False) is passes


@pytest.mark.filterwarnings("ignore::gradproof.errors.DerivativeWarning")
@pytest.mark.parametrize("seed", range(5))
def test_a_large_constant_beside_small_terms_is_no_wrong_derivative(seed):
    """A plain difference of 1e6 with steps of 1e-6 is rounded to 1e-4, and decided entries."""
    numbers = torch.Generator().manual_seed(seed)
    x = torch.randn(8, dtype=F64, generator=numbers).requires_grad_()
    w = torch.randn(4, 8, dtype=F64, generator=numbers) * torch.logspace(0, -6, 4)[:, None]
    assert ours.gradcheck(lambda x: 1e6 + w @ x.sin(), (x,), raise_exception=False)


def test_a_row_within_the_tolerance_hides_no_other_one():
    """Of the wrong rows that with the most bars was looked at: 1e-5 off, which `rtol` allows."""
    size = 600
    weights = torch.randn(4, size, dtype=F64, generator=torch.Generator().manual_seed(0))
    factors = torch.ones(size, dtype=F64)
    factors[7] = 1.3

    def value(x):
        mixed = 1e5 + x.sin().sum() * x.exp().sum() / size
        return torch.cat([weights @ x, mixed.reshape(1)])

    def backward(g, x):
        row = (x.cos() * x.exp().sum() + x.sin().sum() * x.exp()) / size
        return weights.T @ g[:4] * (1 + 1e-5) + row * factors * g[4]

    x = torch.linspace(0.1, 1.1, size, dtype=F64).requires_grad_()
    assert not ours.gradcheck(ruled(value, backward), (x,), raise_exception=False)
