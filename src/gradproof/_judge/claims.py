"""What the framework claims, in the forms in which a check can ask for it."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass

from gradproof._data.settings import Settings
from gradproof._data.space import Array, Space, dot, namespace
from gradproof._data.vectors import KEPT, SAMPLE
from gradproof._judge.decide import two_modes
from gradproof._maps.contract import DifferentiableMap, Unsupported
from gradproof._measure import jacobian, probes
from gradproof._measure.sizes import DRAWS


def gradient(map_: DifferentiableMap, settings: Settings, number: int) -> Array:
    """J^T v for the cotangent `number`, claimed once and shared by the checks."""
    key = ("gradient", number)
    if key not in map_.memo:
        map_.memo[key] = map_.vjp(probes.cotangent(map_, settings.seed, number))
    return map_.memo[key]


def constant_gradient(map_: DifferentiableMap, settings: Settings) -> Array:
    """J^T w for the cotangent w that is constant on each output, claimed once."""
    key = ("gradient", "constant")
    if key not in map_.memo:
        map_.memo[key] = map_.vjp(probes.constant_cotangent(map_, settings.seed))
    return map_.memo[key]


def tangent(map_: DifferentiableMap, settings: Settings, number: int) -> Array:
    """J u for the tangent `number` by forward mode, claimed once and shared by the checks."""
    key = ("tangent", number)
    if key not in map_.memo:
        map_.memo[key] = map_.jvp(probes.tangent(map_, settings.seed, number))
    return map_.memo[key]


def first(map_: DifferentiableMap, settings: Settings, *, columnwise: bool) -> Array:
    """What forward mode, or the backward, claims for its first probe; shared by the checks."""
    return (tangent if columnwise else gradient)(map_, settings, 0)


REPEATS = ("repeats",)  # key of the memo: whether a second backward gave the very same gradient
# Likewise: a cotangent, and the gradient of a backward to be differentiated, where that differs
# from the first gradient or is of another cotangent.
OTHERWISE = ("otherwise",)


# Claims in few bits are asked for by probes that those can represent.


@dataclass(frozen=True)
class Mode:
    """One mode of differentiation in few bits: what it is asked at, and in which space it answers.

    Attributes:
        check: the check that asks for it.
        what: "gradient of" or "tangent of".
        probes: what is asked for, of numbers that few bits can represent.
        space: of the answers.
        slack: more than honest runs are off by, where they run another algorithm.
        doubt: part of the derivative that a rounded run without a number doubts.
        columnwise: it claims columns of the Jacobian, J u.
    """

    check: str
    what: str
    probes: list[Array]
    space: Space
    slack: float = 1.0
    doubt: float = 1.0
    columnwise: bool = False

    def pulled(self, map_: DifferentiableMap) -> Array:
        """What a map claims for every probe, (V, N)."""
        pull = map_.jvp if self.columnwise else map_.vjp
        return namespace(map_.point).stack([pull(probe) for probe in self.probes])


def _count(space: Space) -> int:
    """So many probes that the smallest array has enough entries to average over."""
    if space.size > KEPT:
        return 1
    smallest = min((slot.size for slot in space.slots if slot.size), default=1)
    return max(2, min(DRAWS, SAMPLE // smallest))


class Claim(abc.ABC):
    """The claimed Jacobian of one mode of differentiation.

    Attributes:
        check: the check that asks for it.
        columnwise: it is claimed column by column; by rows otherwise.
        map: whose Jacobian it is.
        settings: of the run.
    """

    check: str
    columnwise = False

    def __init__(self, map_: DifferentiableMap, settings: Settings) -> None:
        self.map, self.settings = map_, settings

    def of(self, map_: DifferentiableMap, settings: Settings) -> Claim:
        """What the same mode claims of another map, or of one with other settings."""
        return type(self)(map_, settings)

    @abc.abstractmethod
    def in_few_bits(self) -> Mode:
        """What the mode is asked for where its claims are held against those of an oracle."""

    def pull(self, map_: DifferentiableMap, probe: Array) -> Array:
        """What the mode claims of a map at one of its own probes: J^T v, or J u."""
        return map_.jvp(probe) if self.columnwise else map_.vjp(probe)

    def push(self, map_: DifferentiableMap, u: Array) -> Array:
        """J u as the mode claims it of a map, whether that agrees with what it pulls or not."""
        if self.columnwise:
            return map_.jvp(u)
        v = probes.cotangent(self.map, self.settings.seed, 0)
        if v.shape[0] == 1:
            return dot(map_.vjp(v), u) / v
        return map_.transposed_vjp(u, v)[0]

    @abc.abstractmethod
    def along(self, u: Array) -> Array | None:
        """J u, all rows; None where this mode only gives projections."""

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


class OfClaim:
    """What is known of a claim, by which its map and its settings are known."""

    claim: Claim

    @property
    def map(self) -> DifferentiableMap:
        return self.claim.map

    @property
    def settings(self) -> Settings:
        return self.claim.settings


class Backward(Claim):
    """The Jacobian that the backward claims.

    J u comes from differentiating v -> (J^T v).u, where the backward can be differentiated, and
    is believed only while v.(J u) = (J^T v).u holds against the plain backward: a double backward
    may be wrong where the backward is right, and the other way round. Of a single output J^T v is
    v times its only row, and nothing need be differentiated. It is differentiated at the first
    cotangent, or, where that is asked otherwise, at one of `equal` entries.
    """

    check = "backward"

    _transposes = True

    def __init__(self, map_: DifferentiableMap, settings: Settings, equal: bool = False) -> None:
        super().__init__(map_, settings)
        self._equal = equal

    def in_few_bits(self) -> Mode:
        """J^T v for a few cotangents."""
        map_, seed = self.map, self.settings.seed
        count = _count(map_.domain)
        vs = [probes.cotangent(map_, seed, number) for number in range(count)]
        made = [probes.on_grid(map_.codomain, v) for v in vs]
        return Mode("backward", "gradient of", made, map_.domain)

    def along(self, u: Array) -> Array | None:
        if not self._transposes:
            return None
        v = probes.cotangent(self.map, self.settings.seed, 0)
        plain = gradient(self.map, self.settings, 0)
        if v.shape[0] == 1:
            return dot(plain, u) / v
        at = probes.equal_cotangent(self.map, self.settings.seed) if self._equal else v
        try:
            found, again = self.map.transposed_vjp(u, at)
        except Unsupported:
            self._transposes = False
            return None
        same = at is v and bool(namespace(plain).all(again == plain))
        self.map.memo.setdefault(*((REPEATS, True) if same else (OTHERWISE, (at, again))))
        if not two_modes(self.map, (v, u), (found, plain)).right:
            self._transposes = False
            return None
        return found

    def row(self, i: int) -> Array | None:
        v = jacobian.unit(self.map.point, i, count=self.map.codomain.size)
        return self.map.vjp(v)

    def project(self, v: Array) -> Array | None:
        return self.map.vjp(v)


class Forward(Claim):
    """The Jacobian that forward mode claims."""

    check = "forward"
    columnwise = True

    def in_few_bits(self) -> Mode:
        """J u for a few tangents.

        Rounded runs differentiate the backward instead: dual numbers do not run under the rounding.
        Where that has no number, as at a norm's largest entry, forward mode may well have one.
        """
        map_, seed = self.map, self.settings.seed
        count = min(2, _count(map_.domain))
        us = [probes.tangent(map_, seed, number) for number in range(count)]
        return Mode(
            "forward",
            "tangent of",
            [probes.on_grid(map_.domain, u) for u in us],
            map_.codomain,
            slack=2.0,
            doubt=0.0,
            columnwise=True,
        )

    def along(self, u: Array) -> Array | None:
        if u is probes.tangent(self.map, self.settings.seed, 0):
            return tangent(self.map, self.settings, 0)
        return self.map.jvp(u)


def pulled(map_: DifferentiableMap, v: Array, stack: str) -> Array:
    """J^T v, v in a stack of memory layouts where one is named."""
    return map_.vjp_layout(v, stack) if stack else map_.vjp(v)
