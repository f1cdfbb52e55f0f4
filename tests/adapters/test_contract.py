"""The contract that every framework's adapter keeps: one suite, run on the maps of each.

A map is a function at a point in flat real coordinates, with the derivative that the framework
claims. Everything above the adapters relies on these promises and on nothing else of a framework.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import gradproof
from gradproof import Unsupported
from gradproof.errors import UsageError

REAL, IMAGINARY = np.random.default_rng(0).uniform(0.5, 1.5, (2, 2, 3))
COMPLEX = REAL + 1j * IMAGINARY


@dataclass(frozen=True)
class Framework:
    """How a framework writes the functions of this suite, and how a map of one is built.

    Attributes:
        build: (function, arrays of NumPy) -> its map.
        sin: of its arrays.
    """

    build: Callable[..., Any]
    sin: Callable[..., Any]

    def smooth(self, x, w):
        """Two inputs and two outputs."""
        return x * self.sin(w), (x**2).sum()


def conjugate_of(z):
    return z * z.conj() + 2j * z


def of_numpy() -> Framework:
    from gradproof._numpy.adapter import build

    def pull(x, w, vs):
        v, total = vs
        return v * np.sin(w) + 2 * total * x, v * x * np.cos(w)

    def push(x, w, us):
        u, t = us
        return u * np.sin(w) + x * np.cos(w) * t, (2 * x * u).sum()

    rules = {
        "smooth": {"vjp": pull, "jvp": push},
        "conjugate_of": {"vjp": lambda z, v: 2 * z * v.real - 2j * v},
    }
    other = {"vjp": lambda *arguments: arguments[-1]}

    def made(fn, arrays):
        return build(gradproof.by_hand(fn, **rules.get(fn.__name__, other)), arrays)

    return Framework(made, np.sin)


def of_torch() -> Framework:
    import torch

    from gradproof.torch._adapter import build

    def made(fn, arrays):
        return build(fn, [torch.from_numpy(np.array(x)).requires_grad_() for x in arrays])

    return Framework(made, torch.sin)


def of_jax() -> Framework:
    import jax.numpy as jnp

    from gradproof.jax._adapter import build

    return Framework(lambda fn, arrays: build(fn, list(map(jnp.asarray, arrays))), jnp.sin)


FRAMEWORKS = {"numpy": of_numpy, "torch": of_torch, "jax": of_jax}


@pytest.fixture(params=[name for name in FRAMEWORKS if importlib.util.find_spec(name)])
def framework(request: pytest.FixtureRequest) -> Iterator[Framework]:
    if request.param == "jax":
        from x64 import enable_x64  # JAX may not be installed

        with enable_x64(True):
            yield of_jax()
    else:
        yield FRAMEWORKS[request.param]()


@pytest.fixture
def smooth(framework):
    return framework.build(framework.smooth, (REAL, REAL + 0.25))


@pytest.fixture
def conjugate(framework):
    return framework.build(conjugate_of, (COMPLEX,))


@pytest.fixture(params=["smooth", "conjugate"])
def target(request, smooth, conjugate):
    return {"smooth": smooth, "conjugate": conjugate}[request.param]


def measured_jacobian(target, step=1e-6) -> np.ndarray:
    columns = []
    for axis in step * np.eye(target.domain.size):
        ahead, behind = target.value(target.point + axis), target.value(target.point - axis)
        columns.append((ahead - behind) / (2 * step))
    return np.stack(columns, axis=1)


def probes(target) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    return rng.normal(size=target.domain.size), rng.normal(size=target.codomain.size)


@contextmanager
def supported() -> Iterator[None]:
    """What a framework lacks is skipped, with the reason that a report would show."""
    try:
        yield
    except Unsupported as lacking:
        pytest.skip(lacking.reason)


def close(found, expected) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)


# Coordinates -------------------------------------------------------------------------------------


def test_every_vector_is_flat_real_and_double(target):
    _, v = probes(target)
    for vector, size in (
        (target.point, target.domain.size),
        (target.value(target.point), target.codomain.size),
        (target.vjp(v), target.domain.size),
    ):
        assert (vector.shape, vector.dtype) == ((size,), np.float64)


def test_slots_have_the_users_names_and_shapes(smooth, conjugate):
    assert [(slot.name, slot.shape) for slot in smooth.domain.slots] == [
        ("x", (2, 3)), ("w", (2, 3))
    ]  # fmt: skip
    assert [slot.shape for slot in smooth.codomain.slots] == [(2, 3), ()]
    assert str(conjugate.domain.locate(3)) == "z[0, 1].imag"


def test_the_value_is_that_of_the_function_at_any_point_in_any_order(smooth):
    points = [smooth.point + k for k in range(3)]
    forth = [smooth.value(x) for x in points]
    back = [smooth.value(x) for x in reversed(points)]
    for one, other in zip(forth, reversed(back), strict=True):
        np.testing.assert_array_equal(one, other)
    x, w = np.split(points[1], 2)
    close(forth[1], [*(x * np.sin(w)), (x**2).sum()])


# Derivatives -------------------------------------------------------------------------------------


def test_the_backward_is_the_transpose_of_the_measured_jacobian(target):
    rows = np.stack([target.vjp(axis) for axis in np.eye(target.codomain.size)])
    close(rows, measured_jacobian(target))


def test_forward_mode_is_the_measured_jacobian_or_is_unsupported(target):
    u, _ = probes(target)
    with supported():
        tangent = target.jvp(u)
    close(tangent, measured_jacobian(target) @ u)


def test_a_backward_that_can_be_transposed_gives_both_products(target):
    u, v = probes(target)
    with supported():
        image, pulled = target.transposed_vjp(u, v)
    close(image, measured_jacobian(target) @ u)
    close(pulled, target.vjp(v))


def test_batches_are_what_single_products_are(target):
    u, v = probes(target)
    us, vs = np.stack([u, -2 * u]), np.stack([v, -2 * v])
    with supported():
        for batching in target.batchings():
            close(target.vjp_batch(vs, batching), np.stack([target.vjp(each) for each in vs]))
        close(target.jvp_batch(us), np.stack([target.jvp(each) for each in us]))


def test_a_missing_cotangent_is_one_of_zeros(smooth):
    _, v = probes(smooth)
    with supported():
        found = smooth.vjp_undefined(v, frozenset({1}))
    close(found, smooth.vjp(np.append(v[:-1], 0.0)))


def test_a_second_derivative_is_a_map_of_its_own(smooth):
    _, v = probes(smooth)
    with supported():
        second = smooth.derivative(v)
    assert second.domain.size == smooth.domain.size + smooth.codomain.size
    close(second.value(second.point), smooth.vjp(v))
    rows = np.stack([second.vjp(axis) for axis in np.eye(second.codomain.size)])
    close(rows, measured_jacobian(second))


def test_at_another_point_value_and_derivative_are_those_of_that_point(smooth):
    point = smooth.point + 0.5
    moved = smooth.map_at(point)
    point[:] = 0.0  # the map has its own
    close(moved.point, smooth.point + 0.5)
    close(moved.value(moved.point), smooth.value(smooth.point + 0.5))
    _, v = probes(smooth)
    close(moved.vjp(v), v @ measured_jacobian(moved))


# Precision ---------------------------------------------------------------------------------------


@pytest.fixture
def single(framework):
    arrays = (REAL.astype(np.float32), REAL.astype(np.float32) + np.float32(0.25))
    return framework.build(framework.smooth, arrays)


def test_the_resolution_is_that_of_the_arrays(smooth, single):
    assert (smooth.resolution, single.resolution) == (2.0**-53, 2.0**-24)


def test_in_double_precision_the_same_function_is_exact(single):
    wide = single.map_in_double()
    np.testing.assert_array_equal(wide.point, single.point)
    assert wide.resolution == 2.0**-53
    x, w = np.split(wide.point, 2)
    np.testing.assert_allclose(wide.value(wide.point)[:-1], x * np.sin(w), rtol=1e-15)


def test_a_rounded_run_is_off_by_its_unit_and_repeats_with_its_seed(single):
    with supported():
        runs = [single.map_in_double().rounded_map(2.0**-11, 2.0**-24, k) for k in (1, 1, 2)]
    first, again, other = (run.value(run.point) for run in runs)
    exact = single.map_in_double().value(single.point)
    np.testing.assert_array_equal(first, again)
    assert (runs[0].kept_value() != exact).any()
    assert (first != other).any()
    assert 0 < np.abs(first / exact - 1).max() < 2.0**-7


@pytest.mark.parametrize("forward", [False, True])
def test_products_of_several_probes_are_those_of_each(single, forward):
    exact = single.map_in_double()
    size = exact.domain.size if forward else exact.codomain.size
    rows = np.random.default_rng(1).normal(size=(3, size))
    with supported():
        run = exact.rounded_map(2.0**-20, 2.0**-149, 1)
        known = np.stack([exact.jvp(row) if forward else exact.vjp(row) for row in rows])
    np.testing.assert_array_equal(exact.products(rows, forward=forward), known)
    off = np.abs(run.products(rows, forward=forward) - known)
    assert 0 < off.max() < 2.0**-12 * np.abs(known).max()


# What is left alone ------------------------------------------------------------------------------


def test_no_argument_is_written_to_and_no_result_is_written_to_later(target):
    _, v = probes(target)
    kept_v, x = v.copy(), target.point + 0.25
    kept_x, kept_point = x.copy(), target.point.copy()
    gradient, value = target.vjp(v), target.value(x)
    copies = gradient.copy(), value.copy()
    target.vjp(-v)
    target.value(x + 1)
    np.testing.assert_array_equal(gradient, copies[0])
    np.testing.assert_array_equal(value, copies[1])
    for now, before in ((v, kept_v), (x, kept_x), (target.point, kept_point)):
        np.testing.assert_array_equal(now, before)


def test_calls_are_counted_by_kind(smooth):
    _, v = probes(smooth)
    before = dict(smooth.counts)
    for _ in range(3):
        smooth.value(smooth.point)
    smooth.vjp(v)
    assert smooth.counts["function"] == before.get("function", 0) + 3
    assert smooth.counts["vjp"] == before.get("vjp", 0) + 1


# Errors ------------------------------------------------------------------------------------------


def test_what_the_function_raises_is_raised(framework):
    def refusing(x):
        raise ArithmeticError("not here")

    with pytest.raises(ArithmeticError, match="not here"):
        framework.build(refusing, (REAL,))


def test_outputs_that_change_their_shape_are_refused_in_one_sentence(framework):
    runs = []

    def growing(x):
        runs.append(1)
        return x[:1] if len(runs) > 1 else x[:2]

    with pytest.raises(UsageError) as caught:  # noqa: PT012  # the first call, or a later one
        target = framework.build(growing, (REAL,))
        for _ in range(3):
            target.value(target.point + 1)
    assert "\n" not in str(caught.value)


def test_an_input_that_is_no_number_is_refused_by_name(framework):
    with pytest.raises(UsageError, match=r"x\[1\] is nan"):
        framework.build(lambda x: x, (np.array([1.0, np.nan]),))
