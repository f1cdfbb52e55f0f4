"""Entries of rows whose slopes along single inputs say nothing of any other direction."""

from __future__ import annotations

from gradproof._checks._found import BARS, Entries
from gradproof._map import DifferentiableMap
from gradproof._numerics import measure
from gradproof._numerics.kinks import KINDS, KINK
from gradproof._numerics.richardson import Estimate
from gradproof._records import Kink
from gradproof._settings import Settings
from gradproof._space import Array, namespace, on_host

MOST = 1024  # records kept
_UNEVEN = 1e-3  # of a row, by which its slopes must fail to add up
_NEAR = 2.0**-22, 2.0**-26  # steps


def uneven_entries(
    map_: DifferentiableMap,
    settings: Settings,
    entries: Entries,
    open_: tuple[Array, Array],
    slopes: tuple[Array, Array, Array],
) -> tuple[Array, list[Kink]]:
    """Open entries of rows whose slope along a direction is not the sum of its entries'.

    Where three numbers are tied, the middle one in order has slope zero along each of them, and
    yet moves when all do, one way forwards and another way backwards perhaps: no matrix is its
    derivative, and none can be held against the claim.

    Args:
        map_: whose Jacobian it is.
        settings: of the run.
        entries: measured and claimed.
        open_: masks of the entries that are wrong, and of those that are not resolved.
        slopes: of every entry on its left and on its right, with their error bars.

    Returns:
        A mask of the open entries in such rows, and a record for each wrong one.
    """
    wrong, blurred = open_
    c = entries.comparison
    xp = namespace(wrong)
    none = wrong & ~wrong
    if settings.classic_step or not bool(xp.any(wrong)) or wrong.shape[1] < 2:
        return none, []
    first = measure.along(map_, settings, 0)
    rows = list(range(wrong.shape[0])) if entries.rows is None else list(entries.rows)
    u = first.direction
    apart, bar = _apart(first.estimate, xp.asarray(rows), u, slopes)
    if map_.resolution <= measure.DOUBLE:
        near, near_bar = _apart_near(map_, xp.asarray(rows), u, slopes)
        finer = near_bar < bar
        apart, bar = xp.where(finer, near, apart), xp.where(finer, near_bar, bar)
    known = xp.all(xp.isfinite(c.measured), axis=1) & xp.isfinite(bar) & xp.isfinite(apart)
    row = (known & (apart > bar + _UNEVEN * (xp.abs(c.measured) @ xp.abs(u))))[:, None]
    uneven = wrong & row
    records = []
    places = (on_host(found).tolist() for found in xp.nonzero(uneven))
    measured_, claimed_ = on_host(c.measured), on_host(c.claimed)
    for i, j in list(zip(*places, strict=True))[:MOST]:
        slope, claimed = float(measured_[i, j]), float(claimed_[i, j])
        output, input_ = map_.codomain.locate(rows[i]), map_.domain.locate(j)
        message = (
            f"{input_} -> {output}: not differentiable, a kink; the slope is {slope:.6g} on both "
            "sides, but slopes do not add up to the one along a random direction; "
            f"claimed {claimed:.6g}, which only neighbours can judge"
        )
        records.append(Kink(KINDS[KINK], output, input_, slope, slope, claimed, False, message))
    return uneven | (blurred & row), records


def _sums(u: Array, slopes: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
    """What the entries' slopes add up to forwards along u and backwards, and their error bars.

    Forwards each input moves to the side that its part of u points to, backwards to the other.
    """
    xp = namespace(u)
    left, right, error = slopes
    ahead, behind = xp.clip(u, 0.0, None), xp.clip(-u, 0.0, None)
    forwards, backwards = right @ ahead - left @ behind, left @ ahead - right @ behind
    return forwards, backwards, error @ xp.abs(u)


def _apart(
    whole: Estimate, at: Array, u: Array, slopes: tuple[Array, Array, Array]
) -> tuple[Array, Array]:
    """How far the slopes of some rows along u are from the sums of their entries', and a bar.

    Which of the two slopes along u is which is not known.
    """
    xp = namespace(u)
    forwards, backwards, error = _sums(u, slopes)
    value, kink = xp.take(whole.value, at), xp.take(whole.kink, at)
    kink = xp.minimum(kink, xp.take(whole.error, at))
    one, other = value + kink, value - kink
    apart = xp.minimum(
        xp.maximum(xp.abs(forwards - one), xp.abs(backwards - other)),
        xp.maximum(xp.abs(forwards - other), xp.abs(backwards - one)),
    )
    return apart, BARS * (xp.take(whole.error, at) - kink + error)


def _apart_near(
    map_: DifferentiableMap, at: Array, u: Array, slopes: tuple[Array, Array, Array]
) -> tuple[Array, Array]:
    """The same from two short steps on either side, whose difference is the bar.

    A number close to tied ones comes between them where a ladder of steps begins, and blurs their
    slope along u, though not the one along an input that moves by itself.
    """
    xp = namespace(u)
    forwards, backwards, error = _sums(u, slopes)
    start = measure.centre(map_)
    value = xp.take(start.value, at)
    noise = 4 * map_.resolution * xp.abs(value) + xp.max(xp.zeros_like(value) + start.noise)
    apart = bar = xp.zeros_like(value)
    for way, total in zip((1.0, -1.0), (forwards, backwards), strict=True):
        short, shorter = (
            way * (xp.take(map_.value(map_.point + way * step * u), at) - value) / step
            for step in _NEAR
        )
        apart = xp.maximum(apart, xp.abs(shorter - total))
        bar = xp.maximum(bar, xp.abs(short - shorter) + 2 * noise / _NEAR[1])
    return apart, BARS * (bar + error)
