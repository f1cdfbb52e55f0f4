"""Exhibits that make sense in every framework: one definition in operations of the array API.

A rule is plain array code, whoever calls it: `vjp=` of a NumPy function, `custom_vjp` of JAX, a
`torch.autograd.Function`. What is about graphs, strides, storage, dispatch or autograd's state is
in the other files of this folder, for PyTorch alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Portable:
    """A wrong derivative and its right twin, in any namespace `xp` of the array API.

    Attributes:
        name: the mistake.
        source: the row of the field work, as in `exhibits.frame.Exhibit`.
        inputs: arrays of NumPy, in float64 or complex128.
        value: (xp, *inputs) -> output.
        wrong: (xp, cotangent, *inputs) -> a tuple of gradients, J^H v.
        right: likewise.
        place: (input slot, entry of it, entry of the output) of a finding; None leaves one open.
        check: which must fail.
    """

    name: str
    source: str
    inputs: Callable[[], tuple[Any, ...]]
    value: Callable[..., Any]
    wrong: Callable[..., Any]
    right: Callable[..., Any]
    place: tuple[int, tuple[int, ...] | None, tuple[int, ...] | None] | None = None
    check: str = "backward"

    def __str__(self) -> str:
        return self.name


def normal(*shape: int, seed: int = 1) -> Any:
    return np.random.default_rng(seed).normal(size=shape)


def complex_normal(*shape: int, seed: int = 1) -> Any:
    return normal(*shape, seed=seed) + 1j * normal(*shape, seed=seed + 50)


def sine(xp: Any, x: Any) -> Any:
    return xp.sin(x)


def sine_then(change: Callable[[Any, Any], Any]) -> dict[str, Any]:
    """The sine, its right backward, and one whose gradient goes through `change`."""
    return {
        "value": sine,
        "right": lambda xp, g, x: (g * xp.cos(x),),
        "wrong": lambda xp, g, x: (change(xp, g * xp.cos(x)),),
    }


def at(xp: Any, like: Any, index: int, factor: float) -> Any:
    """The array with one entry of a vector multiplied."""
    return xp.where(xp.arange(like.shape[0]) == index, factor * like, like)


def layer_norm(xp: Any, x: Any) -> Any:
    centred = x - xp.mean(x)
    return centred / xp.sqrt(xp.mean(centred**2))


def layer_norm_backward(xp: Any, g: Any, x: Any, projection: bool) -> tuple[Any, ...]:
    y, scale = layer_norm(xp, x), xp.sqrt(xp.mean((x - xp.mean(x)) ** 2))
    return ((g - xp.mean(g) - (y * xp.mean(g * y) if projection else 0)) / scale,)


def product(xp: Any, x: Any, w: Any) -> Any:
    return x * w


EXHIBITS = (
    Portable(
        name="every_entry_ten_percent_too_big",
        source="W1",
        inputs=lambda: (normal(10),),
        **sine_then(lambda xp, g: 1.1 * g),
    ),
    Portable(
        name="one_wrong_sign_in_a_thousand",
        source="W2",
        inputs=lambda: (normal(1000),),
        **sine_then(lambda xp, g: at(xp, g, 417, -1.0)),
        place=(0, (417,), (417,)),
    ),
    Portable(
        name="one_entry_ten_percent_off_in_a_thousand",
        source="W2c",
        inputs=lambda: (normal(1000),),
        **sine_then(lambda xp, g: at(xp, g, 0, 1.1)),
        place=(0, (0,), (0,)),
    ),
    Portable(
        name="gradient_rolled_by_one",
        source="W3",
        inputs=lambda: (normal(12),),
        **sine_then(lambda xp, g: xp.concat([g[-1:], g[:-1]])),
    ),
    Portable(
        name="zero_gradient_of_a_tiny_function",
        source="W4",
        inputs=lambda: (normal(7),),
        value=lambda xp, x: 1e-6 * xp.sin(x),
        right=lambda xp, g, x: (1e-6 * g * xp.cos(x),),
        wrong=lambda xp, g, x: (0.0 * x,),
    ),
    Portable(
        name="gradient_with_wrong_sign",
        source="extra",
        inputs=lambda: (normal(8),),
        **sine_then(lambda xp, g: -g),
    ),
    Portable(
        name="gradient_transposed",
        source="extra",
        inputs=lambda: (normal(4, 4),),
        **sine_then(lambda xp, g: g.T),
    ),
    Portable(
        name="layer_norm_without_projection_term",
        source="M39",
        inputs=lambda: (normal(8),),
        value=layer_norm,
        right=lambda xp, g, x: layer_norm_backward(xp, g, x, projection=True),
        wrong=lambda xp, g, x: layer_norm_backward(xp, g, x, projection=False),
    ),
    Portable(
        name="every_row_stored_to_row_zero",
        source="M18",
        inputs=lambda: (normal(4, 3),),
        value=lambda xp, x: xp.sum(x * x, axis=1),
        right=lambda xp, g, x: (2 * g[:, None] * x,),
        wrong=lambda xp, g, x: (
            xp.where(xp.arange(4)[:, None] == 0, xp.sum(2 * g[:, None] * x, axis=0)[None, :], 0.0),
        ),
    ),
    Portable(
        name="gradients_of_two_inputs_swapped",
        source="extra",
        inputs=lambda: (normal(5), normal(5, seed=2)),
        value=product,
        right=lambda xp, g, x, w: (g * w, g * x),
        wrong=lambda xp, g, x, w: (g * x, g * w),
    ),
    Portable(
        name="conjugate_missing",
        source="M24",
        inputs=lambda: (complex_normal(4), complex_normal(4, seed=2)),
        value=product,
        right=lambda xp, g, x, w: (g * xp.conj(w), g * xp.conj(x)),
        wrong=lambda xp, g, x, w: (g * w, g * xp.conj(x)),
        place=(0, None, None),
    ),
    Portable(
        name="cotangent_ignored",
        source="extra",
        inputs=lambda: (normal(6),),
        value=sine,
        right=lambda xp, g, x: (g * xp.cos(x),),
        wrong=lambda xp, g, x: (xp.cos(x),),
        check="linearity",
    ),
)
