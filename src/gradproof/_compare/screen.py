"""The screen: slopes of F along a random tangent against J u as claimed, all outputs at once.

A row along a random tangent tolerates nothing: only single entries are judged by `rtol`, so that a
mismatch here leads to entries and not to a verdict. Where J u cannot be had at once, functionals
v.F are compared with (J^T v).u for a few cotangents v: their bars come from the same values of F.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from gradproof._compare.comparison import Comparison
from gradproof._compare.tolerances import Decisions, bound_of_entry, decide, rounding_part
from gradproof._data.formats import DOUBLE
from gradproof._data.space import Mask, Values, finite_values, norm, root_mean_square
from gradproof._maps.contract import Unsupported
from gradproof._maps.users_code import UsersError, users_errors
from gradproof._numdiff.probes import Kind, random_entries
from gradproof._numdiff.slopes import BLOCK, ROUGH_ULPS, SIGMAS, Slopes, measured_slopes
from gradproof.errors import UsageError

_FUNCTIONALS = 4  # cotangents that are compared where rows cannot be
_ILL_SCALED_ROUNDS = 3
_MANY = 1 << 16  # inputs or outputs: of ill-scaled ones no finer table is made
_MOST_OF_SLOPE = 0.5  # that ill-scaled columns add to it: asked alone they show no more
CANCELS = 2.0**20  # of its slope along a tangent, that the terms of a row may be
_NEAR = 4.0  # times what is allowed: a gap that a finer table is asked of
_MOSTLY_NOISE = 0.25  # of what F moves by over the longest step of the usual table


@dataclass(frozen=True)
class Screen:
    """What one tangent shows.

    Attributes:
        u: the tangent, (n,).
        slopes: of every output along u.
        claimed: J u as claimed, (m,); None where only functionals were compared.
        decisions: of every output, or of every functional.
    """

    u: Values
    slopes: Slopes
    claimed: Values | None
    decisions: Decisions

    @property
    def is_smooth(self) -> bool:
        """Whether the slope of every output is known, and none has a kink."""
        return bool((np.isfinite(self.slopes.bar) & (self.slopes.width == 0)).all())

    @property
    def is_flat(self) -> bool:
        """Whether no output moves and nothing is claimed."""
        claimed = self.decisions.wrong if self.claimed is None else self.claimed
        return bool(self.slopes.still.all() and not claimed.any())


def screen_along(comparison: Comparison, u: Values, *, finer: bool = True) -> Screen:
    """Compare along u, by the finer step table too where the usual one leaves a doubt.

    Of many outputs the finer table is made for those alone. A gap of little more than the error bar
    is a doubt as well: the terms of an output may be rounded more than it shows itself; or any gap
    of an output so small beside others that it may be such rounding alone.
    """
    function = comparison.function
    claimed = comparison.claim.push(u)
    if claimed is None:
        return _screen_of_functionals(comparison, u, finer=finer)
    slopes = comparison.slopes_along(u)
    decisions = decisions_of_rows(comparison, slopes, claimed)
    doubtful = slopes.gap(claimed) <= _NEAR * decisions.allowed
    doubtful |= may_be_rounding(function.centre, function.unit)
    rows = decisions.open | (decisions.wrong & doubtful)
    if finer and rows.any() and not is_open_by_noise(comparison, slopes, decisions):
        if claimed.size > BLOCK:
            again = measured_slopes(function.table(u, comparison.steps.fine, outputs=rows))
            slopes = slopes.with_part(rows, slopes.part(rows).merge(again))
        else:
            slopes = slopes.merge(measured_slopes(function.table(u, comparison.steps.fine)))
        decisions = decisions_of_rows(comparison, slopes, claimed)
    return Screen(u, slopes, claimed, decisions)


def may_be_rounding(values: Values, unit: Values) -> Mask:
    """Outputs no larger than the rounding of terms as large as the largest output, (m,)."""
    size = finite_values(np.abs(values))
    return np.asarray(size <= ROUGH_ULPS * unit * size.max(initial=0.0))


def first_screen(comparison: Comparison) -> Screen:
    """The screen along the first tangent; along a second one too where the first is unlucky.

    A row may cancel along one tangent: what is open only then is decided by another. Of functionals
    two tangents are always asked, since an error may be orthogonal to one.
    """
    screen = screen_along(comparison, comparison.u)
    decisions = screen.decisions
    if decisions.wrong.any() or screen.is_flat:
        return screen
    if screen.claimed is None:
        other = screen_along(comparison, comparison.second_tangent)
        merged = replace(decisions, bound=max(decisions.bound, other.decisions.bound))
        return other if not other.decisions.are_all_right else replace(screen, decisions=merged)
    resolved_bars = np.isfinite(screen.slopes.bar) & (screen.slopes.width == 0)
    if decisions.open.any() and resolved_bars[decisions.open].all():
        other = screen_along(comparison, comparison.second_tangent)
        if other.claimed is not None and other.decisions.wrong.any():
            return other
        still_open = decisions.open & other.decisions.open
        bound = max(decisions.bound, other.decisions.bound)
        return replace(screen, decisions=replace(decisions, open=still_open, bound=bound))
    return screen


def decisions_of_rows(comparison: Comparison, slopes: Slopes, claimed: Values) -> Decisions:
    """The law along one direction: nothing is tolerated, and an interval counts as a bar."""
    typical = root_mean_square(slopes.middle)
    resolution = comparison.resolution
    # The terms of a row may cancel along u: the claim is rounded by terms of the usual size, but
    # not by those of rows that are larger by orders of magnitude. An output that does not move may
    # have been rounded away beside any. A slope that vanishes at the point is known no better than
    # those around it are rounded.
    usual = max(typical, root_mean_square(comparison.measurements.slopes.middle))
    others = np.where(slopes.size > 0, np.minimum(typical, CANCELS * slopes.size), usual)
    # A row that is small along u by chance shows a factor of its own less than a wrong entry.
    size = np.maximum(np.maximum(slopes.size, np.abs(claimed)), resolution.small * typical)
    return decide(
        slopes.without_kinks(),
        claimed,
        comparison.rounding(slopes.size, claimed, others, slopes.steepness),
        0.0,
        typical,
        resolution.of_row,
        resolution.small,
        np.minimum(typical, bound_of_entry(1.0, comparison.inputs) * size),
    )


def is_open_by_noise(comparison: Comparison, slopes: Slopes, decisions: Decisions) -> bool:
    """Whether everything that is open is open by the noise of F alone: no step shows more.

    The noise is as large as a slope that matters over the longest step, or is most of what F moves
    by: of a loss in which all terms cancel nothing but rounding is left.
    """
    if len(decisions.open) != len(slopes.bar) or decisions.wrong.any() or not decisions.open.any():
        return False
    part, noise = comparison.resolution.of_entry, slopes.noise
    scale = np.maximum(slopes.size, comparison.resolution.small * root_mean_square(slopes.middle))
    known = np.isfinite(slopes.bar)
    dominated = SIGMAS * noise / comparison.steps.fine.largest > part * scale
    longest = comparison.steps.usual.largest
    rough = ~known & (noise > _MOSTLY_NOISE * slopes.steepness * longest)
    rough &= SIGMAS * noise / longest > part * scale
    kinked = known & ~dominated & (slopes.width > part * scale)
    which = decisions.open
    if (dominated | rough)[which].all() and not kinked[which].any():
        return True
    unknown = np.isfinite(comparison.function.centre) & ~known
    return not comparison.function.repeats and bool(unknown[which].all())


def terms_of_columns(comparison: Comparison) -> Values | None:
    """What each column adds to v.F along the tangent as claimed, ``|(J^T v)_j u_j|``, (n,).

    None where that is not known: of forward mode alone, or where the backward raises.
    """
    try:
        with users_errors():
            gradient = comparison.measurements.gradient
    except (Unsupported, UsageError, UsersError):  # which its own check reports
        return None
    with np.errstate(invalid="ignore"):
        return np.nan_to_num(np.abs(gradient * comparison.u), nan=0.0, posinf=np.inf)


def are_as_good_as_zero(comparison: Comparison, columns: Mask) -> bool:
    """Whether what these columns add to v.F is below the rounding of the largest claim."""
    if (terms := terms_of_columns(comparison)) is None:
        return False
    largest = terms.max(initial=0.0, where=np.isfinite(terms))
    return bool((terms[columns] <= rounding_part(comparison.claim.unit) * largest).all())


def ill_scaled_columns(comparison: Comparison, screen: Screen) -> tuple[Screen | None, Mask]:
    """Ask columns again whose contribution drowns in the error bars, by themselves.

    Where a hundredth of what a column adds to v.F is below the largest error bar of an output, or
    below that of v.F where only functionals are known, the other inputs are held still, up to three
    times.

    Returns:
        The screen in which something is wrong, or None; and the columns that stay below the
        rounding of F, (n,).
    """
    none = np.zeros(comparison.inputs, bool)
    if (terms := terms_of_columns(comparison)) is None:
        return None, none
    bars, remaining = screen.slopes.bar, comparison.u != 0
    for _ in range(_ILL_SCALED_ROUNDS):
        total = np.minimum(np.nan_to_num(bars, posinf=1e150), 1e150)
        noise = float(np.max(np.abs(comparison.claim.v) * total, initial=0.0))
        if screen.claimed is None:
            noise = float(np.sqrt(comparison.claim.v**2 @ total**2))
        ill_scaled = remaining & (comparison.resolution.of_entry * terms <= noise)
        if not ill_scaled.any() or np.array_equal(ill_scaled, remaining):
            return None, ill_scaled
        few = max(comparison.inputs, comparison.outputs) <= _MANY
        if not few and norm(terms[ill_scaled]) > _MOST_OF_SLOPE * norm(terms[remaining]):
            break  # bars fall with the slope, which is nearly the same without the others
        again = screen_along(comparison, np.where(ill_scaled, comparison.u, 0.0), finer=few)
        wrong = again.decisions.wrong
        if again.claimed is not None:  # on one tread, where the whole tangent crosses several
            wrong = wrong & ~screen.slopes.in_treads
        if wrong.any():
            other = np.where(ill_scaled, comparison.second_tangent, 0.0)
            twice = wrong if few else screen_along(comparison, other, finer=False).decisions.wrong
            # Of many rows one may be off by the chance of its noise, but not twice.
            if twice.shape != wrong.shape or (wrong & twice).any():
                return again, none
        remaining, bars = ill_scaled, again.slopes.bar
        if again.claimed is not None:  # an output that they do not reach hides none of them
            bars = np.where((again.claimed != 0) | ~again.slopes.still, bars, 0.0)
        if again.slopes.still.all():
            return None, ill_scaled
    return None, none


def _screen_of_functionals(comparison: Comparison, u: Values, *, finer: bool) -> Screen:
    """Compare v.F with (J^T v).u for a few cotangents, in which every output weighs the same."""
    function, steps, part = comparison.function, comparison.steps, comparison.resolution.of_row
    table = function.table(u, steps.usual if steps.quick is None else steps.quick)
    slopes = measured_slopes(table)
    if steps.quick is not None and not np.isfinite(slopes.bar).all():
        table = function.table(u, steps.usual)
        slopes = measured_slopes(table)
    claim, finite = comparison.claim, np.isfinite(function.centre)
    usable = finite & np.isfinite(table.ahead).all(axis=0) & np.isfinite(table.behind).all(axis=0)
    if (finite & ~usable).any():  # beside a border of the domain: these would not be seen
        unknown = finite & ~usable
        decisions = Decisions(np.zeros_like(unknown), unknown, 0.0, np.zeros(unknown.size))
        return Screen(u, slopes, None, decisions)
    if comparison.unit >= DOUBLE:  # in few bits only numbers of the format can be handed over
        weights = claim.v[None, :] * usable
    else:
        resolution, seed = comparison.resolution.of_entry, comparison.settings.seed
        weights = weights_of_outputs(claim.v, slopes.size, slopes.bar, usable, resolution, seed)
    claimed, spread = np.array([_sums_of_terms(claim.pull(v), u) for v in weights]).T
    measured = measured_slopes(table.project(weights))
    if len(table.steps) == 2:  # which tell the slope of every output; a sum is off by all bars
        measured = replace(measured, bar=np.fmin(measured.bar, np.abs(weights) @ slopes.bar))
    typical = np.sqrt(weights**2 @ np.nan_to_num(slopes.size) ** 2)
    typical = typical + np.nan_to_num(spread)
    rounding = comparison.rounding(measured.size, typical)
    doubtful = measured.bar + measured.width > part * typical
    doubtful |= _is_near(measured, claimed, rounding)
    if finer and doubtful.any():
        table = function.table(u, steps.fine)
        slopes = slopes.merge(measured_slopes(table))
        measured = measured.merge(measured_slopes(table.project(weights)))
    decisions = decide(
        measured.without_kinks(),
        claimed,
        comparison.rounding(measured.size, typical),
        0.0,
        typical,
        part,
        small=1.0,
    )
    return Screen(u, slopes, None, decisions)


def _is_near(slopes: Slopes, claimed: Values, rounding: Values) -> Mask:
    """Claims that are refuted by little more than the error bar, (k,)."""
    allowed = slopes.bar + slopes.width + rounding
    gap = slopes.gap(claimed)
    return np.asarray((gap > allowed) & (gap <= _NEAR * allowed))


def _sums_of_terms(gradient: Values, u: Values) -> tuple[float, float]:
    """The sum over inputs of g u, and the root of the sum of squares; of those that move."""
    terms = gradient * u
    terms[u == 0] = 0.0  # also where g is infinite
    return float(terms.sum()), math.sqrt(terms @ terms)


def weights_of_outputs(
    v: Values, size: Values, bar: Values, usable: Mask, resolution: float, seed: int
) -> Values:
    """Cotangents, (k, m): the first as it is, the others with outputs of all sizes weighed alike.

    An output that is not known to a part `resolution`, as one that stands still, weighs as the
    smallest of those that are, at most.
    """
    least = np.nan_to_num(bar, posinf=0.0) / resolution
    known = size > least
    smallest = size.min(initial=np.inf, where=known & usable)
    size = np.where(known, size, np.maximum(least, smallest if math.isfinite(smallest) else 0.0))
    alike = np.where(usable, 1.0 / np.where(size > 0, size, 1.0), 0.0)
    alike = np.nan_to_num(alike / max(float(alike.max(initial=0.0)), 1e-300), posinf=0.0)
    numbers = range(8, 8 + _FUNCTIONALS - 2)
    draws = [random_entries(seed, Kind.COTANGENT, number, v.size) for number in numbers]
    return np.stack([v * usable, v * alike, *(draw * alike for draw in draws)])
