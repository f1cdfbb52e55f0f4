"""A part of the function in fewer bits than its arrays: statistics and weights in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from exhibits.portable import Portable, normal


def _narrow(xp: Any, x: Any) -> Any:
    """To float32 and back, as a layer of a fixed dtype does."""
    return xp.astype(xp.astype(x, xp.float32), xp.float64)


def _penalised(xp: Any, x: Any) -> Any:
    return xp.sum(x * x) + 0.1 * xp.sum(_narrow(xp, x) ** 2)


def _scale(xp: Any, x: Any) -> Any:
    """The root mean square of each row, of inputs in float32."""
    return xp.sqrt(xp.mean(_narrow(xp, x) ** 2, axis=1))[:, None]


def _normalised_backward(xp: Any, g: Any, x: Any, factor: float) -> tuple[Any, ...]:
    scale = _scale(xp, x)
    y = x / scale
    return ((g - factor * y * xp.mean(g * y, axis=1)[:, None]) / scale,)


def _weights(xp: Any, x: Any) -> Any:
    e = xp.exp(_narrow(xp, x))
    return _narrow(xp, e / xp.sum(e, axis=1)[:, None])


def _weighted_backward(xp: Any, g: Any, x: Any, factor: float) -> tuple[Any, ...]:
    p = _weights(xp, x)
    inner = g * x
    return (g * p + factor * p * (inner - xp.sum(inner * p, axis=1)[:, None]),)


def _shares(xp: Any, x: Any) -> Any:
    """Of a sum that is kept in float32: treads with the slope of what is divided by it."""
    e = xp.exp(5 * x)
    return e / _narrow(xp, xp.sum(e, axis=1)[:, None])


def _shared_backward(xp: Any, g: Any, x: Any, factor: float) -> tuple[Any, ...]:
    p = _shares(xp, x)
    return (g * p * (1 + 5 * x) - 5 * factor * p * xp.sum(g * p * x, axis=1)[:, None],)


def _of(
    name: str, value: Callable[..., Any], backward: Callable[..., Any], *shape: int
) -> Portable:
    return Portable(
        name=name,
        inputs=lambda: (np.asarray(normal(*shape)),),
        value=value,
        right=lambda xp, g, x: backward(xp, g, x, 1.0),
        wrong=lambda xp, g, x: backward(xp, g, x, 1.05),
    )


# Differences of values in float32 resolve small entries to a few per cent: right ones may stay
# inconclusive.
NOT_ACCUSED = (
    _of(
        "penalty_in_float32_inside_a_loss_in_float64",
        _penalised,
        lambda xp, g, x, factor: (g * (2 + 0.2 * factor) * x,),
        6,
    ),
    _of(
        "shares_of_a_sum_in_float32_inside_float64",
        lambda xp, x: _shares(xp, x) * x,
        _shared_backward,
        3,
        4,
    ),
    _of(
        "root_mean_square_in_float32_inside_float64",
        lambda xp, x: x / _scale(xp, x),
        _normalised_backward,
        3,
        4,
    ),
    _of(
        "softmax_in_float32_inside_float64",
        lambda xp, x: _weights(xp, x) * x,
        _weighted_backward,
        3,
        4,
    ),
)
