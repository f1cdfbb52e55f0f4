"""Shorthand with which every check words its outcome."""

from __future__ import annotations

from gradproof._data.options import altered
from gradproof._data.records import CheckResult, Finding, Place, Verdict, digits
from gradproof._judge.decide import Decision
from gradproof._maps.contract import DifferentiableMap

_NONE = CheckResult("", Verdict.SKIPPED, "")  # others are copies: to make one takes 2 us


def passed(name: str, summary: str, **more: object) -> CheckResult:
    return altered(_NONE, name=name, verdict=Verdict.PASSED, summary=summary, **more)


def skipped(name: str, reason: str, **more: object) -> CheckResult:
    return altered(_NONE, name=name, summary=reason, **more)


def inconclusive(name: str, reason: str, **more: object) -> CheckResult:
    return altered(_NONE, name=name, verdict=Verdict.INCONCLUSIVE, summary=reason, **more)


def failed(name: str, summary: str, findings: tuple[Finding, ...], **more: object) -> CheckResult:
    told = {"name": name, "summary": summary, "findings": findings}
    return altered(_NONE, verdict=Verdict.FAILED, **told, **more)


def entry(
    check: str,
    map_: DifferentiableMap,
    at: tuple[int, int],
    numbers: tuple[float, float, float, float],
) -> Finding:
    """A wrong entry of the Jacobian: row and column, then claimed, measured, error, allowed."""
    claimed, measured, error, allowed = numbers
    output, input_, kind = map_.codomain.locate(at[0]), map_.domain.locate(at[1]), "entry"
    bar, shown = f" +- {error:.1g}" if error == error else "", digits(claimed, measured)
    message = (
        f"{input_} -> {output}: claimed {claimed:.{shown}g}, measured {measured:.{shown}g}{bar}; "
        f"the gap is {abs(claimed - measured):.3g}, allowed {allowed:.2g}"
    )
    if map_.codomain.slots[output.slot].detached:
        message += f"; {output.name} claims to have no derivative (it does not require grad)"
        kind = "detached"
    return Finding(check, message, kind, input_, output, claimed, measured, error, allowed)


def vector_entry(
    names: tuple[str, str],
    place: Place,
    numbers: tuple[float, float, float],
    what: str,
    *,
    forward: bool = False,
) -> Finding:
    """A wrong entry of a gradient, or with `forward` of a tangent: got, expected, allowed.

    `names` are that of the check and the kind of the finding.
    """
    got, expected, allowed = numbers
    shown = digits(got, expected)
    message = (
        f"{'tangent' if forward else 'gradient'} of {place}: {what}: got {got:.{shown}g}, expected "
        f"{expected:.{shown}g}; the gap is {abs(got - expected):.3g}, allowed {allowed:.2g}"
    )
    where = (None, place) if forward else (place, None)
    return Finding(names[0], message, names[1], where[0], where[1], got, expected, 0.0, allowed)


def identity(check: str, decision: Decision, said: str) -> Finding:
    """Two numbers that should be one; `said` tells what they are, and both."""
    told = f"{said}; the gap is {decision.gap:.3g}, allowed {decision.allowed:.2g}"
    return Finding(
        check,
        told,
        check,
        claimed=decision.claimed,
        measured=decision.measured,
        error=0.0,
        allowed=decision.allowed,
    )
