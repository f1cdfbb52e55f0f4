"""Honest runs in few bits, added up one by one: what every statistic of their errors is."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gradproof._data.space import Array, namespace

_BLOCKS = 8  # parts of a vector
_MOST_PARTS = 64  # rows or columns looked at one by one; more are taken together


@dataclass(frozen=True)
class Partition:
    """A partition of the entries of an array into parts that lie one after the other.

    Attributes:
        name: of the statistic that is made of it.
        length: entries of a part, or columns.
        width: of a row where the parts are of columns; else 0.
    """

    name: str
    length: int
    width: int = 0

    def sums(self, values: Array) -> Array:
        """The sum of a vector over every part."""
        xp = namespace(values)
        if self.width:
            values = xp.sum(xp.reshape(values, (-1, self.width)), axis=0)
        starts = range(0, values.shape[0], self.length)
        return xp.stack([xp.sum(values[at : at + self.length]) for at in starts])


def partitions(shape: tuple[int, ...], size: int) -> list[Partition]:
    """Rows and columns of an array of this shape, of `size` entries; blocks of a vector."""
    if len(shape) < 2 or size == max(shape):
        return [Partition("block slope", math.ceil(size / _BLOCKS))] if size >= 2 else []
    last = shape[-1] * (size // max(1, math.prod(shape)))
    rows = size // last
    found = []
    if rows > 1:
        found.append(Partition("row slope", last * math.ceil(rows / _MOST_PARTS)))
    if last > 1 and rows > 1:
        found.append(Partition("column slope", math.ceil(last / _MOST_PARTS), last))
    return found


class Honest:
    """What honest runs say of every statistic of one array: mean squares over the runs.

    The runs are added one by one and not kept. A run is honest minus exact, (V, N).

    Args:
        exact: (V, N).
        shape: of the array.
    """

    def __init__(self, exact: Array, shape: tuple[int, ...]) -> None:
        xp = namespace(exact)
        self.runs = 0
        self._exact, self._size = exact, float(xp.sum(exact**2))
        self._groups = partitions(shape, exact.shape[1]) if self._size > 0 else []
        self._slope = self._mean = self._square = 0.0
        self._parts: dict[str, Array] = {}
        self._entries: Array = xp.zeros_like(exact)

    def add(self, error: Array, share: float = 1.0, *, counts: bool = True) -> None:
        """Another run, whose squares count `share` times; or an error beside those of the runs."""
        xp = namespace(error)
        self.runs += counts
        square = error**2
        self._entries = self._entries + share * square
        self._square += share * float(xp.sum(square))
        self._mean += share * float(xp.mean(error)) ** 2
        if not self._size > 0:
            return
        product = error * self._exact
        self._slope += share * (float(xp.sum(product)) / self._size) ** 2
        for part in self._groups:
            own = share * part.sums(xp.sum(product, axis=0)) ** 2
            self._parts[part.name] = self._parts.get(part.name, 0.0) + own

    def over(self, runs: int) -> Honest:
        """The means over so many runs, of which those that were not made err nowhere."""
        found = copy.copy(self)
        found.runs, found._parts = runs, dict(self._parts)
        return found

    @property
    def slope(self) -> float:
        """Of a factor on everything."""
        return self._root(self._slope)

    @property
    def mean(self) -> float:
        """Of the mean error."""
        return self._root(self._mean)

    @property
    def square(self) -> float:
        """Of all errors together: their sum of squares."""
        return self._square / max(1, self.runs)

    @property
    def entries(self) -> Array:
        """Of each entry, (V, N)."""
        return namespace(self._entries).sqrt(self._entries / max(1, self.runs))

    def part(self, part: Partition, like: Array) -> Array:
        """Of the sums <error, exact> over the parts of a partition."""
        xp = namespace(like)
        if part.name not in self._parts:
            return xp.zeros_like(like)
        return xp.sqrt(self._parts[part.name] / max(1, self.runs))

    def _root(self, total: float) -> float:
        return math.sqrt(total / max(1, self.runs))


# Gradients in few bits against the exact ones: what rounding explains, and what it does not.
#
# The rounding errors of N entries are nearly independent; a wrong formula errs the same way in
# all of them, or in a row, a block, a column. So sums over entries are compared, each sharper
# than one entry by the square root of its length, beside the worst entry and the size of all
# errors.
#
# What is allowed is measured: the same statistic of honest runs, whose every operation was
# rounded at random in the same precision, times a factor that covers the few runs it is known
# from; plus a floor of roundings that an implementation may make and the honest runs do not. The
# floors are the largest values seen of correct kernels, in units of eps: slope 0.21, slope of a
# row 2.9, mean 5.3 / sqrt(N), root mean square 2.1 (field notes, calibration of float32, float16,
# bfloat16).


RUNS = 12  # honest runs: Student's t of 12 degrees beyond FACTOR has probability 3e-4
FACTOR = 5.0  # and rounding at random makes 1.6 times the noise of rounding to nearest
_FACTOR_RMS = 4.0  # a mean over entries and runs, better known
_FACTOR_ENTRY = 16.0  # the largest of many entries, with heavy tails
# Floors in units of eps, twice the unit round-off.
_SLOPE, _PART, _MEAN, _RMS, _ENTRY = 0.25, 4.0, 8.0, 3.0, 16.0
# Cutting digits off makes a number smaller by half a spacing on average, 0.36 eps of its size
# where digits are spread as those of most numbers are; a product has two factors.
_CUT = 0.72
_NEAREST = 0.29  # standard deviation of rounding to nearest, in units of the spacing
_ILL = 0.05  # error of honest runs, in parts of an entry, above which it tells nothing


@dataclass(frozen=True)
class Measured:
    """One statistic of one array: its value and what is allowed, in parts of the exact gradient.

    Attributes:
        name: "slope", "row slope", "column slope", "block slope", "mean", "rms", "worst entry".
        value: how far the gradient under test is off.
        allowed: how far honest runs may be.
        where: position of the part or entry, in the flattened array, that is off most; None
            where all entries count.
    """

    name: str
    value: float
    allowed: float
    where: int | None = None

    @property
    def ok(self) -> bool:
        return self.value <= self.allowed  # NaN is not


@dataclass(frozen=True)
class Samples:
    """Gradients of one array for several cotangents.

    Attributes:
        gap: under test minus exact, (V, N).
        exact: (V, N).
        honest: honest runs minus exact, (K, V, N); K may be 0. Or what is left of runs that were
            not kept.
        shape: of the array, N being its size.
        eps: spacing of the precision at 1.
        tiny: smallest positive number of the precision.
        points: at which the probes were asked, each rounded afresh; V is a multiple.
        cut: numbers may have been cut off instead of rounded.
    """

    gap: Array
    exact: Array
    honest: Array | Honest
    shape: tuple[int, ...]
    eps: float
    tiny: float
    points: int = 1
    cut: bool = False


def statistics(samples: Samples) -> list[Measured]:
    """Every statistic of one array; none where the exact gradient is zero or has no entry."""
    xp = namespace(samples.gap)
    size = float(xp.sum(samples.exact**2)) if samples.exact.size else 0.0
    if not samples.gap.size:
        return []
    honest = _summary(samples)
    if not size > 0:
        return [_worst(xp, samples, honest)]
    distinct = _distinct(xp, samples.exact)
    found = [
        _slope(xp, samples, honest, distinct),
        _mean(xp, samples, honest, distinct),
        _rms(xp, samples, honest),
    ]
    found += [
        _parts(xp, samples, honest, part)
        for part in partitions(samples.shape, samples.exact.shape[1])
    ]
    return [*found, _worst(xp, samples, honest)]


def _summary(samples: Samples) -> Honest:
    if isinstance(samples.honest, Honest):
        return samples.honest
    found = Honest(samples.exact, samples.shape)
    for k in range(samples.honest.shape[0]):
        found.add(samples.honest[k, :, :])
    return found


def _slope(xp: Any, samples: Samples, known: Honest, distinct: Distinct) -> Measured:
    """<gap, exact> / <exact, exact>: a factor on everything."""
    weight = samples.exact / xp.sum(samples.exact**2)
    value = abs(float(xp.sum(samples.gap * weight)))
    # The probes of one point share what the forward saved.
    length = math.sqrt(samples.points * _length(xp, distinct.counts * distinct.weights))
    least = _SLOPE + (_CUT if samples.cut else 0.0)
    floor = samples.eps * (least + FACTOR * _NEAREST / length) + _underflow(xp, samples)
    return Measured("slope", value, FACTOR * known.slope + floor)


@dataclass(frozen=True)
class Distinct:
    """The entries of an array that differ: what is equal is rounded alike.

    The gradient of a mean is one number, and one rounding.

    Attributes:
        weights: their squares, summed over the probes, in parts of the largest.
        counts: how many entries are equal to each.
    """

    weights: Array
    counts: Array


def _distinct(xp: Any, values: Array) -> Distinct:
    squares = xp.sum(values**2, axis=0)
    found, counts = xp.unique_counts(squares)
    return Distinct(found / float(xp.max(found)), xp.astype(counts, squares.dtype))


def _length(xp: Any, weights: Array) -> float:
    """How many of equal weight would weigh as much as these: (sum w)^2 / sum w^2."""
    return float(xp.sum(weights)) ** 2 / float(xp.sum(weights**2))


def _underflow(xp: Any, samples: Samples) -> float:
    """What the smallest numbers are rounded by, in parts of the typical entry."""
    return samples.tiny / math.sqrt(float(xp.mean(samples.exact**2)))


def _mean(xp: Any, samples: Samples, known: Honest, distinct: Distinct) -> Measured:
    """Mean gap beside the size of the gradient: a shift."""
    size = math.sqrt(float(xp.mean(samples.exact**2)))
    value = abs(float(xp.mean(samples.gap))) / size
    rounded = xp.where(distinct.weights > 0, distinct.counts, 0.0)  # zero is exact
    alike = math.sqrt(float(xp.sum(rounded**2))) / samples.gap.shape[1]
    floor = _MEAN * samples.eps * alike / math.sqrt(samples.points)
    # A move of the point by a rounding is none of the smallest numbers: they are rounded once.
    floor += _underflow(xp, samples) / math.sqrt(samples.gap.shape[1])
    return Measured("mean", value, FACTOR * known.mean / size + floor)


def _rms(xp: Any, samples: Samples, known: Honest) -> Measured:
    """Size of all gaps beside the size of the gradient."""
    size = float(xp.sum(samples.exact**2))
    value = math.sqrt(float(xp.sum(samples.gap**2)) / size)
    floor = _RMS * samples.eps + _underflow(xp, samples)
    return Measured("rms", value, _FACTOR_RMS * math.sqrt(known.square / size) + floor)


def _parts(xp: Any, samples: Samples, known: Honest, part: Partition) -> Measured:
    """The slope of the part that is off most, in what is allowed for it.

    The noise of a part is at least half of what the parts have in common: it is known from a few
    runs, and the smallest of many would be too small.
    """
    sizes = part.sums(xp.sum(samples.exact**2, axis=0))
    usable = sizes > (1e-3 * float(xp.mean(sizes)))
    sizes = xp.where(usable, sizes, 1.0)
    slope = xp.abs(part.sums(xp.sum(samples.gap * samples.exact, axis=0))) / sizes
    own = xp.where(usable, known.part(part, sizes) / sizes, 0.0)
    common = math.sqrt(float(xp.sum(own**2)) / max(1, int(xp.sum(xp.astype(usable, xp.int64)))))
    allowed = FACTOR * xp.maximum(own, xp.full_like(own, common / 2)) + _PART * samples.eps
    entries = part.sums(xp.ones_like(samples.exact[0, :])) * samples.exact.shape[0]
    allowed = allowed + samples.tiny * xp.sqrt(entries / sizes)
    excess = xp.where(usable, slope / allowed, 0.0)
    worst = int(xp.argmax(xp.where(xp.isnan(excess), xp.inf, excess)))
    return Measured(part.name, float(slope[worst]), float(allowed[worst]), worst * part.length)


def _worst(xp: Any, samples: Samples, known: Honest) -> Measured:
    """The entry that is off most in what is allowed for it, both in parts of the typical entry."""
    exact, gap = xp.abs(samples.exact), xp.abs(samples.gap)
    typical = math.sqrt(float(xp.mean(samples.exact**2)))
    size = exact + 0.1 * typical
    own = known.entries
    ratio = own / xp.where(size > 0, size, 1.0)
    common = math.sqrt(float(xp.mean(ratio**2)))
    floor = _ENTRY * (samples.eps * size + samples.tiny)
    allowed = _FACTOR_ENTRY * xp.maximum(own, common * size) + floor
    excess = gap / allowed
    at = int(xp.argmax(xp.reshape(xp.where(xp.isnan(excess), xp.inf, excess), (-1,))))
    row, column = divmod(at, gap.shape[1])
    unit = typical or 1.0
    return Measured(
        "worst entry", float(gap[row, column]) / unit, float(allowed[row, column]) / unit, column
    )


def well_conditioned(samples: Samples) -> tuple[Samples, int]:
    """The samples without the entries that honest runs themselves miss, and how many those are.

    Near a pole a rounding of the input may change an entry by its own size: nothing can be told
    of it in this precision, and it is the largest. The others can still be tested.
    """
    xp = namespace(samples.gap)
    if isinstance(samples.honest, Honest) or not samples.honest.shape[0]:
        return samples, 0  # of runs that were not kept nothing can be left out
    size = xp.sqrt(xp.mean(samples.exact**2, axis=0))
    missed = xp.sqrt(xp.mean(samples.honest**2, axis=(0, 1))) > _ILL * size
    kept = replace(
        samples,
        gap=xp.where(missed, 0.0, samples.gap),
        exact=xp.where(missed, 0.0, samples.exact),
        honest=xp.where(missed, 0.0, samples.honest),
    )
    return kept, int(xp.sum(xp.astype(missed, xp.int64)))


def refuted(found: Sequence[Measured]) -> list[Measured]:
    """The statistics beyond what is allowed, furthest first."""
    wrong = [one for one in found if not one.ok]
    return sorted(wrong, key=lambda one: -one.value / one.allowed)
