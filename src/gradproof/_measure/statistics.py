"""Gradients in few bits against the exact ones: what rounding explains, and what it does not."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gradproof._data.space import Array, namespace
from gradproof._measure.sizes import MANY, MOST_FINDINGS, NO_ROUNDING


@dataclass(frozen=True)
class Partition:
    """A partition of the entries of an array into parts that lie one after the other."""

    name: str  # of the statistic that is made of it
    length: int  # entries of a part, or columns
    width: int = 0  # of a row where the parts are of columns; else 0

    def sums(self, values: Array) -> Array:
        """The sum of a vector over every part."""
        xp = namespace(values)
        if self.width:
            values = xp.sum(xp.reshape(values, (-1, self.width)), axis=0)
        whole = values.shape[0] // self.length * self.length
        found = xp.sum(xp.reshape(values[:whole], (-1, self.length)), axis=1)
        left = values[whole:]
        return xp.concat([found, xp.sum(left, keepdims=True)]) if left.shape[0] else found


def partitions(shape: tuple[int, ...], size: int) -> list[Partition]:
    """Rows and columns of an array of this shape, of `size` entries; blocks of a vector."""
    if len(shape) < 2 or size == max(shape):
        return [Partition("block slope", math.ceil(size / MANY))] if size >= 2 else []
    last = shape[-1] * (size // max(1, math.prod(shape)))
    rows = size // last
    found = []
    if rows > 1:
        found.append(Partition("row slope", last * math.ceil(rows / MOST_FINDINGS)))
    if last > 1 and rows > 1:
        found.append(Partition("column slope", math.ceil(last / MOST_FINDINGS), last))
    return found


# The rounding errors of N entries are nearly independent; a wrong formula errs the same way in
# all of them, or in a row, a block, a column. So sums over entries are compared, each sharper
# than one entry by the square root of its length, beside the worst entry and the size of all
# errors.
#
# What is allowed is measured: the same statistic of honest runs, whose every operation was
# rounded at random in the same precision, times a factor that covers the few runs it is known
# from; plus a floor of roundings that an implementation may make and the honest runs do not. The
# floors are above the largest values seen of correct kernels, in units of eps: slope 0.21, slope
# of a row 2.9, mean 5.3 / sqrt(N), root mean square 2.1 (field notes, calibration of float32,
# float16, bfloat16).


RUNS = 12  # honest runs: Student's t of 12 degrees beyond FACTOR has probability 3e-4
FACTOR = 5.0  # and rounding at random makes 1.6 times the noise of rounding to nearest
# Statistic -> the factor, and the floor in units of eps, twice the unit round-off. The root mean
# square is a mean over entries and runs, better known; the worst of many entries has heavy tails.
_ALLOWED = {
    "slope": (FACTOR, 0.25),
    "part": (FACTOR, 4.0),
    "mean": (FACTOR, 8.0),
    "rms": (4.0, 3.0),
    "worst entry": (16.0, 16.0),
}


@dataclass(frozen=True)
class Measured:
    """One statistic of one array: its value and what is allowed, in parts of the exact gradient."""

    name: str  # "slope", "row slope", "column slope", "block slope", "mean", "rms", "worst entry"
    value: float  # how far the gradient under test is off
    allowed: float  # how far honest runs may be
    # Position of the part or entry, in the flattened array, that is off most; None where all
    # entries count.
    where: int | None = None

    @property
    def ok(self) -> bool:
        return self.value <= self.allowed  # NaN is not


@dataclass(frozen=True)
class Samples:
    """Gradients of one array for several cotangents."""

    gap: Array  # under test minus exact, (V, N)
    exact: Array  # (V, N)
    honest: Array  # honest runs minus exact, (K, V, N); K may be 0
    shape: tuple[int, ...]  # of the array, N being its size
    eps: float  # spacing of the precision at 1
    tiny: float  # smallest positive number of the precision
    points: int = 1  # at which the probes were asked, each rounded afresh; V is a multiple
    cut: bool = False  # numbers may have been cut off instead of rounded


def statistics(samples: Samples) -> list[Measured]:
    """Every statistic of one array; none where the exact gradient is zero or has no entry."""
    xp = namespace(samples.gap)
    size = float(xp.sum(samples.exact**2)) if samples.exact.size else 0.0
    if not samples.gap.size:
        return []
    if not size > 0:
        return [_worst(xp, samples)]
    found = _of_all(xp, samples)
    found += [
        _parts(xp, samples, part) for part in partitions(samples.shape, samples.exact.shape[1])
    ]
    return [*found, _worst(xp, samples)]


def _usual(samples: Samples, of: Callable[[Array], Any]) -> Any:
    """What of a run is usual: the root mean square over the honest ones; 0 where there are none."""
    squares = [of(samples.honest[k, :, :]) ** 2 for k in range(samples.honest.shape[0])]
    return (sum(squares) / len(squares)) ** 0.5 if squares else 0.0


def _of_all(xp: Any, samples: Samples) -> list[Measured]:
    """The statistics of all entries together.

    * slope: <gap, exact> / <exact, exact>, a factor on everything;
    * mean: the mean gap beside the size of the gradient, a shift;
    * rms: the size of all gaps beside that of the gradient.

    What is equal is rounded alike: the gradient of a mean is one number, and one rounding.
    """
    exact, points, count = samples.exact, samples.points, samples.exact.shape[1]
    squares = xp.sum(exact**2, axis=0)
    total, size = float(xp.sum(squares)), math.sqrt(float(xp.mean(exact**2)))
    weight, smallest = exact / total, samples.tiny / size  # number there is, beside the typical one
    values, counts = xp.unique_counts(squares)
    counts = xp.astype(counts, squares.dtype)
    weighed = counts * values / float(xp.max(values))
    # How many entries of equal weight would weigh as much; probes of a point share what it saved.
    length = points * float(xp.sum(weighed)) ** 2 / float(xp.sum(weighed**2))
    alike = math.sqrt(float(xp.sum(xp.where(values > 0, counts, 0.0) ** 2))) / count  # 0 is exact
    # Rounding to nearest has a standard deviation of the root of 1/12 in units of the spacing.
    nearest = _ALLOWED["slope"][0] / math.sqrt(12 * length)
    # Cutting digits off makes a number smaller by half a spacing on average, 1 / (4 log 2) eps of
    # its size where digits are spread as those of most numbers are; a product has two.
    cut = 1 / (2 * math.log(2)) if samples.cut else 0.0
    # A move of the point by a rounding is none of the smallest numbers: they are rounded once.
    told: dict[str, tuple[Callable[[Array], float], Callable[[float], float], float]] = {
        "slope": (lambda run: float(xp.sum(run * weight)), lambda k: k + cut + nearest, smallest),
        "mean": (
            lambda run: float(xp.mean(run)) / size,
            lambda k: k * alike / math.sqrt(points),
            smallest / math.sqrt(count),
        ),
        "rms": (lambda run: math.sqrt(float(xp.sum(run**2)) / total), lambda k: k, smallest),
    }
    found = []
    for name, (of, times, tiny) in told.items():
        factor, least = _ALLOWED[name]
        allowed = factor * _usual(samples, of) + samples.eps * times(least) + tiny
        found.append(Measured(name, abs(of(samples.gap)), allowed))
    return found


def _parts(xp: Any, samples: Samples, part: Partition) -> Measured:
    """The slope of the part that is off most, in what is allowed for it.

    The noise of a part is at least half of what the parts have in common: it is known from a few
    runs, and the smallest of many would be too small.
    """
    sizes = part.sums(xp.sum(samples.exact**2, axis=0))
    usable = sizes > (1e-3 * float(xp.mean(sizes)))
    sizes = xp.where(usable, sizes, 1.0)
    slope = xp.abs(part.sums(xp.sum(samples.gap * samples.exact, axis=0))) / sizes
    known = _usual(samples, lambda run: part.sums(xp.sum(run * samples.exact, axis=0)))
    own = xp.where(usable, known / sizes, 0.0)
    common = math.sqrt(float(xp.sum(own**2)) / max(1, int(xp.sum(xp.astype(usable, xp.int64)))))
    factor, least = _ALLOWED["part"]
    allowed = factor * xp.maximum(own, xp.full_like(own, common / 2)) + least * samples.eps
    entries = part.sums(xp.ones_like(samples.exact[0, :])) * samples.exact.shape[0]
    allowed = allowed + samples.tiny * xp.sqrt(entries / sizes)
    excess = xp.where(usable, slope / allowed, 0.0)
    worst = int(xp.argmax(xp.where(xp.isnan(excess), xp.inf, excess)))
    return Measured(part.name, float(slope[worst]), float(allowed[worst]), worst * part.length)


def _worst(xp: Any, samples: Samples) -> Measured:
    """The entry that is off most in what is allowed for it, both in parts of the typical entry."""
    exact, gap = xp.abs(samples.exact), xp.abs(samples.gap)
    typical = math.sqrt(float(xp.mean(samples.exact**2)))
    size = exact + 0.1 * typical
    own = _usual(samples, xp.abs) + xp.zeros_like(size)
    ratio = own / xp.where(size > 0, size, 1.0)
    common = math.sqrt(float(xp.mean(ratio**2)))
    factor, least = _ALLOWED["worst entry"]
    floor = least * (samples.eps * size + samples.tiny)
    allowed = factor * xp.maximum(own, common * size) + floor
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
    if not samples.honest.shape[0]:
        return samples, 0
    size = xp.sqrt(xp.mean(samples.exact**2, axis=0))
    missed = xp.sqrt(xp.mean(samples.honest**2, axis=(0, 1))) > NO_ROUNDING * size
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
