"""Functions whose directional derivatives are known in closed form.

The functions take and return tensors of any floating dtype; the derivatives are evaluated on
NumPy's long double, 64 bits of mantissa on x86, so that the truth is finer than any error bar
(`erf` and `digamma` to double precision, by `math` and mpmath). Constants in the functions are
exact in bfloat16: a function must be the same one in every dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

Vector = np.ndarray[Any, np.dtype[np.longdouble]]


@dataclass(frozen=True)
class Exact:
    """A function, and x, u -> J(x) u; `domain` says which points it is defined at."""

    value: Callable[[Tensor], Tensor]
    along: Callable[[Vector, Vector], Vector]
    domain: str = "real"
    each: bool = False  # output i depends on input i alone


def _each(
    value: Callable[[Tensor], Tensor], slope: Callable[[Vector], Any], domain: str = "real"
) -> Exact:
    return Exact(value, lambda x, u: slope(x) * u, domain, each=True)


_erf_ = np.vectorize(math.erf, otypes=[np.longdouble])
_erfc = np.vectorize(math.erfc, otypes=[np.longdouble])
_digamma = np.vectorize(
    lambda x: float(mpmath.digamma(mpmath.mpf(float(x)))) if x > 0 else -math.inf, otypes=[float]
)
_erfinv = np.vectorize(lambda x: float(mpmath.erfinv(mpmath.mpf(float(x)))), otypes=[float])
_PI = np.longdouble("3.14159265358979323846264338327950288")


def _sigmoid(x: Vector) -> Vector:
    return np.exp(-np.logaddexp(0, -x))


def _dsigmoid(x: Vector) -> Vector:
    return _sigmoid(x) * _sigmoid(-x)


def _normal(x: Vector) -> Vector:
    return np.exp(-(x**2) / 2) / np.sqrt(2 * _PI)


def _dmish(x: Vector) -> Vector:
    t = np.tanh(np.logaddexp(0, x))
    return t + x * (1 - t**2) * _sigmoid(x)


def _dtanh(x: Vector) -> Vector:
    return 1 / np.cosh(x) ** 2


def _dsinc(x: Vector) -> Vector:
    """Of sin(pi x)/(pi x); by its series near 0, where the closed form cancels."""
    y = _PI * np.where(np.abs(x) < 1e-2, 1, x)
    z = _PI * x
    series = -_PI * z / 3 * (1 - z**2 / 10 * (1 - z**2 / 28 * (1 - z**2 / 54)))
    return np.where(np.abs(x) < 1e-2, series, _PI * (np.cos(y) - np.sin(y) / y) / y)


EACH = {
    "identity": _each(lambda x: x * 1, np.ones_like),
    "affine": _each(lambda x: 3 * x + 2, lambda x: 3 + 0 * x),
    "square": _each(lambda x: x * x, lambda x: 2 * x),
    "cube": _each(lambda x: x**3, lambda x: 3 * x**2),
    "seventh power": _each(lambda x: x**7, lambda x: 7 * x**6),
    "signed square": _each(lambda x: x * x.abs(), lambda x: 2 * np.abs(x)),
    "reciprocal": _each(torch.reciprocal, lambda x: -1 / x**2),
    "rational": _each(lambda x: 1 / (1 + x * x), lambda x: -2 * x / (1 + x**2) ** 2),
    "hypot": _each(lambda x: torch.sqrt(1 + x * x), lambda x: x / np.hypot(1, x)),
    "log1p of square": _each(lambda x: torch.log1p(x * x), lambda x: 2 * x / (1 + x**2)),
    "sin": _each(torch.sin, np.cos),
    "cos": _each(torch.cos, lambda x: -np.sin(x)),
    "fast sin": _each(lambda x: torch.sin(8 * x), lambda x: 8 * np.cos(8 * x)),
    "tan": _each(torch.tan, lambda x: 1 / np.cos(x) ** 2),
    "sinc": _each(torch.sinc, _dsinc),
    "atan": _each(torch.atan, lambda x: 1 / (1 + x**2)),
    "asinh": _each(torch.asinh, lambda x: 1 / np.hypot(1, x)),
    "exp": _each(torch.exp, np.exp),
    "exp2": _each(torch.exp2, lambda x: np.log(np.longdouble(2)) * np.exp2(x)),
    "expm1": _each(torch.expm1, np.exp),
    "sinh": _each(torch.sinh, np.cosh),
    "cosh": _each(torch.cosh, np.sinh),
    "gauss": _each(lambda x: torch.exp(-x * x), lambda x: -2 * x * np.exp(-(x**2))),
    "erf": _each(torch.erf, lambda x: 2 / np.sqrt(_PI) * np.exp(-(x**2))),
    "tanh": _each(torch.tanh, _dtanh),
    "tanhshrink": _each(F.tanhshrink, lambda x: np.tanh(x) ** 2),
    "sigmoid": _each(torch.sigmoid, _dsigmoid),
    "log sigmoid": _each(F.logsigmoid, lambda x: _sigmoid(-x)),
    "softplus": _each(F.softplus, _sigmoid),
    "silu": _each(F.silu, lambda x: _sigmoid(x) + x * _dsigmoid(x)),
    "gelu": _each(F.gelu, lambda x: _erfc(-x / np.sqrt(2)) / 2 + x * _normal(x)),
    "mish": _each(F.mish, _dmish),
    "softsign": _each(F.softsign, lambda x: 1 / (1 + np.abs(x)) ** 2),
    "elu": _each(F.elu, lambda x: np.exp(np.minimum(x, 0))),
    "relu": _each(torch.relu, lambda x: 1.0 * (x > 0)),
    "leaky relu": _each(lambda x: F.leaky_relu(x, 0.125), lambda x: np.where(x > 0, 1, 0.125)),
    "abs": _each(torch.abs, np.sign),
    "clamp": _each(lambda x: x.clamp(-1, 1), lambda x: 1.0 * (np.abs(x) < 1)),
    "hard swish": _each(
        F.hardswish,
        lambda x: np.where(np.abs(x) < 3, (2 * x + 3) / 6, 1.0 * (x > 0)),
    ),
    "huber": _each(
        lambda x: F.smooth_l1_loss(x, torch.zeros_like(x), reduction="none"),
        lambda x: np.clip(x, -1, 1),
    ),
    "log": _each(torch.log, lambda x: 1 / x, "positive"),
    "log2": _each(torch.log2, lambda x: 1 / x / np.log(np.longdouble(2)), "positive"),
    "log1p": _each(torch.log1p, lambda x: 1 / (1 + x), "positive"),
    "sqrt": _each(torch.sqrt, lambda x: 1 / (2 * np.sqrt(x)), "positive"),
    "rsqrt": _each(torch.rsqrt, lambda x: -1 / (2 * x * np.sqrt(x)), "positive"),
    "power 3/2": _each(lambda x: x**1.5, lambda x: 1.5 * np.sqrt(x), "positive"),
    "x log x": _each(lambda x: torch.xlogy(x, x), lambda x: np.log(x) + 1, "positive"),
    "lgamma": _each(torch.lgamma, _digamma, "positive"),
    "asin": _each(torch.asin, lambda x: 1 / np.sqrt((1 - x) * (1 + x)), "unit"),
    "acos": _each(torch.acos, lambda x: -1 / np.sqrt((1 - x) * (1 + x)), "unit"),
    "atanh": _each(torch.atanh, lambda x: 1 / ((1 - x) * (1 + x)), "unit"),
    "erfinv": _each(
        torch.erfinv,
        lambda x: np.sqrt(_PI) / 2 * np.exp(_erfinv(x).astype(np.longdouble) ** 2),
        "unit",
    ),
    "logit": _each(torch.logit, lambda x: 1 / (x * (1 - x)), "probability"),
    "acosh": _each(torch.acosh, lambda x: 1 / np.sqrt((x - 1) * (x + 1)), "above one"),
}


# Functions of several entries --------------------------------------------------------------------


def _softmax(x: Vector) -> Vector:
    weights = np.exp(x - x.max())
    return weights / weights.sum()


def _softmax_along(x: Vector, u: Vector) -> Vector:
    return _softmax(x) * (u - _softmax(x) @ u)


def _layer_norm_along(x: Vector, u: Vector) -> Vector:
    y, d = x - x.mean(), u - u.mean()
    spread = np.sqrt((y**2).mean() + 0.125)
    return d / spread - y * (y * d).mean() / spread**3


def _one(value: Any) -> Vector:
    return np.asarray([value], np.longdouble)


def _weights(size: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.random.default_rng(5).integers(-8, 9, (7, size)) / 32


def _matmul(x: Tensor) -> Tensor:
    return torch.from_numpy(_weights(x.shape[0])).to(x.dtype) @ x


def _mixed_along(x: Vector, u: Vector) -> Vector:
    matrix = _weights(x.shape[0])
    return (matrix @ u) * _dtanh(matrix @ x)


def _normalised_along(x: Vector, u: Vector) -> Vector:
    size = np.sqrt(x @ x)
    return u / size - x * (x @ u) / size**3


def _products_along(x: Vector, u: Vector) -> Vector:
    half = x.shape[0] // 2
    return x[:half] * u[half:] + u[:half] * x[half:]


def _horner(x: Tensor) -> Tensor:
    """A polynomial in the first eight entries, the coefficients, at each of the others."""
    found = torch.zeros_like(x[8:])
    for coefficient in x[:8]:
        found = found * x[8:] + coefficient
    return found


def _horner_along(x: Vector, u: Vector) -> Vector:
    found, moved = np.zeros_like(x[8:]), np.zeros_like(x[8:])
    for coefficient, change in zip(x[:8], u[:8], strict=True):
        moved = moved * x[8:] + found * u[8:] + change
        found = found * x[8:] + coefficient
    return moved


STRUCTURED = {
    "softmax": Exact(lambda x: torch.softmax(x, 0), _softmax_along),
    "log softmax": Exact(lambda x: torch.log_softmax(x, 0), lambda x, u: u - _softmax(x) @ u),
    "logsumexp": Exact(lambda x: torch.logsumexp(x, 0)[None], lambda x, u: _one(_softmax(x) @ u)),
    "layer norm": Exact(lambda x: F.layer_norm(x, x.shape, eps=0.125), _layer_norm_along),
    "normalise": Exact(lambda x: x / torch.linalg.vector_norm(x), _normalised_along),
    "norm": Exact(
        lambda x: torch.linalg.vector_norm(x)[None], lambda x, u: _one(x @ u / np.sqrt(x @ x))
    ),
    "mean": Exact(lambda x: x.mean()[None], lambda x, u: _one(u.mean())),
    "variance": Exact(
        lambda x: x.var(correction=0)[None],
        lambda x, u: _one(2 * ((x - x.mean()) * u).mean()),
    ),
    "sum of squares": Exact(lambda x: (x * x).sum()[None], lambda x, u: _one(2 * x @ u)),
    "cumsum": Exact(lambda x: torch.cumsum(x, 0), lambda x, u: np.cumsum(u)),
    "cumprod": Exact(
        lambda x: torch.cumprod(x[:8], 0),
        lambda x, u: np.cumprod(x[:8]) * np.cumsum(u[:8] / x[:8]),
    ),
    "matmul": Exact(_matmul, lambda x, u: _weights(x.shape[0]) @ u),
    "tanh of matmul": Exact(lambda x: torch.tanh(_matmul(x)), _mixed_along),
    "products": Exact(lambda x: x[: len(x) // 2] * x[len(x) // 2 :], _products_along),
    "polynomials": Exact(_horner, _horner_along),
    "sort": Exact(lambda x: torch.sort(x).values, lambda x, u: u[np.argsort(x, kind="stable")]),
    "max": Exact(lambda x: x.amax(0)[None], lambda x, u: _one(u[np.argmax(x)])),
}

FUNCTIONS = {**EACH, **STRUCTURED}


def point(domain: str, size: int, scale: float, seed: int) -> np.ndarray[Any, Any] | None:
    """A point of about this scale inside the domain; None where there is none."""
    rng = np.random.default_rng([seed, round(1e9 * math.log10(scale)) + 10**12])
    if domain == "real":
        return scale * rng.standard_normal(size)
    if domain == "positive":
        return scale * np.abs(rng.standard_normal(size))
    if domain == "above one":
        return 1 + scale * np.abs(rng.standard_normal(size))
    if scale > 1:
        return None
    inside = scale * rng.uniform(0, 1, size)
    return inside if domain == "probability" else inside * rng.choice([-1, 1], size)
