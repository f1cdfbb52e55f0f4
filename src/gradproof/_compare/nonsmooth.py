"""Points at which F is not differentiable: one-sided slopes, subdifferentials, smooth neighbours.

At a kink a derivative is right if it lies in Clarke's subdifferential (Clarke 1983), the convex
hull of the gradients around the point. Along a direction that is an interval, whose ends are the
slopes on both sides of the point and at points nearby.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from gradproof._compare.comparison import OTHER_SLOPE, Comparison, entry_finding
from gradproof._data.records import Finding, Kink
from gradproof._data.results import MeasuredBlock
from gradproof._data.space import Mask, Values
from gradproof._numdiff.probes import Kind, random_moves
from gradproof._numdiff.slopes import Slopes, measured_slopes, some_scale_agrees
from gradproof._numdiff.steps import SHORT_STEP

_POINTS = 64  # nearby points at which slopes are sampled, at most
_NEARER = 2.0**-6  # of the way to such a point
_RANDOM = 8  # directions in which claims at a tie are added up
_LEAST_TIE = 3  # equal inputs whose derivatives are exchangeable, and hard to sample one by one
_LISTED_KINKS = 64


def slopes_with_neighbours(
    comparison: Comparison, slopes: Slopes, claimed: Values, w: Values
) -> Slopes:
    """Slopes along w, widened to those at nearby points where F has a kink.

    Of a sort of three equal numbers the middle one moves with none of them alone, and its gradient
    is one of them beside that point. Points are sampled until every claim lies within the interval.
    Where F is smooth, neighbours add nothing.

    Args:
        comparison: of claims and F.
        slopes: along w at the point, (m,).
        claimed: J w, (m,).
        w: a direction, (n,).
    """
    low, high = slopes.low.copy(), slopes.high.copy()
    noise = 8 * slopes.noise / SHORT_STEP
    if comparison.is_smooth_nearby:
        return slopes
    for number in range(_POINTS):
        if not (replace(slopes, low=low, high=high).gap(claimed) > slopes.bar).any():
            break
        slope = comparison.slope_nearby(w, number)
        # Beside a stationary point the slope changes by curvature, which `steepness` bounds.
        size = np.maximum(np.maximum(np.abs(slope), slopes.size), slopes.steepness)
        margin = OTHER_SLOPE * size + noise
        further = np.maximum(slopes.low - slope, slope - slopes.high)
        beyond = (further > 2 * noise / _NEARER) & np.isfinite(slope)
        if beyond.any():
            # Pieces of F that meet at the point are cones: on the same ray F has the same slope
            # nearer by. The sine of a large number has another one.
            nearer = comparison.slope_nearby(w, number, _NEARER)
            # By curvature it would differ by nearly as much as from the slopes at the point.
            far = np.where(further > margin, margin, further / 4)
            same = np.abs(nearer - slope) <= far + noise / _NEARER
            slope, beyond = np.where(same, slope, np.nan), beyond & same
        low = np.where(beyond, np.minimum(low, slope - noise), low)
        high = np.where(beyond, np.maximum(high, slope + noise), high)
    return replace(slopes, low=low, high=high)


def slopes_of_ties(
    comparison: Comparison, slopes: Slopes, claimed: Values, column: int, smooth: Mask
) -> Slopes:
    """Slopes of one column, with a bar as wide as the gap where a tie explains the claim.

    Of many equal inputs any may take the place of any other: a sort of sixty equal numbers has a
    gradient of 1 with respect to one of them, whichever. Sampling hardly ever meets the one that is
    claimed. So a claim is left open if it is the slope of some output with respect to this input,
    and that of its own output varies nearby. A median of sixty equal numbers moves with none of
    them, and with all of them together: what that shows bounds the claim of an output that is
    `smooth`, (m,), which has no kink along this input.
    """
    values = comparison.map.point
    tied = np.abs(values) == abs(values[column])
    if int(tied.sum()) < _LEAST_TIE:
        return slopes
    bar = np.where(np.isfinite(slopes.bar), slopes.bar, 0.0)
    low, high = np.min(slopes.low - bar), np.max(slopes.high + bar)
    explained = (claimed >= low) & (claimed <= high)
    if not explained.all() and smooth.any():
        signs = np.where(values < 0, -1.0, 1.0)
        length = comparison.scales[column] * np.sign(comparison.u[column])
        w = np.where(tied, length * signs * signs[column], 0.0)
        joint = measured_slopes(comparison.function.table(w, comparison.steps.usual))
        lowest = np.minimum(np.minimum(joint.low, 0.0), low) - joint.bar
        highest = np.maximum(np.maximum(joint.high, 0.0), high) + joint.bar
        explained |= smooth & (claimed >= lowest) & (claimed <= highest)
    explained &= slopes.gap(claimed) > slopes.bar
    if explained.any():  # of a smooth F a tie is no excuse
        explained &= comparison.varies_nearby(np.where(tied, comparison.u, 0.0))
    return replace(slopes, bar=np.where(explained, 2 * slopes.gap(claimed), slopes.bar))


def joint_mismatch(
    comparison: Comparison, claimed: Values, allowed: Values, kinks: Values
) -> Finding | None:
    """A row of a claimed Jacobian (m, n) that is no gradient around the point; None without any.

    The gradients around the point average to a claim that is right, so along every direction w the
    claim C w lies within the slopes on both sides and those nearby. A maximum of two equal numbers
    may give 0 to 1 to each, but not 1 to both: the first two directions move equal numbers alike.
    Where many pieces of F meet, a sample does not reach the ends of the interval. What is allowed
    besides: `width_beyond_sample`, for so many `kinks` in each row, (m,). What is `allowed` of each
    entry alone, (m, n), is allowed of their sum.
    """
    for w in _joint_directions(comparison):
        table = comparison.function.table(w, comparison.steps.usual)
        slopes = measured_slopes(table)
        along, size = claimed @ w, np.abs(claimed) @ np.abs(w)
        slack = comparison.rounding(slopes.size, size) + allowed @ np.abs(w)
        off = np.isfinite(along) & np.isfinite(slopes.bar)
        off &= slopes.gap(along) > slopes.bar + slack
        if off.any():  # as of single entries, only what finer steps show as well
            table = comparison.function.table(w, comparison.steps.fine)
            slopes = slopes.merge(measured_slopes(table))
            off &= slopes.gap(along) > slopes.bar + slack
            off &= ~some_scale_agrees(table, slopes, along)
        if not off.any():
            continue
        wide = slopes_with_neighbours(comparison, slopes, along, w)
        noise = 8 * slopes.noise / SHORT_STEP
        within = slopes.bar + slack + noise
        off &= wide.gap(along) > within + width_beyond_sample(slopes, wide, kinks)
        if off.any():
            several = _have_slopes_between(comparison, slopes, w)
            off &= wide.gap(along) > within + width_beyond_sample(slopes, wide, kinks, several)
        if off.any():
            i = int(np.argmax(off))
            numbers = (along[i], wide.middle[i], slopes.bar[i] + wide.width[i] / 2, slopes.bar[i])
            finding = entry_finding(comparison, i, None, numbers)
            message = (
                f"{finding.output}: each claim lies between the slopes on both sides of the kink, "
                "but not together with the others: along a random direction the claims add up to "
                f"{along[i]:.6g}, the slopes are from {wide.low[i]:.6g} to {wide.high[i]:.6g}"
            )
            return replace(finding, message=message)
    return None


def kink_finding(finding: Finding, low: float, high: float) -> Finding:
    """The finding of an entry at a kink whose claim is not between the slopes on both sides.

    Args:
        finding: of the entry, with the middle of the slopes as what was measured.
        low, high: the slopes; one is infinite where they grow without bound.
    """
    if math.isfinite(low) and math.isfinite(high):
        slopes = f"outside of the slopes at the kink, from {low:.6g} to {high:.6g}"
    else:
        slopes = f"but the slope is infinite: {low if math.isinf(low) else high:g}"
    place = f"{finding.input} -> {finding.output}"
    message = f"{place}: claimed {finding.claimed:.6g}, {slopes}"
    return replace(finding, message=message, kind="kink")


def _have_slopes_between(comparison: Comparison, slopes: Slopes, w: Values) -> Mask:
    """Outputs in which more than two pieces meet: a nearby slope is at neither end, (m,)."""
    between, noise = np.zeros(slopes.low.size, bool), 8 * slopes.noise / SHORT_STEP
    margin = OTHER_SLOPE * np.maximum(slopes.size, slopes.steepness) + noise
    for number in range(_RANDOM):
        slope = comparison.slope_nearby(w, number)
        between |= (slope > slopes.low + margin) & (slope < slopes.high - margin)
    return between


def width_beyond_sample(
    slopes: Slopes, wide: Slopes, kinks: Values | float = 1.0, several: Mask | bool = False
) -> Values:
    """How far slopes at points that were not sampled may lie beyond the ends of an interval, (m,).

    Of two pieces of F the slopes at the point show both. Where nearby points have shown others, or
    `several` pieces are known to meet, a sample of them does not reach the ends: these may be off
    by the width of the interval. Of k kinks added up, which are independent, the range is k, the
    standard deviation root(k) / 2: a sample of 64 spans 2.3 root(k), and leaves root(k) / 4.6 times
    its width at either end.
    """
    width = wide.width * np.maximum(1.0, np.sqrt(kinks) / 4)
    return np.where((wide.width > slopes.width) | several, width, 0.0)


def _joint_directions(comparison: Comparison) -> list[Values]:
    domain, seed, scales = comparison.map.domain, comparison.settings.seed, comparison.scales
    signs = np.where(comparison.map.point < 0, -1.0, 1.0)
    random = [random_moves(domain, seed, Kind.JOINT_DIRECTION, number) for number in range(_RANDOM)]
    return [scales, scales * signs, *(scales * draws for draws in random)]


def kinks_of_entries(
    comparison: Comparison, block: MeasuredBlock, ends: tuple[Values, Values], kinked: Mask
) -> tuple[Kink, ...]:
    """Records of the entries of a block at which F has a kink or an infinite slope.

    Args:
        comparison: of claims and F.
        block: claimed and measured entries, (m, k).
        ends: of the slopes of each entry, (m, k) each, in either order.
        kinked: the entries, (m, k).
    """
    found = []
    for i, k in np.argwhere(kinked)[:_LISTED_KINKS]:
        low, high = sorted((float(ends[0][i, k]), float(ends[1][i, k])))
        output = comparison.map.codomain.locate(int(block.rows[i]))
        input_ = comparison.map.domain.locate(int(block.columns[k]))
        claimed = float(block.claimed[i, k])
        kind = "kink" if math.isfinite(low) and math.isfinite(high) else "infinite slope"
        message = f"{input_} -> {output}: {kind}, slopes from {low:.3g} to {high:.3g}"
        message += f", claimed {claimed:.6g}"
        found.append(Kink(kind, output, input_, low, high, claimed, message))
    return tuple(found)
