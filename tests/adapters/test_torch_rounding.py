"""Rounding at random: to a neighbour in the coarse arithmetic, hardly biased, and nothing else."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402

import gradproof  # noqa: E402
from gradproof import Verdict  # noqa: E402
from gradproof.torch import _adapter as torch_adapter  # noqa: E402
from gradproof.torch._rounding import Rounding  # noqa: E402

DOUBLE, COMPLEX = torch.float64, torch.complex128
FORMATS = {
    dtype: (float(torch.finfo(dtype).eps) / 2, float(torch.finfo(dtype).smallest_normal))
    for dtype in (torch.float32, torch.bfloat16, torch.float16)
}
every_format = pytest.mark.parametrize("dtype", FORMATS, ids=lambda dtype: str(dtype)[6:])


def rounding(dtype, seed=0, given=()):
    unit, normal = FORMATS[dtype]
    return Rounding(unit, 2 * unit * normal, seed).entered_with(given)


def tensor(*shape, dtype=DOUBLE, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=dtype, generator=generator)


def in_format(values, dtype):
    """Whether every value is a number of the format."""
    return torch.equal(values, values.to(dtype).to(values.dtype))


def test_a_rounding_that_is_entered_again_rounds_once():
    x, y = tensor(100), tensor(100, seed=1)
    with rounding(torch.float32):
        once = x * y
    mode = rounding(torch.float32)
    with mode:
        with mode:
            assert torch.equal(x * y, once)
        assert in_format(x * y, torch.float32)  # still active
    assert not in_format(x * y, torch.float32)


def test_a_constant_is_the_nearest_number_of_the_coarse_arithmetic_in_every_view_and_run():
    table, written = torch.linspace(0, 1, 50, dtype=DOUBLE), torch.full((3,), 0.3, dtype=DOUBLE)
    nearest, kept = table.to(torch.bfloat16).double(), table.clone()
    for seed in range(3):
        with rounding(torch.bfloat16, seed):
            assert torch.equal(1 * table, nearest)
            assert torch.equal(table[1:] - table[:-1], nearest[1:] - nearest[:-1])
            assert torch.equal(torch.cat([table, table[:2]])[:50], nearest)
            written[:2].zero_()  # the function's own, not a copy of it
    assert torch.equal(table, kept)
    assert written.tolist() == [0, 0, 0.3]


@pytest.mark.parametrize("pull", ["vjp", "jvp"])
def test_an_honest_run_draws_once_for_each_operation(monkeypatch, pull):
    drawn = []
    draws = Rounding._draws
    monkeypatch.setattr(
        Rounding, "_draws", lambda self, like: drawn.append(like.numel()) or draws(self, like)
    )
    map_ = torch_adapter.build(torch.mean, (tensor(1000).requires_grad_(),))
    run = map_.rounded_map(2.0**-24, 2.0**-149, 0)
    drawn.clear()
    getattr(run, pull)(np.ones(map_.codomain.size if pull == "vjp" else map_.domain.size))
    # The mean's backward divides; J u is the derivative of J^T v along u, which divides likewise.
    assert drawn.count(1000) == {"vjp": 1, "jvp": 2}[pull]


def test_what_moves_numbers_rounds_none():
    x = tensor(4, 5)
    with rounding(torch.float32).entered_with([x]):
        moved = [x.clone(), torch.cat((x, x)), torch.stack((x, x)), x.flip(0), x.repeat(2, 1)]
        moved += [x[torch.tensor([1, 0])], x.gather(0, torch.zeros(1, 5, dtype=torch.long))]
        moved += [x.mT.reshape(-1), x.roll(1)]
        assert in_format(x * 1.1, torch.float32)
        assert in_format(x + x.clone(), torch.float32)
    known = set(x.reshape(-1).tolist())
    for one in moved:
        assert set(one.reshape(-1).tolist()) <= known


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_rounding_is_to_a_neighbour_whatever_the_bits_of_a_tensor(sign):
    x = sign * torch.tensor([1.1, 3.0, 2.0**-140 * 1.1, 0.0, math.inf, 1e300], dtype=DOUBLE)
    views = [x, torch._neg_view(-x), torch.stack((x, x), 1)[:, 0]]
    for view in views:
        with rounding(torch.float32).entered_with([view]):
            got = view + 0
        assert in_format(got[:5], torch.float32)
        assert torch.equal(got[[1, 3, 4]], x[[1, 3, 4]])
        assert ((got - x).abs()[:3] <= torch.tensor([2.0**-23, 0.0, 2.0**-149])).all()
        assert abs(got[5] / x[5] - 1) <= 2.0**-23


ACTIVATIONS = ("gelu", "elu", "celu", "selu", "relu", "leaky_relu", "prelu", "glu")


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_backward_of_an_activation_is_rounded_entry_by_entry(name):
    """`gelu_backward` has the letters of `lu_solve`, and is no solver."""
    weights = [torch.full((32,), 0.3, dtype=DOUBLE)] if name == "prelu" else []
    x = (10.0 ** torch.linspace(-6, 1, 32, dtype=DOUBLE)).repeat(8, 1).requires_grad_()
    fn = getattr(torch.nn.functional, name, None) or getattr(torch, name)

    def pulled():
        return torch.autograd.grad(fn(x, *weights).sum(), x)[0]

    exact = pulled()
    with rounding(torch.bfloat16):
        found = pulled()
    assert bool(((found - exact).abs() <= 4 * FORMATS[torch.bfloat16][0] * exact.abs()).all())


# To which number.


@every_format
def test_a_result_is_one_of_its_two_neighbours(dtype):
    x, y = tensor(1000), tensor(1000, seed=1)
    exact = x * y
    with rounding(dtype, given=(x, y)):
        found = x * y
    assert in_format(found, dtype)
    unit, _ = FORMATS[dtype]
    assert bool(((found - exact).abs() <= 2 * unit * exact.abs()).all())
    assert bool((found != exact).any())


@every_format
def test_numbers_of_the_format_stay(dtype):
    x = tensor(1000).to(dtype).to(DOUBLE)
    special = torch.tensor([0.0, -0.0, 1.0, -1.0, 2.0, 3.0, -7.0, 255.0, 0.5, 2.0**-14])
    for values in (x, special.to(DOUBLE), torch.arange(-128, 129, dtype=DOUBLE)):
        for seed in range(20):
            with rounding(dtype, seed):
                found = values * 1
            assert torch.equal(found, values)


@every_format
def test_zero_keeps_its_value_and_what_is_not_finite_stays(dtype):
    x = torch.tensor([math.inf, -math.inf, math.nan, 0.0], dtype=DOUBLE)
    with rounding(dtype):
        found = x + 0.0
    torch.testing.assert_close(found, x, rtol=0, atol=0, equal_nan=True)


@every_format
def test_a_large_number_stays_finite(dtype):
    x = torch.tensor([1.7e308, 1.7976931348623157e308], dtype=DOUBLE)
    with rounding(dtype):
        assert bool(torch.isfinite(x * 1).all())


@every_format
def test_ties_stay_ties(dtype):
    """Equal numbers round differently, but what is selected is not rounded at all."""
    x = tensor(50).to(dtype).to(DOUBLE).repeat(2)
    for seed in range(5):
        with rounding(dtype, seed):
            assert torch.equal(x.max(), x.sort().values[-1])
            assert torch.equal(x[:50].clone(), x[50:].clone())
            assert torch.equal(torch.relu(x), x.clamp(min=0))
            assert torch.equal(torch.where(x > 0, x, -x), x.abs())


@every_format
def test_below_the_smallest_normal_number_the_spacing_is_the_smallest_number(dtype):
    unit, normal = FORMATS[dtype]
    tiny = 2 * unit * normal
    x = normal * torch.rand(200, dtype=DOUBLE, generator=torch.Generator().manual_seed(0))
    with rounding(dtype):
        found = x * 1
    assert torch.equal(torch.round(found / tiny), found / tiny)
    assert bool(((found - x).abs() < tiny).all())
    smallest = torch.tensor([tiny, -tiny, 3 * tiny], dtype=DOUBLE)
    with rounding(dtype):
        assert torch.equal(smallest * 1, smallest)


def test_a_number_below_half_the_smallest_one_becomes_zero_or_the_smallest():
    x = torch.full((4000,), 1e-8, dtype=DOUBLE)
    with rounding(torch.float16, given=(x,)):
        found = x * 1
    assert set(found.tolist()) == {0.0, 2.0**-24}
    assert float(found.mean()) == pytest.approx(1e-8, rel=0.1)


def test_a_constant_that_the_format_cannot_hold_stays():
    """As a small number that is added lest a divisor be zero, by a kernel that has more bits."""
    x = torch.tensor([1e-8, math.inf, 0.0], dtype=DOUBLE)
    mode = rounding(torch.float16)
    assert torch.equal(mode._held_argument(x, True), x)


# Nearly without bias.


@every_format
@pytest.mark.parametrize("value", [1 / 3, -1 / 3, 1.0001, 0.0123])
def test_the_mean_is_the_number_itself_to_a_quarter_of_the_spacing(dtype, value):
    unit, _ = FORMATS[dtype]
    count = 20_000
    x = torch.full((count,), value, dtype=DOUBLE)
    with rounding(dtype, given=(x,)):
        found = x * 1
    spacing = unit * 2.0 ** math.frexp(value)[1]
    rest = value / spacing - math.floor(value / spacing)
    mean = (math.floor(value / spacing) + min(max(rest, 0.25), 0.75)) * spacing
    # One rounding has a standard deviation of at most half the spacing.
    assert abs(float(found.mean()) - mean) < 2.5 * spacing / count**0.5


@every_format
def test_a_number_just_beside_one_of_the_format_is_not_always_rounded_to_that(dtype):
    unit, _ = FORMATS[dtype]
    for part in (0.01 * unit, -0.01 * unit):
        with rounding(dtype):
            found = torch.ones(4000, dtype=DOUBLE) + part
        assert 0.2 < float((found != 1).double().mean()) < 0.3


@every_format
def test_the_rounding_of_doubles_themselves_is_not_magnified(dtype):
    with rounding(dtype):
        found = torch.tensor([1 + 2.0**-50, 3 - 2.0**-49], dtype=DOUBLE) * torch.ones(2)
    assert found.tolist() == [1.0, 3.0]


@every_format
def test_a_sum_inside_of_one_operation_is_rounded_too(dtype):
    """The backward of a saturated softmax is the difference of nearly equal sums."""
    unit, _ = FORMATS[dtype]
    p = torch.tensor([[1 - 1 / 64, 1 / 64]], dtype=DOUBLE)  # numbers of every format
    g = torch.tensor([[1.0, 0.5]], dtype=DOUBLE)
    exact = torch._softmax_backward_data(g, p, -1, DOUBLE)
    errors = []
    for seed in range(12):
        with rounding(dtype, seed):
            errors.append(torch._softmax_backward_data(g, p, -1, DOUBLE) - exact)
    size = torch.cat(errors).square().mean().sqrt()
    assert unit / 4 < float(size) < 2 * unit  # of the terms, 1; of the difference it is 64 times


def test_draws_of_one_seed_are_repeated_and_those_of_another_are_not():
    x, y = tensor(100), tensor(100, seed=1)
    found = []
    for seed in (1, 1, 2):
        with rounding(torch.bfloat16, seed):
            found.append((x * y, x / y))
    assert all(map(torch.equal, found[0], found[1]))
    assert not torch.equal(found[0][0], found[2][0])


def test_two_operations_of_one_run_draw_differently():
    x, y = tensor(100), tensor(100, seed=1)
    with rounding(torch.bfloat16):
        assert not torch.equal(x * y, x * y)


# Which results.


def test_a_result_in_place_is_rounded_where_it_was_written():
    x, y = tensor(100), tensor(100, seed=1)
    with rounding(torch.bfloat16):
        found = x.mul_(y)
    assert found is x
    assert in_format(x, torch.bfloat16)


def test_a_result_written_to_out_is_rounded_there():
    x, y, out = tensor(100), tensor(100, seed=1), torch.empty(100, dtype=DOUBLE)
    with rounding(torch.bfloat16):
        torch.mul(x, y, out=out)
    assert in_format(out, torch.bfloat16)


def test_a_view_shares_the_memory_of_its_tensor_and_is_not_rounded():
    x = tensor(4, 6)
    kept = x.clone()
    with rounding(torch.bfloat16):
        views = (x.t(), x[1:], x.view(24), x.unsqueeze(0), x.expand(2, 4, 6), *x.split(2))
    assert torch.equal(x, kept)
    assert all(
        view.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() for view in views
    )


def test_a_part_written_through_a_view_is_rounded_and_the_rest_is_not():
    x = tensor(4, 6)
    kept = x.clone()
    with rounding(torch.bfloat16):
        x[:2].mul_(1 / 3)
    assert in_format(x[:2], torch.bfloat16)
    assert torch.equal(x[2:], kept[2:])


def test_every_result_of_several_is_rounded():
    x = tensor(5, 7)
    with rounding(torch.bfloat16):
        variance, mean = torch.var_mean(x, dim=1)
        pieces = torch.unbind((x * 1)[None].clone() / 3)
    assert all(in_format(each, torch.bfloat16) for each in (variance, mean, *pieces))


def test_both_parts_of_a_complex_result_are_rounded():
    z, w = tensor(100, dtype=COMPLEX), tensor(100, dtype=COMPLEX, seed=1)
    with rounding(torch.bfloat16):
        found = z * w
        conjugate = (z * w).conj() * 1
    for each in (found, conjugate.resolve_conj()):
        assert in_format(torch.view_as_real(each), torch.bfloat16)
    torch.testing.assert_close(found, z * w, rtol=0.02, atol=0.02)


SOLVERS = {
    "pinv": torch.linalg.pinv,
    "cholesky": lambda a: torch.linalg.cholesky(a @ a.mH + torch.eye(4)),
    "qr": lambda a: torch.linalg.qr(a)[1],
    "solve": lambda a: torch.linalg.solve(a, tensor(4, 4, dtype=COMPLEX, seed=1)),
    "triangle, conjugated": lambda a: torch.linalg.solve_triangular(
        a.triu().mH, tensor(4, 4, dtype=COMPLEX, seed=1), upper=False
    ),
}


@pytest.mark.parametrize("name", SOLVERS)
def test_conjugated_matrices_stay_conjugated(name):
    """Of PyTorch's dispatch modes they do not: arithmetic inside passes over the bit."""

    def value_and_gradient():
        a = tensor(4, 4, dtype=COMPLEX).requires_grad_()
        y = SOLVERS[name](a)
        return y.detach(), *torch.autograd.grad(y, a, torch.ones_like(y))

    exact = value_and_gradient()
    with rounding(torch.float32):
        found = value_and_gradient()
    for one, other in zip(found, exact, strict=True):
        assert (one - other).abs().max() < 1e-3 * other.abs().max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_results_of_another_precision_are_left_alone(dtype):
    x = tensor(50).to(dtype)
    with rounding(torch.float16):
        found = x * x if dtype is not torch.bool else x & x
    assert torch.equal(found, x * x if dtype is not torch.bool else x)


