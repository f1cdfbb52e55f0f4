"""What honest arithmetic of few bits may be off by: measured, not typed in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gradproof._checks._oracle import Oracle
from gradproof._map import DifferentiableMap, Unsupported
from gradproof._numerics import probes
from gradproof._numerics.statistics import RUNS
from gradproof._settings import Settings
from gradproof._space import Array, Grain, namespace

_LONG = 1 << 16  # coordinates from which a few runs must do
_COARSE = 1e-6  # unit round-off of 16 bits or fewer
_NEAR = 2.0**-6  # of a move: a smooth derivative changes by as much less
_LINEAR = 8.0  # times as much as that is no smooth change
_AGAIN = 6  # runs of a noisy backward
_KEY = ("honest errors",)

Pulled = Callable[[DifferentiableMap], Array]  # what a map claims for each of V probes, (V, N)


def coarsest(map_: DifferentiableMap) -> Grain:
    """How coarsely the function computes: as its arrays say, or as it has shown."""
    grain = coarsest_dtype(map_)
    return replace(grain, unit=max(grain.unit, map_.resolution))


def coarsest_dtype(map_: DifferentiableMap) -> Grain:
    slots = (*map_.domain.slots, *map_.codomain.slots)
    grains = [slot.grain for slot in slots if slot.size]
    return max(grains, key=lambda grain: grain.unit, default=Grain())


def errors(
    map_: DifferentiableMap,
    oracle: Oracle,
    settings: Settings,
    pulled: Pulled,
    exact: Array,
    doubt: float = 1.0,
) -> Array:
    """Errors of honest runs of the oracle, (K, V, N).

    A run that leaves the domain tells nothing: `doubt` is the part of the derivative that is then
    in doubt.

    Every operation is rounded at random; and what is one operation to the oracle may be stable in
    the backward sense only, exact for an input that is off by a rounding.
    """
    xp, grain = namespace(exact), coarsest(map_)
    runs = RUNS if exact.shape[1] <= _LONG else RUNS // 2
    moved = [_moved(map_, oracle, settings, pulled, exact, k) for k in range(runs // 3)]
    found = []
    for number in range(runs):
        try:
            rounded = oracle.map.rounded(grain.unit, grain.tiny, (settings.seed or 0) + number)
            error = pulled(rounded) - exact
        except Unsupported:
            error = xp.zeros_like(exact)
        error = error + moved[number % len(moved)]
        found.append(xp.where(xp.isfinite(error), error, doubt * xp.abs(exact)))
    return xp.stack(found)


def _moved(
    map_: DifferentiableMap,
    oracle: Oracle,
    settings: Settings,
    pulled: Pulled,
    exact: Array,
    number: int,
) -> Array:
    """Change of the exact derivative where every input moves by up to a rounding.

    At a tie or a jump the derivative changes as much for a far smaller move; that is no
    sensitivity, and not counted.
    """
    xp = namespace(exact)
    xi, point = roundings(map_, settings, number), oracle.map.point
    try:
        change = pulled(oracle.map.at(point * (1 + xi))) - exact
        close = pulled(oracle.map.at(point * (1 + _NEAR * xi))) - exact
    except Unsupported:
        return xp.zeros_like(exact)
    smooth = xp.isfinite(change) & (xp.abs(close) <= _LINEAR * _NEAR * xp.abs(change))
    return xp.where(smooth, change, 0.0)


def roundings(map_: DifferentiableMap, settings: Settings, number: int) -> Array:
    """A relative move of each input: random, up to a rounding of its array, or inside."""
    xi = probes.tangent(map_, settings.seed or 0, 16 + number) / probes.scales_of(map_) / 1.5
    xp = namespace(xi)
    # Sums of float32 are rounded more than once; those of 16 bits are mostly kept in float32.
    times = 1.0 if map_.resolution > _COARSE else 2.0
    units = [
        xp.full_like(xi[map_.domain.span(k)], times * max(slot.grain.unit, map_.resolution))
        for k, slot in enumerate(map_.domain.slots)
    ]
    return xi * xp.concat(units)


def with_noise(map_: DifferentiableMap, pulled: Pulled, got: Array, honest: Array) -> Array:
    """Errors of the honest runs, and how far further runs of the claims lie from the first.

    In the mean over all of them each of the two counts in full. One further run might lie close
    by chance: where it is not the same, several tell.
    """
    xp = namespace(got)
    gaps = [pulled(map_) - got]
    if not bool(xp.any(xp.isfinite(gaps[0]) & (gaps[0] != 0))):
        return honest
    gaps += [pulled(map_) - got for _ in range(_AGAIN - 1)]
    noise = xp.stack([xp.where(xp.isfinite(gap), gap, 0.0) for gap in gaps])
    runs = honest.shape[0], noise.shape[0]
    weights = [(sum(runs) / count) ** 0.5 for count in runs]
    return xp.concat([weights[0] * honest, weights[1] * noise])


def at_points(honest: Array, points: int, seed: int) -> Array:
    """Errors of K runs at one point, (K, V, N), as those of K runs at several, (K, points V, N).

    Rounding at random errs to both sides alike: each point gets another run, with either sign.
    """
    if points == 1:
        return honest
    xp, runs = namespace(honest), honest.shape[0]
    signs = probes.signs(seed, runs * points)
    found = [
        xp.concat([signs[k * points + p] * honest[(k + p) % runs, :, :] for p in range(points)])
        for k in range(runs)
    ]
    return xp.stack(found)


def remember(map_: DifferentiableMap, found: Array) -> None:
    """Keep the size of the errors of each entry of a gradient, for checks that compare two."""
    xp = namespace(found)
    map_.memo[_KEY] = xp.sqrt(xp.mean(found**2, axis=(0, 1)))


def remembered(map_: DifferentiableMap) -> Array | float:
    """The size of the errors that honest arithmetic makes in each entry; 0 where not known."""
    return map_.memo.get(_KEY, 0.0)
