"""Causes of how a backward behaves: not linear, not repeatable, blind to layouts, writing."""

from __future__ import annotations

from dataclasses import replace

from gradproof._checks._explained import quietly
from gradproof._checks._gradients import relative
from gradproof._evidence import Cause
from gradproof._explain.diagnose import cause
from gradproof._explain.scaling import format_of
from gradproof._map import DifferentiableMap
from gradproof._numerics import probes
from gradproof._records import CheckResult
from gradproof._settings import Settings
from gradproof._space import Array, namespace, norm, on_host

_WRITES = {
    "cotangent": ("cotangent overwritten", "the backward writes into the cotangent"),
    "input": ("input overwritten", "an input is written into"),
    "saved": ("saved overwritten", "a saved array is changed after it was saved"),
}


def nonlinear(
    map_: DifferentiableMap, settings: Settings, gradient: Array, result: CheckResult
) -> CheckResult:
    """In which way a backward is not linear: at three more VJPs."""

    def explain(result: CheckResult) -> CheckResult:
        v = probes.cotangent(map_, settings.seed or 0, 0)
        zero, back, twice = (map_.vjp(factor * v) for factor in (0.0, -1.0, 2.0))
        return replace(result, causes=(_way(map_, gradient, zero, back, twice),))

    return quietly(result, explain)


def _way(map_: DifferentiableMap, one: Array, zero: Array, back: Array, twice: Array) -> Cause:
    size = norm(one) or 1.0
    near = 4 * relative(map_) * size

    def same(left: Array, right: Array) -> bool:
        return bool(norm(left - right) <= near)

    if same(one, back) and same(one, twice) and same(one, zero):
        return cause("cotangent ignored", "the gradient is the same whatever the cotangent")
    if norm(zero) > near:
        message = "something is added to the gradient that does not depend on the cotangent"
        return cause("offset", message, f"{norm(zero) / size:.2g} of it for a cotangent of zeros")
    if same(back, one) and same(twice, 2 * one):
        return cause("absolute value", "the gradient of -v is that of v, not minus that")
    fewer = format_of(on_host(one))
    if fewer is not None and norm(back + one) <= near:
        message = f"the cotangent, or the gradient, went through {fewer[0]}"
        return cause(f"{fewer[0]} inside", message, f"all of them are numbers of {fewer[1]} bits")
    told = f"{norm(twice) / size:.4g} times the gradient for twice the cotangent"
    return cause("non-linear", "the backward is not linear in the cotangent", told)


def unsteady(
    map_: DifferentiableMap, settings: Settings, two: tuple[Array, Array], result: CheckResult
) -> CheckResult:
    """Whether a backward that gives another gradient every time adds up, or is noise."""

    def explain(result: CheckResult) -> CheckResult:
        first, second = two
        v = probes.cotangent(map_, settings.seed or 0, 0)
        third, fourth = map_.vjp(v), map_.vjp(v)
        grown, again = third - second, fourth - third  # others ran between the first two
        xp = namespace(grown)
        if not bool(xp.all(xp.isfinite(grown) & xp.isfinite(again))):
            return result
        if norm(grown - again) <= 1e-6 * norm(grown):
            message = "every backward adds to what the ones before it left"
            found = cause("accumulated", message, "two further runs differ by the same")
        else:
            part = norm(grown) / (norm(first) or 1.0)
            message = "the backward gives another gradient every time"
            found = cause("noise", message, f"two runs differ by {part:.1g} of the gradient")
        return replace(result, causes=(found,))

    return quietly(result, explain)


def of_layouts(result: CheckResult, wrong: set[str]) -> CheckResult:
    """Why a gradient depends on these memory layouts of the cotangent, or something on others."""
    if any(layout.startswith("input") for layout in wrong):
        message = "an input is read as if it lay in memory contiguously"
        found = cause("input layout ignored", message)
    elif wrong <= {"negative", "conjugate"}:
        message = (
            "the memory of the cotangent is read without the bit that negates or conjugates it"
        )
        found = cause("bit ignored", message)
    elif wrong == {"expanded"}:
        message = "a cotangent of stride 0 is read as if each of its entries were in memory"
        found = cause("expanded cotangent", message)
    else:
        message = "the cotangent is read as if it lay in memory contiguously"
        found = cause("layout ignored", message)
    return replace(result, causes=(found,))


def of_writes(result: CheckResult) -> CheckResult:
    """What is written into that belongs to somebody else."""
    kinds = dict.fromkeys(finding.kind for finding in result.findings)
    causes = tuple(cause(*_WRITES[kind]) for kind in kinds if kind in _WRITES)
    return replace(result, causes=causes)


def undefined(result: CheckResult) -> CheckResult:
    """A cotangent that is not there."""
    return replace(
        result,
        causes=(cause("undefined cotangent", "a cotangent that is None is not taken for zero"),),
    )
