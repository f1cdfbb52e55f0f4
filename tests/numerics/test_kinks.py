"""What a function is at a point: smooth, or why not, and its slopes on both sides."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gradproof._measure.ladder import Ladder, Line
from gradproof._measure.one_sided import KINDS, Kinks
from gradproof._measure.steps import Plan
from numerics.calculus import KNOWN, Known

SMOOTH, ONCE, KINK, BOUNDARY, INFINITE, JUMP, UNRESOLVED = KINDS
DOUBLE = Plan(top=2.0**-6, ratio=2.0**-5, rungs=7)
INF, NONE = np.inf, np.nan


def classified(fn: Callable, point: list[float], direction: list[float]) -> Kinks:
    x = np.asarray(point)
    with np.errstate(all="ignore"):
        made = Ladder(Line(fn, x, fn(x), np.asarray(direction), 2.0**-53), DOUBLE)
        return made.kinks()


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)


def huber(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) <= 1, x**2 / 2, np.abs(x) - 0.5)


POINTS = {
    "relu": (relu, 0.0, KINK, 0, 1),
    "relu on a steep slope": (lambda x: relu(x) + 100 * x, 0.0, KINK, 100, 101),
    "relu on a large offset": (lambda x: relu(x) + 1e4, 0.0, KINK, 0, 1),
    "abs": (np.abs, 0.0, KINK, -1, 1),
    "clip": (lambda x: np.clip(x, -1, 1), 1.0, KINK, 1, 0),
    "floor": (np.floor, 1.0, JUMP, NONE, 0),
    "ceil": (np.ceil, 1.0, JUMP, 0, NONE),
    "round": (np.round, 0.5, JUMP, 0, NONE),
    "sign": (np.sign, 0.0, JUMP, NONE, NONE),
    "root": (np.sqrt, 0.0, INFINITE, NONE, INF),
    "root of the size": (lambda x: np.sqrt(np.abs(x)), 0.0, INFINITE, -INF, INF),
    "cube root": (np.cbrt, 0.0, INFINITE, INF, INF),
    "half a root": (lambda x: np.sqrt(relu(x)), 0.0, INFINITE, 0, INF),
    "power 1.5 of the positive": (lambda x: x * np.sqrt(x), 0.0, BOUNDARY, NONE, 0),
    "huber": (huber, 1.0, ONCE, 1, 1),
    "power 1.5": (lambda x: np.abs(x) ** 1.5, 0.0, ONCE, 0, 0),
    "x times its size": (lambda x: x * np.abs(x), 0.0, ONCE, 0, 0),
    "a sharp softplus": (lambda x: np.logaddexp(0, 1e6 * x) / 1e6, 0.0, SMOOTH, 0.5, 0.5),
    "relu beside its kink": (lambda x: relu(x - 1), 1 + 1e-4, SMOOTH, 1, 1),
    "a cube on an offset": (lambda x: x**3 + 1, 0.0, SMOOTH, 0, 0),
    "a constant": (lambda x: 0 * x + 3, 1.0, SMOOTH, 0, 0),
    "a line": (lambda x: 3 * x, 1.0, SMOOTH, 3, 3),
    "nothing on either side": (lambda x: np.where(x == 0, x, np.nan), 0.0, UNRESOLVED, NONE, NONE),
}


def equal(found: float, known: float, error: float) -> bool:
    if not np.isfinite(known):
        return found == known or (np.isnan(found) and np.isnan(known))
    return abs(found - known) <= error + 1e-12 * abs(known)


@pytest.mark.parametrize("name", POINTS)
@pytest.mark.parametrize("direction", [1.0, 0.75, -1.25])
def test_a_point_is_told_with_its_slopes(name: str, direction: float) -> None:
    fn, x, kind, left, right = POINTS[name]
    found = classified(fn, [x], [direction])
    assert KINDS[int(found.kind[0])] == kind
    if direction < 0:
        left, right = right, left
    for known, slope in ((left, found.left), (right, found.right)):
        assert equal(float(slope[0]), known * direction, float(found.error[0]))


@pytest.mark.parametrize("factor", [2.0**-40, 2.0**40])
@pytest.mark.parametrize("name", POINTS)
def test_the_kind_is_the_same_in_other_units(name: str, factor: float):
    fn, x, kind, *_ = POINTS[name]
    found = classified(lambda x: factor * fn(x), [x], [1.0])
    assert KINDS[int(found.kind[0])] == kind


def test_every_output_is_told_by_itself() -> None:
    found = classified(np.sort, [1.0, 1.0, 2.0], [1.0, 0.0, 0.0])
    assert [KINDS[int(kind)] for kind in found.kind] == [KINK, KINK, SMOOTH]
    np.testing.assert_allclose(found.left, [1, 0, 0], atol=1e-9)
    np.testing.assert_allclose(found.right, [0, 1, 0], atol=1e-9)


@pytest.mark.parametrize("known", [k for k in KNOWN if k.smooth], ids=lambda k: k.name)
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_a_smooth_function_has_no_kink(known: Known, scale: float) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(20) * scale
    u = 2.0 ** np.floor(np.log2(np.abs(x))) * rng.choice([-1.25, 0.75], 20)
    found = classified(known.value, list(x), list(u))
    kinds = {KINDS[int(kind)] for kind in found.kind}
    assert kinds <= {SMOOTH, UNRESOLVED}
    with np.errstate(all="ignore"):
        true = known.along(x, u)
    inside = np.abs(found.left - true) <= found.error + 1e-290
    assert np.all(inside | (found.kind == KINDS.index(UNRESOLVED)))


@pytest.mark.parametrize("noise", [1e-12, 1e-9, 1e-6])
def test_noise_is_no_kink(noise: float) -> None:
    rng = np.random.default_rng(1)

    def fn(x: np.ndarray) -> np.ndarray:
        return np.sin(x) * (1 + noise * rng.standard_normal(x.shape))

    found = classified(fn, list(np.linspace(0.5, 2, 200)), [1.0] * 200)
    assert {KINDS[int(kind)] for kind in found.kind} <= {SMOOTH, UNRESOLVED}


def test_no_output_makes_no_kink() -> None:
    assert classified(lambda x: x[:0], [1.0], [1.0]).kind.shape == (0,)
