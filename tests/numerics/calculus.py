"""Functions with their exact derivatives, for testing the ladder."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Vector = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Known:
    """A function of a vector, and its exact derivative x, u -> J(x) u."""

    name: str
    value: Callable[[Vector], Vector]
    along: Callable[[Vector, Vector], Vector]
    smooth: bool = True


def _each(name: str, fn: Any, derivative: Any, smooth: bool = True) -> Known:
    """The same scalar function on each entry."""
    return Known(name, fn, lambda x, u: derivative(x) * u, smooth)


def _sigmoid(x: Vector) -> Vector:
    return np.exp(-np.logaddexp(0, -x))  # 0.5 + 0.5 tanh(x / 2) loses its digits below zero


def _sigmoid_slope(x: Vector) -> Vector:
    return _sigmoid(x) * _sigmoid(-x)


def _softmax(x: Vector) -> Vector:
    weights = np.exp(x - x.max())
    return weights / weights.sum()


def _softmax_along(x: Vector, u: Vector) -> Vector:
    weights = _softmax(x)
    return weights * (u - weights @ u)


def _centred(x: Vector) -> Vector:
    return (x - x.mean()) / np.sqrt(((x - x.mean()) ** 2).mean() + 0.1)


def _centred_along(x: Vector, u: Vector) -> Vector:
    y, d = x - x.mean(), u - u.mean()
    spread = np.sqrt((y**2).mean() + 0.1)
    return d / spread - y * (y * d).mean() / spread**3


def _logsumexp(x: Vector) -> Vector:
    return np.asarray([x.max() + np.log(np.exp(x - x.max()).sum())])


def _sort_along(x: Vector, u: Vector) -> Vector:
    return u[np.argsort(x)]


_erfc = np.vectorize(math.erfc, otypes=[float])


def _below(x: Vector) -> Vector:
    """The normal distribution function."""
    return 0.5 * _erfc(-x / math.sqrt(2))


def _normal(x: Vector) -> Vector:
    return np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)


def _mixing(size: int) -> Vector:
    return np.random.default_rng(5).standard_normal((7, size)) / math.sqrt(size)


def _mixed_along(x: Vector, u: Vector) -> Vector:
    matrix = _mixing(x.shape[0])
    return (matrix @ u) / np.cosh(matrix @ x) ** 2


KNOWN = (
    _each("sin", np.sin, np.cos),
    _each("cos", np.cos, lambda x: -np.sin(x)),
    _each("tanh", np.tanh, lambda x: 1 / np.cosh(x) ** 2),
    _each("arctan", np.arctan, lambda x: 1 / (1 + x**2)),
    _each("arcsinh", np.arcsinh, lambda x: 1 / np.sqrt(1 + x**2)),
    _each("exp", np.exp, np.exp),
    _each("expm1", np.expm1, np.exp),
    _each("sinh", np.sinh, np.cosh),
    _each("gauss", lambda x: np.exp(-(x**2)), lambda x: -2 * x * np.exp(-(x**2))),
    _each("identity", np.copy, np.ones_like),
    _each("square", np.square, lambda x: 2 * x),
    _each("cube", lambda x: x**3, lambda x: 3 * x**2),
    _each("seventh power", lambda x: x**7, lambda x: 7 * x**6),
    _each("reciprocal", lambda x: 1 / x, lambda x: -1 / x**2),
    _each("rational", lambda x: 1 / (1 + x**2), lambda x: -2 * x / (1 + x**2) ** 2),
    _each("hypot", lambda x: np.sqrt(1 + x**2), lambda x: x / np.sqrt(1 + x**2)),
    _each("log", lambda x: np.log(np.abs(x)), lambda x: 1 / x),
    _each("log1p", lambda x: np.log1p(x**2), lambda x: 2 * x / (1 + x**2)),
    _each("root", lambda x: np.sqrt(np.abs(x)), lambda x: np.sign(x) / (2 * np.sqrt(np.abs(x)))),
    _each("cube root", np.cbrt, lambda x: 1 / (3 * np.cbrt(x) ** 2)),
    _each("sigmoid", _sigmoid, _sigmoid_slope),
    _each("softplus", lambda x: np.logaddexp(0, x), _sigmoid),
    _each("silu", lambda x: x * _sigmoid(x), lambda x: _sigmoid(x) + x * _sigmoid_slope(x)),
    _each(
        "gelu",
        lambda x: x * _below(x),
        lambda x: _below(x) + x * _normal(x),
    ),
    _each("relu", lambda x: np.maximum(x, 0), lambda x: 1.0 * (x > 0), smooth=False),
    _each("abs", np.abs, np.sign, smooth=False),
    _each("huber", lambda x: np.hypot(x, 1e-3), lambda x: x / np.hypot(x, 1e-3), smooth=False),
    _each("clip", lambda x: np.clip(x, -1, 1), lambda x: 1.0 * (np.abs(x) < 1), smooth=False),
    _each(
        "softsign", lambda x: x / (1 + np.abs(x)), lambda x: 1 / (1 + np.abs(x)) ** 2, smooth=False
    ),
    Known("sort", np.sort, _sort_along, smooth=False),
    Known("softmax", _softmax, _softmax_along),
    Known("normalise", _centred, _centred_along),
    Known("logsumexp", _logsumexp, lambda x, u: np.asarray([_softmax(x) @ u])),
    Known("cumsum", np.cumsum, lambda x, u: np.cumsum(u)),
    Known("mix", lambda x: np.tanh(_mixing(x.shape[0]) @ x), _mixed_along),
)
