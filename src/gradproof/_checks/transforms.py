"""AD transforms: whatever the framework makes of a function claims the same Jacobian."""

from __future__ import annotations

from gradproof._data.records import CheckResult, Finding
from gradproof._data.settings import Settings
from gradproof._data.space import Array
from gradproof._data.vectors import rms
from gradproof._judge.claims import gradient, tangent
from gradproof._judge.decide import Tolerance, of_claims, two_modes
from gradproof._judge.outcome import failed, identity, passed
from gradproof._maps.contract import DifferentiableMap, Transform, Unsupported
from gradproof._measure import probes
from gradproof._measure.sizes import ROUNDINGS
from gradproof._verdict.agree import Pair, differences


def check(name: str, map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """A transform claims what the backward, or forward mode, claims."""
    transform = next((each for each in map_.transforms() if each.name == name), None)
    if transform is None:
        raise Unsupported("there is no such transform of this function")
    findings = _of_numbers(map_, settings, transform) if transform.numbers else ()
    v = probes.cotangent(map_, settings.seed, 0)
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
    v = probes.cotangent(map_, settings.seed, 0)
    expected = gradient(map_, settings, 0)
    return differences(
        transform.name,
        map_,
        Pair(
            map_.vjp_transform(v, transform.name),
            expected,
            f"by {transform.what}, against the backward",
        ),
        Tolerance(settings.atol + ROUNDINGS * transform.unit * rms(expected), settings.slack),
    )


def _of_tangents(
    map_: DifferentiableMap, settings: Settings, transform: Transform
) -> tuple[Finding, ...]:
    """Against forward mode entry by entry; where there is none, against the backward in a sum."""
    u = probes.tangent(map_, settings.seed, 0)
    got = map_.jvp_transform(u, transform.name)
    try:
        expected = tangent(map_, settings, 0)
    except Unsupported:
        return _of_sum(map_, settings, transform, got)
    pair = Pair(got, expected, f"by {transform.what}, against forward mode", forward=True)
    return differences(transform.name, map_, pair, of_claims(settings))


def _of_sum(
    map_: DifferentiableMap, settings: Settings, transform: Transform, got: Array
) -> tuple[Finding, ...]:
    seed = settings.seed
    u, v = probes.tangent(map_, seed, 0), probes.cotangent(map_, seed, 0)
    backward = gradient(map_, settings, 0)
    found = two_modes(map_, (v, u), (got, backward))
    if found.right:
        return ()
    said = (
        f"{transform.what} and the backward disagree: <v, J u> is {found.claimed:.6g}, <J^T v, u> "
        f"is {found.measured:.6g}"
    )
    return (identity(transform.name, found, said),)
