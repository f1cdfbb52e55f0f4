"""Slopes of F at a point, held against what a backward claims: the measuring of the fast path.

What speaks against a claim, or is unclear, raises NotDecidedError.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch

from gradproof._compare.screen import CANCELS, weights_of_outputs
from gradproof._compare.tolerances import RESOLUTION, SHARP_RESOLUTION, SMALL, rounding_part
from gradproof._data.space import Mask, Values, are_equal, norm
from gradproof._numdiff.slopes import BLOCK, Slopes, measured_slopes
from gradproof._numdiff.steps import step_tables
from gradproof._numdiff.values import DifferenceTable

NUMPY = {torch.float64: np.float64, torch.complex128: np.complex128}
UNIT = 2.0**-53
_TABLES = step_tables(UNIT)
assert _TABLES.quick is not None
QUICK, USUAL, FINE = _TABLES.quick.steps, _TABLES.usual.steps, _TABLES.fine.steps
_UNITS, _ZEROS = np.full(BLOCK, UNIT), np.zeros(BLOCK)

Chosen = slice | Mask  # some of the outputs
_ALL = slice(None)


class NotDecidedError(Exception):
    """Something is wrong, unusual or unclear: the engine is asked."""


def require(condition: bool | np.bool_) -> None:
    """NotDecidedError unless the condition holds."""
    if not condition:
        raise NotDecidedError


class Known(NamedTuple):
    """What is known of a claim that nothing speaks against.

    Attributes:
        bar: the error bar of v.F, infinite where the slope of an output is not known.
        bound: of an error, in parts of a typical row; infinite where a row was not tested.
        moves: outputs that move along the direction, (m,).
    """

    bar: float
    bound: float
    moves: Mask


class SlopeTest:
    """Holds claims against differences of F at one point.

    Args:
        run: F of tensors, which are given as those of a row of `Rows`.
        leaves, outputs: tensors of the shapes and dtypes of its inputs and outputs.
        point: x, (n,).
        centre: F(x), (m,).
        v: a random cotangent, (m,).
        product_of: J^T w as claimed, of a cotangent w.
    """

    def __init__(
        self,
        run: Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]],
        leaves: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
        point: Values,
        centre: Values,
        v: Values,
        product_of: Callable[[Values], Values],
    ) -> None:
        self._run, self._outputs, self._product_of = run, outputs, product_of
        self._point, self._centre, self._v = point, centre, v
        self._in_single = centre.size > 0 and are_equal(centre, centre.astype(np.float32))
        self._handed = Rows(1, leaves)
        self._moved = self._handed.tensors(0)
        self._weights, self._products = np.empty((0, v.size)), list[Values]()  # of the sums

    def require_stillness_along(self, u: Values) -> None:
        """No output moves by a bit."""
        require((self._values_along(u, QUICK[:1], _ALL) == self._centre).all())

    def test_rows(self, u: Values, claimed: Values, tables: Sequence[Values]) -> Known:
        """Hold J u as claimed, (m,), against the slope of every output.

        Args:
            u, claimed: the direction, and J u.
            tables: of steps. Each is made for the rows that those before leave open; of few rows
                for all of them.
        """
        m = claimed.size
        typical = norm(claimed) / math.sqrt(m)
        require(0.0 < typical < math.inf)
        bars, untested, bound = np.abs(self._v), np.ones(m, bool), 0.0
        for steps in tables:
            if not untested.any():
                break
            rows = _ALL if m <= BLOCK or untested.all() else untested.copy()
            values = self._values_along(u, steps, rows)
            claims, sizes, still_untested = claimed[rows], np.abs(self._v[rows]), untested[rows]
            for here, slopes in self._slopes(values, steps, rows):
                tested, error = _test_claims(claims[here], slopes, typical)
                bound = max(bound, error)
                still_untested[here] &= ~tested
                sizes[here] *= slopes.bar
            bars[rows], untested[rows] = sizes, still_untested
        return Known(float(bars.max()), math.inf if untested.any() else bound, claimed != 0)

    def test_sums(self, u: Values, tables: Sequence[Values], seed: int) -> Known:
        """Hold (J^T w).u against the slope of w.F for some cotangents w, where J u is not claimed.

        Args:
            u: the direction.
            tables: of steps, each for all rows, until one tells all their slopes.
            seed: of the cotangents.
        """
        m = self._v.size
        slope, bar, bound = np.empty(m), np.full(m, math.inf), 0.0
        every = np.full(m, UNIT), np.zeros(m), m
        for number, steps in enumerate(tables):
            values = self._values_along(u, steps, _ALL)
            if number == 0 or m <= BLOCK:  # of long outputs a finer table is for the sums alone
                for here, slopes in self._slopes(values, steps, _ALL):
                    slope[here], bar[here] = slopes.low, slopes.bar
            table = DifferenceTable(steps, self._centre, values[0::2], values[1::2], *every)
            if math.isfinite(bar.sum()):
                break
        if not self._products:
            size, usable = np.abs(slope), np.ones(m, bool)
            self._weights = weights_of_outputs(self._v, size, bar, usable, RESOLUTION, seed)
            self._products = [self._product_of(w) for w in self._weights]
        sums = measured_slopes(table.project(self._weights)).without_kinks()
        each = zip(self._weights, self._products, sums.low, sums.bar, strict=True)
        for w, product, sum_slope, sum_bar in each:
            typical = norm(w * slope) + norm(product * u)
            off = abs(float(sum_slope) - float(product @ u))
            allowed = min(float(sum_bar), float(np.abs(w) @ bar)) + rounding_part(UNIT) * typical
            require(off <= allowed)
            is_tested = allowed <= SHARP_RESOLUTION * typical
            bound = max(bound, (off + allowed) / typical if is_tested else math.inf)
        return Known(norm(self._v * bar), bound, slope != 0)

    def _values_along(self, u: Values, steps: Values, rows: Chosen) -> Values:
        """Some outputs at x + h u and x - h u for every step h, (2 K, k): finite numbers.

        NotDecidedError also where F has another shape, or may be computed in float32.
        """
        values = np.empty((2 * len(steps), self._centre[rows].size))
        for k, way in enumerate(way for step in steps for way in (step, -step)):
            self._handed.write_sum(self._point, way, u)
            found = self._run(self._moved)
            for one, other in zip(found, self._outputs, strict=True):
                require(one.shape == other.shape and one.dtype is other.dtype)
            values[k] = vector_of(found)[rows]
        require(math.isfinite(values.sum()))
        require(not self._in_single or not are_equal(values[0], values[0].astype(np.float32)))
        return values

    def _slopes(
        self, values: Values, steps: Values, rows: Chosen
    ) -> Iterator[tuple[slice, Slopes]]:
        """The slopes of some outputs, block by block."""
        centres = self._centre[rows]
        for start in range(0, centres.size, BLOCK):
            here = slice(start, start + BLOCK)
            centre, part = centres[here], values[:, here]
            noise = _UNITS[: centre.size], _ZEROS[: centre.size], centre.size
            table = DifferenceTable(steps, centre, part[0::2], part[1::2], *noise)
            yield here, measured_slopes(table).without_kinks()


def _test_claims(claim: Values, slopes: Slopes, typical: float) -> tuple[Mask, float]:
    """Which rows of J u as claimed are tested, and the bound of an error in these.

    The law (`_compare/tolerances.py`): a row along a random tangent tolerates nothing but the error
    bar of the measured slope, which is infinite unless F is plainly smooth, and the rounding of the
    claim, whose terms may cancel along u. Both must be small beside the slope for a row to be
    tested.

    Args:
        claim, slopes: of some rows.
        typical: root mean square of all claims; the unit of the bound, or the row if it is larger.
    """
    off, slope = np.abs(claim - slopes.low), np.abs(slopes.low)
    size = np.maximum(slope, np.abs(claim))
    terms = np.minimum(typical, CANCELS * slope)
    terms[slope == 0] = typical
    terms = np.maximum(terms, slopes.steepness)
    allowed = slopes.bar + rounding_part(UNIT) * np.maximum(size, terms)
    require((off <= allowed).all())
    tested = allowed <= SHARP_RESOLUTION * np.maximum(size, SMALL * typical)
    tested |= slopes.still & (claim == 0)
    errors = (off + allowed) / np.maximum(size, typical)
    return tested, float(errors.max(initial=0.0, where=tested))


class Rows:
    """A table of vectors. A row is also a list of tensors, which share its memory.

    Args:
        count: of rows.
        like: tensors of the shapes and dtypes of those of a row.
    """

    def __init__(self, count: int, like: Sequence[torch.Tensor]) -> None:
        self._parts, self._flat = [], list[Values]()
        for tensor in like:
            dtype, entries = NUMPY[tensor.dtype], tensor.numel()
            # Every row begins at a multiple of 16 bytes, as tensors do.
            table = np.zeros((count, entries + entries % 2), dtype)[:, :entries]
            self._parts.append([row.reshape(tuple(tensor.shape)) for row in table])
            self._flat.append(table.view(np.float64))

    def flat(self) -> Values:
        """The table, (count, size)."""
        return self._flat[0] if len(self._flat) == 1 else np.concatenate(self._flat, axis=1)

    def write(self, rows: int | slice, numbers: Values) -> None:
        """Put vectors in some rows."""
        start = 0
        for part in self._flat:
            part[rows] = numbers[..., start : (start := start + part.shape[1])]

    def write_sum(self, point: Values, factor: float, move: Values) -> None:
        """Put ``point + factor * move`` in the first row."""
        start = 0
        for part in self._flat:
            here = slice(start, start := start + part.shape[1])
            np.multiply(move[here], factor, out=part[0])
            part[0] += point[here]

    def tensors(self, row: int) -> list[torch.Tensor]:
        """The tensors of a row, which are new ones at every call."""
        return [torch.from_numpy(rows[row]) for rows in self._parts]


def vector_of(tensors: Sequence[torch.Tensor | None], like: Sequence[torch.Tensor] = ()) -> Values:
    """Flat coordinates of tensors, whose memory they may share; None is the zero of one alike."""
    if len(tensors) == 1 and tensors[0] is not None:
        return tensors[0].numpy(force=True).reshape(-1).view(np.float64)
    given = [torch.zeros_like(like[k]) if t is None else t for k, t in enumerate(tensors)]
    parts = [tensor.numpy(force=True).reshape(-1).view(np.float64) for tensor in given]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
