"""What the screen says, and how sharply it must see."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gradproof._data.settings import Settings
from gradproof._data.space import Array, namespace, on_host
from gradproof._data.vectors import KEPT, blocks, finite, rms
from gradproof._judge import limiting_slopes
from gradproof._judge.decide import BARS, Bar, Decision, decide, of_row, resolved
from gradproof._maps.contract import DifferentiableMap
from gradproof._measure import directional, probes, steps
from gradproof._measure.richardson import Estimate
from gradproof._measure.sizes import FINE, ROUNDINGS

SHARP = 1e-5  # a bar below this part of the derivative needs no second look
UNRESOLVED = 0.25  # of a row: more than that in doubt might be a block of its entries
FAINT = 1e-7  # nor one below this part of the size of all outputs' derivatives


@dataclass(frozen=True)
class Screen:
    """What one random tangent says of every row."""

    # Rows whose gap is worth a look, strongest first; at most `KEPT` of them.
    suspects: tuple[int, ...]
    blurred: tuple[int, ...]  # rows whose error bar is too wide to see a wrong entry
    # Tangent and cotangent with which a projection, not a row, disagrees; `suspects` is then
    # unknown.
    projected: tuple[int, Array] | None
    resolution: float  # largest error bar in parts of the derivative, over the other rows
    bar: float  # largest finite error bar
    empty: bool  # neither claimed nor measured is above its error bar, anywhere
    # Largest error bar, or gap that was not looked into, in parts of the largest entry.
    bound: float = 0.0
    count: int = 0  # how many there are
    mask: Array | None = None  # which; None where they are not known
    unresolved: str = ""  # why what is seen of a row is too little; "" where it is enough
    # Tangent and parts of the outputs whose projection looks wrong, and proves nothing.
    hints: tuple[int, tuple[slice, ...]] | None = None

    @property
    def suspicious(self) -> bool:
        return self.projected is not None or bool(self.suspects)


@dataclass(frozen=True)
class Rows:
    """What the rows of a screen look like, one by one."""

    suspect: Array  # whose gap is worth a look
    blurred: Array  # whose error bar is too wide to see a wrong entry
    evident: bool  # whether a gap is one that no rounding explains
    resolution: float  # as in `Screen`
    bar: float  # as in `Screen`
    seen: float  # likewise, of error bars and gaps


def rows_of(
    map_: DifferentiableMap,
    settings: Settings,
    found: Estimate,
    claimed: Array | None,
    rounded: float = 0.0,
) -> Rows:
    """Every row of the Jacobian, along one tangent; block by block, to need no more memory.

    Without `claimed` none is under suspicion. `rounded` is the size of numbers whose rounding may
    be in the claim of any row, its own apart.
    """
    xp = namespace(found.value)
    typical = rms(found.value)
    size = typical if claimed is None else max(typical, rms(claimed))
    parts = []
    for block in blocks(found.value, KEPT):
        here = found.span(block)
        seen_well = resolved(here.error, sharp(map_, settings, here.value, size))
        blurred = ~limiting_slopes.but_tied(map_, seen_well, block)
        suspect, evident, seen = xp.zeros_like(blurred), False, here.error
        gap = xp.zeros_like(seen)
        if claimed is not None:
            decided = of_rows(map_, here, claimed[block], rounded, typical)
            suspect = limiting_slopes.but_tied(map_, decided.wrong, block)
            gap = decided.gap
            if bool(xp.any(suspect)):
                plain = max(FINE, 16 * ROUNDINGS * map_.resolution) * size
                evident = bool(xp.any(suspect & ~resolved(gap, plain)))
            if map_.resolution > steps.SINGLE:  # the claims' rounding hides more than the bar
                seen = xp.maximum(seen, decided.further)
        part, most = _resolution((seen, gap), here.value, blurred, size)
        parts.append(Rows(suspect, blurred, evident, part, _largest(here.error), most))
    if len(parts) == 1:
        return parts[0]
    suspect, blurred, *numbers = zip(*(vars(part).values() for part in parts), strict=True)
    return Rows(xp.concat(suspect), xp.concat(blurred), *map(max, numbers))


def _largest(values: Array) -> float:
    xp = namespace(values)
    top = float(xp.max(values))
    return top if top < math.inf else float(xp.max(finite(values)))


def _resolution(
    unseen: tuple[Array, Array], value: Array, blurred: Array, size: float
) -> tuple[float, float]:
    """Largest bar of the rows seen, in parts of their derivative; and largest bar or gap."""
    (error, gap), xp = unseen, namespace(value)
    if not size:
        return 0.0, 0.0
    most, scale = xp.maximum(error, gap), xp.clip(xp.abs(value), size, None)
    if xp.any(blurred):
        error, most = (xp.where(blurred, 0.0, each) for each in (error, most))
    return float(xp.max(error / scale)), float(xp.max(most / scale))


def empty(claimed: Array, measured: directional.Measurement) -> bool:
    """Whether neither claimed nor measured is above its error bar in any row.

    Where the function varies, a derivative of zero is one like any other: the point is stationary.
    At a kink the bar is the half-gap of two slopes, of which one may be zero: not nothing either.
    """
    found = measured.estimate
    xp = namespace(found.value)
    if measured.varies or not bool(xp.all(xp.isfinite(found.error))):
        return False
    bar = BARS * Bar(found.error, found.kink).noise
    if bool(xp.any(xp.abs(found.value) > bar)):
        return False
    if claimed.shape[0] != bar.shape[0]:
        return not bool(xp.any(claimed != 0))
    return bool(xp.all(xp.abs(claimed) <= bar))


def of_rows(
    map_: DifferentiableMap, found: Estimate, claimed: Array, size: float, typical: float
) -> Decision:
    """Rows along a tangent: wrong are those that are worth a look. Sizes as in `of_row`."""
    rounding = of_row(map_, found, size, typical)
    return decide(claimed, found.value, Bar(found.error, found.kink), rounding, small=0.0)


def summed(found: tuple[float, float], v: Array, rows: Estimate) -> tuple[float, float]:
    """v.(J u) with its error bar: as found from the sums v.F, or from the rows if that is sharper.

    A sum chooses one step for all rows. Where these want very different ones, each row measured
    by its own is better, although their error bars then add up.
    """
    xp = namespace(v)
    known = xp.zeros(2)
    for block in blocks(v, KEPT):
        part, here = v[block], rows.span(block)
        added = xp.stack([part * here.value, xp.abs(part) * here.error])
        known += xp.sum(xp.where(part != 0, added, 0.0), axis=1)
    value, error = (float(each) for each in on_host(known))
    return (value, error) if error < found[1] else found


def sharp(map_: DifferentiableMap, settings: Settings, value: Array, size: float) -> Array:
    """Error bars up to which a row counts as seen.

    In parts of the row's derivative; a row whose derivative is nothing beside the others' counts
    as seen when its bar is small beside theirs. With an absolute tolerance the bar has to show a
    gap of that size in any single entry, the smallest tangent entry included.
    """
    xp = namespace(value)
    faint = max(FAINT, 4 * map_.resolution) * size
    if map_.domain.size > settings.full_jacobian:  # no second look at every entry
        return settings.resolution * xp.abs(value) + faint
    part = SHARP if map_.resolution < directional.DOUBLE else 0.5 * settings.rtol
    bar = part * xp.abs(value) + faint
    if settings.atol and settings.classic_step:
        smallest = 0.5 * float(xp.min(probes.scales_of(map_)))
        bar = xp.minimum(bar, 0.5 * (settings.atol * smallest + settings.rtol * xp.abs(value)))
        bar = xp.maximum(bar, xp.full_like(bar, 0.25 * settings.atol * smallest))
    return bar
