"""SciPy's check_grad: the same arguments and the same number, measured with error bars.

from gradproof.scipy import check_grad
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradproof._adapters.numpy import build
from gradproof._data.inputs import Derivative, Variables, name_of
from gradproof._data.options import container, function, positive, shown
from gradproof._data.records import Report
from gradproof._data.settings import Settings
from gradproof._engine import run
from gradproof._guard import guarded
from gradproof._maps.contract import DifferentiableMap
from gradproof._measure import directional, jacobian
from gradproof.errors import UsageError

__all__ = ["GradientGap", "check_grad"]

_EPSILON = np.sqrt(np.finfo(float).eps)  # SciPy's default, which here means: choose the steps


class GradientGap(float):
    """What SciPy's `check_grad` returns, and what is behind it.

    Attributes:
        error: 2-norm of the error bars of the measured derivatives: what the number may be off
            by. SciPy's own number is rarely below 1e-8 of the gradient, right or wrong.
        report: the verdict, with every wrong entry.
    """

    error: float
    report: Report

    def __new__(cls, value: float, error: float, report: Report) -> GradientGap:
        """The number, with its attributes."""
        made = super().__new__(cls, value)
        made.error, made.report = error, report
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return GradientGap, (float(self), self.error, self.report)


@guarded
def check_grad(
    func: Callable[..., Any],
    grad: Callable[..., Any],
    x0: Any,
    *args: Any,
    epsilon: float = _EPSILON,
    direction: str = "all",
    rng: Any = None,
    seed: Any = None,
) -> GradientGap:
    """The 2-norm of the difference between a gradient and the measured one.

    Args:
        func: called as ``func(x0, *args)``; returns a number or a vector.
        grad: called as ``grad(x0, *args)``; returns the gradient, or the Jacobian of a vector.
        x0: the point, n real numbers.
        args: of both.
        epsilon: largest perturbation of an entry of x0, the largest where one per entry is given;
            the default means "choose".
        direction: "all", or "random" for the derivative along one random vector.
        rng: a `numpy.random.Generator`, or what makes one; draws that vector.
        seed: SciPy's older name for `rng`.

    Returns:
        A float with a `report`: ``check_grad(...).report`` tells whether the gradient is right
        and, if not, which entries are wrong. It is False only where one was refuted.

    Raises:
        ValueError: another `direction`, or "random" for a function of several values; x0 is not
            real and finite; grad returns another shape.
        TypeError: both `rng` and `seed`.
    """
    if shown(direction) not in ("'all'", "'random'"):
        raise UsageError(f"{shown(direction)} is not a valid string for ``direction`` argument")
    if rng is not None and seed is not None:
        raise TypeError("rng and seed are two names of one argument; give one of them")
    function("func", func), function("grad", grad), container("args", args)
    point = np.atleast_1d(_array("x0", x0))
    if not point.size or point.dtype.kind not in "biuf":
        raise UsageError(f"x0: expected real numbers, got {point.dtype}{list(point.shape)}")
    point = point.astype(float)
    for place in np.flatnonzero(~np.isfinite(point))[:1]:
        raise UsageError(f"x0[{place}] is {point.flat[place]}: expected finite numbers")
    map_ = build(func, (point,), None, Variables(names=["x0"]), Derivative(jac=grad, args=args))
    if direction == "random" and map_.codomain.size > 1:
        raise UsageError("'random' can only be used with scalar valued func")
    if not map_.codomain.size:
        raise UsageError("func: it returned an array without entries")
    settings = Settings(largest_step=_step(epsilon))
    with np.errstate(all="ignore"):
        if direction == "all":
            gap, error = _everywhere(map_, settings)
        else:
            gap, error = _along(map_, settings, _generator(rng if rng is not None else seed))
    report = run(map_, settings, target=name_of(func))
    return GradientGap(gap, error, report)


def _array(name: str, value: Any) -> np.ndarray[Any, Any]:
    try:
        return np.asarray(value)
    except Exception as error:  # ragged lists; whatever another library's array does
        raise UsageError(f"{name}: expected numbers, got {shown(value)}") from error


def _step(epsilon: Any) -> float | None:
    """The largest step; None where SciPy's default says that it is to be chosen."""
    steps = _array("epsilon", epsilon)
    if not steps.size or steps.dtype.kind not in "biuf":
        raise UsageError(f"epsilon: expected real numbers, got {shown(epsilon)}")
    return None if np.all(steps == _EPSILON) else float(positive("epsilon", float(steps.max())))


def _generator(given: Any) -> np.random.Generator:
    try:
        return np.random.default_rng(given)
    except (TypeError, ValueError) as error:
        raise UsageError(f"rng: expected a Generator or a seed, got {shown(given)}") from error


def _everywhere(map_: DifferentiableMap, settings: Settings) -> tuple[float, float]:
    measured = jacobian.columns(map_, settings)
    # By the shorter side: of each row or column grad is called once.
    sizes = map_.codomain.size, map_.domain.size
    if sizes[0] < sizes[1]:
        claimed = np.stack([_claimed(map_.vjp, row) for row in np.eye(sizes[0])])
    else:
        claimed = np.stack([_claimed(map_.jvp, column) for column in np.eye(sizes[1])], axis=1)
    return float(np.linalg.norm(claimed - measured.value)), float(np.linalg.norm(measured.error))


def _along(
    map_: DifferentiableMap, settings: Settings, rng: np.random.Generator
) -> tuple[float, float]:
    tangent = rng.standard_normal(map_.domain.size)
    found = directional.direction_of(map_, settings, tangent).estimate
    return float(np.linalg.norm(_claimed(map_.jvp, tangent) - found.value)), float(
        np.linalg.norm(found.error)
    )


def _claimed(ask: Callable[[Any], Any], probe: Any) -> Any:
    try:
        return ask(probe)
    except ValueError as error:  # of another shape; here the matrix is called grad
        raise UsageError(str(error).replace("jac:", "grad:")) from error
