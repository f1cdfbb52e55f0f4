"""Rounding at random in PyTorch: to a neighbour in the coarse arithmetic, without bias."""

from __future__ import annotations

import math

import pytest
import torch

from gradproof.torch._rounding import Rounding

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


# To which number ---------------------------------------------------------------------------------


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
def test_numbers_of_the_format_and_what_is_not_finite_stay(dtype):
    values = tensor(1000).to(dtype).to(DOUBLE)
    ends = torch.tensor([0.0, -0.0, 255.0, math.inf, -math.inf, math.nan], dtype=DOUBLE)
    for x in (values, ends, torch.arange(-128, 129, dtype=DOUBLE)):
        for seed in range(5):
            with rounding(dtype, seed):
                found = x * 1
            torch.testing.assert_close(found, x, rtol=0, atol=0, equal_nan=True)


@every_format
def test_below_the_smallest_normal_number_the_spacing_is_the_smallest_number(dtype):
    unit, normal = FORMATS[dtype]
    tiny = 2 * unit * normal
    x = normal * torch.rand(200, dtype=DOUBLE, generator=torch.Generator().manual_seed(0))
    with rounding(dtype):
        found = x * 1
    assert torch.equal(torch.round(found / tiny), found / tiny)
    assert bool(((found - x).abs() < tiny).all())


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


def test_draws_of_one_seed_are_repeated_and_those_of_another_are_not():
    x, y = tensor(100), tensor(100, seed=1)
    found = []
    for seed in (1, 1, 2):
        with rounding(torch.bfloat16, seed):
            found.append((x * y, x * y))
    assert all(map(torch.equal, found[0], found[1]))
    assert not torch.equal(found[0][0], found[2][0])
    assert not torch.equal(*found[0])


@every_format
def test_what_is_selected_is_not_rounded_so_that_ties_stay_ties(dtype):
    x = tensor(50).to(dtype).to(DOUBLE).repeat(2)
    with rounding(dtype):
        assert torch.equal(x.max(), x.sort().values[-1])
        assert torch.equal(x[:50].clone(), x[50:].clone())
        assert torch.equal(torch.relu(x), x.clamp(min=0))


# Which results -----------------------------------------------------------------------------------


def test_results_in_place_in_out_and_in_a_view_are_rounded_where_they_were_written():
    x, y, out = tensor(4, 6), tensor(4, 6, seed=1), torch.empty(4, 6, dtype=DOUBLE)
    kept = x.clone()
    with rounding(torch.bfloat16):
        views = (x.t(), x[1:], x.view(24), x.expand(2, 4, 6), *x.split(2))
        assert torch.equal(x, kept)
        assert all(view.untyped_storage() is not None for view in views)
        torch.mul(x, y, out=out)
        x[:2].mul_(1 / 3)
    assert in_format(out, torch.bfloat16)
    assert in_format(x[:2], torch.bfloat16)
    assert torch.equal(x[2:], kept[2:])


def test_every_result_of_several_and_both_parts_of_a_complex_one_are_rounded():
    z, w = tensor(100, dtype=COMPLEX), tensor(100, dtype=COMPLEX, seed=1)
    with rounding(torch.bfloat16):
        results = [*torch.var_mean(tensor(5, 7), dim=1), torch.view_as_real(z * w)]
    assert all(in_format(each, torch.bfloat16) for each in results)


def test_results_of_another_precision_or_layout_are_left_alone():
    single, sparse = tensor(50).float(), tensor(4, 4).relu().to_sparse()
    with rounding(torch.float16):
        square, third = single * single, sparse * (1 / 3)
        assert (torch.empty(0, 3, dtype=DOUBLE) * 2).shape == (0, 3)
    assert torch.equal(square, single * single)
    torch.testing.assert_close(third.to_dense(), sparse.to_dense() / 3, rtol=1e-15, atol=0)


def test_a_backward_is_rounded_as_well():
    x = tensor(100).requires_grad_()
    with rounding(torch.bfloat16):
        (gradient,) = torch.autograd.grad((x.sin() / 3).sum(), x)
    assert in_format(gradient, torch.bfloat16)
    torch.testing.assert_close(gradient, x.cos() / 3, rtol=0.05, atol=0.01)


# What is rounded inside of one operation ---------------------------------------------------------


def test_a_matrix_is_factorised_as_if_it_were_off_by_rounding():
    a = tensor(8, 8)
    a = a @ a.T + torch.eye(8, dtype=DOUBLE)
    exact, found = torch.linalg.inv(a), []
    for seed in range(8):
        with rounding(torch.bfloat16, seed):
            found.append(torch.linalg.inv(a))
    gap = float((torch.stack(found) - exact).abs().mean())
    unit, _ = FORMATS[torch.bfloat16]
    assert unit * float(exact.abs().mean()) < gap
    assert gap < 10 * unit * float(torch.linalg.cond(a)) * float(exact.abs().max())


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


# What must not be touched ------------------------------------------------------------------------


def test_arguments_and_the_random_state_are_left_alone_and_afterwards_nothing_is_rounded():
    x, a = tensor(20), tensor(3, 3)
    kept, state, third = [x.clone(), a.clone()], torch.random.get_rng_state(), x / 3
    with rounding(torch.bfloat16):
        (x * x).sum()
        torch.linalg.det(a)
        torch.cat([x, x]).sort()
    assert all(map(torch.equal, (x, a), kept))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(x / 3, third)