def test_sparse_results_are_left_alone():
    x = tensor(4, 4).relu().to_sparse()
    with rounding(torch.bfloat16):
        doubled = x * (1 / 3)
        moved = x.clone()
    torch.testing.assert_close(doubled.to_dense(), x.to_dense() / 3, rtol=1e-15, atol=0)
    torch.testing.assert_close(moved.to_dense(), x.to_dense(), rtol=0, atol=0)


def test_empty_results_and_scalars_are_no_trouble():
    with rounding(torch.bfloat16):
        assert (torch.empty(0, 3, dtype=DOUBLE) * 2).shape == (0, 3)
        assert in_format(torch.tensor(1.0, dtype=DOUBLE) / 3, torch.bfloat16)


def test_a_symbolic_zero_is_no_trouble():
    """PyTorch's zero tensors have no memory that could be read."""
    zero = torch._efficientzerotensor((3,), dtype=DOUBLE)
    with rounding(torch.bfloat16):
        zero = zero * 2
        found = zero + tensor(3)
    assert found.shape == (3,)


def test_a_backward_is_rounded_as_well():
    x = tensor(100).requires_grad_()
    with rounding(torch.bfloat16):
        (gradient,) = torch.autograd.grad((x.sin() / 3).sum(), x)
    assert in_format(gradient, torch.bfloat16)
    torch.testing.assert_close(gradient, x.cos() / 3, rtol=0.05, atol=0.01)


