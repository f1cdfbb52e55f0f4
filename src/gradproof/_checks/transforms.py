"""AD transforms: whatever the framework makes of a function claims the same Jacobian."""

from __future__ import annotations

from gradproof._data.records import CheckResult, Finding
from gradproof._data.settings import Settings
from gradproof._data.space import Array, namespace, norm, positions
from gradproof._data.vectors import finite, rms
from gradproof._judge.claims import dot_and_size, dot_rounding, gradient, tangent
from gradproof._judge.decide import within
from gradproof._judge.outcome import failed, passed
from gradproof._maps.contract import DifferentiableMap, Transform, Unsupported
from gradproof._measure import probes
from gradproof._measure.directional import resolution
from gradproof._measure.evaluate import centre
from gradproof._verdict.agree import differences, relative

_UNITS = 64.0  # of round-off that arithmetic in few bits may add up to
_SLACK = 1e3  # two formulas, not one read in two ways; as in the check of the adjoint
_ULPS = 64.0
_MOST = 8  # findings


def check(name: str, map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """A transform claims what the backward, or forward mode, claims."""
    transform = next((each for each in map_.transforms() if each.name == name), None)
    if transform is None:
        raise Unsupported("there is no such transform of this function")
    findings = _of_numbers(map_, settings, transform) if transform.numbers else ()
    v = probes.cotangent(map_, settings.seed or 0, 0)
    said = map_.transform_faults(v, name)
    findings += tuple(Finding(name, sentence, name) for sentence in said)
    if findings:
        return failed(name, f"{transform.what}: {_reason(transform)}", findings)
    return passed(name, f"{transform.what}: {_agreed(transform)}")


def _reason(transform: Transform) -> str:
    return "not what the backward says" if transform.numbers else "registered wrongly"


def _agreed(transform: Transform) -> str:
    if not transform.numbers:
        return "registered as it should be; its numbers are for the other checks"
    return f"the same {'tangent' if transform.forward else 'gradient'}"


def _of_numbers(
    map_: DifferentiableMap, settings: Settings, transform: Transform
) -> tuple[Finding, ...]:
    if transform.forward:
        return _of_tangents(map_, settings, transform)
    v = probes.cotangent(map_, settings.seed or 0, 0)
    expected = gradient(map_, settings, 0)
    return differences(
        transform.name,
        map_,
        map_.vjp_transform(v, transform.name),
        expected,
        kind=transform.name,
        what=f"by {transform.what}, against the backward",
        atol=settings.atol + _UNITS * transform.unit * rms(expected),
        rtol=settings.slack,
        most=_MOST,
    )


def _of_tangents(
    map_: DifferentiableMap, settings: Settings, transform: Transform
) -> tuple[Finding, ...]:
    """Against forward mode entry by entry; where there is none, against the backward in a sum."""
    u = probes.tangent(map_, settings.seed or 0, 0)
    got = map_.jvp_transform(u, transform.name)
    try:
        expected = tangent(map_, settings, 0)
    except Unsupported:
        return _of_sum(map_, settings, transform, got)
    xp = namespace(got)
    allowed = (relative(map_) + settings.slack) * (xp.abs(expected) + rms(expected))
    gap = xp.abs(got - expected)
    wrong = xp.isfinite(expected) & ~within(gap, allowed)
    return tuple(
        Finding(
            transform.name,
            f"tangent of {map_.codomain.locate(i)}: by {transform.what} {float(got[i]):.6g}, by "
            f"forward mode {float(expected[i]):.6g}; the gap is {float(gap[i]):.3g}, allowed "
            f"{float(allowed[i]):.2g}",
            transform.name,
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
    map_: DifferentiableMap, settings: Settings, transform: Transform, got: Array
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
        f"{transform.what} and the backward disagree: <v, J u> is {left:.6g}, <J^T v, u> is "
        f"{right:.6g}; the gap is {abs(left - right):.3g}, allowed {allowed:.2g}"
    )
    return (
        Finding(transform.name, message, transform.name, None, None, left, right, 0.0, allowed),
    )
