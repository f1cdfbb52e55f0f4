"""The verdict on a derivative: made here, from evidence to which every stage adds and none objects.

A stage looks at the claims and says what it saw: `Opinion`s of one source of measured derivatives
at the point and beside it, a `Witness`; what other points say. `heard` and `merged` are the whole
rule of who outweighs whom, in order of precedence.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gradproof._data.options import altered
from gradproof._data.records import CheckResult, Kink, Verdict
from gradproof._judge.found import count
from gradproof._judge.opinion import Opinion
from gradproof._verdict.low_precision import Precision

NEIGHBOURS = 2  # that must agree where the point itself is not smooth


class Source(enum.Enum):
    """Where measured derivatives come from."""

    ITSELF = "the values of the map whose claims they are"
    FORMULA = "the same function in more bits"
    REFERENCE = "another function, given as a reference"


@dataclass(frozen=True)
class Witness:
    """One source of measured derivatives, and what it says of the claims."""

    name: str  # of the source, for the report
    source: Source  # what it is
    here: Opinion  # the claims of its map against differences of its values, at the point
    beside: tuple[Opinion, ...] = ()  # likewise at smooth neighbours, where the point is not smooth
    no_neighbour: str = ""  # why fewer neighbours were asked than should have been
    untested: str = ""  # that nothing was tested of an input; "" where there is none
    doubt: str = ""  # why its differences are no evidence here; "" where they are
    notes: tuple[str, ...] = ()  # of the source
    # The claims in few bits against those of its map; None where `here` is about the claims
    # themselves.
    compared: Precision | None = None
    # The name of a finer witness that claims another derivative than its map does.
    disputes: str = ""


@dataclass(frozen=True)
class Elsewhere:
    """What is seen at other points of a function that is flat at the one asked about."""

    # The evidence at each; none where the function was found flat everywhere.
    points: tuple[Evidence, ...] = ()
    slopes: bool = False  # whether it has a slope at those; it is reached by a jump, otherwise
    zero: bool = False  # whether it is itself a derivative that is zero wherever it was asked for


@dataclass(frozen=True)
class Evidence:
    """All that is known of the claims of one mode."""

    check: str  # whose claims
    witnesses: tuple[Witness, ...] = ()  # who was asked, in order
    refused: tuple[str, ...] = ()  # why others were not
    unasked: str = ""  # why nobody could be; "" where somebody could
    # What other points say, where the function is flat at this one.
    elsewhere: Elsewhere | None = None
    unheard: str = ""  # why the reference that was given was not asked; "" where it was
    another: str = ""  # that its value is another; "" where it is not
    # What is wrong with the claims beside all that the witnesses see; None: nothing.
    beside: Opinion | None = None


def conclude(evidence: Evidence, name: str = "") -> CheckResult:
    """The result of a check; `name` where that is not the one whose claims they are."""
    said = merged(evidence)
    name = name or said.check
    if said.findings:
        verdict = Verdict.FAILED
    else:
        verdict = Verdict.INCONCLUSIVE if said.open else Verdict.PASSED
    return CheckResult(
        name=name,
        verdict=verdict,
        summary=said.summary,
        findings=tuple(replace(finding, check=name) for finding in said.findings),
        resolution=said.resolution,
        notes=said.notes,
        kinks=said.kinks,
        oracle=said.oracle,
        statistics=said.statistics,
        evidence=said.evidence,
    )


# The rule: of one witness, of all of them, and of all that is known. The first that holds.


def heard(witness: Witness) -> Opinion:
    """What one witness says: of the point first, then of what could not be told there."""
    said = witness.here
    if witness.notes:
        said = replace(said, notes=(*said.notes, *witness.notes))
    if witness.doubt:
        return _open(said, witness.doubt)
    if said.findings:
        return said
    if refuting := next((one for one in witness.beside if one.findings), None):
        return _wrong_beside(said, refuting)
    said = _with_neighbours(said, witness)
    if said.verified and witness.untested:
        return _open(said, f"{witness.untested}; the rest: {said.summary}")
    return said


def _of_all(evidence: Evidence) -> Opinion:
    """What the witnesses say together."""
    if len(evidence.witnesses) == 1 and not evidence.refused:
        [only] = evidence.witnesses
        if only.source is Source.ITSELF and only.compared is None:
            return altered(heard(only), oracle=only.name)
    said = {id(witness): heard(witness) for witness in evidence.witnesses}
    for witness in evidence.witnesses:
        if witness.source is not Source.REFERENCE and said[id(witness)].findings:
            return _wrong_formula(said[id(witness)], witness, evidence)
    compared = [w for w in evidence.witnesses if w.compared and not said[id(w)].findings]
    disputed = {w.disputes for w in compared}
    against = [w for w in compared if (w.compared and w.compared.findings) or w.name in disputed]
    agreeing = [w for w in compared if w not in against]
    agreeing += [w for w in evidence.witnesses if not w.compared and said[id(w)].verified]
    if against and agreeing:
        return _odd_one_out(evidence, compared, against[0], agreeing[0])
    if against:
        return _off(evidence, compared, against[0])
    if compared:
        return _close(evidence, compared)
    return replace(said[id(evidence.witnesses[0])], oracle=_named(evidence, evidence.witnesses[:1]))


def merged(evidence: Evidence) -> Opinion:
    """What all that is known says."""
    if evidence.unasked:
        return Opinion(evidence.check, evidence.unasked, open=True)
    said = _of_all(evidence)
    if said.open and evidence.elsewhere:
        said = _seen_elsewhere(said, evidence.elsewhere)
    if said.verified and evidence.beside:
        return evidence.beside
    if said.verified and evidence.unheard:
        return _open(said, f"not held against {evidence.unheard}; without it: {said.summary}")
    if said.verified and evidence.another:
        return _open(said, f"{evidence.another}; the derivatives agree: {said.summary}")
    return replace(said, notes=(*said.notes, evidence.another)) if evidence.another else said


# What each line of it says in words.


def _open(said: Opinion, reason: str) -> Opinion:
    return replace(said, summary=reason, findings=(), open=True, flat=None, evidence=None)


def _wrong_beside(said: Opinion, beside: Opinion) -> Opinion:
    findings = tuple(
        replace(finding, kind="neighbour", message=f"at a smooth neighbour: {finding.message}")
        for finding in beside.findings
    )
    return replace(
        said,
        summary=f"wrong at a smooth neighbour of the point: {beside.summary}",
        findings=findings,
        evidence=beside.evidence,
    )


def _with_neighbours(said: Opinion, witness: Witness) -> Opinion:
    """What neighbours that are not wrong add to the opinion at a point that is not smooth.

    Where the slopes at the point say nothing of the claim, it is open without them.
    """
    if not witness.beside and not witness.no_neighbour:
        return said
    convention = any(map(_is_convention, said.kinks))
    smooth = [one for one in witness.beside if one.verified and not one.kinks]
    bare = f"not differentiable at {count(len(said.kinks), 'entry')}"
    if len(smooth) == NEIGHBOURS:
        known = [r for r in (said.resolution, *(one.resolution for one in smooth)) if r == r]
        bar = max(known, default=math.nan)
        between = "" if convention else "claims lie between the one-sided slopes; "
        summary = said.summary
        if said.verified:
            there = "" if math.isnan(said.resolution) else "there and "
            finely = f"to {bar:.0e} " if 0 < bar < 1 else ""
            summary = f"{summary}; verified {finely}{there}at smooth neighbours"
        notes = (*said.notes, f"{bare}; {between}verified at a smooth neighbour")
        return replace(said, summary=summary, resolution=bar, notes=notes)
    why = witness.no_neighbour
    if not why:
        doubtful = next(one for one in witness.beside if one not in smooth)
        why = doubtful.summary if not doubtful.kinks else "neither is a neighbour smooth"
    note = f"{bare}; not verified at a smooth neighbour: {why}"
    noted = replace(said, notes=(*said.notes, note))
    if said.verified and convention:
        return _open(noted, f"a claim where there is no slope is a convention, and {note}")
    return noted


def _is_convention(kink: Kink) -> bool:
    """Whether the slopes at the point say nothing of the claim."""
    return kink.kind in ("jump", "infinite slope") or not kink.within


def _wrong_formula(said: Opinion, witness: Witness, evidence: Evidence) -> Opinion:
    if witness.source is Source.ITSELF:
        return replace(said, oracle=_named(evidence, [witness]))
    told = f"the formula is wrong, as {witness.name} shows: {said.summary}"
    return replace(said, summary=told, oracle=witness.name)


def refused(evidence: Evidence) -> tuple[str, ...]:
    """Who is not believed, and why: a reference that is wrong itself lends nobody its word."""
    lost = [
        f"not {witness.name}: it fails its own check: {said.summary} (trusted=True where its "
        "derivative is a definition)"
        for witness in evidence.witnesses
        if witness.source is Source.REFERENCE and (said := heard(witness)).findings
    ]
    return (*evidence.refused, *lost)


def _named(evidence: Evidence, witnesses: Sequence[Witness]) -> str:
    return "; ".join((*(witness.name for witness in witnesses), *refused(evidence)))


def _beside_oracles(evidence: Evidence, compared: list[Witness], first: Witness) -> Opinion:
    """What the claims against oracles have in common, whatever the oracles say."""
    said, found = heard(first), first.compared
    assert found is not None
    return replace(
        said,
        check=evidence.check,
        resolution=max(said.resolution, found.resolution),
        oracle=_named(evidence, compared),
        statistics=tuple(row for w in compared if w.compared for row in w.compared.statistics),
        notes=(*said.notes, *filter(None, (found.note,))),
    )


def _odd_one_out(
    evidence: Evidence, compared: list[Witness], first: Witness, other: Witness
) -> Opinion:
    reason = f"{first.name} is the odd one out: the claims agree with {other.name} and not with it"
    return _open(_beside_oracles(evidence, compared, first), reason)


def _off(evidence: Evidence, compared: list[Witness], first: Witness) -> Opinion:
    found = first.compared
    assert found is not None
    return replace(
        _beside_oracles(evidence, compared, first),
        summary=f"{found.count} off by more than rounding explains, against {first.name}",
        findings=found.findings,
        evidence=found.evidence,
    )


def _close(evidence: Evidence, compared: list[Witness]) -> Opinion:
    """No oracle is against the claims: the first without a doubt confirms them."""
    first = next((witness for witness in compared if not _doubt(witness)), compared[0])
    said, found = _beside_oracles(evidence, compared, first), first.compared
    assert found is not None
    if doubt := _doubt(first):
        return replace(said, summary=doubt, open=True)
    told = f"the claims agree with it to {found.resolution:.0e}"
    return replace(said, summary=f"{said.summary}, against {first.name}; {told}")


def _doubt(witness: Witness) -> str:
    """Why an oracle that is not against the claims does not confirm them; "" where it does."""
    said, found = heard(witness), witness.compared
    if said.open:
        return f"{witness.name}: {said.summary}"
    return found.unresolved if found else ""


def _seen_elsewhere(said: Opinion, elsewhere: Elsewhere) -> Opinion:
    """What other points say of a function that is flat at the point, or of outputs that are.

    That the claims are right there has tested them; that they are wrong refutes nothing, for the
    function may not be made for such inputs.
    """
    zero = f"zero to {said.flat:.0e}, claimed and measured"
    flat = said.summary if said.outputs else f"{zero}, and the function stands still"
    found = [merged(point) for point in elsewhere.points]
    if not found and elsewhere.zero:
        told = f"{zero}, here and at the other points tried, as the derivative is"
        return replace(said, summary=told, open=False)
    if not found:
        but = "they show" if said.outputs else "it does"
        told = f"{said.summary}, here or at the other points tried; choose a point where {but}"
        return replace(said, summary=told)
    where = "that it reaches by jumps, where it stands still too"
    where = "where it varies" if elsewhere.slopes else where
    right = [one for one in found if one.verified]
    wrong = [one for one in found if one.findings]
    if wrong or not right:
        first = (wrong or found)[0]
        seen = first.findings[0].message if first.findings else first.summary
        word = "is wrong there" if wrong else "is not decided there"
        told = f"{said.summary}; at a point {where}, the derivative {word}: {seen}"
        return replace(said, summary=told)
    places = "a point" if len(right) == 1 else f"{len(right)} points"
    told = f"{flat}; at {places} {where}: {right[0].summary}"
    known = [one.resolution for one in (said, *right) if one.resolution == one.resolution]
    worst = max(known, default=0.0)
    return replace(right[0], summary=told, resolution=worst)
