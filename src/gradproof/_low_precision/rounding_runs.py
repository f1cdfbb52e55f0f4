"""Claims beside the exact derivative, and honest runs of the reference in the claims' precision."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gradproof._compare.claims import Mode
from gradproof._compare.tolerances import root_mean_square
from gradproof._data.formats import FORMATS, SINGLE, Grain
from gradproof._data.settings import RunSettings
from gradproof._data.space import Space, Values
from gradproof._maps.contract import DifferentiableMap, Unsupported
from gradproof._numdiff.probes import (
    Kind,
    constant_cotangent,
    random_bits,
    random_cotangent,
    random_entries,
    random_tangent,
    round_to_formats,
)
from gradproof._numdiff.slopes import slopes_along
from gradproof._numdiff.steps import coordinate_scales, step_tables
from gradproof._numdiff.values import FunctionValues, format_of_values
from gradproof.errors import UsageError

RUNS = 8
OTHER_ALGORITHM = 4.0  # times more, where honest runs compute the derivative in another way
_ROUNDABLE = 2.0**-40  # the finest arithmetic that doubles can be rounded to
_NEAR = 2.0**-16  # of a number: hundreds of roundings in single precision
_FEW_ENTRIES = 64  # in the smallest array: more probes are asked, to average over


@dataclass(frozen=True)
class ClaimedBesideExact:
    """Products with a Jacobian in few bits, those of the reference, and errors of honest runs.

    Attributes:
        space: of the products: the domain for J^T v, the codomain for J u.
        got, exact: for every probe, (V, N) each.
        errors: of every honest run, (R, V, N); R is 0 where operations cannot be rounded.
        value_errors: of F in every honest run, (R, m).
        grain: of the arithmetic.
        other_algorithm: whether honest runs compute the products in another way: those of forward
            mode differentiate the backward.
        why_no_runs: why there are no honest runs; "" where there are.
    """

    space: Space
    got: Values
    exact: Values
    errors: Values
    value_errors: Values
    grain: Grain
    other_algorithm: bool = False
    why_no_runs: str = ""


def coarsest_grain(map_: DifferentiableMap) -> Grain:
    """The grain of the coarsest dtype among inputs and outputs."""
    slots = (*map_.domain.slots, *map_.codomain.slots)
    grains = [slot.grain for slot in slots if slot.size]
    return max(grains, key=lambda grain: grain.unit, default=Grain())


def arithmetic_of(map_: DifferentiableMap, exact_value: Values, settings: RunSettings) -> Grain:
    """The grain in which a function computes.

    Of its coarsest dtype, unless the user says otherwise by `accumulate`; or of a coarser format,
    as under autocast, where all values are numbers of it and further from the exact ones than their
    dtype explains.
    """
    grain = coarsest_grain(map_)
    if settings.accumulate:
        return FORMATS[settings.accumulate]
    value = np.asarray(map_.kept_value(), float)
    unit = format_of_values(value)
    if unit > grain.unit and value_gap(value, exact_value) > 16 * grain.unit:
        return next((each for each in FORMATS.values() if each.unit == unit), grain)
    return grain


def coarser_formats(
    map_: DifferentiableMap, sides: ClaimedBesideExact, exact: Values
) -> list[Grain]:
    """Formats in which a function may compute inside, as under autocast; none where it does not.

    Two things must show it. The noise of F alone might be rounding that cancellation magnifies;
    then honest runs would be as far from the exact value. The distance alone might be another
    function. A sum hides much of the rounding of its terms: formats up to 64 times as coarse as
    what is seen are among those returned, the finest first.
    """
    honest = max((value_gap(exact + run, exact) for run in sides.value_errors), default=0.0)
    distance = value_gap(np.asarray(map_.kept_value(), float), exact)
    if not honest or distance <= 4 * honest:
        return []
    function = FunctionValues(map_)
    scales = coordinate_scales(map_.domain, map_.point)
    u, steps = random_tangent(map_.domain, scales, 0, 0), step_tables(sides.grain.unit)
    slopes = slopes_along(function, u, steps)
    size = np.where(function.centre != 0, np.abs(function.centre), np.inf)
    noise = float(np.median(slopes.noise / size)) if size.size else 0.0
    if not noise > 4 * sides.grain.unit:
        return []
    shown = max(noise, sides.grain.unit * distance / honest)
    inside = (FORMATS["float16"], FORMATS["bfloat16"])
    return [each for each in inside if sides.grain.unit < each.unit <= 64 * shown]


def widen_by_value_errors(
    map_: DifferentiableMap, sides: ClaimedBesideExact, exact: Values
) -> ClaimedBesideExact:
    """The sides with honest errors as large as F itself shows.

    A value that is many times further from the exact one than those of honest runs, and yet as near
    as a few roundings, is computed by another algorithm: its derivative may err as many times more.
    """
    honest = max((value_gap(exact + run, exact) for run in sides.value_errors), default=0.0)
    distance = value_gap(np.asarray(map_.kept_value(), float), exact)
    if not honest or distance <= 4 * honest:
        return sides
    return replace(sides, errors=sides.errors * (distance / honest))


def widen_by_neighbours(
    map_: DifferentiableMap,
    reference: DifferentiableMap,
    mode: Mode,
    settings: RunSettings,
    sides: ClaimedBesideExact,
    *,
    is_own: bool,
) -> ClaimedBesideExact:
    """The sides with honest errors as large as claims show at points nearby.

    There the claims are rounded anew: what their errors have in common is a mistake, and by what
    they differ is rounding, also that of another algorithm, as of exp(s - log sum exp s). Beside
    honest runs of the function itself, `is_own`, they count for a few times as much at most: a
    fused operator rounds inside, where an honest run has nothing to round.
    """
    probes, errors = _probes(map_, mode, settings.seed), []
    step = max(2 * sides.grain.unit, _NEAR)
    for number in range(RUNS):
        moves = random_entries(settings.seed, Kind.NEARBY_POINT, number, map_.point.size)
        x = round_to_formats(map_.domain, map_.point * (1 + step * moves))
        try:
            near, exact = map_.map_at(x), reference.map_at(x)
            errors.append(products_of(near, mode, probes) - products_of(exact, mode, probes))
        except (UsageError, MemoryError):
            raise
        except Exception:  # Unsupported, or the user's code may raise at another point
            return sides
    spread = (np.asarray(errors) - np.mean(errors, axis=0)) * (RUNS / (RUNS - 1)) ** 0.5
    if is_own:
        ratio = root_mean_square(spread) / max(root_mean_square(sides.errors), 1e-300)
        return replace(sides, errors=sides.errors * min(max(ratio, 1.0), OTHER_ALGORITHM))
    both = [sides.errors, spread] if len(sides.errors) else [spread]
    louder = root_mean_square(spread) > root_mean_square(sides.errors)
    other = sides.other_algorithm or (louder and sides.grain.unit <= SINGLE)
    errors = len(both) ** 0.5 * np.concatenate(both)
    return replace(sides, errors=errors, other_algorithm=other)


def value_gap(value: Values, exact: Values) -> float:
    """Root mean square of the difference of two values, in parts of their size."""
    good = np.isfinite(value) & np.isfinite(exact)
    size = root_mean_square(exact[good])
    return root_mean_square((value - exact)[good]) / size if size else 0.0


def claimed_beside_exact(
    map_: DifferentiableMap,
    reference: DifferentiableMap,
    mode: Mode,
    settings: RunSettings,
    grain: Grain,
) -> ClaimedBesideExact:
    """What a map and its reference claim for a few probes, beside one run without any error.

    Probes are random vectors of numbers that few bits can represent, and for the backward the
    cotangent of ones: sums that are kept in few bits go wrong under it alone.
    """
    probes = _probes(map_, mode, settings.seed)
    got = products_of(map_, mode, probes)
    return ClaimedBesideExact(
        space=map_.domain if mode == "backward" else map_.codomain,
        got=got,
        exact=products_of(reference, mode, probes),
        errors=np.zeros((1, *got.shape)),
        value_errors=np.zeros((1, map_.codomain.size)),
        grain=grain,
        other_algorithm=mode == "forward",
    )


def with_honest_runs(
    map_: DifferentiableMap,
    reference: DifferentiableMap,
    mode: Mode,
    settings: RunSettings,
    sides: ClaimedBesideExact,
    runs: int = RUNS,
) -> ClaimedBesideExact:
    """The sides with the errors of honest runs of the reference in their arithmetic."""
    probes, exact, grain = _probes(map_, mode, settings.seed), sides.exact, sides.grain
    value = np.asarray(reference.kept_value(), float)
    errors, value_errors = np.empty((runs, *exact.shape)), np.empty((runs, value.size))
    done, reason, unit = 0, "", max(grain.unit, _ROUNDABLE)
    for number in range(runs):
        try:
            run = reference.rounded_map(unit, grain.tiny, settings.seed + number)
            np.subtract(products_of(run, mode, probes), exact, errors[number])
            value_errors[number] = np.asarray(run.kept_value(), float) - value
            done = number + 1
        except (UsageError, MemoryError):
            raise
        except Unsupported as missing:
            reason = missing.reason
            break
        except Exception as error:  # the user's code may not run in rounded arithmetic
            reason = f"it raised {type(error).__name__}"
            break
    back = grain.unit / unit  # errors of a finer arithmetic are smaller in proportion
    errors, value_errors = errors[:done], value_errors[:done]
    if back != 1:
        errors *= back
        value_errors *= back
    if mode == "forward" and done:  # J u of a scaled u is no better known than F itself
        off = np.abs(np.asarray(map_.kept_value(), float) - value)
        honest = np.sqrt(np.mean(np.square(value_errors), axis=0))
        off = np.nan_to_num(np.maximum(off, honest))
        for number, run_error in enumerate(errors):
            signs = np.where(random_bits(settings.seed, Kind.SPECIAL, number, off.size), 1.0, -1.0)
            run_error += signs * off / OTHER_ALGORITHM  # which multiplies it again
    why = "" if done else reason
    return replace(sides, errors=errors, value_errors=value_errors, why_no_runs=why)


def _probes(map_: DifferentiableMap, mode: Mode, seed: int) -> list[Values]:
    space = map_.codomain if mode == "forward" else map_.domain
    smallest = min((slot.size for slot in space.slots if slot.size), default=1)
    count = 2 if smallest >= _FEW_ENTRIES else 4
    if mode == "forward":
        scales = coordinate_scales(map_.domain, map_.point)
        draws = [random_entries(seed, Kind.TANGENT, k, scales.size) for k in range(count)]
        return [round_to_formats(map_.domain, scales * draw) for draw in draws]
    random = [random_cotangent(map_.codomain, seed, k) for k in range(count)]
    return [*random, constant_cotangent(map_.codomain, seed)]


def products_of(map_: DifferentiableMap, mode: Mode, probes: list[Values]) -> Values:
    """J^T v, or J u, of every probe, (V, N)."""
    return np.asarray(map_.products(np.asarray(probes), forward=mode == "forward"))
