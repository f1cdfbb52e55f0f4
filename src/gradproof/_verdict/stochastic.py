"""What honest arithmetic of few bits may be off by: measured, not typed in."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from gradproof._data.settings import Settings
from gradproof._data.space import FORMATS, Array, Grain, Slot, namespace
from gradproof._data.vectors import KEPT
from gradproof._judge.claims import Mode
from gradproof._judge.decide import BARS
from gradproof._maps.contract import DifferentiableMap, Unsupported
from gradproof._measure import evaluate, probes, steps
from gradproof._measure.noise import DECAYS
from gradproof._measure.rounding import ROUNDABLE
from gradproof._measure.statistics import FACTOR, RUNS
from gradproof._verdict.oracles import (
    Oracle,
    coarsest_dtype,
    distance,
    error_of_run,
    error_of_value,
)

# Times as much as single operations that what they are made of may round, all in all: coordinates
# of 1.7 times 16 samples have so many units more in the last place than 1, and sums are of many.
INSIDE = 4.0
_KEY = "honest errors"
# In the memo of a map: why no operation of it could be rounded.
NOT_ROUNDED = ("not rounded",)

Pulled = Callable[[DifferentiableMap], Array]  # what a map claims for each of V probes, (V, N)


def coarsest(map_: DifferentiableMap) -> Grain:
    """How coarsely the function computes: as its arrays say, or as it has shown."""
    grain = coarsest_dtype(map_)
    return replace(grain, unit=max(grain.unit, map_.resolution))


def inside(map_: DifferentiableMap, settings: Settings) -> Grain:
    """How coarsely the operations inside are rounded: likewise, or as the user says."""
    grain = coarsest(map_)
    said = FORMATS.get(settings.accumulate or "", grain)
    return replace(grain, unit=said.unit, tiny=said.tiny) if said.unit < grain.unit else grain


def beside(map_: DifferentiableMap, x: Array, name: object) -> DifferentiableMap:
    """The map at a point near its own, of that name; a small one is kept for the other mode."""
    key = "of both modes", name
    found: DifferentiableMap | None = map_.memo.get(key)
    if found is None:
        found = map_.at(x)
        if max(map_.domain.size, map_.codomain.size) <= KEPT:
            map_.memo[key] = found
    return found


def known(exact: Array, slot: Slot) -> Array:
    """Beyond the largest number of the format there is nothing right to claim."""
    return namespace(exact).abs(exact) <= slot.grain.largest


def saturated(got: Array, exact: Array, errors_of: Array, slot: Slot) -> Array:
    """What is claimed; where honest arithmetic may overflow, its infinity is the largest number."""
    xp, largest = namespace(got), slot.grain.largest
    beyond = xp.isinf(got) & (got * exact > 0)
    if not bool(xp.any(beyond)):
        return got
    reach = xp.abs(exact) + FACTOR * sizes(errors_of)[None, :]
    return xp.where(beyond & (reach >= largest), xp.sign(got) * largest, got)


@dataclass(frozen=True)
class Sides:
    """What a map in few bits claims, and an oracle in many, at one point or several."""

    map: DifferentiableMap  # under test
    oracle: Oracle  # whose function runs in as few bits
    settings: Settings  # of the check
    mode: Mode  # which derivative is asked for, and at which probes
    got: Array  # claimed by the map, (points times probes, N)
    exact: Array  # by the oracle, likewise
    points: Sequence[DifferentiableMap]  # the oracle at each


class Runs:
    """Honest runs of an oracle, made as far as they are asked for."""

    def __init__(self, of: Sides) -> None:
        self._of, self._map, self._settings, self._mode = of, of.map, of.settings, of.mode
        self._got, self._exact = (side[: len(of.mode.probes), :] for side in (of.got, of.exact))
        space = of.mode.space
        self._spans = [(space.span(k), slot) for k, slot in enumerate(space.slots)]
        self.most = RUNS // 2 if self._exact.shape[1] > KEPT else RUNS
        # Made first, and mostly all: in single precision, of whose size one tells enough, just one.
        self.few = 1 if coarsest(of.map).unit < steps.SINGLE else 2
        self._runs = self._one_by_one()
        self._made: list[Array] = []
        self._to_nearest: Array | None = None

    def add_nearest(self) -> None:
        """One run more, at every point: the one in which each operation is rounded to nearest.

        Its errors are no accident where numbers are equal, or a step is less than their spacing:
        they are the same at every point, and do not average out over them as random ones do.
        """
        grain, exact, errors = inside(self._map, self._settings), self._of.exact, []
        for place, point in enumerate(self._of.points):
            rows = slice(place * len(self._mode.probes), (place + 1) * len(self._mode.probes))
            try:
                found = error_of_run(point, grain, None, self._mode.pulled, exact[rows, :])
            except Unsupported:
                return
            errors.append(namespace(found).where(namespace(found).isfinite(found), found, 0.0))
        self._to_nearest = namespace(exact).concat(errors)

    @functools.cached_property
    def _noise(self) -> list[Array]:
        return _noise_of(self._map, self._mode.pulled, self._got)

    def errors(self, count: int) -> list[Array]:
        """What the first runs, no fewer than before, are off by, were the others exact."""
        self._made += itertools.islice(self._runs, count - len(self._made))
        xp = namespace(self._got)
        made = (count / self.most) ** 0.5 * xp.stack(self._made)
        points, every = len(self._of.points), self._of.exact
        errors = _at_points(_with_noise(made, self._noise), points, self._settings.seed)
        if self._to_nearest is not None:
            errors = xp.concat([errors, self._to_nearest[None, :, :]])
        return [xp.where(known(every[:, span], slot)[None, :, :], errors[:, :, span], 0.0)
                for span, slot in self._spans]  # fmt: skip

    def nearest(self) -> Array:
        """Of the derivatives that are right, those nearest to what is claimed, like the claims.

        Which of two numbers is the larger, or above zero, rounding may decide otherwise than
        exactly, and the derivative jumps. Each of its values is then right: the slopes are a set.
        Two numbers between which it chooses are a few of its errors apart; as much again is another
        choice. Points so near have the same choices.
        """
        every, spans = self._of.exact, [span for span, _ in self._spans]
        xp, exact = namespace(every), self._exact
        errors = _with_noise(xp.stack(self._made), self._noise)
        reach = xp.concat([_usual(errors[:, :, span], exact[:, span]) for span in spans], axis=1)
        low = high = exact
        for found in self._slopes():
            jumps = xp.isfinite(found) & (xp.abs(found - exact) > BARS**2 * reach)
            low = xp.where(jumps, xp.minimum(low, found), low)
            high = xp.where(jumps, xp.maximum(high, found), high)
        chosen = xp.concat([low < high] * len(self._of.points))
        low, high = (xp.concat([slopes] * len(self._of.points)) for slopes in (low, high))
        low = xp.where(chosen, xp.minimum(low, every), every)
        high = xp.where(chosen, xp.maximum(high, every), every)
        return xp.minimum(xp.maximum(self._of.got, low), high)

    def _slopes(self) -> Iterator[Array]:
        """The exact derivatives beside the point, and those of runs that err more, each (V, N)."""
        probes_each, beside = len(self._mode.probes), self._of.points
        for k in range(1, len(beside)):
            yield self._of.exact[k * probes_each : (k + 1) * probes_each, :]
        grain = inside(self._map, self._settings)
        unit = max(BARS * grain.unit, ROUNDABLE)
        for number in range(max(self.most, 4 * len(beside))):
            seed = (self._settings.seed) + number
            try:
                run = beside[number % len(beside)].rounded(unit, grain.tiny, seed)
            except Unsupported:
                return
            yield self._mode.pulled(run)

    def _one_by_one(self) -> Iterator[Array]:
        """Errors of honest runs of the oracle, one after the other, each (V, N).

        A run that leaves the domain tells nothing: `mode.doubt` is the part of the derivative that
        is then in doubt.

        Every operation is rounded at random; and what is one operation to the oracle may be stable
        in the backward sense only, exact for an input that is off by a rounding.
        """
        map_, mode, exact = self._map, self._mode, self._exact
        xp, grain = namespace(exact), inside(map_, self._settings)
        moved: list[Array] = []
        for number in range(self.most):
            if number < self.most // 3:
                moved.append(self._moved(number))
            error = xp.zeros_like(exact)
            try:
                if NOT_ROUNDED not in map_.memo:
                    seed = (self._settings.seed) + number
                    error += error_of_run(self._of.oracle.map, grain, seed, mode.pulled, exact)
            except Unsupported as missing:  # what moves with the inputs is then all there is
                map_.memo[NOT_ROUNDED] = missing.reason
            error += moved[number % len(moved)]
            yield xp.where(xp.isfinite(error), error, mode.doubt * xp.abs(exact))

    def _moved(self, number: int) -> Array:
        """Change of the exact derivative where every input moves by up to a rounding.

        At a tie or a jump the derivative changes as much for a far smaller move, by which a smooth
        one changes less in proportion; that is no sensitivity, and not counted.
        """
        exact, oracle = self._exact, self._of.oracle.map
        unit, xp = inside(self._map, self._settings).unit, namespace(exact)
        times = max(unit, ROUNDABLE) / coarsest(self._map).unit
        xi, part = roundings(self._map, self._settings, number), unit / max(unit, ROUNDABLE)
        try:
            change, close = (
                self._mode.pulled(beside(oracle, oracle.point * (1 + by * xi), (number, by)))
                - exact
                for by in (times, steps.SMOOTH * times)
            )
        except Unsupported:
            return xp.zeros_like(exact)
        smooth = xp.isfinite(change) & (xp.abs(close) <= DECAYS * steps.SMOOTH * xp.abs(change))
        return xp.where(smooth, part * change, 0.0)

    def coarser_inside(self) -> float:
        """How many times as much gradients may be off, as the value is beyond chance.

        What is one operation to the oracle may round more than once inside: the places that an
        interpolation reads from, or squares that cancel. The value, which no rule claims, shows it.
        """
        beyond = beyond_chance(self._map, self._of.oracle, self._settings)
        return min(max(1.0, beyond), INSIDE)

    def remember(self) -> None:
        """Keep the size of the errors of each entry, for checks that compare two of the mode.

        A few runs may find an entry exact by chance to many digits: it errs at least as the typical
        one does. What never errs, as what is masked, stays exact.
        """
        xp, few = namespace(self._got), len(self._made) < self.most
        own = sizes(_with_noise(xp.stack(self._made), self._noise))
        for span in [span for span, slot in self._spans if few and slot.size]:
            usual = xp.sqrt(xp.mean(own[span] ** 2))
            own[span] = xp.where(own[span] > 0, xp.maximum(own[span], usual), 0.0)
        self._map.memo[_KEY, self._mode.columnwise] = own


def beyond_chance(map_: DifferentiableMap, oracle: Oracle, settings: Settings) -> float:
    """How many times as far the value is from the oracle's as that of two honest runs."""
    if settings.accumulate:  # the user has said how often it rounds
        return 1.0
    usual = error_of_value(oracle.map, inside(map_, settings), settings)
    off = distance(evaluate.centre(map_).value, evaluate.centre(oracle.map).value)
    # Twice as much as two honest runs a few outputs are off in one of four.
    return off / (2 * usual) if usual else 1.0


