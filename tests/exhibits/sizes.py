"""Rules that are right for cotangents, and tangents, of the size of 1, dense and of few digits.

For every framework, like `exhibits.portable`; each shows only in what such probes never are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from exhibits.portable import Portable, normal, sine

Change = Callable[[Any, Any], Any]  # (xp, cotangent or tangent) -> what a wrong rule makes of it

RANGE = 65504.0  # of float16


def flushed(xp: Any, g: Any) -> Any:
    return xp.where(xp.abs(g) < 1e-4, 0.0 * g, g)


def overflowing(xp: Any, g: Any) -> Any:
    return xp.where(xp.abs(g) > RANGE, g * float("inf"), g)


def clamped(xp: Any, g: Any) -> Any:
    return xp.where(xp.abs(g) > 1e4, 1e4 * xp.sign(g), g)


def clipped_from_above(xp: Any, g: Any) -> Any:
    return xp.where(g > 1e4, 1e4 + 0.0 * g, g)


def clipped_from_below(xp: Any, g: Any) -> Any:
    return xp.where(g < -1e4, -1e4 + 0.0 * g, g)


def rows_with_a_zero_skipped(xp: Any, g: Any) -> Any:
    return xp.where(xp.any(g == 0, axis=1)[:, None], 0.0 * g, g)


def end_skipped_from_a_zero_on(xp: Any, g: Any) -> Any:
    before = xp.arange(g.shape[0])[:, None] >= xp.arange(g.shape[0])[None, :]
    return xp.where(xp.any(before & (g == 0)[None, :], axis=1), 0.0 * g, g)


def in_steps(xp: Any, g: Any) -> Any:
    return xp.round(g * 1024) / 1024


def through(name: str) -> Change:
    """Rounded to another format."""

    def change(xp: Any, g: Any) -> Any:
        return xp.astype(xp.astype(g, getattr(xp, name)), g.dtype)

    return change


def single_entry_lost(xp: Any, g: Any) -> Any:
    return xp.where(xp.sum(xp.where(g != 0, 1.0, 0.0)) == 1, 0.0 * g, g)


def cancelling_lost(xp: Any, g: Any) -> Any:
    """The sum of the cotangent is taken for its size."""
    return xp.where(xp.sum(g) == 0, 0.0 * g, g)


def one_value_taken_for_ones(xp: Any, g: Any) -> Any:
    """What a sum hands over needs no product, and what a mean does is taken for that."""
    first = g[(0,) * g.ndim]
    return xp.where(xp.all(g == first) & (first != 0), xp.ones_like(g), g)


def negative_lost(xp: Any, g: Any) -> Any:
    """A maximum over the cotangent is taken for its size."""
    return xp.where(xp.all(g < 0), 0.0 * g, g)


def tenth_more_where_it_is_one(xp: Any, g: Any) -> Any:
    """A branch that saves the product with 1, as most losses have it."""
    return xp.where(g == 1.0, 1.1 * g, g)


CHANGES: dict[str, tuple[Change, tuple[int, ...]]] = {
    "cotangents_below_1e-4_flushed": (flushed, (12,)),
    "cotangents_beyond_the_range_of_float16_overflow": (overflowing, (12,)),
    "cotangents_clamped_at_1e4": (clamped, (12,)),
    "rows_whose_cotangent_has_a_zero_skipped": (rows_with_a_zero_skipped, (6, 5)),
    "end_skipped_from_the_first_zero_on": (end_skipped_from_a_zero_on, (12,)),
    "cotangent_rounded_to_1024ths": (in_steps, (12,)),
    "cotangent_through_float32": (through("float32"), (12,)),
    "cotangent_of_a_single_entry_lost": (single_entry_lost, (12,)),
    "cotangent_whose_sum_is_zero_lost": (cancelling_lost, (6, 5)),
    "cotangent_of_one_value_taken_for_ones": (one_value_taken_for_ones, (12,)),
    "cotangent_that_is_negative_throughout_lost": (negative_lost, (12,)),
}


def _of_sine(name: str, change: Change, shape: tuple[int, ...]) -> Portable:
    return Portable(
        name=name,
        inputs=lambda: (normal(*shape),),
        value=sine,
        right=lambda xp, g, x: (g * xp.cos(x),),
        wrong=lambda xp, g, x: (change(xp, g) * xp.cos(x),),
        check="linearity",
    )


def weights(xp: Any, x: Any) -> Any:
    """The softmax of each column: rows are not independent."""
    e = xp.exp(x - xp.max(x, axis=0)[None, :])
    return e / xp.sum(e, axis=0)[None, :]


def of_weights(xp: Any, g: Any, x: Any) -> Any:
    p = weights(xp, x)
    return p * (g - xp.sum(g * p, axis=0)[None, :])


ROWS = Portable(
    name="rows_of_zero_cotangent_taken_for_rows_of_zero_gradient",
    inputs=lambda: (normal(6, 5),),
    value=weights,
    right=lambda xp, g, x: (of_weights(xp, g, x),),
    wrong=lambda xp, g, x: (
        xp.where(xp.all(g == 0, axis=1)[:, None], 0.0 * g, of_weights(xp, g, x)),
    ),
    check="linearity",
)


def _mean(xp: Any, x: Any) -> Any:
    return xp.mean(xp.sin(x))


def _of_loss(name: str, change: Change, size: int = 5) -> Portable:
    """Its cotangent is a single number, which has one sign at a time."""
    return Portable(
        name=name,
        inputs=lambda: (normal(size),),
        value=_mean,
        right=lambda xp, g, x: (g / x.shape[0] * xp.cos(x),),
        wrong=lambda xp, g, x: (change(xp, g) / x.shape[0] * xp.cos(x),),
        check="linearity",
    )


def _pushed(name: str, change: Change, size: int = 12) -> Portable:
    """Forward mode wrong, the backward right."""
    return Portable(
        name=name,
        inputs=lambda: (normal(size),),
        value=sine,
        right=lambda xp, g, x: (g * xp.cos(x),),
        wrong=lambda xp, g, x: (g * xp.cos(x),),
        right_push=lambda xp, u, x: u * xp.cos(x),
        wrong_push=lambda xp, u, x: change(xp, u) * xp.cos(x),
        check="linearity",
    )


COTANGENTS = (
    *(_of_sine(name, change, shape) for name, (change, shape) in CHANGES.items()),
    ROWS,
    # The gradient is small where the cotangent is not.
    _of_loss(
        "flushed_behind_a_mean_over_many", lambda xp, g: 2000 * flushed(xp, g / 2000), size=2000
    ),
    _of_loss("cotangent_of_one_by_another_branch", tenth_more_where_it_is_one),
    _of_loss("cotangent_of_a_loss_clipped_from_above", clipped_from_above),
    _of_loss("cotangent_of_a_loss_clipped_from_below", clipped_from_below),
)
TANGENTS = (
    _pushed("tangents_below_1e-4_flushed", flushed),
    _pushed("tangents_clamped_at_1e4", clamped),
    _pushed("tangent_of_a_number_clipped_from_above", clipped_from_above, 1),
    _pushed("tangent_of_a_number_clipped_from_below", clipped_from_below, 1),
    _pushed("tangents_beyond_the_range_of_float16_overflow", overflowing),
    _pushed("end_of_the_tangent_skipped_from_a_zero_on", end_skipped_from_a_zero_on),
    _pushed("tangent_through_float32", through("float32"), 200),
)
WRONG = (*COTANGENTS, *TANGENTS)
