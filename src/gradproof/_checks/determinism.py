"""The same cotangent twice gives the same gradient."""

from __future__ import annotations

from dataclasses import dataclass

from gradproof._checks.state import is_refuted
from gradproof._data.records import CheckResult
from gradproof._data.settings import Settings
from gradproof._data.space import Array, namespace, positions
from gradproof._data.vectors import largest_size
from gradproof._judge import heard
from gradproof._judge.claims import OTHERWISE, REPEATS, gradient
from gradproof._judge.decide import Bar, Decision, Tolerance, decide
from gradproof._judge.outcome import failed, passed, vector_entry
from gradproof._maps.contract import DifferentiableMap
from gradproof._measure import evaluate, probes
from gradproof._verdict.second import ANOTHER, another

_NAME, SAME = "determinism", "two backwards give the same gradient"


@dataclass(frozen=True)
class NotRepeated:
    """Evidence: a backward that gave two gradients for one cotangent."""

    map: DifferentiableMap  # whose backward it is
    probe: Array  # the cotangent
    first: Array  # gradient
    second: Array  # gradient; others were asked for in between


def check(map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """Two backwards, of calls of their own where one spoils its call, agree to the tolerance."""
    first = gradient(map_, settings, 0)
    second = first  # where it is asked already, for something else
    if not map_.memo.get(REPEATS):
        second = map_.vjp(probes.cotangent(map_, settings.seed, 0))
    v = probes.cotangent(map_, settings.seed, 0)
    if unexplained(map_) and agree(settings, first, second):
        first, second, v = _now_and_then(map_, settings) or (first, second, v)
    found = None if _same_bits(first, second) else _decided(settings, first, second)
    where = positions(found.wrong) if found else []
    if not where and (findings := another(_NAME, map_, settings, map_.memo.get(OTHERWISE))):
        return failed(_NAME, ANOTHER, findings, notes=_notes(map_))
    if not found or not where:
        return passed(_NAME, SAME, notes=_notes(map_))
    worst = max(where, key=lambda j: float(found.gap[j]))
    finding = vector_entry(
        (_NAME, "nondeterministic"),
        map_.domain.locate(worst),
        (float(second[worst]), float(first[worst]), found.allowed),
        "second backward of the same cotangent against the first",
    )
    evidence = NotRepeated(map_, v, first, second)
    summary = f"{len(where):,} entries of the gradient differ"
    return failed(_NAME, summary, (finding,), notes=_notes(map_), evidence=evidence)


def unexplained(map_: DifferentiableMap) -> bool:
    """Whether a backward was off, and no check that ran says that something is wrong."""
    return bool(heard.off(map_)) and not is_refuted(map_)


def _now_and_then(map_: DifferentiableMap, settings: Settings) -> tuple[Array, Array, Array] | None:
    """Two gradients of a cotangent that differ, and that: of backwards that were off by themselves.

    What is off each time is wrong, and for other checks to tell.
    """
    for off in heard.off(map_):
        again = off.again()
        if not agree(settings, off.gradient, again):
            return again, off.gradient, off.v
    return None


def agree(settings: Settings, first: Array, second: Array) -> bool:
    """Whether two gradients of one cotangent are the same, to the tolerance."""
    same = _same_bits(first, second)
    return same or bool(namespace(first).all(_decided(settings, first, second).right))


def _same_bits(first: Array, second: Array) -> bool:
    """Whether two gradients are the very same numbers, as nearly always."""
    return bool(namespace(first).all(first == second))


def repeats(map_: DifferentiableMap, settings: Settings, runs: int) -> bool:
    """Whether that many further backwards give the same gradient, to the tolerance."""
    first = gradient(map_, settings, 0)
    v = probes.cotangent(map_, settings.seed, 0)
    return all(agree(settings, first, map_.vjp(v)) for _ in range(runs))


def _decided(settings: Settings, first: Array, second: Array) -> Decision:
    """Two gradients; where both are no number, or infinite likewise, they are the same."""
    xp = namespace(first)
    same = (first == second) | (xp.isnan(first) & xp.isnan(second))
    largest = largest_size(first) if first.shape[0] else 0.0
    repeated = settings.nondeterminism + settings.relative_nondeterminism * largest
    one, other = (xp.where(same, 0.0, each) for each in (first, second))
    return decide(other, one, Bar(), 0.0, Tolerance(repeated))


def _notes(map_: DifferentiableMap) -> tuple[str, ...]:
    centre = evaluate.centre(map_)
    if centre.repeats:
        return ()
    xp = namespace(centre.value)
    return (f"the function's value varies by {float(xp.max(centre.noise)):.1g} between runs",)
