"""More exhibits for every framework: of branches, corners, forward mode and float32.

And right functions that differences like to accuse.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from exhibits.portable import Portable, layer_norm, layer_norm_backward, normal, sine


def weights(xp: Any, scores: Any) -> Any:
    """The softmax of each row."""
    e = xp.exp(scores - xp.max(scores, axis=1)[:, None])
    return e / xp.sum(e, axis=1)[:, None]


def gradient_of_scores(xp: Any, g: Any, p: Any) -> Any:
    return p * (g - xp.sum(g * p, axis=1)[:, None])


def attention(xp: Any, q: Any, k: Any, v: Any) -> Any:
    return weights(xp, q @ k.T / k.shape[1] ** 0.5) @ v


def attention_backward(xp: Any, g: Any, q: Any, k: Any, v: Any, extent: int) -> tuple[Any, ...]:
    p = weights(xp, q @ k.T / k.shape[1] ** 0.5)
    s = gradient_of_scores(xp, g @ v.T, p) / extent**0.5
    return s @ k, s.T @ q, p.T @ g


def masked_scores() -> tuple[Any, ...]:
    scores = normal(3, 4)
    scores[0, 2] = scores[2, 3] = -np.inf
    return (scores,)


def size_of(xp: Any, x: Any) -> Any:
    return xp.sqrt(xp.sum(x * x))


def sine_pushed(xp: Any, u: Any, x: Any) -> Any:
    return xp.cos(x) * u


def in_single(*shape: int) -> tuple[Any, ...]:
    return (normal(*shape).astype(np.float32),)


def only_in_single(xp: Any, g: Any, change: Any) -> Any:
    """A kernel that has a path of its own for float32."""
    return change(g) if g.dtype == xp.float32 else g


def sine_back(xp: Any, g: Any, x: Any) -> tuple[Any, ...]:
    return (g * xp.cos(x),)


WRONG = (
    Portable(
        name="softplus_branches_before_beta",
        source="M07",
        inputs=lambda: (np.array([-1.0, 0.2, 25.0, 3.0]),),
        value=lambda xp, x: 10 * xp.log1p(xp.exp(0.1 * x)),
        right=lambda xp, g, x: (g / (1 + xp.exp(-0.1 * x)),),
        wrong=lambda xp, g, x: (xp.where(x > 20, g, g / (1 + xp.exp(-0.1 * x))),),
        place=(0, (2,), (2,)),
    ),
    Portable(
        name="wrong_variable_on_the_gated_branch",
        source="M31",
        inputs=lambda: (normal(4), normal(4, seed=2)),
        value=lambda xp, v, z: v * xp.tanh(z),
        right=lambda xp, g, v, z: (g * xp.tanh(z), g * v * (1 - xp.tanh(z) ** 2)),
        wrong=lambda xp, g, v, z: (g * xp.tanh(z), g * z * (1 - xp.tanh(z) ** 2)),
        place=(1, None, None),
    ),
    Portable(
        name="value_extent_taken_for_key_extent",
        source="M17",
        inputs=lambda: (normal(3, 2), normal(4, 2, seed=2), normal(4, 3, seed=3)),
        value=attention,
        right=lambda xp, g, q, k, v: attention_backward(xp, g, q, k, v, k.shape[1]),
        wrong=lambda xp, g, q, k, v: attention_backward(xp, g, q, k, v, v.shape[1]),
    ),
    Portable(
        name="rows_scaled_by_the_first_cotangent",
        source="M04",
        inputs=lambda: (normal(3, 4),),
        value=lambda xp, x: xp.mean(x * x, axis=1),
        right=lambda xp, g, x: (g[:, None] * 0.5 * x,),
        wrong=lambda xp, g, x: (g[0] * 0.5 * x,),
    ),
    Portable(
        name="masked_score_whose_gradient_is_not_a_number",
        cause="not a number",
        inputs=masked_scores,
        value=weights,
        right=lambda xp, g, x: (gradient_of_scores(xp, g, weights(xp, x)),),
        wrong=lambda xp, g, x: (gradient_of_scores(xp, g, weights(xp, x)) + (x - x),),
        place=(0, (0, 2), None),
    ),
    Portable(
        name="norm_that_is_not_a_number_at_zero",
        cause="not a number",
        inputs=lambda: (np.zeros(2),),
        value=size_of,
        right=lambda xp, g, x: (g * x / xp.where(size_of(xp, x) == 0, 1.0, size_of(xp, x)),),
        wrong=lambda xp, g, x: (g * x / size_of(xp, x),),
        place=(0, (0,), None),
    ),
    Portable(
        name="one_per_cent_in_float32_only",
        inputs=lambda: in_single(12, 12),
        value=sine,
        right=sine_back,
        wrong=lambda xp, g, x: (only_in_single(xp, g, lambda g: g * 1.01) * xp.cos(x),),
    ),
    Portable(
        name="mean_of_the_gradient_forgotten_in_float32",
        inputs=lambda: in_single(40),
        value=layer_norm,
        right=lambda xp, g, x: layer_norm_backward(xp, g, x, projection=True),
        wrong=lambda xp, g, x: layer_norm_backward(xp, g, x, projection=g.dtype != xp.float32),
    ),
    Portable(
        name="jvp_half_as_big_again",
        source="J1",
        inputs=lambda: (normal(1000),),
        value=sine,
        right=sine_back,
        wrong=sine_back,
        right_push=sine_pushed,
        wrong_push=lambda xp, u, x: 1.5 * sine_pushed(xp, u, x),
        check="forward",
    ),
    Portable(
        name="jvp_forgets_one_of_two_inputs",
        inputs=lambda: (normal(4), normal(4, seed=2)),
        value=lambda xp, x, w: x * w,
        right=lambda xp, g, x, w: (g * w, g * x),
        wrong=lambda xp, g, x, w: (g * w, g * x),
        right_push=lambda xp, u, t, x, w: u * w + x * t,
        wrong_push=lambda xp, u, t, x, w: u * w,
        place=(1, None, None),
        check="forward",
    ),
)

# Where a fixed step, or one tolerance for all, rejects what is right.
RIGHT = (
    Portable(
        name="sine_in_float32",
        source="C1",
        inputs=lambda: in_single(10),
        value=sine,
        right=sine_back,
    ),
    Portable(
        name="relu_at_zero",
        source="C2",
        inputs=lambda: (np.zeros(1),),
        value=lambda xp, x: xp.where(x > 0, x, 0 * x),
        right=lambda xp, g, x: (xp.where(x > 0, g, 0 * g),),
    ),
    Portable(
        name="abs_at_zero",
        source="C2b",
        inputs=lambda: (np.zeros(1),),
        value=lambda xp, x: xp.abs(x),
        right=lambda xp, g, x: (g * xp.sign(x),),
    ),
    Portable(
        name="square_at_ten_billion",
        source="C3",
        inputs=lambda: (np.array([1e10]),),
        value=lambda xp, x: x * x,
        right=lambda xp, g, x: (2 * g * x,),
    ),
    Portable(
        name="log_near_zero",
        source="C4",
        inputs=lambda: (np.array([1e-7]),),
        value=lambda xp, x: xp.log(x),
        right=lambda xp, g, x: (g / x,),
    ),
    Portable(
        name="sine_that_oscillates",
        source="C6",
        inputs=lambda: (normal(5),),
        value=lambda xp, x: xp.sin(3000 * x),
        right=lambda xp, g, x: (3000 * g * xp.cos(3000 * x),),
    ),
    Portable(
        name="sine_on_a_large_offset",
        source="C7",
        inputs=lambda: (normal(5),),
        value=lambda xp, x: 1e8 + xp.sin(x),
        right=sine_back,
    ),
)
