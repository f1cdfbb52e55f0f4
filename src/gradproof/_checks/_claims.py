"""What the framework claims, in the forms in which a check can ask for it."""

from __future__ import annotations

import abc
from collections.abc import Sequence

from gradproof._map import DifferentiableMap, Unsupported
from gradproof._numerics import jacobian, measure, probes
from gradproof._numerics.compare import within
from gradproof._numerics.packing import unpacked
from gradproof._settings import Settings
from gradproof._space import Array, dot, namespace, norm


def dot_rounding(map_: DifferentiableMap) -> float:
    """Rounding of a dot product and of the backward, as a part of the sum of its sizes."""
    return max(1e-11, 256 * measure.resolution(map_))


def dot_and_size(v: Array, w: Array) -> tuple[float, float]:
    """v.w, and what its roundings grow with: the root of the sum of the squares of its terms.

    The signs of a probe are drawn, so that roundings of its terms add up like a random walk. Copies
    of an array beside each other then hide hardly more of an entry than one does.
    """
    return dot(v, w), norm(v * w)


def gradient(map_: DifferentiableMap, settings: Settings, number: int) -> Array:
    """J^T v for the cotangent `number`, claimed once and shared by the checks."""
    key = ("gradient", number)
    if key not in map_.memo:
        map_.memo[key] = map_.vjp(probes.short_cotangent(map_, settings.seed or 0, number))
    return map_.memo[key]


def constant_gradient(map_: DifferentiableMap, settings: Settings) -> Array:
    """J^T w for the cotangent w that is constant on each output, claimed once."""
    key = ("gradient", "constant")
    if key not in map_.memo:
        map_.memo[key] = map_.vjp(probes.short_constant_cotangent(map_, settings.seed or 0))
    return map_.memo[key]


def tangent(map_: DifferentiableMap, settings: Settings, number: int) -> Array:
    """J u for the tangent `number` by forward mode, claimed once and shared by the checks."""
    key = ("tangent", number)
    if key not in map_.memo:
        map_.memo[key] = map_.jvp(probes.short_tangent(map_, settings.seed or 0, number))
    return map_.memo[key]


def first(map_: DifferentiableMap, settings: Settings, mode: str) -> Array:
    """What a mode, "backward" or "forward", claims for its first probe; shared by the checks."""
    return (gradient if mode == "backward" else tangent)(map_, settings, 0)


class Claim(abc.ABC):
    """The claimed Jacobian of one mode of differentiation."""

    check: str

    @abc.abstractmethod
    def along(self, u: Array) -> Array | None:
        """J u, all rows; None where this mode only gives projections. `u` may be packed."""

    def row(self, i: int) -> Array | None:  # noqa: ARG002  # a default for modes without rows
        """Row i of J; None where only columns can be had."""
        return None

    def project(self, v: Array) -> Array | None:  # noqa: ARG002  # likewise
        """J^T v; None where only columns can be had."""
        return None

    def matrix(self, rows: Sequence[int] | None, shape: tuple[int, int], like: Array) -> Array:
        """The claimed Jacobian, or those rows of it, by rows or by columns, whichever are fewer."""
        xp = namespace(like)
        chosen = list(range(shape[0])) if rows is None else list(rows)
        columns = None if len(chosen) <= shape[1] else self._columns(shape[1], like)
        if columns is None:
            found = [self.row(i) for i in chosen]
            if found[0] is not None:
                return xp.stack(found)
            columns = self._columns(shape[1], like)
            assert columns is not None  # a mode has rows or columns
        whole = xp.stack(columns, axis=1)
        return whole if rows is None else xp.take(whole, xp.asarray(chosen), axis=0)

    def _columns(self, count: int, like: Array) -> list[Array] | None:
        columns = []
        for j in range(count):
            column = self.along(jacobian.unit(like, j))
            if column is None:
                return None
            columns.append(column)
        return columns


class Backward(Claim):
    """The Jacobian that the backward claims.

    J u comes from differentiating v -> (J^T v).u, where the backward can be differentiated, and
    is believed only while v.(J u) = (J^T v).u holds against the plain backward: a double backward
    may be wrong where the backward is right, and the other way round.
    """

    check = "backward"

    def __init__(self, map_: DifferentiableMap, settings: Settings) -> None:
        self._map, self._settings = map_, settings
        self._transposes = True

    def along(self, u: Array) -> Array | None:
        if not self._transposes:
            return None
        v = probes.short_cotangent(self._map, self._settings.seed or 0, 0)
        plain = gradient(self._map, self._settings, 0)
        try:
            found, _ = self._map.transposed_vjp(u, v)
        except Unsupported:
            self._transposes = False
            return None
        u, v = unpacked(u), unpacked(v)
        size = norm(v) * norm(found) + norm(plain) * norm(u)
        gap = abs(dot(v, found) - dot(plain, u))
        if not within(gap, dot_rounding(self._map) * size):
            self._transposes = False
            return None
        return found

    def row(self, i: int) -> Array | None:
        v = jacobian.unit(self._map.point, i, count=self._map.codomain.size)
        return self._map.vjp(v)

    def project(self, v: Array) -> Array | None:
        return self._map.vjp(v)


class Forward(Claim):
    """The Jacobian that forward mode claims."""

    check = "forward"

    def __init__(self, map_: DifferentiableMap, settings: Settings) -> None:
        self._map, self._settings = map_, settings

    def along(self, u: Array) -> Array | None:
        if u is probes.short_tangent(self._map, self._settings.seed or 0, 0):
            return tangent(self._map, self._settings, 0)
        return self._map.jvp(u)
