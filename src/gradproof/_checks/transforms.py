"""One derivative by many roads: every transform of the function claims the same Jacobian."""

from __future__ import annotations

from collections.abc import Callable

from gradproof._data.records import CheckResult, Finding
from gradproof._data.settings import Settings
from gradproof._data.space import Array, namespace, norm, positions
from gradproof._data.vectors import finite, rms
from gradproof._judge.claims import dot_and_size, dot_rounding, gradient, tangent
from gradproof._judge.decide import within
from gradproof._judge.outcome import failed, passed
from gradproof._maps.contract import DifferentiableMap, Unsupported, Variant
from gradproof._measure import probes
from gradproof._measure.directional import resolution
from gradproof._measure.evaluate import centre
from gradproof._verdict.agree import differences, relative

_UNITS = 64.0  # of round-off that arithmetic in few bits may add up to
_SLACK = 1e3  # two formulas, not one read in two ways; as in the check of the adjoint
_ULPS = 64.0
_MOST = 8  # findings


def row(name: str) -> Callable[[DifferentiableMap, Settings], CheckResult]:
    """The check of one transform."""

    def check(map_: DifferentiableMap, settings: Settings) -> CheckResult:
        variant = next((each for each in map_.variants() if each.name == name), None)
        if variant is None:
            raise Unsupported("there is no such transform of this function")
        findings = _of_numbers(map_, settings, variant) if variant.numbers else ()
        v = probes.cotangent(map_, settings.seed or 0, 0)
        said = map_.variant_faults(v, name)
        findings += tuple(Finding(name, sentence, name) for sentence in said)
        if findings:
            return failed(name, f"{variant.what}: {_reason(variant)}", findings)
        return passed(name, f"{variant.what}: {_agreed(variant)}")

    return check


def _reason(variant: Variant) -> str:
    return "not what the backward says" if variant.numbers else "registered wrongly"


def _agreed(variant: Variant) -> str:
    if not variant.numbers:
        return "registered as it should be; its numbers are for the other checks"
    return f"the same {'tangent' if variant.forward else 'gradient'}"


def _of_numbers(
    map_: DifferentiableMap, settings: Settings, variant: Variant
) -> tuple[Finding, ...]:
    if variant.forward:
        return _of_tangents(map_, settings, variant)
    v = probes.cotangent(map_, settings.seed or 0, 0)
    expected = gradient(map_, settings, 0)
    return differences(
        variant.name,
        map_,
        map_.vjp_variant(v, variant.name),
        expected,
        kind=variant.name,
        what=f"by {variant.what}, against the backward",
        atol=settings.atol + _UNITS * variant.unit * rms(expected),
        rtol=settings.slack,
        most=_MOST,
    )


def _of_tangents(
    map_: DifferentiableMap, settings: Settings, variant: Variant
) -> tuple[Finding, ...]:
    """Against forward mode entry by entry; where there is none, against the backward in a sum."""
    u = probes.tangent(map_, settings.seed or 0, 0)
    got = map_.jvp_variant(u, variant.name)
    try:
        expected = tangent(map_, settings, 0)
    except Unsupported:
        return _of_sum(map_, settings, variant, got)
    xp = namespace(got)
    allowed = (relative(map_) + settings.slack) * (xp.abs(expected) + rms(expected))
    gap = xp.abs(got - expected)
    wrong = xp.isfinite(expected) & ~within(gap, allowed)
    return tuple(
        Finding(
            variant.name,
            f"tangent of {map_.codomain.locate(i)}: by {variant.what} {float(got[i]):.6g}, by "
            f"forward mode {float(expected[i]):.6g}; the gap is {float(gap[i]):.3g}, allowed "
            f"{float(allowed[i]):.2g}",
            variant.name,
            None,
            map_.codomain.locate(i),
            float(got[i]),
            float(expected[i]),
            0.0,
            float(allowed[i]),
        )
        for i in positions(wrong)[:_MOST]
    )


def _of_sum(
    map_: DifferentiableMap, settings: Settings, variant: Variant, got: Array
) -> tuple[Finding, ...]:
    seed = settings.seed or 0
    u, v = probes.tangent(map_, seed, 0), probes.cotangent(map_, seed, 0)
    backward = gradient(map_, settings, 0)
    (left, one), (right, other) = dot_and_size(v, got), dot_and_size(u, backward)
    quiet = _ULPS * resolution(map_) * norm(v * finite(centre(map_).value))
    allowed = _SLACK * dot_rounding(map_) * (one + other) + quiet
    if within(abs(left - right), allowed):
        return ()
    message = (
        f"{variant.what} and the backward disagree: <v, J u> is {left:.6g}, <J^T v, u> is "
        f"{right:.6g}; the gap is {abs(left - right):.3g}, allowed {allowed:.2g}"
    )
    return (Finding(variant.name, message, variant.name, None, None, left, right, 0.0, allowed),)
