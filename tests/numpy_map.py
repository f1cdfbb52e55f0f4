"""A `DifferentiableMap` over NumPy: a function, and any linear map as its claimed derivative."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradproof._data.records import CheckResult, Report
from gradproof._data.settings import RunSettings
from gradproof._data.space import Slot, Space
from gradproof._engine import run_checks
from gradproof._maps.contract import CallCounter, DifferentiableMap, Unsupported

Vector = np.ndarray[Any, np.dtype[np.float64]]
Function = Callable[[Vector], Vector]


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

    def with_row(self, i: int, error: Vector) -> Linear:
        """Row `i` is too large by `error`."""
        return Linear(
            lambda u: _bumped(self.forward(u), i, float(error @ u)),
            lambda v: self.backward(v) + error * v[i],
        )

    def with_column(self, j: int, error: Vector) -> Linear:
        """Column `j` is too large by `error`."""
        return Linear(
            lambda u: self.forward(u) + error * u[j],
            lambda v: _bumped(self.backward(v), j, float(error @ v)),
        )

    def with_rows_swapped(self, i: int, k: int) -> Linear:
        return Linear(
            lambda u: _swapped(self.forward(u), i, k),
            lambda v: self.backward(_swapped(v.copy(), i, k)),
        )

    def scaled(self, factor: float) -> Linear:
        return Linear(lambda u: factor * self.forward(u), lambda v: factor * self.backward(v))


def _bumped(values: Vector, at: int, error: float) -> Vector:
    values[at] += error
    return values


def _swapped(values: Vector, i: int, k: int) -> Vector:
    values[[i, k]] = values[[k, i]]
    return values


class FunctionMap(DifferentiableMap):
    """`fn` at `point`, both flat, claiming `claimed` as its derivative.

    Args:
        fn: flat vector -> flat vector.
        point: where.
        claimed: the claimed derivative: a `Linear` or a matrix.
        forward: whether there is forward mode.
        transposes: whether the backward can be differentiated in its cotangent.
        inputs: shapes of the input slots; one vector where None.
        outputs: likewise.
        extra: other methods of the contract, by name: functions that replace the default.
        jacobian: point -> claimed derivative there, for `map_at`; it has none where None.
    """

    def __init__(
        self,
        fn: Function,
        point: Any,
        claimed: Linear | Vector,
        *,
        forward: bool = False,
        transposes: bool = False,
        inputs: Sequence[tuple[int, ...]] | None = None,
        outputs: Sequence[tuple[int, ...]] | None = None,
        extra: Mapping[str, Callable[..., Any]] | None = None,
        jacobian: Callable[[Vector], Linear | Vector] | None = None,
    ) -> None:
        self.fn, self.point = fn, np.asarray(point, dtype=float)
        self.claimed = claimed if isinstance(claimed, Linear) else Linear.dense(claimed)
        self.calls: Counter[str] = Counter()
        self.resolution, self.counts = 2.0**-53, CallCounter()
        self.domain = _space("x", inputs or [self.point.shape])
        self.codomain = _space("y", outputs or [(fn(self.point.copy()).shape[0],)])
        self._forward, self._transposes = forward, transposes
        self._jacobian, self._shapes = jacobian, (inputs, outputs)
        for name, function in (extra or {}).items():
            setattr(self, name, self._counted(name, function))

    def _counted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            self.calls[name] += 1
            return function(*arguments)

        return counted

    def value(self, x: Vector) -> Vector:
        self.counts.add("function")
        self.calls["value"] += 1
        return np.asarray(self.fn(x), dtype=float)

    def vjp(self, v: Vector) -> Vector:
        self.counts.add("vjp")
        self.calls["vjp"] += 1
        return self.claimed.backward(v)

    def jvp(self, u: Vector) -> Vector:
        if not self._forward:
            raise Unsupported("no forward mode")
        self.counts.add("jvp")
        self.calls["jvp"] += 1
        return self.claimed.forward(u)

    def transposed_vjp(self, u: Vector, v: Vector) -> tuple[Vector, Vector]:
        if not self._transposes:
            raise Unsupported("the backward is not differentiable in its cotangent")
        self.counts.add("vjp")
        self.calls["vjp"] += 1
        return self.claimed.forward(u), self.claimed.backward(v)

    def map_at(self, x: Vector) -> FunctionMap:
        if self._jacobian is None:
            raise Unsupported("its derivative is known at one point only")
        there = FunctionMap(
            self.fn,
            x,
            self._jacobian(x),
            forward=self._forward,
            transposes=self._transposes,
            inputs=self._shapes[0],
            outputs=self._shapes[1],
            jacobian=self._jacobian,
        )
        there.counts = self.counts
        return there


def _space(letter: str, shapes: Sequence[tuple[int, ...]]) -> Space:
    names = [letter] if len(shapes) == 1 else [f"{letter}{k}" for k in range(len(shapes))]
    return Space(tuple(Slot(name, shape) for name, shape in zip(names, shapes, strict=True)))


def report_of(map_: DifferentiableMap, *checks: str, seed: int = 0, **options: Any) -> Report:
    """The report on some checks of a map."""
    return run_checks(map_, RunSettings(checks=checks, seed=seed, **options), target="f")


def result_of(map_: DifferentiableMap, check: str, seed: int = 0, **options: Any) -> CheckResult:
    """What one check says of a map."""
    return report_of(map_, check, seed=seed, **options)[check]


def found_entries(result: CheckResult) -> dict[tuple[int, int], float]:
    """Error by (row, column) of the entries that a check found, for maps of vectors."""
    return {
        (f.output_index[0], f.input_index[0]): f.claimed - f.measured
        for f in result.findings
        if f.output_index and f.input_index
    }
