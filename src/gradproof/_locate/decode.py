"""Where a wrong Jacobian is wrong: group testing on its rows and columns.

A residual is claimed minus measured, along a masked probe; entries outside the mask contribute
nothing to it. Residuals are numbers, not only "wrong" or "right": of a row with one wrong column
j the residual of the probe weighed by w is w[j] times the whole, so one probe tells a digit of j.
Several columns are told apart by halving the support (binary splitting, Hwang 1972).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gradproof._data.space import Array, namespace, on_host

MANY = 8  # pieces that may be wrong at once before a row, or a set of rows, counts as "many"
_NOISE = 1.25  # for a ratio of residuals may be off by the thresholds of both, and some more
_LEAST = 1e-4  # part of a residual that is never trusted
_WORST = 0.6  # likewise: above it a row cannot even be told by bits
_CLOSE = 0.25  # of the distance of two digits: how near a residual has to be to one
_ALIKE = 8.0  # times the noise of the middle row: the digits are chosen for all such rows
_GOLDEN = 0.6180339887498949


@dataclass(frozen=True)
class Residual:
    """Claimed minus measured for a few rows, and below which size it means nothing.

    Both as numbers of the host, whatever they are made from: they are read one by one.
    """

    value: Array
    threshold: Array

    def __post_init__(self) -> None:
        for name in ("value", "threshold"):
            object.__setattr__(self, name, on_host(getattr(self, name)))

    def __sub__(self, other: Residual) -> Residual:
        return Residual(self.value - other.value, self.threshold + other.threshold)

    def of(self, rows: list[int]) -> Residual:
        """Those of some rows."""
        return Residual(self.value[rows], self.threshold[rows])

    def zero(self, row: int) -> bool:
        return abs(float(self.value[row])) <= float(self.threshold[row])

    @property
    def nothing(self) -> bool:
        return bool((np.abs(self.value) <= self.threshold).all())


@dataclass(frozen=True)
class Piece:
    """Columns from `low` to before `high`, in which all that is wrong with a row lies."""

    low: int
    high: int

    @property
    def column(self) -> int | None:
        return self.low if self.high - self.low == 1 else None


Masked = Callable[[Array], Residual]  # weights (size n, 0 to 1) -> residual of the weighed probe
Tell = Callable[[Masked, Residual, int, Array, Piece, Array], list[Piece]]


def columns_of_rows(
    residual: Masked, whole: Residual, size: int, like: Array
) -> list[tuple[int, ...] | None]:
    """For every row, its wrong columns; None where there are many.

    A row with one wrong column is read off by digits, one residual each; all rows share them.
    Rows with several wrong columns are split adaptively after that.

    Args:
        residual: weights -> residual of the rows for the weighed probe.
        whole: residual of the unmasked probe.
        size: n.
        like: an array whose library the masks are made with.
    """
    pieces = pieces_by_digits(residual, whole, size, like)
    rest = [row for row, piece in enumerate(pieces) if piece.column is None]
    found: list[tuple[int, ...] | None] = [
        None if piece.column is None else (piece.column,) for piece in pieces
    ]
    if rest:
        for row, columns in zip(
            rest, columns_by_splitting(residual, whole, size, like, rest), strict=True
        ):
            found[row] = columns
    return found


def pieces_by_digits(
    residual: Masked,
    whole: Residual,
    size: int,
    like: Array,
    part: Piece | None = None,
    bar: Array | None = None,
) -> list[Piece]:
    """For every row its wrong column, or a piece in which its wrong columns seem to lie.

    The digits of j have as large a base as the noise of the usual row lets two of them be told
    apart: bits at worst. A row with several wrong columns gives a mean of their digits, which is a
    digit by accident every second time at worst; the last probe, of weights that follow no order,
    makes that less than one in 1e4 for what is called a single column. A longer piece is a guess.

    `bar` is the threshold of one residual, where that of the whole adds up those of several. Such
    a piece is one of a few, whose columns are all measured: the last probe is left out.
    """
    span = part or Piece(0, size)
    length = span.high - span.low
    rows = range(whole.value.shape[0])
    slack = [_slack(whole, row, whole.threshold if bar is None else bar) for row in rows]
    base, digits = _base(length, slack)
    pieces = [span for _ in rows]
    open_ = {row for row in rows if slack[row] < 1 and (base - 1) / 2 * slack[row] <= 2 * _CLOSE}
    for place in [base**k for k in reversed(range(digits))]:
        if not open_:
            break
        found = residual(_digit(size, span, place, base, like))
        for row in sorted(open_):
            level = (base - 1) / 2 * (1 + float(found.value[row]) / float(whole.value[row]))
            near = round(level) if abs(level) < 2 * base else -1
            low = pieces[row].low + near * place
            if abs(level - near) <= (base - 1) / 2 * slack[row] and near >= 0 and low < span.high:
                pieces[row] = Piece(low, min(low + place, span.high))
            else:
                open_.discard(row)
    if bar is None and base > 2 and any(pieces[row].column is not None for row in open_):
        found = residual(inside(scattered(like), span))
        for row in sorted(open_):
            expected = pieces[row].low * _GOLDEN % 1.0
            ratio = float(found.value[row]) / float(whole.value[row])
            if not abs(ratio - expected) <= slack[row]:
                pieces[row] = span
    return pieces


def _slack(whole: Residual, row: int, bar: Array) -> float:
    """By how much a ratio of residuals may be off; 1 where nothing can be told.

    By the threshold of both at most, and some more.
    """
    total = abs(float(whole.value[row]))
    if not 0 < total < float("inf"):
        return 1.0
    found = max(_LEAST, _NOISE * float(whole.threshold[row] + bar[row]) / total)
    return found if found <= _WORST else 1.0 if found > 1 else _WORST


def _base(length: int, slack: list[float]) -> tuple[int, int]:
    """Base and number of the digits: the fewest that can still be told apart in most rows."""
    usable = sorted(one for one in slack if one < 1)
    middle = usable[len(usable) // 2] if usable else _WORST
    # Of as many rows as are followed, of more, the better half will do.
    alike = 1.0 if len(slack) >= MANY else _ALIKE
    usual = max((one for one in usable if one <= alike * middle), default=middle)
    bits = max(1, (length - 1).bit_length())
    for digits in range(1, bits):
        base = next(b for b in range(2, length + 2) if b**digits >= length)
        if (base - 1) / 2 * usual <= _CLOSE:
            return base, digits
    return 2, bits


def _digit(size: int, span: Piece, place: int, base: int, like: Array) -> Array:
    """A digit of every column of a span, counted from its beginning, from -1 to 1; 0 outside."""
    xp = namespace(like)
    weights = xp.astype(((xp.arange(size) - span.low) // place) % base, xp.float64)
    weights *= 2 / (base - 1)
    weights -= 1
    return inside(weights, span)


def inside(weights: Array, span: Piece) -> Array:
    """The weights of a span, written into the given ones; zero elsewhere."""
    weights[: span.low] = 0.0
    weights[span.high :] = 0.0
    return weights


def scattered(like: Array, number: int = 0) -> Array:
    """A weight from 0 to 1 for every column, in no order; others for each number."""
    xp = namespace(like)
    weights = xp.astype(xp.arange(like.shape[0]), xp.float64)
    weights *= _GOLDEN * (1 + number)
    weights -= xp.floor(weights)
    return weights


def between(low: int, high: int, like: Array) -> Array:
    """One from `low` to before `high`, zero elsewhere."""
    weights = namespace(like).zeros(like.shape[0])
    weights[low:high] = 1.0
    return weights


def columns_by_splitting(
    residual: Masked,
    whole: Residual,
    size: int,
    like: Array,
    rows: list[int],
    tell: Tell = pieces_by_digits,
    most: float = math.inf,
) -> list[tuple[int, ...] | None]:
    """Wrong columns of rows that have several; None for a row with more than `MANY`.

    Breadth first, one level at a time. Pieces of a row that is not wrong in every piece so far are
    asked for their digits, for they may hold one column only; each once, as long as its wrong
    columns stay together.
    The second half is the whole less the first, and is measured only where that is no number.
    A row is given up as soon as all of `MANY` pieces are wrong: of as many columns drawn at random
    no two lie in one piece less than once in 400 times.

    `tell` says where in a piece each row is wrong, as `pieces_by_digits` does. What is not found
    after `most` residuals is given up too.
    """
    residual = _Counted(residual)
    live = {row: [Piece(0, size)] for row in rows}
    asked = {row: {Piece(0, size)} for row in rows}
    known = {Piece(0, size): whole}
    level = 0
    while pieces := sorted({p for row in live for p in live[row] if p.column is None}, key=_low):
        if residual.calls >= most:
            live = {row: found for row, found in live.items() if _single(found)}
            break
        halves = {piece: _halves(residual, piece, known[piece], like) for piece in pieces}
        known = {half: found for both in halves.values() for half, found in both.items()}
        told: dict[Piece, list[Piece]] = {}
        level += 1
        for row in list(live):
            parts = [_wrong_parts(halves, piece, row) for piece in live[row]]
            number = sum(map(len, parts))
            if number > MANY or (number == MANY == 2**level and size > MANY**2):
                del live[row]
                continue
            for piece, two in zip(live[row], parts, strict=True):
                asked[row].update(two if len(two) == 1 and piece in asked[row] else ())
            fresh = {half for two in parts for half in two if half.column is None} - asked[row]
            for half in sorted(fresh, key=_low) if number < 2**level else ():
                asked[row].add(half)
                if half not in told:
                    told[half] = tell(residual, known[half], size, like, half, whole.threshold)
            live[row] = [_told(told, half, row) for two in parts for half in two]
    return [tuple(p.low for p in live[row]) if row in live else None for row in rows]


@dataclass
class _Counted:
    """A residual that counts how often it is asked."""

    ask: Masked
    calls: int = 0

    def __call__(self, weights: Array) -> Residual:
        self.calls += 1
        return self.ask(weights)


def _single(pieces: list[Piece]) -> bool:
    return all(piece.column is not None for piece in pieces)


def _low(piece: Piece) -> tuple[int, int]:
    return piece.low, piece.high


def _halves(residual: Masked, piece: Piece, whole: Residual, like: Array) -> dict[Piece, Residual]:
    middle = (piece.low + piece.high) // 2
    left, right = Piece(piece.low, middle), Piece(middle, piece.high)
    first = residual(between(left.low, left.high, like))
    second = whole - first
    if not np.isfinite(second.value).all():
        second = residual(between(right.low, right.high, like))
    return {left: first, right: second}


def _wrong_parts(halves: dict[Piece, dict[Piece, Residual]], piece: Piece, row: int) -> list[Piece]:
    """What of a piece is wrong in a row: itself, where it is one column, or its wrong halves."""
    if piece.column is not None:
        return [piece]
    return [half for half, found in halves[piece].items() if not found.zero(row)]


def _told(told: dict[Piece, list[Piece]], half: Piece, row: int) -> Piece:
    found = told[half][row] if half in told else half
    return found if found.column is not None else half


# Wrong rows from projections on ranges of outputs, halved until one output is left.


def rows_by_splitting(
    residual: Callable[[int, int], tuple[float, float]],
    size: int,
    start: Sequence[tuple[int, int]] = (),
) -> tuple[tuple[int, ...], bool]:
    """Wrong rows where only projections can be claimed, in order, and whether all.

    Where there are many only the first, the last and two strong ones between them are followed:
    the first and the last of all wrong rows.

    Args:
        residual: (low, high) -> residual and threshold of a cotangent supported on [low, high).
        size: m.
        start: ranges that all wrong rows lie in; of all rows where empty.
    """
    live = list(start) or [(0, size)]
    complete = True
    while any(high - low > 1 for low, high in live):
        weighed: list[tuple[float, tuple[int, int]]] = []
        for low, high in live:
            if high - low == 1:
                weighed.append((float("inf"), (low, high)))
                continue
            middle = (low + high) // 2
            for half in ((low, middle), (middle, high)):
                value, threshold = residual(*half)
                if not abs(value) <= threshold:
                    weighed.append((abs(value) / threshold if threshold else 1.0, half))
        complete = complete and len(weighed) <= MANY
        if not complete and len(weighed) > 2:
            weighed.sort(key=lambda item: item[1])
            weighed = [weighed[0], *sorted(weighed[1:-1])[-2:], weighed[-1]]
        live = [half for _, half in weighed]
    return tuple(sorted(low for low, _ in live)), complete


# Wrong columns of rows whose residuals are noisy, by residuals of all columns weighed in no order.
#
# Of a row that is wrong in column j only, the residual of the probe weighed by w is w[j] times
# the whole. Each draw of weights leaves of all columns the part that the noise of a ratio cannot
# tell from it, whatever the noise: no base has to be chosen for it, as digits need one, and rows
# of different noise share their draws. The column that fits best is believed as soon as chance
# would hardly let any of the others fit as well.


_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)  # their square roots have no relation
MOST = 9  # draws: of a row whose gap is not twice its bar they tell a column
LAST = len(_PRIMES)  # draws there are
_CHANCE = 1e-4  # of a fit as good as the best, were the row not wrong in one column
_DRAWS_LEAST = 1e-6  # of the whole, that a fit is never better than
_DRAWS_NOISE = 1.25  # for a ratio of residuals may be off by the thresholds of both, and some more

Numbers = np.ndarray[Any, np.dtype[np.float64]]


@dataclass
class Draws:
    """Residuals of some columns, weighed.

    Attributes:
        residual: weights (size n, -1 to 1) -> residual of the rows for the weighed probe.
        whole: of the unweighed probe.
        like: an array whose library the weights are made with.
        span: the columns.
        bar: threshold of one residual, where that of the whole adds up those of several.
        found: residuals so far.
        misfits: per row and column, the sum of squares of what the ratios are off by.
        fits: per row, the columns that no ratio rules out.
    """

    residual: Masked
    whole: Residual
    like: Array
    span: Piece
    bar: Numbers
    found: list[Residual] = field(default_factory=list)

    def __post_init__(self) -> None:
        shape = self.whole.value.shape[0], self.span.high - self.span.low
        self.misfits, self.fits = np.zeros(shape), np.ones(shape, dtype=bool)

    def ask(self) -> None:
        """One more residual."""
        weights = inside(weights_of(self.like, len(self.found)), self.span)
        found = self.residual(weights)
        self.found.append(found)
        here = on_host(weights[self.span.low : self.span.high])
        for row, total in enumerate(self.whole.value):
            if total:
                off = float(found.value[row]) / float(total) - here
                self.fits[row] &= np.abs(off) <= self._slack(row)
                self.misfits[row] += off * off

    def _slack(self, row: int) -> float:
        """By how much a ratio may be off."""
        bars = float(self.whole.threshold[row] + self.bar[row])
        return max(_DRAWS_LEAST, _DRAWS_NOISE * bars / abs(float(self.whole.value[row])))

    def column(self, row: int) -> int | None:
        """The only column in which a row is wrong, as far as it is known."""
        if not self.open(row):
            return None
        misfits = np.where(self.fits[row], self.misfits[row], np.inf)
        best = int(np.argmin(misfits))
        told = self._by_chance(float(misfits[best])) <= _CHANCE
        return self.span.low + best if told else None

    def _by_chance(self, misfit: float) -> float:
        """How many columns would fit as well by chance: those in a ball around the ratios."""
        k, size = len(self.found), self.misfits.shape[1]
        radius = max(_DRAWS_LEAST * k**0.5, misfit**0.5) / 2  # of weights spread over a length of 2
        return float(size * math.pi ** (k / 2) / math.gamma(k / 2 + 1) * radius**k)

    def open(self, row: int) -> bool:
        """Whether a row may be wrong in one column only."""
        return bool(self.whole.value[row]) and bool(self.fits[row].any())

    def worthwhile(self) -> bool:
        """Whether another draw may tell the column of a row whose gap stands above its bar."""
        rows = range(self.whole.value.shape[0])
        return len(self.found) < MOST and any(
            self.open(row) and not self.whole.zero(row) and self.column(row) is None for row in rows
        )


def pieces_by_draws(
    residual: Masked,
    whole: Residual,
    size: int,  # noqa: ARG001  # as the other takes
    like: Array,
    part: Piece,
    bar: Numbers,
) -> list[Piece]:
    """The same as `localise.pieces_by_digits` says, where residuals are noisy."""
    draws = Draws(residual, whole, like, part, bar)
    while draws.worthwhile():
        draws.ask()
    columns = (draws.column(row) for row in range(whole.value.shape[0]))
    return [part if j is None else Piece(j, j + 1) for j in columns]


def weights_of(like: Array, number: int) -> Array:
    """A weight from -1 to 1 for every column, in no order; others for each number."""
    xp = namespace(like)
    weights = xp.astype(xp.arange(like.shape[0]), xp.float64)
    weights *= _PRIMES[number] ** 0.5
    weights -= xp.floor(weights)
    weights *= 2.0
    weights -= 1.0
    return weights
