"""One mode of differentiation against every source of measured derivatives there is.

In double precision these are differences. Below it, an oracle in double precision: its formula is
verified by differences there, and the claims in few bits are held against its derivative. Where
there is none, differences in the map's own precision, which say how little they resolve.
"""

from __future__ import annotations

import functools
from dataclasses import replace

from gradproof._data.records import CheckResult
from gradproof._data.settings import Settings
from gradproof._judge.claims import Claim, first
from gradproof._judge.limiting_slopes import BESIDE
from gradproof._judge.opinion import Opinion
from gradproof._judge.quantised import flight, stands_still
from gradproof._maps.contract import DifferentiableMap, Unsupported
from gradproof._measure import directional, steps
from gradproof._verdict import low_precision, other_points
from gradproof._verdict import oracles as _oracle
from gradproof._verdict.conclude import (
    Evidence,
    Source,
    Witness,
    conclude,
    heard,
    merged,
    refused,
)
from gradproof._verdict.judge import differences, formula, judge, unsteady

_FLIGHT = (
    "the function takes whole numbers and stands still at the point: what is claimed agrees with "
    "the slope across its jumps, or its arithmetic has rounded the change away"
)
_UNASKED = (
    "not the reference, for they refute the claims: with trusted=True it is the definition of the "
    "derivative, as of a straight-through estimator"
)


def verify(map_: DifferentiableMap, settings: Settings, mode: type[Claim]) -> CheckResult:
    """What is to be said of the Jacobian that one mode claims."""
    return conclude(gathered(map_, settings, mode))


def gathered(map_: DifferentiableMap, settings: Settings, mode: type[Claim]) -> Evidence:
    """The evidence on the Jacobian that one mode claims, from wherever there is any."""
    evidence = _at_the_point(map_, settings, mode)
    flat = merged(evidence).flat
    if flat is not None and map_.domain.size and not settings.classic_step:
        at = functools.partial(_at_the_point, mode=mode)
        there = other_points.elsewhere(map_, settings, flat, at)
        evidence = replace(evidence, elsewhere=there)
    unheard, another = _oracle.unheard(map_), _oracle.another(map_, settings)
    return replace(evidence, unheard=unheard, another=another)


def _at_the_point(map_: DifferentiableMap, settings: Settings, mode: type[Claim]) -> Evidence:
    """The evidence at the map's own point: of differences, and of oracles where those do not do."""
    claim = mode(map_, settings)
    evidence = Evidence(claim.check)
    if not map_.domain.size or not map_.codomain.size:
        return _and(evidence, Witness("", Source.ITSELF, judge(claim)))
    if reason := unsteady(map_):
        return replace(evidence, unasked=reason)
    if map_.resolution <= directional.DOUBLE and not settings.held_to_reference:
        native = differences(map_, settings, mode)
        said = heard(native)
        if said.verified and flight(claim):
            return _and(evidence, replace(native, doubt=_FLIGHT))
        evidence = _and(evidence, native)
        if said.findings and settings.reference is not None:
            return replace(evidence, refused=(_UNASKED,))
        if said.findings or settings.reference is None:
            return evidence
    elif settings.held_to_reference:
        first(map_, settings, columnwise=claim.columnwise)  # Unsupported where it has no such mode
    evidence = _of_oracles(evidence, map_, settings, mode)
    return _by_itself(evidence, map_, settings, mode)


def _of_oracles(
    evidence: Evidence,
    map_: DifferentiableMap,
    settings: Settings,
    mode: type[Claim],
) -> Evidence:
    """What oracles add: each that is believed, but for one that repeats what a finer one said."""
    columnwise = mode.columnwise

    def asked(oracle: _oracle.Oracle) -> object:
        return first(oracle.map, oracle.settings, columnwise=columnwise)

    oracles = _oracle.answering(map_, settings, asked)
    evidence = replace(evidence, refused=tuple(f"not {reason}" for reason in oracles.refused))
    finest: _oracle.Oracle | None = None
    for oracle in oracles.trusted:
        coarser = finest is not None and oracle.map.resolution > directional.DOUBLE
        disputes = _disputed(oracle, finest, settings, mode) if finest and coarser else ""
        if finest and coarser and not disputes:
            told = f"not {oracle.name}: its claims are those of {finest.name}, which is finer"
            evidence = replace(evidence, refused=(*evidence.refused, told))
            continue
        witness = _asked(map_, oracle, settings, mode)
        evidence = _and(evidence, replace(witness, disputes=disputes))
        if oracle.own and witness.compared is None:
            return evidence
        finest = finest or (oracle if witness.compared else None)
    return evidence


def _disputed(
    oracle: _oracle.Oracle, finest: _oracle.Oracle, settings: Settings, mode: type[Claim]
) -> str:
    """The name of a finer oracle that claims another derivative; "" where they are the same.

    What few bits round away of a claim, the same function may show in more, and there it is held
    against a reference more sharply than by differences of values that are rounded inside.
    """
    asked = mode.in_few_bits(oracle.map, settings)
    return (
        finest.name if low_precision.compare(oracle.map, finest, settings, asked).findings else ""
    )


def _and(evidence: Evidence, witness: Witness) -> Evidence:
    return replace(evidence, witnesses=(*evidence.witnesses, witness))


def _asked(
    map_: DifferentiableMap,
    oracle: _oracle.Oracle,
    settings: Settings,
    mode: type[Claim],
) -> Witness:
    """What an oracle says of its own derivative, and if that stands of the claims."""
    if BESIDE in map_.memo:
        oracle.map.memo.setdefault(BESIDE, map_.memo[BESIDE])
    if settings.trusted:
        here = Opinion(mode.check, "by definition")
        witness = Witness(oracle.name, Source.REFERENCE, here)
    else:
        witness = formula(oracle, mode)
    if heard(witness).findings:
        return witness
    compared = low_precision.compare(map_, oracle, settings, mode.in_few_bits(map_, settings))
    return replace(witness, compared=compared)


def _by_itself(
    evidence: Evidence, map_: DifferentiableMap, settings: Settings, mode: type[Claim]
) -> Evidence:
    """Where no oracle is believed: the map's own differences, if they may be and were not asked."""
    if any(w.compared or w.source is not Source.REFERENCE for w in evidence.witnesses):
        return evidence
    if "native" not in settings.oracles or settings.held_to_reference:
        reasons = [reason.removeprefix("not ") for reason in refused(evidence)]
        told = "; ".join(reasons or ["no reference was given"])
        return replace(evidence, unasked=f"no oracle to hold it against: {told}")
    native = differences(map_, settings, mode)
    native = replace(native, doubt=_of_a_staircase(map_, native))
    return replace(evidence, witnesses=(native, *evidence.witnesses))


def _of_a_staircase(map_: DifferentiableMap, native: Witness) -> str:
    """Few bits step over the stairs of a function that stands still in float64, claimed zero."""
    findings = heard(native).findings
    if not findings or map_.resolution < steps.SINGLE or any(f.claimed for f in findings):
        return ""
    try:
        treads = stands_still(map_.in_double())
    except Unsupported:
        treads = False
    if not treads:
        return ""
    return (
        "in float64 the function stands still at the point: it is a staircase, or rounds inside; "
        f"of a claim of zero {native.name} tell nothing"
    )
