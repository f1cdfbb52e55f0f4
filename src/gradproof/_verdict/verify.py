"""One mode of differentiation against every source of measured derivatives there is.

In double precision these are differences. Below it, an oracle in double precision: its formula is
verified by differences there, and the claims in few bits are held against its derivative. Where
there is none, differences in the map's own precision, which say how little they resolve.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from gradproof._data.records import CheckResult, Verdict
from gradproof._data.settings import Settings
from gradproof._judge.claims import Claim, Mode, first
from gradproof._judge.limiting_slopes import BESIDE
from gradproof._judge.outcome import failed, inconclusive
from gradproof._judge.quantised import flight, stands_still
from gradproof._maps.contract import DifferentiableMap, Unsupported
from gradproof._measure import directional, steps
from gradproof._verdict import low_precision, other_points
from gradproof._verdict import oracles as _oracle
from gradproof._verdict.judge import differences, judge, tested, unsteady
from gradproof._verdict.low_precision import Precision
from gradproof._verdict.oracles import Oracle, Oracles

_FLIGHT = (
    "the function takes whole numbers and stands still at the point: what is claimed agrees with "
    "the slope across its jumps, or its arithmetic has rounded the change away"
)

MakeClaim = Callable[[DifferentiableMap, Settings], Claim]
MakeMode = Callable[[DifferentiableMap, Settings], Mode]


@dataclass(frozen=True)
class _Witness:
    """An oracle, what differences say of it, and what it says of the claims."""

    oracle: Oracle
    formula: CheckResult
    precision: Precision

    @property
    def doubt(self) -> str:
        """Why it does not settle the matter; "" where it does."""
        if self.formula.verdict is not Verdict.PASSED:
            return f"{self.oracle.name}: {self.formula.summary}"
        return self.precision.unresolved


def verify(
    map_: DifferentiableMap, settings: Settings, make_claim: MakeClaim, make_mode: MakeMode
) -> CheckResult:
    """Verdict on the Jacobian that one mode claims."""

    def here(place: DifferentiableMap, settings: Settings) -> CheckResult:
        return _verified(place, settings, make_claim, make_mode)

    result = here(map_, settings)
    if not settings.classic_step and result.verdict is Verdict.INCONCLUSIVE:
        result = other_points.elsewhere(map_, settings, result, [map_, *_oracle.known(map_)], here)
    return _unless_another(map_, settings, result)


def _unless_another(
    map_: DifferentiableMap, settings: Settings, result: CheckResult
) -> CheckResult:
    """What was asked for is agreement with a reference: without it, nothing passes."""
    unheard, value = _oracle.unheard(map_), _oracle.another(map_, settings)
    if result.verdict is not Verdict.PASSED or not (unheard or value):
        return replace(result, notes=(*result.notes, value)) if value else result
    summary = f"{value}; the derivatives agree: {result.summary}"
    if unheard:
        summary = f"not held against {unheard}; without it: {result.summary}"
    return replace(result, verdict=Verdict.INCONCLUSIVE, summary=summary)


def _verified(
    map_: DifferentiableMap, settings: Settings, make_claim: MakeClaim, make_mode: MakeMode
) -> CheckResult:
    """Verdict at the map's own point."""
    claim = make_claim(map_, settings)
    if not map_.domain.size or not map_.codomain.size:
        return judge(map_, settings, claim)
    if reason := unsteady(map_):
        return inconclusive(claim.check, reason)
    low = map_.resolution > directional.DOUBLE
    native = None if low else differences(map_, settings, claim)
    if native is not None and native.verdict is Verdict.PASSED and flight(map_, settings, claim):
        return _turned(native, inconclusive(claim.check, _FLIGHT))
    if native is not None and (settings.reference is None or native.verdict is Verdict.FAILED):
        return native

    def asked(oracle: Oracle) -> object:
        return first(oracle.map, oracle.settings, columnwise=claim.columnwise)

    oracles = _oracle.answering(map_, settings, asked)
    witnesses, refused = _heard(map_, settings, oracles, make_claim, make_mode)
    if isinstance(witnesses, CheckResult):
        return witnesses
    if not witnesses and native is None and "native" not in settings.oracles:
        reasons = [reason.removeprefix("not ") for reason in refused] or ["no reference was given"]
        return inconclusive(claim.check, f"no oracle to hold it against: {'; '.join(reasons)}")
    if not witnesses:
        native = native or differences(map_, settings, claim)
        native = _unless_a_staircase(map_, native)
        return replace(native, oracle="; ".join((native.oracle, *refused)))
    return _concluded(witnesses, claim.check, refused, native)