def test_a_matrix_is_factorised_as_if_it_were_off_by_rounding():
    """A factorisation is one operation, yet rounds many times inside."""
    a = tensor(8, 8)
    a = a @ a.T + torch.eye(8, dtype=DOUBLE)
    exact = torch.linalg.inv(a)
    found = []
    for seed in range(8):
        with rounding(torch.bfloat16, seed):
            found.append(torch.linalg.inv(a))
    gap = (torch.stack(found) - exact).abs().mean()
    unit, _ = FORMATS[torch.bfloat16]
    condition = float(torch.linalg.cond(a))
    assert unit * float(exact.abs().mean()) < float(gap)
    assert float(gap) < 10 * unit * condition * float(exact.abs().max())


# What must not be touched.


def test_the_global_random_state_is_left_alone():
    before = torch.random.get_rng_state()
    with rounding(torch.bfloat16):
        torch.linalg.inv(tensor(3, 3) * 2)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_function_draws_the_same_random_numbers_under_it():
    def drawn():
        torch.manual_seed(4)
        return torch.rand(50, dtype=DOUBLE)

    state = torch.random.get_rng_state()
    plain = drawn()
    with rounding(torch.bfloat16):
        found = drawn()
    torch.random.set_rng_state(state)
    torch.testing.assert_close(found, plain, rtol=2.0**-7, atol=0)


