"""Functions with their exact derivatives, for testing measured slopes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Vector = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Known:
    """A function of a vector that is analytic but for corners; it takes complex vectors too."""

    name: str
    value: Callable[[Vector], Vector]
    smooth: bool = True

    def along(self, x: Vector, u: Vector) -> Vector:
        """J(x) u, exact but for rounding: f(x + i h u) = f(x) + i h J(x) u + O(h^2)."""
        return self.value(x + 1e-20j * u).imag / 1e-20


def _abs(x: Vector) -> Vector:
    """Complex numbers are compared by their real parts first."""
    return np.maximum(x, -x)


def _sigmoid(x: Vector) -> Vector:
    return np.exp(-_softplus(-x))  # 0.5 + 0.5 tanh(x / 2) loses its digits below zero


def _softplus(x: Vector) -> Vector:
    return np.maximum(x, 0) + np.log1p(np.exp(-_abs(x)))


def _softmax(x: Vector) -> Vector:
    weights = np.exp(x - x.max())
    return weights / weights.sum()


def _mixed(x: Vector) -> Vector:
    matrix = np.random.default_rng(5).standard_normal((7, x.size)) / np.sqrt(x.size)
    return np.tanh(matrix @ x)


KNOWN = (
    Known("sin", np.sin),
    Known("tanh", np.tanh),
    Known("arctan", np.arctan),
    Known("exp", np.exp),
    Known("gauss", lambda x: np.exp(-(x**2))),
    Known("identity", np.copy),
    Known("square", np.square),
    Known("cube", lambda x: x**3),
    Known("seventh power", lambda x: x**7),
    Known("reciprocal", lambda x: 1 / x),
    Known("hypot", lambda x: np.sqrt(1 + x**2)),
    Known("log", lambda x: np.log(_abs(x))),
    Known("root", lambda x: np.sqrt(_abs(x))),
    Known("cube root", lambda x: x / _abs(x) ** (2 / 3)),
    Known("sigmoid", _sigmoid),
    Known("softplus", _softplus),
    Known("silu", lambda x: x * _sigmoid(x)),
    Known("relu", lambda x: np.maximum(x, 0), smooth=False),
    Known("abs", _abs, smooth=False),
    Known("huber", lambda x: np.sqrt(x**2 + 1e-6), smooth=False),
    Known("clip", lambda x: np.minimum(np.maximum(x, -1), 1), smooth=False),
    Known("softsign", lambda x: x / (1 + _abs(x)), smooth=False),
    Known("sort", np.sort, smooth=False),
    Known("softmax", _softmax),
    Known("normalise", lambda x: (x - x.mean()) / np.sqrt(((x - x.mean()) ** 2).mean() + 0.1)),
    Known("logsumexp", lambda x: np.asarray([x.max() + np.log(np.exp(x - x.max()).sum())])),
    Known("cumsum", np.cumsum),
    Known("mix", _mixed),
)