def _unless_a_staircase(map_: DifferentiableMap, native: CheckResult) -> CheckResult:
    """Few bits step over the stairs of a function that stands still in float64, claimed zero."""
    claims = [finding.claimed for finding in native.findings]
    if native.verdict is not Verdict.FAILED or map_.resolution < steps.SINGLE or any(claims):
        return native
    try:
        treads = stands_still(map_.in_double())
    except Unsupported:
        treads = False
    if not treads:
        return native
    reason = (
        "in float64 the function stands still at the point: it is a staircase, or rounds inside; "
        f"of a claim of zero {native.oracle} tell nothing"
    )
    return _turned(native, inconclusive(native.name, reason))


def _heard(
    map_: DifferentiableMap,
    settings: Settings,
    oracles: Oracles,
    make_claim: MakeClaim,
    make_mode: MakeMode,
) -> tuple[list[_Witness] | CheckResult, list[str]]:
    """What each trusted oracle says; the failure itself where the function's own formula fails."""
    witnesses: list[_Witness] = []
    refused = [f"not {reason}" for reason in oracles.refused]
    for oracle in oracles.trusted:
        if BESIDE in map_.memo:
            oracle.map.memo.setdefault(BESIDE, map_.memo[BESIDE])
        claim = make_claim(oracle.map, oracle.settings)
        formula = judge(oracle.map, oracle.settings, claim)
        formula = tested(oracle.map, oracle.settings, claim, formula)
        if formula.verdict is not Verdict.FAILED:
            found = low_precision.compare(map_, oracle, settings, make_mode(map_, settings))
            witnesses.append(_Witness(oracle, formula, found))
        elif oracle.own:
            summary = f"the formula is wrong, as {oracle.name} shows: {formula.summary}"
            return replace(formula, summary=summary, oracle=oracle.name), refused
        else:
            refused.append(f"not {oracle.name}: it fails its own check: {formula.summary}")
    return witnesses, refused


def _concluded(
    witnesses: list[_Witness], check: str, refused: list[str], native: CheckResult | None
) -> CheckResult:
    """What the witnesses say together: against all of them the claims are wrong."""
    wrong = [one for one in witnesses if one.precision.findings]
    first = (wrong or [one for one in witnesses if not one.doubt] or witnesses)[0]
    result = replace(
        first.formula,
        name=check,
        resolution=max(first.formula.resolution, first.precision.resolution),
        oracle="; ".join((*(one.oracle.name for one in witnesses), *refused)),
        statistics=tuple(row for one in witnesses for row in one.precision.statistics),
        notes=(
            *first.formula.notes,
            *filter(None, (first.precision.note,)),
        ),
    )
    right = [one.oracle.name for one in witnesses if one not in wrong]
    if native is not None and native.verdict is Verdict.PASSED:
        right.append(native.oracle)
    if wrong and right:
        reason = (
            f"{first.oracle.name} is the odd one out: the claims agree with {right[0]} and not "
            "with it"
        )
        return _turned(result, inconclusive(check, reason))
    if wrong:
        summary = (
            f"{_count(len(first.precision.findings), 'array')} off by more than rounding "
            f"explains, against {first.oracle.name}"
        )
        found = first.precision
        return _turned(result, failed(check, summary, found.findings, evidence=found.evidence))
    if first.doubt:
        return _turned(result, inconclusive(check, first.doubt))
    summary = (
        f"{first.formula.summary}, against {first.oracle.name}; the claims agree with it to "
        f"{first.precision.resolution:.0e}"
    )
    return replace(result, summary=summary)


def _turned(result: CheckResult, outcome: CheckResult) -> CheckResult:
    """The result with another verdict, its reason, its findings and their evidence."""
    return replace(
        result,
        verdict=outcome.verdict,
        summary=outcome.summary,
        findings=outcome.findings,
        evidence=outcome.evidence,
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