def test_the_arguments_of_an_operation_keep_their_values():
    x, y, a = tensor(20), tensor(20, seed=1), tensor(3, 3)
    kept = [each.clone() for each in (x, y, a)]
    with rounding(torch.bfloat16):
        (x * y).sum()
        torch.linalg.det(a)
        torch.cat([x, y]).sort()
    assert all(map(torch.equal, (x, y, a), kept))


def test_after_it_nothing_is_rounded():
    x = tensor(20)
    plain = x / 3
    with rounding(torch.bfloat16):
        x / 3
    assert torch.equal(x / 3, plain)


# What is rounded inside.


@every_format
def test_a_quotient_is_rounded_before_it_is_cut_to_a_whole_number(dtype):
    unit, _ = FORMATS[dtype]
    below = torch.full((400,), 3.0 * (1 - unit / 2), dtype=DOUBLE)
    far = torch.full((400,), 3.4, dtype=DOUBLE)
    for mode, x, whole in (("trunc", below, 2.0), ("floor", below, 2.0), ("trunc", -below, -2.0)):
        with rounding(dtype, given=(x, far)):
            found = torch.div(x, 1.0, rounding_mode=mode)
            other = torch.div(far, torch.ones_like(far), rounding_mode=mode)
        assert set(found.tolist()) == {whole, 1.5 * whole}
        assert set(other.tolist()) == {3.0}