def sizes(errors_of: Array) -> Array:
    """Root mean square of the errors of each entry of one array, over runs and probes."""
    xp = namespace(errors_of)
    return xp.sqrt(xp.mean(errors_of**2, axis=(0, 1)))


def _usual(errors_of: Array, exact: Array) -> Array:
    """What honest runs are mostly off by in each entry of one array, (V, N), choices left aside."""
    xp = namespace(exact)
    size = xp.abs(exact) + 0.1 * xp.sqrt(xp.mean(exact**2))
    own = xp.sqrt(xp.mean(errors_of**2, axis=0))
    parts = xp.sort(xp.reshape(own / xp.where(size > 0, size, 1.0), (-1,)))
    return xp.maximum(own, parts[parts.shape[0] // 2] * size) if parts.shape[0] else own


def roundings(map_: DifferentiableMap, settings: Settings, number: int) -> Array:
    """A relative move of each input: random, up to a rounding of its array, or inside."""
    xi = probes.tangent(map_, settings.seed, 16 + number) / probes.scales_of(map_) / 1.5
    xp = namespace(xi)
    # Sums of float32 are rounded more than once; those of 16 bits are mostly kept in float32.
    times = 1.0 if map_.resolution > steps.SINGLE else 2.0
    units = [
        xp.full_like(xi[map_.domain.span(k)], times * max(slot.grain.unit, map_.resolution))
        for k, slot in enumerate(map_.domain.slots)
    ]
    return xi * xp.concat(units)


def _noise_of(map_: DifferentiableMap, pulled: Pulled, got: Array) -> list[Array]:
    """How far further runs of the claims lie from the first; none where they are the same.

    One further run might lie close by chance: where it is not the same, several tell.
    """
    xp = namespace(got)
    gaps = [pulled(map_) - got]
    if not bool(xp.any(xp.isfinite(gaps[0]) & (gaps[0] != 0))):
        return []
    gaps += [pulled(map_) - got for _ in range(RUNS // 2 - 1)]
    return [xp.where(xp.isfinite(gap), gap, 0.0) for gap in gaps]


def _with_noise(honest: Array, noise: list[Array]) -> Array:
    """Errors of the honest runs and the noise of the claims.

    In the mean over all of them each of the two counts in full.
    """
    if not noise:
        return honest
    xp = namespace(honest)
    runs = honest.shape[0], len(noise)
    weights = [(sum(runs) / count) ** 0.5 for count in runs]
    return xp.concat([weights[0] * honest, weights[1] * xp.stack(noise)])


def _at_points(honest: Array, points: int, seed: int) -> Array:
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


def remembered(map_: DifferentiableMap, *, forward: bool = False) -> Array | float:
    """The size of the errors that honest arithmetic makes in each entry; 0 where not known.

    Of a gradient, or in `forward` mode of a tangent.
    """
    return map_.memo.get((_KEY, forward), 0.0)
