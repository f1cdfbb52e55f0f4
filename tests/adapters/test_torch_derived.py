"""Maps made of a map: elsewhere, in double precision, rounded, differentiated."""

from __future__ import annotations

import functools

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from gradproof._maps.contract import Unsupported  # noqa: E402
from gradproof.torch._adapter import build  # noqa: E402

SINGLE, DOUBLE, BRAIN = torch.float32, torch.float64, torch.bfloat16
LOW = (torch.float32, torch.bfloat16, torch.float16)
UNIT, TINY = 2.0**-8, 2.0**-133  # bfloat16
every_low = pytest.mark.parametrize("dtype", LOW, ids=lambda dtype: str(dtype)[6:])


def tensor(*shape, dtype=SINGLE, seed=0, grad=True):
    generator = torch.Generator().manual_seed(seed)
    made = torch.randn(
        shape, generator=generator, dtype=torch.complex128 if dtype.is_complex else DOUBLE
    )
    return made.to(dtype).requires_grad_(grad)


def in_format(vector, dtype=BRAIN):
    values = torch.from_numpy(vector)
    return torch.equal(values, values.to(dtype).to(DOUBLE))


class Seen:
    """A function that remembers what it was called with."""

    def __init__(self, fn):
        self.fn, self.arguments = fn, []

    def __call__(self, *arguments, **options):
        self.arguments.append((arguments, options))
        return self.fn(*arguments, **options)

    @property
    def last(self):
        return self.arguments[-1][0]


# In double precision.


@every_low
def test_the_inputs_are_upcast_exactly(dtype):
    x, k = tensor(4, 3, dtype=dtype), tensor(3, dtype=dtype, seed=1, grad=False)
    seen = Seen(lambda x, k: (x * k).sin())
    target = build(seen, (x, k))
    found = target.map_in_double()
    assert np.array_equal(found.point, target.point)
    assert [each.dtype for each in seen.last] == [DOUBLE, DOUBLE]
    assert all(
        torch.equal(now, given.detach().to(DOUBLE))
        for now, given in zip(seen.last, (x, k), strict=True)
    )
    assert found.resolution == 2.0**-53
    assert [slot.name for slot in found.domain.slots] == [s.name for s in target.domain.slots]
    expected = (x.detach().double() * k.double()).sin().numpy().ravel()
    np.testing.assert_array_equal(found.value(found.point), expected)
    assert np.abs(found.value(found.point) - target.value(target.point)).max() > 0


def test_complex_inputs_become_complex_double():
    seen = Seen(lambda z: z * z.conj())
    z = tensor(3, dtype=torch.complex64)
    target = build(seen, (z,))
    found = target.map_in_double()
    assert seen.last[0].dtype is torch.complex128
    assert np.array_equal(found.point, target.point)


def test_integers_booleans_and_other_values_stay():
    index, mask = torch.tensor([2, 0]), torch.tensor([True, False])
    seen = Seen(lambda x, index, mask, factor, name: factor * x[index] * mask)
    build(seen, (tensor(3), index, mask, 2.5, "name")).map_in_double()
    _, index_now, mask_now, *others = seen.last
    assert index_now.dtype is torch.int64
    assert mask_now.dtype is torch.bool
    assert others == [2.5, "name"]


def test_arguments_in_containers_and_by_name_are_converted():
    seen = Seen(lambda params, *, scale: params["w"].exp() * scale)
    build(seen, ({"w": tensor(3)},), {"scale": tensor(3, seed=1, grad=False)}).map_in_double()
    (params,), options = seen.arguments[-1]
    assert params["w"].dtype is options["scale"].dtype is DOUBLE


def test_a_dtype_among_the_arguments_is_converted():
    seen = Seen(lambda x, dtype, *, out: x.to(dtype).sin().to(out))
    build(seen, (tensor(3), BRAIN), {"out": SINGLE}).map_in_double()
    (_, dtype), options = seen.arguments[-1]
    assert dtype is DOUBLE
    assert options == {"out": DOUBLE}


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool])
def test_a_dtype_without_precision_stays(dtype):
    seen = Seen(lambda x, dtype: x * torch.ones(3).to(dtype))
    build(seen, (tensor(3), dtype)).map_in_double()
    assert seen.last[1] is dtype


@pytest.mark.parametrize(
    "make",
    [
        lambda: tensor(3, 2, grad=False).t(),
        lambda: tensor(2, 3, 4, 5, grad=False).to(memory_format=torch.channels_last),
        lambda: tensor(4, 6, grad=False)[1:3, ::2],
        lambda: tensor(5, grad=False)[2:],
        lambda: tensor(5, grad=False)[2],
    ],
    ids=["transposed", "channels last", "gaps", "offset", "scalar"],
)
def test_strides_are_kept(make):
    given = make().requires_grad_()
    seen = Seen(lambda x: x * x)
    build(seen, (given,)).map_in_double()
    assert seen.last[0].dtype is DOUBLE
    assert seen.last[0].stride() == given.stride()


