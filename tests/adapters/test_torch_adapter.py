"""TorchMap against central differences, and against what it must never touch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import gradproof  # noqa: E402
from gradproof._maps.contract import Unsupported  # noqa: E402
from gradproof.errors import UsageError  # noqa: E402
from gradproof.torch._adapter import build  # noqa: E402

DOUBLE, COMPLEX = torch.float64, torch.complex128


def tensor(*shape, dtype=DOUBLE, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(shape, dtype=dtype, generator=generator).add_(0.5).requires_grad_()


def differences(target, step=1e-6):
    columns = []
    for axis in np.eye(target.domain.size):
        up, down = (
            target.value(target.point + step * axis),
            target.value(target.point - step * axis),
        )
        columns.append((up - down) / (2 * step))
    return np.stack(columns, axis=1)


def backward(target):
    return np.stack([target.vjp(axis) for axis in np.eye(target.codomain.size)])


def probes(target, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=target.domain.size), rng.normal(size=target.codomain.size)


def assert_modes_agree(target):
    jacobian = differences(target)
    u, v = probes(target)
    close = {"rtol": 1e-6, "atol": 1e-7}
    np.testing.assert_allclose(backward(target), jacobian, **close)
    np.testing.assert_allclose(target.jvp(u), jacobian @ u, **close)
    image, pulled = target.transposed_vjp(u, v)
    np.testing.assert_allclose(image, jacobian @ u, **close)
    np.testing.assert_allclose(image, target.jvp(u), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(pulled, v @ jacobian, **close)
    vs = np.stack([v, -2 * v])
    for batching in target.batchings():
        np.testing.assert_allclose(target.vjp_batch(vs, batching), vs @ jacobian, **close)


class Square(torch.autograd.Function):
    seen = None

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        Square.seen = gradient.shape, gradient.stride(), gradient.storage_offset()
        (x,) = ctx.saved_tensors
        return 2 * x * gradient


class SquareOnce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 2 * x * gradient


# Derivatives.


@pytest.mark.parametrize(
    ("fn", "shape", "dtype"),
    [
        (torch.tanh, (3, 2), DOUBLE),
        (lambda x: x.sum() ** 2, (3,), DOUBLE),
        (lambda x: x * x, (), DOUBLE),
        (lambda x: (x @ x.T, x.sum(0)), (2, 3), DOUBLE),
        (lambda z: z * z, (2, 2), COMPLEX),
        (lambda z: z * z.conj() + z, (2, 2), COMPLEX),
        (lambda z: z.conj() * 2j, (3,), COMPLEX),
        (lambda z: z.abs(), (3,), COMPLEX),
        (lambda z: z.imag**2, (3,), COMPLEX),
        (lambda x: torch.complex(x, x * x), (3,), DOUBLE),
        (lambda z: (z.real, z.exp()), (2,), COMPLEX),
    ],
)
def test_every_mode_is_the_measured_derivative_in_real_coordinates(fn, shape, dtype):
    assert_modes_agree(build(fn, (tensor(*shape, dtype=dtype),)))


def test_several_inputs_and_a_fixed_one():
    assert_modes_agree(
        build(lambda x, k, y: (x @ y * k, y.sin()), (tensor(2, 3), 2, tensor(3, 2, seed=1)))
    )


def test_forward_mode_in_batches():
    target = build(lambda x, y: (x @ y, x.sum()), (tensor(2, 3), tensor(3, 2, seed=1)))
    us = np.random.default_rng(0).normal(size=(4, target.domain.size))
    np.testing.assert_allclose(
        target.jvp_batch(us), us @ differences(target).T, rtol=1e-6, atol=1e-7
    )


def test_second_derivatives_are_a_map_of_their_own():
    target = build(lambda x, y: (x.sin() @ y, y**3), (tensor(2, 2), tensor(2, 2, seed=1)))
    _, v = probes(target)
    second = target.derivative(v)
    names = [slot.name for slot in second.domain.slots]
    assert names == ["x", "y", "cotangent of output 0", "cotangent of output 1"]
    np.testing.assert_allclose(second.value(second.point), target.vjp(v), rtol=1e-12)
    assert_modes_agree(second)


def test_second_derivatives_of_complex_functions():
    target = build(lambda z: z * z.abs(), (tensor(2, dtype=COMPLEX),))
    assert_modes_agree(target.derivative(probes(target)[1]))


def test_no_second_order_where_the_backward_is_once_differentiable():
    target = build(SquareOnce.apply, (tensor(3),))
    u, v = probes(target)
    np.testing.assert_allclose(backward(target), differences(target), atol=1e-8)
    with pytest.raises(Unsupported, match="once_differentiable"):
        target.derivative(v)
    with pytest.raises(Unsupported, match="not differentiable in its cotangent"):
        target.transposed_vjp(u, v)


def test_a_backward_cut_off_in_part_shows_in_the_transposed_vjp_as_another_jacobian():
    class Cut(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            return x * 2 + y * 3

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 2, gradient.detach() * 3

    target = build(Cut.apply, (tensor(3), tensor(3, seed=1)))
    u, v = probes(target)
    image, pulled = target.transposed_vjp(u, v)
    np.testing.assert_array_equal(pulled, target.vjp(v))
    assert abs(image @ v - pulled @ u) > 1e-3


def test_no_forward_mode_is_unsupported_and_other_errors_propagate():
    u = np.ones(3)
    with pytest.raises(Unsupported, match="jvp"):
        build(Square.apply, (tensor(3),)).jvp(u)

    def fragile(x):
        if torch.autograd.forward_ad.unpack_dual(x).tangent is not None:
            raise RuntimeError("the user's own")
        return x * 2

    with pytest.raises(RuntimeError, match="the user's own"):
        build(fragile, (tensor(3),)).jvp(u)


def test_a_function_that_differentiates_inside_has_a_forward_mode():
    def slope(x):
        return torch.autograd.grad((x**3).sum(), x, create_graph=True)[0]

    target = build(slope, (tensor(3),))
    assert_modes_agree(target)


def test_undefined_cotangents_and_tangents():
    seen = []

    class Pair(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, one, other):
            seen.append((one is None, other is None))
            total = None
            for factor, gradient in ((2, one), (3, other)):
                if gradient is not None:
                    total = factor * gradient if total is None else total + factor * gradient
            return total

    target = build(Pair.apply, (tensor(2),))
    v = np.array([1.0, 2, 3, 4])
    calls = target.counts["function"]
    np.testing.assert_array_equal(target.vjp_undefined(v, frozenset({0})), [9, 12])
    assert seen[-1] == (True, False)
    np.testing.assert_array_equal(target.vjp_undefined(v, frozenset({0, 1})), [0, 0])
    np.testing.assert_array_equal(target.vjp(v), [11, 16])
    assert target.counts["function"] == calls

    product = build(lambda x, y: x * y, (tensor(2), tensor(2, seed=1)))
    u = np.array([1.0, 2, 3, 4])
    only_y = np.array([0.0, 0, 3, 4])
    np.testing.assert_allclose(product.jvp_undefined(u, frozenset({0})), product.jvp(only_y))


# Memory layout.


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.rand(3, 2, dtype=DOUBLE).t(),
        lambda: torch.rand(4, 6, dtype=DOUBLE)[1:3, ::2],
        lambda: torch.rand(2, 3, 4, 5, dtype=DOUBLE).to(memory_format=torch.channels_last),
        lambda: torch.rand(7, dtype=COMPLEX)[2:5],
        lambda: torch.rand(3, 4)[:, 1:],
        lambda: torch.rand(5, dtype=DOUBLE)[2],
        lambda: torch.rand(3, 0, 2, dtype=DOUBLE),
    ],
)
def test_the_function_sees_the_users_strides_and_offset_in_every_mode(make):
    given = make().detach().requires_grad_()
    expected = given.shape, given.stride(), given.storage_offset(), given.dtype
    seen = []

    def fn(x):
        seen.append((x.shape, x.stride(), x.storage_offset(), x.dtype))
        return x * x

    target = build(fn, (given,))
    target.value(target.point)
    target.side_effects(np.ones(target.codomain.size))
    target.jvp(np.ones(target.domain.size))
    assert len(seen) == target.counts["function"] == 4
    assert all(one == expected for one in seen)


def layout_seen(layout, shape=(2, 3), dtype=DOUBLE, v=None):
    """Strides, offset and bits with which the backward of a map gets its cotangent."""
    target = build(Square.apply, (tensor(*shape, dtype=dtype),))
    if v is None:
        v = np.arange(1.0, 1 + target.codomain.size)
        v = np.full_like(v, 2.0) if "exp" in layout else v
    result, seen = target.vjp_layout(v, layout), Square.seen
    np.testing.assert_allclose(result, target.vjp(v))
    return seen[1:]


def test_stride_0_is_along_the_dimensions_of_equal_entries():
    rows = np.array([[1.0, 2.0, 3.0]] * 2)
    assert layout_seen("expanded", v=rows.reshape(-1))[:2] == ((0, 1), 0)
    assert layout_seen("expanded", (3, 2), v=rows.T.reshape(-1))[:2] == ((1, 0), 0)
    assert layout_seen("expanded", (3, 1, 2), v=rows.T.reshape(-1))[:2] == ((1, 0, 0), 0)


@pytest.mark.parametrize(
    ("layout", "shape", "seen"),
    [
        ("transposed", (2, 3), ((1, 2), 0)),
        ("gaps", (2, 3), ((6, 2), 0)),
        ("sliced", (2, 3), ((6, 1), 0)),
        ("offset", (2, 3), ((3, 1), 3)),
        ("offset", (), ((), 3)),
        ("permuted", (2, 3, 5), ((5, 10, 1), 0)),
        ("channels_last", (2, 3, 4, 5), ((60, 1, 15, 3), 0)),
        ("expanded", (2, 3), ((0, 0), 0)),
        ("transposed+gaps+offset", (2, 3), ((2, 4), 3)),
        ("permuted+sliced", (2, 3, 5), ((8, 16, 1), 0)),
    ],
)
def test_cotangents_arrive_in_the_layout_asked_for_with_the_same_values(layout, shape, seen):
    assert layout_seen(layout, shape) == seen


def test_bits_of_cotangents_arrive_with_the_same_values():
    seen = []

    def bits(x):
        y = x * x
        y.register_hook(lambda g: seen.append((g.is_neg(), g.is_conj())))
        return y

    for dtype, layout in ((DOUBLE, "expanded+negative"), (COMPLEX, "gaps+conjugate")):
        target = build(bits, (tensor(3, dtype=dtype),))
        v = np.ones(target.codomain.size)
        np.testing.assert_array_equal(target.vjp_layout(v, layout), target.vjp(v))
    assert seen[::2] == [(True, False), (False, True)]


def test_pairs_may_be_viewed_as_complex_numbers_by_the_backward():
    target = build(torch.view_as_real, (tensor(3, dtype=COMPLEX),))
    v = np.arange(6.0)
    for layout in ("transposed", "gaps", "offset"):
        np.testing.assert_array_equal(target.vjp_layout(v, layout), v)


def test_symbolic_zeros_are_zeros():
    target = build(torch.sgn, (tensor(3),))
    np.testing.assert_array_equal(target.vjp(np.ones(3)), np.zeros(3))
    np.testing.assert_array_equal(target.jvp(np.ones(3)), np.zeros(3))
    complex_zero = build(torch.sgn, (tensor(3, dtype=COMPLEX).detach().real.requires_grad_(),))
    np.testing.assert_array_equal(complex_zero.vjp(np.ones(3)), np.zeros(3))


def test_layouts_are_offered_only_where_they_change_something():
    layouts = {
        (): ("offset+negative",),
        (3,): ("gaps+offset+negative", "expanded"),
        (2, 3): ("transposed+gaps+offset+negative", "sliced", "expanded"),
        (2, 3, 4): ("transposed+gaps+offset+negative", "permuted+sliced", "expanded"),
    }
    for shape, expected in layouts.items():
        assert build(torch.tanh, (tensor(*shape),)).layouts() == expected
    assert "channels_last" in build(torch.tanh, (tensor(2, 3, 4, 4),)).layouts()
    assert build(torch.tanh, (tensor(0),)).layouts() == ()


# What must not change.


def test_the_users_tensors_gradients_and_random_state_stay_untouched():
    x, fixed = tensor(3), torch.zeros(3, dtype=DOUBLE)
    x.grad = torch.full((3,), 7.0, dtype=DOUBLE)
    before, version, random = x.detach().clone(), x._version, torch.get_rng_state()

    def fn(x, running):
        running += 1
        return torch.nn.functional.dropout(x, 0.5) * running

    target = build(fn, (x, fixed))
    u, v = probes(target)
    first = target.value(target.point)
    np.testing.assert_array_equal(first, target.value(target.point))
    target.vjp(v), target.jvp(u), target.transposed_vjp(u, v), target.side_effects(v)
    target.derivative(v).vjp(np.ones(3))
    target.close()
    assert torch.equal(x, before)
    assert x._version == version
    assert torch.equal(fixed, torch.zeros(3, dtype=DOUBLE))
    assert torch.equal(x.grad, torch.full((3,), 7.0, dtype=DOUBLE))
    assert torch.equal(torch.get_rng_state(), random)


def test_values_share_no_memory_with_the_function_or_with_x():
    target = build(lambda x: x, (tensor(3),))
    x = target.point.copy()
    value = target.value(x)
    value += 1
    np.testing.assert_array_equal(x, target.point)
    buffer = torch.zeros(3, dtype=DOUBLE)

    def fn(x):
        return torch.add(x.detach(), 1, out=buffer)

    target = build(fn, (tensor(3),))
    first = target.value(target.point)
    target.value(target.point + 1)
    np.testing.assert_array_equal(first, target.point + 1)


def test_no_vector_is_written_to_by_a_rude_function():
    class Rude(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient.mul_(2)

    def fn(x):
        result = Rude.apply(x)
        with torch.no_grad():
            x.mul_(0)
        return result

    target = build(fn, (tensor(3),))
    x, v = target.point.copy(), np.ones(3)
    x.flags.writeable = v.flags.writeable = False
    target.value(x)
    np.testing.assert_array_equal(target.vjp(v), [2, 2, 2])
    kinds = {kind for kind, _ in target.side_effects(v)}
    assert kinds == {"cotangent", "input"}


def test_a_fixed_input_that_the_function_changes_is_renewed_for_every_call():
    def fn(x, running):
        running += 1
        return x * running

    target = build(fn, (tensor(2), torch.ones(2, dtype=DOUBLE)))
    assert_modes_agree(target)


def test_a_call_at_build_that_raises_leaves_the_random_state():
    random = torch.get_rng_state()

    def fn(x):
        torch.rand(3)
        raise KeyError("the user's own")

    with pytest.raises(KeyError, match="the user's own"):
        build(fn, (tensor(3),))
    assert torch.equal(torch.get_rng_state(), random)


def test_randomness_is_frozen_only_where_the_function_draws():
    assert build(lambda x: torch.nn.functional.dropout(x), (tensor(50),)).call.fixed_random
    assert not build(torch.tanh, (tensor(3),)).call.fixed_random


# Captured inputs.


def test_captured_parameters_that_are_arguments_as_well_are_exchanged_there():
    module = torch.nn.Linear(3, 2, dtype=DOUBLE)
    x = tensor(4, 3)
    originals = (x, *module.parameters())
    before = [tensor.detach().clone() for tensor in originals]
    target = build(lambda *_: module(x).sin(), originals)
    jacobian = differences(target)
    u, v = probes(target)
    assert np.abs(jacobian).sum() > 1
    np.testing.assert_allclose(backward(target), jacobian, atol=1e-7)
    np.testing.assert_allclose(target.transposed_vjp(u, v)[0], jacobian @ u, atol=1e-7)
    second = target.derivative(v)
    np.testing.assert_allclose(backward(second), differences(second), atol=1e-6)
    np.testing.assert_allclose(target.jvp(u), jacobian @ u, atol=1e-7)
    assert all(torch.equal(a, b) for a, b in zip(originals, before, strict=True))
    assert all(tensor.grad is None for tensor in originals)


def test_captured_parameters_are_restored_when_the_function_raises():
    x = tensor(3)
    before = x.detach().clone()

    def fn(*_):
        if not torch.equal(x, before):
            raise ValueError("the user's own")
        return x * 2

    target = build(fn, (x,))
    with pytest.raises(ValueError, match="the user's own"):
        target.value(target.point + 1)
    assert torch.equal(x, before)


KEPT: dict[str, torch.Tensor] = {}


def test_an_argument_that_is_read_where_it_cannot_be_exchanged_is_refused():
    KEPT["x"] = tensor(3)
    with pytest.raises(UsageError, match=r"reads input 0 not from its arguments.*let it use its"):
        build(lambda *_: KEPT["x"].sin(), (KEPT["x"],))
    assert build(lambda x: KEPT["x"].sin() * x, (KEPT["x"],)).domain.size == 3


def test_an_unused_input_has_derivative_zero_and_is_not_captured():
    target = build(lambda x, y: x * 2, (tensor(2), tensor(2, seed=1)))
    np.testing.assert_array_equal(target.vjp(np.ones(2)), [2, 2, 0, 0])


# Names, outputs, containers.


def test_names_are_the_parameters_and_paths():
    def fn(params, *rest, scale):
        return {"loss": params["a"][0] * rest[0] * scale, "none": None}

    inputs = ({"a": [tensor(2)]}, tensor(2, seed=1))
    target = build(fn, inputs, {"scale": tensor(2, seed=2)})
    assert [slot.name for slot in target.domain.slots] == ["params['a'][0]", "input 1", "scale"]
    assert [slot.name for slot in target.codomain.slots] == ["output['loss']"]
    assert target.domain.slots[0].describe == "float64[2]"
    assert_modes_agree(target)
    renamed = build(fn, inputs, {"scale": 2.0}, names=["a", "b"])
    assert [slot.name for slot in renamed.domain.slots] == ["a", "b"]
    with pytest.raises(UsageError, match="names: expected 2"):
        build(fn, inputs, {"scale": 2.0}, names=["a"])


def test_integer_outputs_are_ignored_and_detached_ones_claim_nothing():
    def fn(x):
        return x.argmax(), x * 2, x.detach() ** 2

    target = build(fn, (tensor(3),))
    assert [slot.name for slot in target.codomain.slots] == ["output 1", "output 2"]
    assert [slot.detached for slot in target.codomain.slots] == [False, True]
    assert target.value(target.point).shape == (6,)
    np.testing.assert_array_equal(target.vjp(np.ones(6)), [2, 2, 2])
    np.testing.assert_array_equal(target.jvp(np.ones(3)), [2, 2, 2, 0, 0, 0])


@pytest.mark.parametrize("result", [None, 3, (), {"a": None}])
def test_no_tensor_at_all_is_refused(result):
    def named(x):
        return result

    with pytest.raises(UsageError, match="named returned"):
        build(named, (tensor(3),))


def test_outputs_without_dense_memory_are_refused():
    with pytest.raises(ValueError, match="Sparse output is not supported at gradcheck yet"):
        build(lambda x: x.to_sparse(), (tensor(3),))
    with pytest.raises(ValueError, match="MKLDNN output is not supported at gradcheck yet"):
        build(lambda x: x.to_mkldnn(), (tensor(3, dtype=torch.float32),))


def test_outputs_that_change_are_refused():
    point = tensor(3)
    start = point.detach().clone()  # a constant: what is given is moved wherever it is read

    def shape(x):
        return x * 2 if torch.equal(x, start) else x[:2]

    def dtype(x):
        return x * 2 if torch.equal(x, start) else x.float()

    def number(x):
        return x * 2 if torch.equal(x, start) else (x, x)

    for fn, words in (
        (shape, "to return outputs with the same shape"),
        (dtype, "to return outputs with the same dtype"),
        (number, "2 at a perturbed input"),
    ):
        target = build(fn, (point,))
        with pytest.raises(UsageError, match=words):
            target.value(target.point + 1)


def test_inputs_that_cannot_be_checked_are_refused():
    with pytest.raises(UsageError, match="none of them have requires_grad=True"):
        build(torch.tanh, (torch.rand(3),))
    bad = torch.tensor([[1.0, 2], [float("nan"), 4]], dtype=DOUBLE, requires_grad=True)
    with pytest.raises(UsageError, match=r"weight\[1, 0\] is nan"):
        build(lambda weight: weight, (bad,))


def test_empty_and_scalar_arrays():
    target = build(lambda x, y: (x * 2, y.sum()), (tensor(0, 3), tensor()))
    assert target.domain.size == 1
    assert_modes_agree(target)


def test_resolution_is_that_of_the_coarsest_dtype():
    assert build(torch.tanh, (tensor(3),)).resolution == 2.0**-53
    assert build(lambda x: x.float(), (tensor(3),)).resolution == 2.0**-24
    half = tensor(3, dtype=torch.float32).detach().to(torch.bfloat16).requires_grad_()
    target = build(lambda x: x * 2, (half,))
    assert target.resolution == 2.0**-8
    np.testing.assert_array_equal(target.vjp(np.ones(3)), [2, 2, 2])


def test_every_run_is_counted():
    runs = []
    target = build(lambda x: (runs.append(1), x * x)[1], (tensor(2),))
    target.value(target.point)
    target.vjp(np.ones(2))
    target.jvp(np.ones(2))
    target.side_effects(np.ones(2))
    second = target.derivative(np.ones(2))
    second.value(second.point)
    assert len(runs) == target.counts["function"]
    assert target.counts["vjp"] >= 2
    assert second.counts["function"] == 2


# Traits and side effects.


def test_traits_of_a_gradient_in_another_layout():
    indices = torch.tensor([0, 2])
    target = build(
        lambda w: torch.nn.functional.embedding(indices, w, sparse=True), (tensor(3, 2),)
    )
    (trait,) = target.gradient_traits(np.ones(4))
    assert (trait.slot, trait.what) == (0, "layout")
    assert (trait.claimed, trait.expected) == ("torch.sparse_coo", "torch.strided")
    np.testing.assert_array_equal(target.vjp(np.ones(4)), [1, 1, 0, 0, 1, 1])
    assert build(torch.tanh, (tensor(3),)).gradient_traits(np.ones(3)) == []


def test_side_effects_are_seen_and_undone():
    x = tensor(3)
    x.grad = torch.zeros(3, dtype=DOUBLE)

    class Messy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            result = x.clone()
            ctx.save_for_backward(result)
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            (saved,) = ctx.saved_tensors
            saved.zero_()
            torch.manual_seed(1)
            torch.set_default_dtype(torch.float64)
            x.grad.add_(1)
            return gradient * 2

    target = build(Messy.apply, (x,))
    random = torch.get_rng_state()
    found = dict(target.side_effects(np.ones(3)))
    assert set(found) == {"saved", "random", "default", "grad"}
    assert "shape (3,)" in found["saved"]
    assert torch.get_default_dtype() is torch.float32
    assert torch.equal(torch.get_rng_state(), random)
    assert build(torch.tanh, (x,)).side_effects(np.ones(3)) == []


def test_side_effects_of_a_function_that_uses_function_transforms():
    target = build(lambda x: torch.func.grad(lambda y: (y**3).sum())(x), (tensor(3),))
    assert target.side_effects(np.ones(3)) == []
    assert_modes_agree(target)


def test_backward_inside_the_function_is_seen():
    captured = tensor(3)

    def fn(x, y):
        (x * 2).sum().backward()
        return x * y

    found = build(fn, (tensor(3), captured)).side_effects(np.ones(3))
    assert [kind for kind, _ in found] == ["grad"]
    assert captured.grad is None


# Finding the adapter.


def test_finding_an_adapter_imports_no_framework():
    code = (
        "import sys, numpy; from gradproof._adapters import find_adapter;"
        "assert find_adapter((numpy.ones(2),)) is None; assert 'torch' not in sys.modules;"
        "import torch; assert find_adapter((numpy.ones(2),)) is None;"
        "assert find_adapter(([torch.ones(2)],)).__name__ == 'gradproof.torch._adapter';"
        "assert find_adapter((1,), {'a': torch.ones(2)}) is not None"
    )
    source = Path(gradproof.__file__).parents[1]
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(source)})


def test_complex_tensors_start_at_addresses_that_vectorised_kernels_can_load():
    """Behind an odd number of reals they would start at no multiple of 16, and crash PyTorch."""
    target = build(lambda x, z: z * x.sum(), (tensor(31), tensor(32, dtype=COMPLEX)))
    for x in (target.point, target.point.copy()):
        assert all(each.data_ptr() % 16 == 0 for each in target.inputs.tensors_at(x))
    u, v = probes(target)
    image, pulled = target.transposed_vjp(u, v)
    np.testing.assert_allclose(image @ v, pulled @ u)


def test_an_expanded_argument_that_is_not_differentiated_stays_expanded():
    k = torch.arange(1.0, 3.0, dtype=DOUBLE)[:, None].expand(2, 3)
    strides = []

    def fn(x, k):
        strides.append(k.stride())
        return x * k

    target = build(fn, (tensor(2, 3), k))
    np.testing.assert_array_equal(target.vjp(np.ones(6)), [1, 1, 1, 2, 2, 2])
    assert set(strides) == {k.stride()} == {(1, 0)}


def test_infinite_inputs_stay_as_they_are():
    scores = torch.tensor([[0.5, -torch.inf, 1.0]], dtype=DOUBLE, requires_grad=True)
    target = build(lambda scores: scores.softmax(-1), (scores,))
    assert target.point.tolist() == [0.5, 0.0, 1.0]
    assert target.given_point.tolist() == [0.5, -np.inf, 1.0]
    assert_modes_agree(target)
    moved = target.value(target.point + 1)
    assert np.allclose(moved, target.value(target.point))
    assert moved[1] == 0
    there = target.map_at(target.point * 2)
    assert there.given_point.tolist() == [1.0, -np.inf, 2.0]
    doubled = build(lambda scores: scores.softmax(-1), (scores.float(),)).map_in_double()
    assert doubled.given_point.tolist() == [0.5, -np.inf, 1.0]


class Tagged(torch.Tensor):
    """A subclass that is a name and no more."""


class Weight(torch.nn.Parameter):
    """A parameter of a class of its own."""


@pytest.mark.parametrize("kind", [Tagged, Weight, torch.nn.Parameter])
@pytest.mark.parametrize("asked", [True, False], ids=["checked", "beside"])
def test_a_function_gets_its_arguments_in_their_class_with_their_attributes(kind, asked):
    seen = set()

    def fn(x, w):
        seen.add((type(w), getattr(w, "shard", None), w.requires_grad))
        return x * w

    w = tensor(3).detach()
    w = kind(w) if issubclass(kind, torch.nn.Parameter) else w.as_subclass(kind)
    w.requires_grad_(asked).shard = 7
    target = build(fn, (tensor(3), w))
    assert_modes_agree(target)
    target.map_at(2 * target.point)
    assert {(kind, 7)} == {each[:2] for each in seen}
    assert {each[2] for each in seen} <= {asked, False}  # duals need no gradient
    assert set(vars(w)) == {"shard"}


def test_a_parameter_that_would_be_no_leaf_is_refused_and_not_accused():
    layer = torch.nn.Linear(2, 1, dtype=DOUBLE)

    def fn(weight, x):
        layer.weight = weight
        return layer(x).tanh()

    inputs = (torch.nn.Parameter(tensor(1, 2).detach()), tensor(2))
    report = gradproof.check(fn, inputs, order=2, seed=0)
    assert report
    assert str(report["forward_over_reverse"].verdict) == "skipped"
    assert "a Parameter would be no leaf here" in report["forward_over_reverse"].summary
    assert str(report["second_order"].verdict) == "passed"


def test_a_users_jvp_that_raises_in_the_words_of_pytorch_fails():
    class Sine(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx, gradient):
            return gradient * ctx.saved_tensors[0].cos()

        @staticmethod
        def jvp(ctx, tangent):
            raise RuntimeError("the jvp function of the sine comes later")

    report = gradproof.check(Sine.apply, tensor(3), checks=["forward"], seed=0)
    assert report["forward"].summary.startswith("it raised RuntimeError"), str(report)
