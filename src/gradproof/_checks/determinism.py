"""The same cotangent twice gives the same gradient."""

from __future__ import annotations

from dataclasses import dataclass

from gradproof._checks.state import REPEATS
from gradproof._data.records import CheckResult
from gradproof._data.settings import Settings
from gradproof._data.space import Array, namespace, positions
from gradproof._judge.claims import gradient
from gradproof._judge.decide import within
from gradproof._judge.outcome import failed, gradient_entry, passed
from gradproof._maps.contract import DifferentiableMap
from gradproof._measure import evaluate, probes

_NAME, _SAME = "determinism", "two backwards give the same gradient"


@dataclass(frozen=True)
class NotRepeated:
    """Evidence: a backward that gave two gradients for one cotangent.

    Attributes:
        map: whose backward it is.
        probe: the cotangent.
        first: gradient.
        second: gradient; others were asked for in between.
    """

    map: DifferentiableMap
    probe: Array
    first: Array
    second: Array


def check(map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """Two backwards of one graph agree to the tolerance for nondeterminism."""
    first = gradient(map_, settings, 0)
    if map_.memo.get(REPEATS):  # asked already, with other calls in between
        return passed(_NAME, _SAME, notes=_notes(map_))
    second = map_.vjp(probes.short_cotangent(map_, settings.seed or 0, 0))
    gap, allowed = _gap(settings, first, second)
    where = positions(~within(gap, allowed))
    notes = _notes(map_)
    if not where:
        return passed(_NAME, _SAME, notes=notes)
    worst = max(where, key=lambda j: float(gap[j]))
    finding = gradient_entry(
        _NAME,
        map_,
        worst,
        (float(second[worst]), float(first[worst]), allowed),
        "nondeterministic",
        "second backward of the same cotangent against the first",
    )
    evidence = NotRepeated(map_, probes.cotangent(map_, settings.seed or 0, 0), first, second)
    summary = f"{len(where):,} entries of the gradient differ"
    return failed(_NAME, summary, (finding,), notes=notes, evidence=evidence)


def repeats(map_: DifferentiableMap, settings: Settings, runs: int) -> bool:
    """Whether that many further backwards give the same gradient, to the tolerance."""
    first = gradient(map_, settings, 0)
    v = probes.short_cotangent(map_, settings.seed or 0, 0)
    every = (within(*_gap(settings, first, map_.vjp(v))) for _ in range(runs))
    return all(bool(namespace(first).all(same)) for same in every)


def _gap(settings: Settings, first: Array, second: Array) -> tuple[Array, float]:
    """How far two gradients lie apart, entry by entry, and how far they may."""
    xp = namespace(first)
    size = xp.where(xp.isfinite(first), xp.abs(first), 0.0)
    largest = float(xp.max(size)) if first.shape[0] else 0.0
    same = (first == second) | (xp.isnan(first) & xp.isnan(second))
    allowed = settings.nondeterminism + settings.relative_nondeterminism * largest
    return xp.where(same, 0.0, abs(first - second)), allowed


def _notes(map_: DifferentiableMap) -> tuple[str, ...]:
    centre = evaluate.centre(map_)
    if centre.repeats:
        return ()
    xp = namespace(centre.value)
    return (f"the function's value varies by {float(xp.max(centre.noise)):.1g} between runs",)