def test_strides_of_other_arguments_are_kept():
    given = (tensor(4, 6, grad=False)[:, ::2], tensor(1, grad=False).expand(4, 3))
    seen = Seen(lambda x, k, c: x * k * c)
    build(seen, (tensor(4, 3), *given)).map_in_double()
    for now, then in zip(seen.last[1:], given, strict=True):
        assert now.stride() == then.stride()
        assert torch.equal(now, then.double())


def network(dtype=SINGLE):
    torch_state = torch.random.get_rng_state()
    torch.manual_seed(0)
    made = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Tanh())
    torch.random.set_rng_state(torch_state)
    return made.to(dtype).eval()


def exactly(module, x):
    """The module's value in double precision on its own numbers."""
    import copy

    return copy.deepcopy(module).double()(x.detach().double()).detach().numpy().ravel()


@pytest.mark.parametrize(
    "wrap",
    [
        lambda module: module,
        lambda module: module.forward,
        lambda module: functools.partial(module),
        lambda module: functools.partial(module.forward),
        lambda module: functools.partial(functools.partial(module.forward)),
    ],
    ids=["module", "method", "partial", "partial method", "partial of partial"],
)
def test_the_parameters_of_a_module_are_upcast_and_its_own_left_alone(wrap):
    module, x = network(), tensor(5, 3)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    target = build(wrap(module), (x,))
    found = target.map_in_double()
    np.testing.assert_allclose(found.value(found.point), exactly(module, x), rtol=1e-15)
    assert all(parameter.dtype is SINGLE for parameter in module.parameters())
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_tensors_bound_by_a_partial_are_upcast():
    weight = tensor(3, seed=1, grad=False)
    seen = Seen(lambda weight, x, *, bias: weight * x + bias)
    fn = functools.partial(seen, weight, bias=weight)
    found = build(fn, (tensor(3),)).map_in_double()
    (first, _), options = seen.arguments[-1]
    assert first.dtype is options["bias"].dtype is DOUBLE
    assert found.codomain.size == 3
    assert weight.dtype is SINGLE


def test_another_function_runs_on_the_same_numbers():
    x = tensor(4, dtype=BRAIN)
    target = build(torch.sin, (x,))
    found = target.map_in_double(torch.cos)
    np.testing.assert_array_equal(found.value(found.point), np.cos(x.detach().double().numpy()))


# What cannot be had.


def raising(x):
    if x.dtype is DOUBLE:
        raise TypeError("only in float32\nand here is a long story")
    return x.sin()


def of_another_shape(x):
    return x.sin() if x.dtype is not DOUBLE else x[1:].sin()


def without_a_tensor(x):
    return x.sin() if x.dtype is not DOUBLE else None


@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (raising, "in double precision it raised TypeError: only in float32"),
        (of_another_shape, "of_another_shape returns outputs of another shape"),
        (without_a_tensor, "without_a_tensor returned NoneType without any tensor"),
    ],
)
def test_what_goes_wrong_in_double_precision_is_told_in_one_line(fn, says):
    target = build(fn, (tensor(3),))
    with pytest.raises(Unsupported, match=says) as caught:
        target.map_in_double()
    assert "\n" not in caught.value.reason
    np.testing.assert_allclose(target.vjp(np.ones(3)), np.cos(target.point), rtol=1e-6)


# At another point.


def test_at_another_point_value_and_derivative_are_those_of_that_point():
    x, k = tensor(4, dtype=DOUBLE), 3
    target = build(lambda x, k: (x**k).sum(0, keepdim=True), (x, k))
    there = target.map_at(target.point + 1)
    assert np.array_equal(there.point, target.point + 1)
    np.testing.assert_allclose(there.vjp(np.ones(1)), 3 * (target.point + 1) ** 2)
    np.testing.assert_allclose(target.vjp(np.ones(1)), 3 * target.point**2)
    assert np.array_equal(x.detach().numpy(), target.point)


def test_a_point_changed_afterwards_does_not_move_the_map():
    target = build(torch.sin, (tensor(3, dtype=DOUBLE),))
    x = target.point + 1
    there = target.map_at(x)
    x[:] = 0
    np.testing.assert_allclose(there.vjp(np.ones(3)), np.cos(target.point + 1))


# Rounded.


