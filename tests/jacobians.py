"""A function of NumPy with any value and Jacobian, and what is said of a claim that is another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import gradproof

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Claim:
    """A linear function, and what its backward claims.

    Attributes:
        measured: its Jacobian, a row for each output.
        claimed: the Jacobian whose rows the backward gives.
        inputs: the shapes of its arguments x, w and b, or of some of them; one vector where empty.
        output: the shape of its result; that of a vector where empty.
        point: all arguments in a row; random numbers where None.
        value: the result there; random numbers where None.
    """

    measured: Array
    claimed: Array
    inputs: tuple[tuple[int, ...], ...] = ()
    output: tuple[int, ...] = ()
    point: Array | None = None
    value: Array | None = None

    def judge(self) -> gradproof.CheckResult:
        """What `gradproof.check` says of the backward."""
        rows, columns = self.measured.shape
        point = np.random.default_rng(6).normal(size=columns) if self.point is None else self.point
        value = np.random.default_rng(7).normal(size=rows) if self.value is None else self.value

        def fn(*arguments: Array) -> Array:
            moved = np.concatenate([np.ravel(each) for each in arguments]) - point
            return (value + self.measured @ moved).reshape(self.output or rows)

        def vjp(*arguments: Array) -> Any:
            gradients = self._arrays(np.ravel(arguments[-1]) @ self.claimed)
            return gradients if len(gradients) > 1 else gradients[0]

        arrays = self._arrays(point)
        named = (lambda x: fn(x), lambda x, w: fn(x, w), lambda x, w, b: fn(x, w, b))
        hand = gradproof.by_hand(named[len(arrays) - 1], vjp=vjp)
        return gradproof.check(hand, arrays, checks=["backward"], seed=0)["backward"]

    def _arrays(self, vector: Array) -> tuple[Array, ...]:
        shapes = self.inputs or (vector.shape,)
        sizes = [int(np.prod(shape)) for shape in shapes]
        parts = np.split(vector, np.cumsum(sizes)[:-1])
        return tuple(part.reshape(shape) for part, shape in zip(parts, shapes, strict=True))
