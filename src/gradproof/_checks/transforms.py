"""AD transforms: whatever the framework makes of a function claims the same Jacobian."""

from __future__ import annotations

from gradproof._checks.agreement import identity_finding, modes_gap, vector_findings
from gradproof._checks.outcome import failed_check, passed_check
from gradproof._data.records import CheckResult, Finding
from gradproof._data.space import Values
from gradproof._maps.contract import Transform, Unsupported
from gradproof._measurements import Measurements


def check(name: str, measurements: Measurements) -> CheckResult:
    """The transform of that name claims what the backward, or forward mode, claims.

    Raises:
        Unsupported: there is no such transform of this function.
    """
    transform = next((each for each in measurements.map.transforms() if each.name == name), None)
    if transform is None:
        raise Unsupported("there is no such transform of this function")
    if transform.forward:
        findings, what = _findings_of_tangent(measurements, transform), "tangent"
    else:
        findings, what = _findings_of_gradient(measurements, transform), "gradient"
    if findings:
        return failed_check(name, f"{transform.what}: not what the backward says", findings)
    return passed_check(name, f"{transform.what}: the same {what}")


def _findings_of_gradient(measurements: Measurements, transform: Transform) -> tuple[Finding, ...]:
    return vector_findings(
        transform.name,
        measurements,
        measurements.map.vjp_transform(measurements.cotangent(0), transform.name),
        measurements.gradient(0),
        f"by {transform.what}, against the backward",
    )


def _findings_of_tangent(measurements: Measurements, transform: Transform) -> tuple[Finding, ...]:
    """Against forward mode entry by entry; where there is none, against the backward in a sum."""
    got = measurements.map.jvp_transform(measurements.tangent(0), transform.name)
    try:
        expected = measurements.pushforward(0)
    except Unsupported:
        return _findings_of_sum(measurements, transform, got)
    what = f"by {transform.what}, against forward mode"
    return vector_findings(transform.name, measurements, got, expected, what, forward=True)


def _findings_of_sum(
    measurements: Measurements, transform: Transform, got: Values
) -> tuple[Finding, ...]:
    u, v = measurements.tangent(0), measurements.cotangent(0)
    left, right, gap, allowed = modes_gap(measurements, v, u, got, measurements.gradient(0))
    if gap <= allowed:
        return ()
    message = (
        f"{transform.what} and the backward disagree: <v, J u> is {left:.6g}, <J^T v, u> is "
        f"{right:.6g}"
    )
    return (identity_finding(transform.name, (left, right), allowed, message),)
