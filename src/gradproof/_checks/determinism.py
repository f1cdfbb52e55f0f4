"""The same cotangent twice gives the same gradient."""

from __future__ import annotations

from gradproof._checks import _behaviour
from gradproof._checks._claims import gradient
from gradproof._checks._outcome import failed, gradient_entry, passed
from gradproof._map import DifferentiableMap
from gradproof._numerics import measure, probes
from gradproof._numerics.compare import within
from gradproof._records import CheckResult
from gradproof._settings import Settings
from gradproof._space import namespace, positions

_NAME = "determinism"


def check(map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """Two backwards of one graph agree to the tolerance for nondeterminism."""
    first = gradient(map_, settings, 0)
    second = map_.vjp(probes.short_cotangent(map_, settings.seed or 0, 0))
    xp = namespace(first)
    size = xp.abs(first)
    finite = xp.isfinite(first)
    largest = float(xp.max(xp.where(finite, size, 0.0))) if first.shape[0] else 0.0
    allowed = settings.nondeterminism + settings.relative_nondeterminism * largest
    gap = xp.where(
        (first == second) | (xp.isnan(first) & xp.isnan(second)), 0.0, abs(first - second)
    )
    where = positions(~within(gap, allowed))
    notes = _notes(map_)
    if not where:
        return passed(_NAME, "two backwards give the same gradient", notes=notes)
    worst = max(where, key=lambda j: float(gap[j]))
    finding = gradient_entry(
        _NAME,
        map_,
        worst,
        (float(second[worst]), float(first[worst]), allowed),
        "nondeterministic",
        "second backward of the same cotangent against the first",
    )
    result = failed(
        _NAME, f"{len(where):,} entries of the gradient differ", (finding,), notes=notes
    )
    return _behaviour.unsteady(map_, settings, (first, second), result)


def _notes(map_: DifferentiableMap) -> tuple[str, ...]:
    centre = measure.centre(map_)
    if centre.repeats:
        return ()
    xp = namespace(centre.value)
    return (f"the function's value varies by {float(xp.max(centre.noise)):.1g} between runs",)