def test_every_operation_is_rounded_forth_and_back():
    x = tensor(50, dtype=DOUBLE).detach().to(BRAIN).to(DOUBLE).requires_grad_()
    target = build(lambda x: x.sin() * x / 3, (x,))
    found = target.rounded_map(UNIT, TINY, 0)
    ones = np.ones(50)
    assert in_format(found.value(found.point))
    assert in_format(found.vjp(ones))
    np.testing.assert_allclose(found.vjp(ones), target.vjp(ones), atol=0.05)
    assert not in_format(target.vjp(ones))


def test_other_seeds_round_otherwise():
    target = build(lambda x: x.sin() / 3, (tensor(50, dtype=DOUBLE),))
    first, again, other = (target.rounded_map(UNIT, TINY, seed) for seed in (1, 1, 2))
    ones = np.ones(50)
    assert np.array_equal(first.vjp(ones), again.vjp(ones))
    assert not np.array_equal(first.vjp(ones), other.vjp(ones))


def test_forward_mode_of_a_rounded_map_is_that_of_the_map_but_for_rounding():
    target = build(lambda x: x.sin() / 3, (tensor(50, dtype=DOUBLE),))
    u = np.linspace(-1, 1, 50)
    found = target.rounded_map(UNIT, TINY, 0).jvp(u)
    np.testing.assert_allclose(found, target.jvp(u), atol=0.02)
    assert not np.array_equal(found, target.jvp(u))


# Common to all.

SIBLINGS = {
    "map_at": lambda target: target.map_at(target.point),
    "map_in_double": lambda target: target.map_in_double(),
    "rounded_map": lambda target: target.rounded_map(UNIT, TINY, 0),
}
every_sibling = pytest.mark.parametrize("kind", SIBLINGS)


@every_sibling
def test_calls_are_counted_together(kind):
    target = build(torch.sin, (tensor(3, dtype=DOUBLE),))
    found = SIBLINGS[kind](target)
    before = target.counts["function"], target.counts["vjp"]
    found.value(found.point)
    found.vjp(np.ones(3))
    assert (target.counts["function"], target.counts["vjp"]) == (before[0] + 1, before[1] + 1)


@every_sibling
def test_making_a_sibling_counts_as_a_call(kind):
    target = build(torch.sin, (tensor(3, dtype=DOUBLE),))
    before = target.counts["function"]
    SIBLINGS[kind](target)
    assert target.counts["function"] == before + 1


@every_sibling
@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE], ids=["float32", "float64"])
def test_dropout_drops_the_same_entries(kind, dtype):
    def fn(x):
        return torch.nn.functional.dropout(x, 0.5, training=True)

    target = build(fn, (torch.ones(64, dtype=dtype).requires_grad_(),))
    dropped = target.value(target.point) == 0
    assert 10 < dropped.sum() < 54
    found = SIBLINGS[kind](target)
    for each in (found, target, found):
        assert np.array_equal(each.value(each.point) == 0, dropped)
        assert np.array_equal(each.vjp(np.ones(64)) == 0, dropped)


@every_sibling
def test_the_global_random_state_is_left_alone(kind):
    before = torch.random.get_rng_state()
    target = build(lambda x: x * torch.rand(3), (tensor(3, dtype=DOUBLE),))
    found = SIBLINGS[kind](target)
    found.value(found.point)
    found.close()
    target.close()
    assert torch.equal(torch.random.get_rng_state(), before)


@every_sibling
def test_the_inputs_of_the_user_are_left_alone(kind):
    x, k = tensor(3, dtype=DOUBLE), tensor(3, dtype=DOUBLE, seed=1, grad=False)
    kept = x.detach().clone(), k.clone()
    found = SIBLINGS[kind](build(lambda x, k: k.mul_(2) * x, (x, k)))
    found.value(found.point)
    found.vjp(np.ones(3))
    assert torch.equal(x, kept[0])
    assert torch.equal(k, kept[1])
    assert x.grad is None


@every_sibling
def test_a_sparse_input_keeps_its_entries(kind):
    x = torch.eye(3, dtype=DOUBLE).to_sparse().requires_grad_()
    target = build(lambda x: x.to_dense() * 2, (x,), masked=True)
    found = SIBLINGS[kind](target)
    assert found.domain.size == target.domain.size == 3
    assert np.array_equal(found.value(found.point), target.value(target.point))


def test_the_derivative_of_the_map_in_double_precision_is_exact():
    target = build(lambda x: (x**3).sum(0, keepdim=True), (tensor(3, dtype=BRAIN),))
    found = target.map_in_double().derivative(np.array([2.0]))
    assert [slot.name for slot in found.domain.slots] == ["x", "cotangent of output 0"]
    assert found.resolution == 2.0**-53
    np.testing.assert_allclose(found.value(found.point), 6 * target.point**2, rtol=1e-15)
    np.testing.assert_allclose(
        found.vjp(np.ones(3)), [*(12 * target.point), np.sum(3 * target.point**2)], rtol=1e-14
    )
