"""What the screen says, and how sharply it must see."""

from __future__ import annotations

from dataclasses import dataclass

from gradproof._checks._found import BARS
from gradproof._map import DifferentiableMap
from gradproof._numerics import measure, probes
from gradproof._numerics.compare import rms
from gradproof._numerics.richardson import Estimate
from gradproof._settings import Settings
from gradproof._space import Array, namespace

# A gap this small beside the row's own derivative is never looked into: rounding of the backward.
_QUIET = 1e-9
ROUNDING = 64.0  # likewise, in units of the resolution
_SHARP = 1e-5  # a bar below this part of the derivative needs no second look
_FAINT = 1e-7  # nor one below this part of the size of all outputs' derivatives


@dataclass(frozen=True)
class Screen:
    """What one random tangent says of every row.

    Attributes:
        suspects: rows whose gap is worth a look, strongest first.
        blurred: rows whose error bar is too wide to see a wrong entry.
        projected: tangent and cotangent with which a projection, not a row, disagrees; `suspects`
            is then unknown.
        resolution: largest error bar in parts of the derivative, over the other rows.
        bar: largest finite error bar.
        empty: neither claimed nor measured is above its error bar, anywhere.
    """

    suspects: tuple[int, ...]
    blurred: tuple[int, ...]
    projected: tuple[int, Array] | None
    resolution: float
    bar: float
    empty: bool

    @property
    def suspicious(self) -> bool:
        return self.projected is not None or bool(self.suspects)


def allowance(map_: DifferentiableMap, found: Estimate, size: float) -> Array:
    """Gap of a row below which it is not looked into.

    A kink's bar is the half-gap of its slopes, an exact bound; noise and truncation get a factor.
    `size`, of all rows, is what the claim of one row may be rounded by: 0 for a backward that
    works out each row by itself.
    """
    xp = namespace(found.value)
    typical = max(size, rms(found.value))
    # Added up one by one: of a large map every term is as long as its output.
    # An output that does not move at all may have been rounded away, beside larger numbers.
    allowed = xp.where((found.value == 0) & (found.error == 0), typical, size)
    allowed *= ROUNDING * map_.resolution
    allowed += max(_QUIET, ROUNDING * map_.resolution) * xp.abs(found.value)
    kink = xp.minimum(found.kink, found.error)
    allowed += kink
    kink = found.error - kink
    kink *= BARS
    allowed += kink
    return allowed


def summed(found: tuple[float, float], v: Array, rows: Estimate) -> tuple[float, float]:
    """v.(J u) with its error bar: as found from the sums v.F, or from the rows if that is sharper.

    A sum chooses one step for all rows. Where these want very different ones, each row measured
    by its own is better, although their error bars then add up.
    """
    xp = namespace(v)
    used = v != 0
    error = float(xp.sum(xp.where(used, xp.abs(v) * rows.error, 0.0)))
    if not error < found[1]:
        return found
    return float(xp.sum(xp.where(used, v * rows.value, 0.0))), error


def sharp(map_: DifferentiableMap, settings: Settings, value: Array, size: float) -> Array:
    """Error bars up to which a row counts as seen.

    In parts of the row's derivative; a row whose derivative is nothing beside the others' counts
    as seen when its bar is small beside theirs. With an absolute tolerance the bar has to show a
    gap of that size in any single entry, the smallest tangent entry included.
    """
    xp = namespace(value)
    faint = max(_FAINT, 4 * map_.resolution) * size
    if map_.domain.size > settings.full_jacobian:  # no second look at every entry
        return settings.resolution * xp.abs(value) + faint
    part = _SHARP if map_.resolution < measure.DOUBLE else 0.5 * settings.rtol
    bar = part * xp.abs(value) + faint
    if settings.atol and settings.classic_step:
        smallest = 0.5 * float(xp.min(probes.scales_of(map_)))
        bar = xp.minimum(bar, 0.5 * (settings.atol * smallest + settings.rtol * xp.abs(value)))
        bar = xp.maximum(bar, xp.full_like(bar, 0.25 * settings.atol * smallest))
    return bar
