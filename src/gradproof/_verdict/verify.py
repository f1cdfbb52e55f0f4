"""One mode of differentiation against every source of measured derivatives there is.

In double precision these are differences. Below it, an oracle in double precision: its formula is
verified by differences there, and the claims in few bits are held against its derivative. Where
there is none, differences in the map's own precision, which say how little they resolve.
"""

from __future__ import annotations

from dataclasses import replace

from gradproof._data.records import CheckResult
from gradproof._judge.claim_error import HONEST
from gradproof._judge.claims import Claim, first
from gradproof._judge.heard import listen
from gradproof._judge.limiting_slopes import BESIDE
from gradproof._judge.opinion import Opinion
from gradproof._judge.quantised import flight, stands_still
from gradproof._maps.contract import DifferentiableMap, Unsupported
from gradproof._measure import directional, steps
from gradproof._measure.sizes import LISTED
from gradproof._verdict import low_precision, other_points, stochastic
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


def verify(claim: Claim, name: str = "", beside: Opinion | None = None) -> CheckResult:
    """What is to be said of the Jacobian that one mode claims, in a check of that or another name.

    `beside` is what else is wrong with the claims; None: nothing.
    """
    map_, settings = claim.map, claim.settings
    evidence = _at_the_point(claim)
    here = merged(evidence)
    if here.flat is not None and map_.domain.size and not settings.classic_step:
        there = other_points.elsewhere(claim, here, _at_the_point)
        evidence = replace(evidence, elsewhere=there)
    unheard, another = _oracle.unheard(map_), _oracle.another(map_, settings)
    said = replace(evidence, unheard=unheard, another=another, beside=beside)
    result = conclude(said, name)
    note = carried(map_) if result.findings else ""
    return replace(result, notes=(*result.notes, note)) if note else result


def carried(map_: DifferentiableMap) -> str:
    """That the value depends on what calls leave in arrays of the function's own; "" if not.

    Every run finds them as they were given. So all that a run computes for them belongs to F, as
    the power iteration of a spectral norm, of which its backward knows nothing.
    """
    if not (names := map_.carried()):
        return ""
    return (
        f"each call writes into {' and '.join(names[:LISTED])}, on which the next value depends: "
        "what is computed for them counts; if no gradient is meant to go there, check the function "
        "where it leaves them alone, as a module does after eval()"
    )


def _at_the_point(claim: Claim) -> Evidence:
    """The evidence at the map's own point: of differences, and of oracles where those do not do."""
    map_, settings = claim.map, claim.settings
    evidence = Evidence(claim.check)
    if not map_.domain.size or not map_.codomain.size:
        return _and(evidence, Witness("", Source.ITSELF, judge(claim)))
    if reason := unsteady(map_):
        return replace(evidence, unasked=reason)
    if map_.resolution <= directional.DOUBLE and not settings.held_to_reference:
        native = differences(claim)
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
    return _by_itself(_of_oracles(evidence, claim), claim)


def _of_oracles(evidence: Evidence, claim: Claim) -> Evidence:
    """What oracles add: each that is believed, but for one that repeats what a finer one said."""

    def asked(oracle: _oracle.Oracle) -> object:
        return first(oracle.map, oracle.settings, columnwise=claim.columnwise)

    oracles = _oracle.answering(claim.map, claim.settings, asked)
    evidence = replace(evidence, refused=tuple(f"not {reason}" for reason in oracles.refused))
    finest: _oracle.Oracle | None = None
    for oracle in oracles.trusted:
        coarser = finest is not None and oracle.map.resolution > directional.DOUBLE
        disputes = _disputed(oracle, finest, claim) if finest and coarser else ""
        if finest and coarser and not disputes:
            told = f"not {oracle.name}: its claims are those of {finest.name}, which is finer"
            evidence = replace(evidence, refused=(*evidence.refused, told))
            continue
        witness = _asked(oracle, claim)
        if told := _another(oracle, claim, witness):
            evidence = replace(evidence, refused=(*evidence.refused, told))
            continue
        evidence = _and(evidence, replace(witness, disputes=disputes))
        if oracle.own and witness.compared is None:
            return evidence
        finest = finest or (oracle if witness.compared else None)
    return evidence


def _another(oracle: _oracle.Oracle, claim: Claim, witness: Witness) -> str:
    """Why the same function in double precision is another one, where it refutes; "" if it is not.

    An epsilon may go by the dtype. The value shows it, which no rule claims. Or the rule itself
    may, of a kernel that knows two dtypes only: what is wrong in a third says nothing of those.
    """
    if not oracle.own or witness.compared is None or not witness.compared.findings:
        return ""
    if heard(witness).findings:
        return f"not {oracle.name}: what is claimed there is another derivative, and wrong"
    # Right kernels of the museum are off by 12 at most, functions of torch.finfo(x.dtype).eps in
    # float32, where that counts, by 40 to 36,000.
    times = stochastic.beyond_chance(claim.map, oracle, claim.settings)
    if times <= HONEST:
        return ""
    return f"not {oracle.name}: its value is off by {times:.2g} times what rounding explains"


def _disputed(oracle: _oracle.Oracle, finest: _oracle.Oracle, claim: Claim) -> str:
    """The name of a finer oracle that claims another derivative; "" where they are the same.

    What few bits round away of a claim, the same function may show in more, and there it is held
    against a reference more sharply than by differences of values that are rounded inside.
    """
    coarser = claim.of(oracle.map, claim.settings)
    return finest.name if _compared(coarser, finest).findings else ""


def _compared(claim: Claim, oracle: _oracle.Oracle) -> low_precision.Precision:
    """The claims, in few bits, beside those of an oracle."""
    return low_precision.compare(claim.map, oracle, claim.settings, claim.in_few_bits())


def _and(evidence: Evidence, witness: Witness) -> Evidence:
    return replace(evidence, witnesses=(*evidence.witnesses, witness))


def _asked(oracle: _oracle.Oracle, claim: Claim) -> Witness:
    """What an oracle says of its own derivative, and if that stands of the claims."""
    map_ = claim.map
    if BESIDE in map_.memo:
        oracle.map.memo.setdefault(BESIDE, map_.memo[BESIDE])
    if claim.settings.trusted:
        here = Opinion(claim.check, "by definition")
        witness = Witness(oracle.name, Source.REFERENCE, here)
    else:
        witness = formula(oracle, claim)
    if heard(witness).findings:
        others = _compared(claim, oracle) if oracle.own else None
        return replace(witness, compared=others if others and others.findings else None)
    if (known := oracle.map.memo.get(("along", 0))) is not None:
        listen(map_, known.direction, known.estimate, oracle.map if oracle.own else None)
    return replace(witness, compared=_compared(claim, oracle))


def _by_itself(evidence: Evidence, claim: Claim) -> Evidence:
    """Where no oracle is believed: the map's own differences, if they may be and were not asked."""
    if any(w.compared or w.source is not Source.REFERENCE for w in evidence.witnesses):
        return evidence
    settings = claim.settings
    if "native" not in settings.oracles or settings.held_to_reference:
        reasons = [reason.removeprefix("not ") for reason in refused(evidence)]
        told = "; ".join(reasons or ["no reference was given"])
        return replace(evidence, unasked=f"no oracle to hold it against: {told}")
    native = differences(claim)
    native = replace(native, doubt=_of_a_staircase(claim.map, native))
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