@pytest.mark.parametrize("kind", [DOUBLE, COMPLEX], ids=str)
@pytest.mark.parametrize("terms", [1, 64])
def test_every_partial_sum_of_entries_added_one_by_one_is_rounded(terms, kind):
    unit, _ = FORMATS[torch.bfloat16]
    index = torch.arange(500).repeat(terms)
    values = tensor(500 * terms, dtype=kind)
    with rounding(torch.bfloat16):
        values = values * 1
        found = torch.zeros(500, dtype=kind).index_add(0, index, values)
    sums, sizes = (each.reshape(terms, 500).sum(0) for each in (values, values.abs()))
    error = ((found - sums).abs() / sizes).square().mean().sqrt() / unit
    assert (0.4 < float(error) < 1.2) if terms > 1 else torch.equal(found, values)


def test_the_mean_of_many_numbers_is_asked_no_oftener_than_that_of_few():
    few, many = (
        gradproof.check(torch.mean, (tensor(size).float().requires_grad_(),), seed=0)
        for size in (1000, 100_000)
    )
    assert few.verdict is many.verdict is Verdict.PASSED
    assert many.calls["function"] + many.calls["vjp"] <= 220
    assert many.calls["function"] <= few.calls["function"]
    assert many.calls["vjp"] <= few.calls["vjp"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("fn", "dtype"), [(torch.softmax, torch.bfloat16), (torch.log_softmax, torch.float16)]
)
def test_of_many_rows_in_16_bits_both_modes_are_linear(fn, dtype, seed):
    """Rows that cancel are off by what honest runs are; a part that overflows is no evidence."""
    generator = torch.Generator().manual_seed(seed)
    inputs = [
        torch.randn(shape, dtype=dtype, generator=generator).requires_grad_()
        for shape in ((512, 512), (512,), (512,))
    ]
    checks = ["backward", "forward", "linearity"]
    report = gradproof.check(
        lambda x, w, b: fn(x * w + b, -1), tuple(inputs), seed=seed, checks=checks
    )
    assert report["linearity"].verdict is Verdict.PASSED, str(report["linearity"])


