"""Entries of rows whose slopes along single inputs say nothing of any other direction."""

from __future__ import annotations

from gradproof._checks._found import BARS, Entries
from gradproof._map import DifferentiableMap
from gradproof._numerics import measure
from gradproof._numerics.kinks import KINDS, KINK
from gradproof._records import Kink
from gradproof._settings import Settings
from gradproof._space import Array, namespace, on_host

MOST = 1024  # records kept
_UNEVEN = 1e-3  # of a row, by which its slopes must fail to add up


def uneven_entries(
    map_: DifferentiableMap, settings: Settings, entries: Entries, open_: tuple[Array, Array]
) -> tuple[Array, list[Kink]]:
    """Open entries of rows whose slope along a direction is not the sum of its entries'.

    Where three numbers are tied, the middle one in order has slope zero along each of them, and
    yet moves when all do: no matrix is its derivative, and none can be held against the claim.

    Args:
        map_: whose Jacobian it is.
        settings: of the run.
        entries: measured and claimed.
        open_: masks of the entries that are wrong, and of those that are not resolved.

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
    whole = first.estimate
    rows = list(range(wrong.shape[0])) if entries.rows is None else list(entries.rows)
    at, u = xp.asarray(rows), first.direction
    apart = xp.abs(xp.take(whole.value, at) - c.measured @ u)
    bar = BARS * (xp.take(whole.error, at) + c.error @ xp.abs(u))
    known = xp.all(xp.isfinite(c.measured), axis=1) & xp.isfinite(bar)
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
