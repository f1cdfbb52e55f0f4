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

    Or a right one alone, which must pass.

    Attributes:
        name: the mistake.
        source: the row of the field work, as in `exhibits.frame.Exhibit`.
        inputs: arrays of NumPy.
        value: (xp, *inputs) -> output.
        right: (xp, cotangent, *inputs) -> a tuple of gradients, J^H v.
        wrong: likewise; None where there is no mistake.
        right_push: (xp, *tangents, *inputs) -> the tangent J u; None where the exhibit has no
            forward mode. JAX takes both modes from it.
        wrong_push: likewise.
        place: (input slot, entry of it, entry of the output) of a finding; None leaves one open.
        check: which must fail.
        cause: the kind of mistake, as a report of PyTorch names it; "" where it names none.
    """

    name: str
    inputs: Callable[[], tuple[Any, ...]]
    value: Callable[..., Any]
    right: Callable[..., Any]
    source: str = "extra"
    wrong: Callable[..., Any] | None = None
    right_push: Callable[..., Any] | None = None
    wrong_push: Callable[..., Any] | None = None
    place: tuple[int, tuple[int, ...] | None, tuple[int, ...] | None] | None = None
    check: str = "backward"
    cause: str = ""

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


def softmax(xp: Any, x: Any) -> Any:
    e = xp.exp(x - xp.max(x))
    return e / xp.sum(e)


def others(xp: Any, x: Any) -> Any:
    """The product of all other entries, for each."""
    places = range(x.shape[0])
    return xp.stack([xp.prod(xp.where(xp.arange(len(places)) == k, 1 + 0 * x, x)) for k in places])


def rows(xp: Any, x: Any) -> Any:
    """1, 0.01, 0.0001, ...: one per row."""
    return 0.01 ** xp.astype(xp.arange(x.shape[0]), x.dtype)[:, None]


def is_last(xp: Any, x: Any, count: int = 1) -> Any:
    return xp.arange(x.shape[0])[:, None] >= x.shape[0] - count


def rms_norm(xp: Any, x: Any) -> tuple[Any, Any]:
    """The rows over their root mean square, and that."""
    scale = xp.sqrt(xp.mean(x * x, axis=1))[:, None]
    return x / scale, scale


def rms_norm_backward(xp: Any, g: Any, x: Any) -> tuple[Any, ...]:
    y, scale = rms_norm(xp, x)
    return ((g - y * xp.mean(g * y, axis=1)[:, None]) / scale,)


def one_hot(xp: Any, places: tuple[int, ...], size: int) -> Any:
    """True at (k, places[k])."""
    return xp.stack([xp.arange(size) == place for place in places])


def gathered(xp: Any, x: Any) -> Any:
    return xp.stack([x[1], x[3], x[1]])


def gathered_backward(xp: Any, g: Any, x: Any, places: tuple[int, ...]) -> tuple[Any, ...]:
    return (xp.sum(xp.where(one_hot(xp, places, 4), g[:, None], 0 * g[:, None]), axis=0),)


def cumulated_back(xp: Any, g: Any, axis: int) -> Any:
    """The sums along an axis, each from its place to the end."""
    return xp.flip(xp.cumulative_sum(xp.flip(g, axis=axis), axis=axis), axis=axis)


def shared_by_the_largest(xp: Any, g: Any, x: Any) -> Any:
    largest = xp.where(x == xp.max(x), 1 + 0 * x, 0 * x)
    return g * largest / xp.sum(largest)


def loss(xp: Any, x: Any) -> Any:
    """The cross entropy of class 0."""
    return xp.log(xp.sum(xp.exp(x))) - x[0]


def remembering(
    name: str, value: Callable[..., Any], slope: Callable[..., Any], key: Callable[[Any], Any]
) -> Portable:
    """A backward that keeps its slope by `key`, from the first input that has it."""
    memory: dict[Any, Any] = {}

    def inputs() -> tuple[Any, ...]:
        memory.clear()
        return (normal(6),)

    def wrong(xp: Any, g: Any, x: Any) -> tuple[Any, ...]:
        if key(x) not in memory:
            memory[key(x)] = slope(xp, x)
        return (g * memory[key(x)],)

    return Portable(
        name=name,
        inputs=inputs,
        value=value,
        right=lambda xp, g, x: (g * slope(xp, x),),
        wrong=wrong,
        check="second_point",
        cause="stale",
    )


STATE = (
    remembering("slope_kept_by_shape", sine, lambda xp, x: xp.cos(x), lambda x: tuple(x.shape)),
    remembering("table_made_once", sine, lambda xp, x: xp.cos(x), lambda x: "table"),
    remembering(
        "mask_made_once",
        lambda xp, x: xp.where(x > 0, x, 0.0),
        lambda xp, x: xp.where(x > 0, 1.0, 0.0),
        lambda x: "mask",
    ),
)

EXHIBITS = (
    *STATE,
    Portable(
        name="per_row_scale_treated_as_constant",
        source="M01",
        cause="missing term",
        inputs=lambda: (normal(4, 5),),
        value=lambda xp, x: rms_norm(xp, x)[0],
        right=rms_norm_backward,
        wrong=lambda xp, g, x: (g / rms_norm(xp, x)[1],),
    ),
    Portable(
        name="constant_factor_missing",
        inputs=lambda: (normal(6),),
        value=lambda xp, x: xp.sum(x * x),
        right=lambda xp, g, x: (2 * g * x,),
        wrong=lambda xp, g, x: (g * x,),
    ),
    Portable(
        name="cross_entropy_gradient_exactly_zero",
        source="M06",
        cause="zero",
        inputs=lambda: (normal(5),),
        value=loss,
        right=lambda xp, g, x: (g * (softmax(xp, x) - xp.where(xp.arange(5) == 0, 1.0, 0.0)),),
        wrong=lambda xp, g, x: (0.0 * x,),
    ),
    Portable(
        name="gather_overwrites_instead_of_accumulating",
        inputs=lambda: (normal(4),),
        value=gathered,
        right=lambda xp, g, x: gathered_backward(xp, g, x, (1, 3, 1)),
        wrong=lambda xp, g, x: gathered_backward(xp, g[1:], x, (3, 1)),
        place=(0, (1,), (0,)),
    ),
    Portable(
        name="broadcast_input_gets_the_first_row",
        cause="missing reduction",
        inputs=lambda: (normal(4, 3), normal(3, seed=2)),
        value=lambda xp, x, b: xp.sin(x + b),
        right=lambda xp, g, x, b: (g * xp.cos(x + b), xp.sum(g * xp.cos(x + b), axis=0)),
        wrong=lambda xp, g, x, b: (g * xp.cos(x + b), (g * xp.cos(x + b))[0, :]),
        place=(1, None, None),
    ),
    Portable(
        name="cumulated_back_along_another_axis",
        inputs=lambda: (normal(3, 3),),
        value=lambda xp, x: xp.cumulative_sum(x, axis=0),
        right=lambda xp, g, x: (cumulated_back(xp, g, 0),),
        wrong=lambda xp, g, x: (cumulated_back(xp, g, 1),),
    ),
    Portable(
        name="slope_of_tanh_taken_at_the_input",
        inputs=lambda: (normal(6),),
        value=lambda xp, x: xp.tanh(x),
        right=lambda xp, g, x: (g * (1 - xp.tanh(x) ** 2),),
        wrong=lambda xp, g, x: (g * (1 - x**2),),
    ),
    Portable(
        name="one_factor_of_a_cube_left_out",
        cause="factor",
        inputs=lambda: (normal(6),),
        value=lambda xp, x: x**3,
        right=lambda xp, g, x: (3 * g * x**2,),
        wrong=lambda xp, g, x: (3 * g * x,),
    ),
    Portable(
        name="relu_of_slope_two_at_zero",
        inputs=lambda: (np.array([0.7, 0.0, -0.4]),),
        value=lambda xp, x: xp.where(x > 0, x, 0 * x),
        right=lambda xp, g, x: (xp.where(x > 0, g, 0 * g),),
        wrong=lambda xp, g, x: (xp.where(x == 0, 2 * g, xp.where(x > 0, g, 0 * g)),),
        place=(0, (1,), (1,)),
    ),
    Portable(
        name="maximum_that_claims_one_for_each_of_two",
        inputs=lambda: (np.array([1.5, -0.3, 1.5]),),
        value=lambda xp, x: xp.max(x),
        right=lambda xp, g, x: (shared_by_the_largest(xp, g, x),),
        wrong=lambda xp, g, x: (xp.where(x == xp.max(x), g, 0 * g),),
    ),
    Portable(
        name="sorted_gradient_left_in_order",
        inputs=lambda: (np.array([0.4, -1.2, 2.0, 0.9]),),
        value=lambda xp, x: xp.sort(x),
        right=lambda xp, g, x: (xp.take(g, xp.argsort(xp.argsort(x)), axis=0),),
        wrong=lambda xp, g, x: (g + 0.0,),
    ),
    Portable(
        name="flag_read_the_wrong_way_round",
        inputs=lambda: (normal(6),),
        value=lambda xp, x: xp.where(xp.arange(6) % 2 == 0, xp.sin(x), x * x),
        right=lambda xp, g, x: (g * xp.where(xp.arange(6) % 2 == 0, xp.cos(x), 2 * x),),
        wrong=lambda xp, g, x: (g * xp.where(xp.arange(6) % 2 == 1, xp.cos(x), 2 * x),),
    ),
    Portable(
        name="column_of_a_small_input_dropped",
        inputs=lambda: (normal(5), normal(5, seed=2)),
        value=lambda xp, x, w: xp.sin(x) + 1e-6 * w * w,
        right=lambda xp, g, x, w: (g * xp.cos(x), 2e-6 * g * w),
        wrong=lambda xp, g, x, w: (g * xp.cos(x), xp.where(xp.arange(5) == 3, 0.0, 2e-6 * g * w)),
        place=(1, (3,), (3,)),
    ),
    Portable(
        name="backward_clips_the_cotangent",
        inputs=lambda: (normal(5),),
        value=sine,
        right=lambda xp, g, x: (g * xp.cos(x),),
        wrong=lambda xp, g, x: (xp.where(xp.abs(g) > 0.5, 0.5 * xp.sign(g), g) * xp.cos(x),),
        check="linearity",
    ),
    Portable(
        name="every_entry_ten_percent_too_big",
        source="W1",
        cause="factor",
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
        cause="misplaced",
        inputs=lambda: (normal(12),),
        **sine_then(lambda xp, g: xp.concat([g[-1:], g[:-1]])),
    ),
    Portable(
        name="zero_gradient_of_a_tiny_function",
        source="W4 M26",
        inputs=lambda: (normal(7),),
        value=lambda xp, x: 1e-6 * xp.sin(x),
        right=lambda xp, g, x: (1e-6 * g * xp.cos(x),),
        wrong=lambda xp, g, x: (0.0 * x,),
    ),
    Portable(
        name="gradient_with_wrong_sign",
        cause="sign",
        inputs=lambda: (normal(8),),
        **sine_then(lambda xp, g: -g),
    ),
    Portable(
        name="gradient_transposed",
        cause="transposed",
        inputs=lambda: (normal(4, 4),),
        **sine_then(lambda xp, g: g.T),
    ),
    Portable(
        name="layer_norm_without_projection_term",
        source="M39",
        cause="missing term",
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
        cause="misplaced",
        inputs=lambda: (normal(5), normal(5, seed=2)),
        value=product,
        right=lambda xp, g, x, w: (g * w, g * x),
        wrong=lambda xp, g, x, w: (g * x, g * w),
    ),
    Portable(
        name="conjugate_missing",
        source="M24",
        cause="conjugate",
        inputs=lambda: (complex_normal(4), complex_normal(4, seed=2)),
        value=product,
        right=lambda xp, g, x, w: (g * xp.conj(w), g * xp.conj(x)),
        wrong=lambda xp, g, x, w: (g * w, g * xp.conj(x)),
        place=(0, None, None),
    ),
    Portable(
        name="cotangent_ignored",
        source="M05",
        cause="cotangent ignored",
        inputs=lambda: (normal(6),),
        value=sine,
        right=lambda xp, g, x: (g * xp.cos(x),),
        wrong=lambda xp, g, x: (xp.cos(x),),
        check="linearity",
    ),
    Portable(
        name="two_wrong_entries_far_apart",
        inputs=lambda: (normal(300),),
        **sine_then(lambda xp, g: at(xp, at(xp, g, 5, 1.01), 290, 0.99)),
        place=(0, (290,), (290,)),
    ),
    Portable(
        name="gradient_reversed",
        inputs=lambda: (normal(9),),
        **sine_then(lambda xp, g: xp.flip(g)),
    ),
    Portable(
        name="last_rows_dropped",
        inputs=lambda: (normal(7, 3),),
        **sine_then(lambda xp, g: xp.where(is_last(xp, g, 2), 0.0 * g, g)),
    ),
    Portable(
        name="zero_gradient_of_a_mean_over_many",
        source="M26",
        cause="zero",
        inputs=lambda: (normal(2000),),
        value=lambda xp, x: xp.mean(x * x),
        right=lambda xp, g, x: (2 * g * x / x.shape[0],),
        wrong=lambda xp, g, x: (0.0 * x,),
    ),
    Portable(
        name="normaliser_severed_from_the_graph",
        source="M11",
        inputs=lambda: (normal(6),),
        value=softmax,
        right=lambda xp, g, x: (softmax(xp, x) * (g - xp.sum(g * softmax(xp, x))),),
        wrong=lambda xp, g, x: (softmax(xp, x) * g,),
    ),
    Portable(
        name="product_divided_by_a_zero_entry",
        source="M08",
        inputs=lambda: (np.array([2.0, 0.0, 5.0, -1.5]),),
        value=lambda xp, x: xp.prod(x),
        right=lambda xp, g, x: (g * others(xp, x),),
        wrong=lambda xp, g, x: (xp.where(x == 0, 0.0 * x, g * others(xp, x)),),
        place=(0, (1,), None),
    ),
    Portable(
        name="gradient_passes_the_border",
        source="M25",
        cause="missing mask",
        inputs=lambda: (np.array([-2.5, -0.4, 0.3, 1.9]),),
        value=lambda xp, x: xp.where(x < -1, 0 * x - 1, xp.where(x > 1, 0 * x + 1, x)),
        right=lambda xp, g, x: (xp.where(xp.abs(x) < 1, g, 0.0 * g),),
        wrong=lambda xp, g, x: (g,),
    ),
    Portable(
        name="wrong_for_negative_inputs_only",
        source="W8",
        inputs=lambda: (np.array([0.7, -0.6, 1.1, -1.3]),),
        value=lambda xp, x: x * xp.abs(x),
        right=lambda xp, g, x: (2 * g * xp.abs(x),),
        wrong=lambda xp, g, x: (2 * g * x,),
    ),
    Portable(
        name="small_row_dropped_beside_large_ones",
        inputs=lambda: (normal(4, 3),),
        value=lambda xp, x: rows(xp, x) * xp.sin(x),
        right=lambda xp, g, x: (g * rows(xp, x) * xp.cos(x),),
        wrong=lambda xp, g, x: (xp.where(is_last(xp, x), 0.0 * x, g * rows(xp, x) * xp.cos(x)),),
    ),
    Portable(
        name="backward_squares_the_cotangent",
        inputs=lambda: (normal(5),),
        value=sine,
        right=lambda xp, g, x: (g * xp.cos(x),),
        wrong=lambda xp, g, x: (g * g * xp.cos(x),),
        check="linearity",
    ),
    Portable(
        name="first_cotangent_used_for_all",
        inputs=lambda: (normal(5),),
        value=sine,
        right=lambda xp, g, x: (g * xp.cos(x),),
        wrong=lambda xp, g, x: (g[0] * xp.cos(x),),
    ),
    Portable(
        name="conjugate_of_the_cotangent_forgotten",
        inputs=lambda: (complex_normal(4),),
        value=lambda xp, x: x * xp.conj(x) * x,
        right=lambda xp, g, x: (2 * g * xp.real(x * xp.conj(x)) + xp.conj(g) * x * x,),
        wrong=lambda xp, g, x: (2 * g * xp.real(x * xp.conj(x)) + g * x * x,),
    ),
)