def test_what_cancels_inside_a_pointwise_backward_is_rounded_in_single_precision_only() -> None:
    x, g = torch.full((200,), -5.2, dtype=torch.float64), torch.ones(200, dtype=torch.float64)
    exact = torch.ops.aten.gelu_backward(g, x, approximate="tanh")
    for unit, inside in ((2.0**-24, True), (2.0**-8, False)):
        with Rounding(unit, 1e-40, 1):
            rounded = torch.ops.aten.gelu_backward(g, x, approximate="tanh")
        error = (rounded - exact).abs().max()
        assert bool(error > exact.abs().max() / 10) is inside
        assert error < 100 * unit


# Random numbers of another precision.

DISTRIBUTIONS = {
    "rand": lambda x: torch.rand(x.shape, dtype=x.dtype),
    "randn": lambda x: torch.randn(x.shape, dtype=x.dtype),
    "rand_like": torch.rand_like,
    "randn_like": torch.randn_like,
    "of a mean": lambda x: torch.normal(x.detach(), 1.0),
    "of probabilities": lambda x: torch.bernoulli(x.detach().sigmoid()),
    "counts": lambda x: torch.poisson(x.detach().exp()),
    "written": lambda x: torch.empty_like(x).exponential_(),
    "of a distribution": lambda x: torch.distributions.Normal(x, x.exp()).rsample() - x,
    "of Gumbel": lambda x: torch.nn.functional.gumbel_softmax(x, tau=2.0),
    "a mask": lambda x: torch.nn.functional.dropout(x, 0.4),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_run_in_double_precision_draws_what_the_function_draws(name, dtype):
    x = tensor(40).to(dtype).requires_grad_()
    map_ = torch_adapter.build(lambda x: DISTRIBUTIONS[name](x) * x, (x,))
    twin = map_.map_in_double()
    beside = twin.map_at(twin.point)
    for found in (twin, beside, twin.rounded_map(2.0**-24, 2.0**-149, 0)):
        np.testing.assert_allclose(
            found.value(twin.point), map_.value(map_.point), rtol=0.03, atol=0.02
        )
    assert twin.value(twin.point).dtype == np.float64


def test_other_random_numbers_are_left_as_they_are():
    with torch_adapter.InDouble(torch.bfloat16).forward:
        torch.manual_seed(0)
        found = torch.randn(3), torch.rand(2, dtype=torch.float16), torch.randperm(4)
    torch.manual_seed(0)
    assert torch.equal(found[0], torch.randn(3))
    assert torch.equal(found[1], torch.rand(2, dtype=torch.float16))
    assert torch.equal(found[2], torch.randperm(4))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("factor", [1.0, 1.1])
def test_a_function_that_draws_in_few_bits_is_held_against_the_same_draws(dtype, factor):
    """The right one was accused: in float64 the function drew other numbers."""

    def noisy(x):
        return (x.tanh() + 0.5 * torch.randn_like(x)).square().mean()

    x = tensor(32, 16).to(dtype).requires_grad_()
    fn = noisy if factor == 1 else lambda x: noisy(Larger.apply(x, factor))
    report = gradproof.check(fn, (x,), checks=["backward"], seed=0)
    assert report.verdict is (Verdict.PASSED if factor == 1 else Verdict.FAILED)


def test_what_a_backward_draws_is_the_same_too():
    from torch.utils.checkpoint import checkpoint

    def noisy(x):
        return (x + torch.randn_like(x)).tanh() * torch.rand_like(x)

    map_ = torch_adapter.build(
        lambda x: checkpoint(noisy, x, use_reentrant=False), (tensor(40).float().requires_grad_(),)
    )
    twin, v = map_.map_in_double(), np.ones(40)
    np.testing.assert_allclose(twin.vjp(v), map_.vjp(v), rtol=1e-4, atol=1e-6)
    v /= 3
    rounded = twin.rounded_map(2.0**-24, 2.0**-149, 0)
    np.testing.assert_allclose(rounded.vjp(v), map_.vjp(v), rtol=1e-4, atol=1e-6)


class Larger(torch.autograd.Function):
    """Below double precision the gradient is too large."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor if x.dtype is not DOUBLE else 1.0
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return ctx.factor * g, None


# Arrays in few bits that a function holds.

HELD = tensor(5, 5, seed=3).to(torch.bfloat16)
HOLDING = {
    "a product": lambda x: x @ HELD,
    "a linear layer": lambda x: torch.nn.functional.linear(x, weight=HELD),
    "several": lambda x: torch.einsum("ij,jk,kl->il", x, HELD, HELD),
    "a list": lambda x: torch.linalg.multi_dot([x, HELD, x]),
    "a buffer that is written": lambda x: written(x) @ HELD,
}


def written(x):
    buffer = torch.zeros(5, 5, dtype=x.dtype)
    buffer[:, :2] = x[:, :2] * HELD[:, :2]
    return buffer.copy_(buffer + x)


@pytest.mark.parametrize("name", HOLDING)
def test_arrays_in_few_bits_that_a_function_holds_are_widened_where_they_meet_doubles(name):
    fn, kept = HOLDING[name], HELD.clone()
    map_ = torch_adapter.build(fn, (tensor(5, 5).to(torch.bfloat16).requires_grad_(),))
    twin, v = map_.map_in_double(), np.linspace(-1, 1, 25)
    wide = torch_adapter.build(
        lambda x: eval_with(fn, HELD.double(), x),
        (tensor(5, 5).to(torch.bfloat16).double().requires_grad_(),),
    )
    np.testing.assert_allclose(twin.value(twin.point), wide.value(wide.point), rtol=1e-14)
    np.testing.assert_allclose(twin.vjp(v), wide.vjp(v), rtol=1e-14)
    np.testing.assert_allclose(twin.jvp(v), wide.jvp(v), rtol=1e-14)
    assert torch.equal(HELD, kept)
    assert HELD.dtype is torch.bfloat16


def eval_with(fn, held, x):
    """The function where HELD is another array."""
    names = {**fn.__globals__, "HELD": held}
    names["written"] = type(written)(written.__code__, names)
    return type(fn)(fn.__code__, names)(x)


def test_a_function_that_needs_nothing_runs_as_it_is_in_double_precision():
    plain = torch_adapter.build(torch.sin, (tensor(3).float().requires_grad_(),)).map_in_double()
    holding = torch_adapter.build(
        HOLDING["a product"], (tensor(5, 5).to(torch.bfloat16).requires_grad_(),)
    ).map_in_double()
    assert plain.call.in_double is None
    assert holding.call.in_double is not None
