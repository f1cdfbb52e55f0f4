"""Functions of NumPy that claim any linear map as their derivative, by `gradproof.by_hand`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import gradproof

Vector = np.ndarray[Any, np.dtype[np.float64]]
Function = Callable[[Vector], Vector]

# The check that judges the claim -> the argument of `by_hand` that makes it. "backward" gives
# J^T v alone, so that of a large Jacobian one row is known at a time; "forward" gives J u.
MODES = {"backward": "vjp", "forward": "jvp"}


@dataclass(frozen=True)
class Linear:
    """A linear map by its two products, and the same map with a mistake in it."""

    forward: Function  # u -> J u
    backward: Function  # v -> J^T v

    @classmethod
    def dense(cls, matrix: Vector) -> Linear:
        return cls(lambda u: matrix @ u, lambda v: matrix.T @ v)

    @classmethod
    def diagonal(cls, entries: Vector) -> Linear:
        return cls(lambda u: entries * u, lambda v: entries * v)

    def with_entries(self, errors: Mapping[tuple[int, int], float]) -> Linear:
        """The entry (row, column) is too large by its error."""

        def forward(u: Vector) -> Vector:
            result = self.forward(u)
            for (i, j), error in errors.items():
                result[i] += error * u[j]
            return result

        def backward(v: Vector) -> Vector:
            result = self.backward(v)
            for (i, j), error in errors.items():
                result[j] += error * v[i]
            return result

        return Linear(forward, backward)

    def with_rows(self, scale: Vector | float) -> Linear:
        """Every row is multiplied by its number, or all by one."""
        return Linear(lambda u: scale * self.forward(u), lambda v: self.backward(scale * v))

    def with_columns(self, scale: Vector) -> Linear:
        """Every column is multiplied by its number."""
        return Linear(lambda u: self.forward(scale * u), lambda v: scale * self.backward(v))


def judge(
    fn: Function,
    point: Any,
    claimed: Linear | Callable[[Vector], Linear],
    mode: str = "backward",
    *,
    seed: int = 0,
    **options: Any,
) -> gradproof.CheckResult:
    """The result of one check of a claim.

    Args:
        fn: flat vector -> flat vector.
        point: where.
        claimed: the derivative, the same at every point, or a function of the point.
        mode: a key of `MODES`.
        seed: of the check.
        options: further options of `gradproof.check`.
    """
    at = claimed if callable(claimed) else lambda x: claimed

    def product(x: Vector, probe: Vector) -> Vector:
        linear = at(x)
        return linear.forward(probe) if mode == "forward" else linear.backward(probe)

    hand = gradproof.by_hand(lambda x: fn(x), **{MODES[mode]: product})
    report = gradproof.check(
        hand, (np.asarray(point, dtype=float),), checks=[mode], seed=seed, **options
    )
    return report[mode]


def errors_found(result: gradproof.CheckResult) -> dict[tuple[int, int], float]:
    """Error by (row, column) of the entries that a check found."""
    return {
        (f.output_index[0], f.input_index[0]): f.claimed - f.measured
        for f in result.findings
        if f.output_index and f.input_index
    }


@dataclass(frozen=True)
class Claim:
    """A linear function, and what its backward claims.

    Attributes:
        measured: its Jacobian, a row for each output.
        claimed: the Jacobian whose rows the backward gives.
        inputs: the shapes of its arguments x and w, or of x; one vector where empty.
        output: the shape of its result; that of a vector where empty.
        point: all arguments in a row; random numbers where None.
        value: the result there; random numbers where None.
    """

    measured: Vector
    claimed: Vector
    inputs: tuple[tuple[int, ...], ...] = ()
    output: tuple[int, ...] = ()
    point: Vector | None = None
    value: Vector | None = None

    def judge(self) -> gradproof.CheckResult:
        """What `gradproof.check` says of the backward."""
        rows, columns = self.measured.shape
        point = np.random.default_rng(6).normal(size=columns) if self.point is None else self.point
        value = np.random.default_rng(7).normal(size=rows) if self.value is None else self.value

        def fn(*arguments: Vector) -> Vector:
            moved = np.concatenate([np.ravel(each) for each in arguments]) - point
            return (value + self.measured @ moved).reshape(self.output or rows)

        def vjp(*arguments: Vector) -> Any:
            gradients = self._arrays(np.ravel(arguments[-1]) @ self.claimed)
            return gradients if len(gradients) > 1 else gradients[0]

        arrays = self._arrays(point)
        named = (lambda x: fn(x)) if len(arrays) == 1 else (lambda x, w: fn(x, w))
        hand = gradproof.by_hand(named, vjp=vjp)
        return gradproof.check(hand, arrays, checks=["backward"], seed=0)["backward"]

    def _arrays(self, vector: Vector) -> tuple[Vector, ...]:
        shapes = self.inputs or (vector.shape,)
        sizes = [int(np.prod(shape)) for shape in shapes]
        parts = np.split(vector, np.cumsum(sizes)[:-1])
        return tuple(part.reshape(shape) for part, shape in zip(parts, shapes, strict=True))
