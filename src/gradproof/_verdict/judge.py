"""Screen, localise, confirm: one claimed Jacobian against one measured.

The screen compares along a random tangent, as tightly as the error bars allow. Only what it
suspects, or cannot resolve, is looked at entry by entry, and only entries are judged by the
user's tolerances: the verdict means what the full Jacobian compared entry by entry would mean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from gradproof._data.records import Kink
from gradproof._data.settings import Settings
from gradproof._data.space import Array, namespace, norm, on_host, positions
from gradproof._data.vectors import KEPT, blocks, rms
from gradproof._judge import claim_error, entries, limiting_slopes
from gradproof._judge.claims import Claim, gradient
from gradproof._judge.decide import excusing_single, of_largest, resolved, rounded_up
from gradproof._judge.faint import faint_columns
from gradproof._judge.found import count, sorted_findings
from gradproof._judge.heard import listen
from gradproof._judge.limiting_slopes import BESIDE
from gradproof._judge.opinion import Opinion
from gradproof._judge.projections import projected
from gradproof._judge.screen import UNRESOLVED, Screen, empty, rows_of, sharp
from gradproof._locate.search import Search, locate
from gradproof._maps.contract import DifferentiableMap
from gradproof._measure import directional, evaluate, jacobian, probes, steps
from gradproof._measure.sizes import DRAWS, MANY, NO_ROUNDING, ROUNDINGS, TRIES
from gradproof._verdict import other_points
from gradproof._verdict.agree import Pair
from gradproof._verdict.agree import differences as gradient_findings
from gradproof._verdict.conclude import Source, Witness, heard
from gradproof._verdict.oracles import Oracle, bits_of, coarsest_dtype, in_fewer_bits

WITHOUT_ENTRIES = "nothing to check: no input or no output has an entry"
_PLAINLY = "rows with wide error bars were judged by plain central differences"


def judge(claim: Claim) -> Opinion:
    """What differences say of the Jacobian that `claim` claims, at the point alone."""
    map_, settings = claim.map, claim.settings
    if map_.domain.size == 0 or map_.codomain.size == 0:
        return _without_entries(claim)
    screen = look(claim)
    if screen.hints is not None and not screen.suspicious:
        v = probes.cotangent(map_, settings.seed, 1)
        hinted = replace(screen, projected=(screen.hints[0], v))
        found = locate(claim, hinted)
        if found.findings:  # else nothing: hints prove none
            return _refuted(found)
    if screen.blurred and screen.projected is None:
        screen = _again(claim, screen)
    # Beside a jump F has been seen to vary: there, a derivative of zero is one like any other.
    beside = BESIDE in map_.memo
    if screen.empty and not settings.classic_step and not beside:
        return _standing_still(claim, screen.bar)
    if screen.suspicious or screen.blurred:
        return _drowned(claim, _located(claim, screen))
    if screen.unresolved and not settings.classic_step:
        return Opinion(claim.check, screen.unresolved, open=True, resolution=screen.resolution)
    faint = faint_columns(claim)
    if faint.wrong is not None:
        with directional.first_tangent(map_, settings, *faint.wrong):
            return _located(claim, look(claim))
    seen = max(screen.bound, faint.bound)
    return right(map_, claim.check, seen, _unseen(claim) or faint.notes)


def right(
    map_: DifferentiableMap,
    check: str,
    bound: float,
    notes: tuple[str, ...] = (),
    *,
    but_for: str = "",
    kinks: tuple[Kink, ...] = (),
) -> Opinion:
    """What is said of a Jacobian that is right, up to a part of the largest entry of a row.

    Or that is right but for what was looked into by itself. A bound of a whole entry says nothing
    of single entries, and is told in words.
    """
    seen, size = rounded_up(bound), f"{map_.codomain.size:,} x {map_.domain.size:,} Jacobian"
    finely = f"to {seen:.0e}"
    if seen >= 1:
        finely = "along random directions, not entry by entry"
    told = f"{size}{but_for and ', '}{but_for} verified {finely}"
    return Opinion(check, told, resolution=seen, notes=notes, kinks=kinks)


def _located(claim: Claim, screen: Screen) -> Opinion:
    """What the entries say of what a screen suspects or could not see."""
    map_, settings = claim.map, claim.settings
    size, surely = map_.domain.size, bool(screen.suspects) and not screen.blurred
    whole = size <= settings.full_jacobian and (size <= settings.every_entry or not surely)
    first = settings.brief or map_.derived  # of a derivative each call costs several of F
    # Of few inputs the columns take as many calls as it takes to locate one.
    if not whole or (first and surely and size > DRAWS):
        # Slopes beside the point are asked where kinks were seen: of many ties some are of pairs.
        kinked = screen.suspicious and screen.blurred
        if kinked and limiting_slopes.limits(claim):
            screen = look(claim)
        found = locate(claim, screen, briefly=whole and not map_.derived)
        if not whole or found.explained or (map_.derived and found.findings):
            return _searched(found)
    return entries.settle(claim, screen)


def _searched(found: Search) -> Opinion:
    """What a search says of a suspicion, and rows that the screen could not see."""
    map_, settings, claim, screen = found.map, found.settings, found.claim, found.screen
    if found.findings:
        return _refuted(found)
    notes: tuple[str, ...] = ()
    if screen.blurred:
        kinks, open_ = limiting_slopes.along_probe(claim, screen.blurred)
        said = _at_kinks(claim, screen, kinks, open_)
        costly = 2 * map_.domain.size > settings.budget // 2
        if said.findings or not settings.classic_step or (open_ and costly):
            return said
        if open_ and (result := entries.settle_classic(claim, open_)):
            return result
        notes = (entries.BETWEEN,) * bool(kinks) + (_PLAINLY,) * bool(open_)
    if screen.suspicious:
        if not found.accounted and not settings.classic_step:
            reason = "a projection differs, but no wrong entry could be located"
            return Opinion(claim.check, reason, open=True)
        note = "a projection differs, but every entry located is within its tolerance"
        notes = (*notes, note)
    told = "the entries under suspicion measured,"
    return right(map_, claim.check, screen.bound, notes, but_for=told)


def _refuted(found: Search) -> Opinion:
    """That entries are wrong, and how many as far as that is known."""
    size, screen = f"{found.map.codomain.size:,} x {found.map.domain.size:,} Jacobian", found.screen
    findings = sorted_findings(found.findings)
    summary = f"{count(len(found.findings), 'wrong entry')} located in the {size}"
    if found.crowded:
        summary = f"rows of the {size} are wrong in several columns, {findings[0].output} first"
        findings = tuple(replace(each, kind="row") for each in findings)
    elif found.many:
        number = f"{max(screen.count, len(screen.suspects)):,}" if screen.suspects else "many"
        summary = f"{number} rows of the {size} are wrong"
        if found.complete and len({str(each.input) for each in findings}) == 1:
            summary += f", all with respect to {findings[0].input}"
    return Opinion(found.claim.check, summary, findings, evidence=found)


def _at_kinks(
    claim: Claim, screen: Screen, kinks: tuple[Kink, ...], open_: tuple[int, ...]
) -> Opinion:
    """Rows that could not be resolved: not differentiable, as far as that is what they are."""
    outside = [kink for kink in kinks if not kink.within]
    if outside:
        findings = [limiting_slopes.finding_of(claim.check, kink) for kink in outside]
        summary = f"claims at {count(len(outside), 'entry')} lie outside the one-sided slopes"
        return Opinion(claim.check, summary, sorted_findings(findings), kinks=kinks)
    if open_:
        return replace(_blurred(claim, replace(screen, blurred=open_)), kinks=kinks)
    told = f"not differentiable in {len(screen.blurred):,} outputs, the others"
    return right(claim.map, claim.check, screen.bound, but_for=told, kinks=kinks)


def _blurred(claim: Claim, screen: Screen) -> Opinion:
    """That rows are open."""
    map_ = claim.map
    place = map_.codomain.locate(screen.blurred[0])
    why, bound = map_.memo.get(("raised",)), rounded_up(screen.bound)
    told = (
        f"{len(screen.blurred):,} of {map_.codomain.size:,} outputs could not be resolved, "
        f"{place} first{': ' + why if why else ''}; the others agree"
        f"{f' to {bound:.0e}' if bound < 1 else ' along random directions'}"
    )
    return Opinion(claim.check, told, open=True, outputs=screen.blurred, resolution=bound)


def _drowned(claim: Claim, said: Opinion) -> Opinion:
    """What is said, as of flat outputs where all that is open are outputs that drown.

    Their derivatives are not told from zero, or their bars are a few roundings of F at the longest
    step: no step shows more at this point, as of a softmax where it is 1 - 1e-14 or 1 - 1e-20.
    """
    map_, settings = claim.map, claim.settings
    if not said.outputs or settings.classic_step or map_.resolution > directional.DOUBLE:
        return said
    xp, plan = namespace(map_.point), directional.plan(map_, settings)
    at = xp.asarray(list(said.outputs))
    found = directional.along(map_, settings, 0).estimate.of(at)
    unit = 2 * map_.resolution * abs(xp.take(evaluate.centre(map_).value, at))
    # The bar of a rung holds the noise of the next finer one.
    loud = found.error * plan.top * plan.ratio <= ROUNDINGS * unit
    if not bool(xp.all((found.error < xp.inf) & (loud | (abs(found.value) <= found.error)))):
        return said
    return replace(said, flat=float(xp.max(found.error)))


def _standing_still(claim: Claim, bar: float) -> Opinion:
    """Nothing was tested: other points may tell more.

    But for a derivative that is itself seen, and measured not to vary: that of a linear function.
    """
    first = rms(evaluate.centre(claim.map).value) if claim.map.derived else 0.0
    if first and bar <= claim.settings.resolution * first:
        summary = f"zero to {bar:.0e}, claimed and measured, where the derivative is {first:.2g}"
        return Opinion(claim.check, summary, resolution=bar / first)
    reason = (
        f"nothing was tested: claimed and measured are both zero to {bar:.0e} and the function "
        "does not vary"
    )
    return Opinion(claim.check, reason, open=True, flat=bar)


def _unseen(claim: Claim) -> tuple[str, ...]:
    """A note on outputs whose derivative drowns in their rounding, beside much larger ones."""
    map_, settings = claim.map, claim.settings
    found = directional.along(map_, settings, 0).estimate
    xp = namespace(found.value)

    def drowned(which: slice) -> Array:
        size = xp.abs(found.value[which])
        return (size > 0) & ~resolved(found.error[which], settings.resolution * size)

    small = xp.concat([drowned(block) for block in blocks(found.value, KEPT)])
    if not bool(xp.any(small)):
        return ()
    # What was blurred has been asked for along other tangents.
    blurred = ~resolved(found.error, sharp(map_, settings, found.value, rms(found.value)))
    for number in range(1, TRIES):
        other = map_.memo.get(("along", number))
        if other is not None and bool(xp.any(blurred)):
            there = other.estimate
            seen = resolved(there.error, settings.resolution * xp.abs(there.value))
            small = small & ~(blurred & seen)
    rows = positions(small)
    parts = _in_doubt(claim, rows)
    rows = [i for i, part in zip(rows, parts, strict=True) if not part <= settings.resolution]
    if not rows:
        return ()
    first = map_.codomain.locate(rows[0])
    what = (
        f"the derivative of {first} is"
        if len(rows) == 1
        else f"the derivatives of {len(rows):,} outputs, {first} first, are"
    )
    return (f"{what} too small to be told from rounding: not tested",)


def _seen_by_size(claim: Claim, screen: Screen) -> Screen:
    """The screen without its blurred rows, where their bars are small beside what is claimed."""
    if screen.suspicious:
        return screen
    parts = _in_doubt(claim, screen.blurred)
    if not parts or not max(parts) <= claim.settings.resolution:
        return screen
    bound = of_largest(claim.map, max(parts), claim.map.domain.size)
    return replace(
        screen,
        blurred=(),
        resolution=max(screen.resolution, *parts),
        bound=max(screen.bound, bound),
    )


def _in_doubt(claim: Claim, rows: Sequence[int]) -> list[float]:
    """The error bars of rows in parts of their size, infinite where that is not known.

    A row's entries may cancel along the tangent. Of signs that are drawn it is as large along it as
    the root of the sum of their squares, which the backward tells. Of more rows than are followed
    one by one, as chance leaves, none is asked.
    """
    if len(rows) > MANY or claim.map.domain.size <= claim.settings.full_jacobian:
        return [math.inf] * len(rows)
    found = directional.along(claim.map, claim.settings, 0)
    sizes = [_size_of(claim, i, found.direction) for i in rows]
    bars = (float(found.estimate.error[i]) for i in rows)
    return [bar / size if size else math.inf for bar, size in zip(bars, sizes, strict=True)]


def _size_of(claim: Claim, row: int, u: Array) -> float:
    """Of a row along a tangent, its entries taken together as if their signs were drawn."""
    key = ("size", row)
    if key not in claim.map.memo:
        probe = jacobian.unit(u, row, count=claim.map.codomain.size)
        try:
            claim.map.memo[key] = norm(claim.map.vjp(probe) * u)
        except Exception:  # a mode without a backward, or a backward that its own check tells
            claim.map.memo[key] = 0.0
    return float(claim.map.memo[key])


def _without_entries(claim: Claim) -> Opinion:
    """No output has an entry, or no input: every gradient of these outputs is zero."""
    map_, settings = claim.map, claim.settings
    if map_.domain.size and not claim.columnwise:
        got = gradient(map_, settings, 0)
        xp = namespace(got)
        what = "gradient of an output without entries"
        pair = Pair(got, xp.zeros_like(got), what)
        findings = gradient_findings(claim.check, map_, pair, kind="entry")
        if findings:
            return Opinion(claim.check, "outputs without entries have a gradient", findings)
    if not map_.codomain.slots:
        reason = "nothing was tested: the function has no output with a derivative"
        return Opinion(claim.check, reason, open=True)
    return Opinion(claim.check, WITHOUT_ENTRIES)


def look(claim: Claim) -> Screen:
    """The screen: one ladder, and the claimed derivative along its tangent."""
    map_, settings = claim.map, claim.settings
    direction = probes.tangent(map_, settings.seed, 0)
    # Of a large map the claim comes first: its graph would stand beside a ladder in memory.
    early = claim.along(direction) if map_.codomain.size > directional.KEPT else None
    # Sums over the outputs are read from the evaluations themselves.
    keep = True if early is None and directional.large(map_) else None
    first = directional.along(map_, settings, 0, keep=keep)
    listen(map_, direction, first.estimate)
    claimed = claim.along(direction) if early is None else early
    if claimed is None:
        return projected(claim)
    found = first.estimate
    rows = rows_of(map_, settings, found, claimed)
    at, blurred = namespace(claimed).nonzero(rows.suspect)[0], rows.blurred
    if at.shape[0] and not rows.evident:
        along = first.direction, claimed, found.value
        at, open_ = claim_error.beyond(claim, along, at)
        blurred = blurred | _mask(blurred, open_)
    return Screen(
        suspects=_strongest(at, claimed, found.value),
        blurred=tuple(positions(blurred)),
        projected=None,
        resolution=rows.resolution,
        bar=rows.bar,
        bound=of_largest(map_, rows.seen, map_.domain.size),
        empty=empty(claimed, first),
        count=int(at.shape[0]),
        mask=_mask(rows.suspect, at),
        unresolved=_hidden(map_, rows.resolution),
    )


def _again(claim: Claim, screen: Screen) -> Screen:
    """The screen after a second look at rows that could not be seen.

    A kink may lie beside the point, and along one tangent a row's derivative may be small by
    chance: the formula of a log_softmax of 1,040 outputs in few bits would stay open for most
    seeds.
    """
    map_, settings = claim.map, claim.settings
    if map_.domain.size <= settings.full_jacobian:
        return screen
    if map_.resolution < directional.DOUBLE:
        screen = _beside_kinks(claim, _seen_by_size(claim, screen))
    if screen.suspicious or not screen.blurred or directional.large(map_):
        return screen
    left, worst, bound = screen.blurred, screen.resolution, screen.bound
    if settings.classic_step:  # plain central differences are to come
        return screen
    for number in range(1, TRIES):
        claimed = claim.along(probes.tangent(map_, settings.seed, number))
        if claimed is None:
            return screen
        found = directional.along(map_, settings, number).estimate
        rows = rows_of(map_, settings, found, claimed)
        if any(bool(rows.suspect[i]) for i in left):
            return screen
        left = tuple(i for i in left if bool(rows.blurred[i]))
        worst = max(worst, rows.resolution)
        bound = max(bound, of_largest(map_, rows.seen, map_.domain.size))
        if not left:
            break
    return replace(
        screen, blurred=left, resolution=worst, bound=bound, unresolved=_hidden(map_, worst)
    )


def _beside_kinks(claim: Claim, screen: Screen) -> Screen:
    """The screen after shorter steps of what is blurred, and of what looks wrong among that.

    Among very many rows some look wrong by chance, fewer than are blurred.
    """
    asked = namespace(claim.map.point).asarray([*screen.suspects, *screen.blurred])
    few = screen.suspicious and not directional.large(claim.map)
    if few or screen.count >= len(screen.blurred):
        return screen
    if not jacobian.leave_kinks(claim.map, claim.settings, asked):
        return screen
    screen = look(claim)
    return screen if screen.suspicious else _seen_by_size(claim, screen)


def _hidden(map_: DifferentiableMap, part: float) -> str:
    """Why a part in doubt of an output's derivative is too large a one; "" where it is not.

    In 16 bits an entry of the usual size, one in sqrt(n) of a row, must not hide in it.
    """
    usual = map_.domain.size**-0.5 if map_.resolution > steps.SINGLE else 1.0
    told = f"a random direction resolves an output to {part:.0%} of its derivative only"
    return f"{told}: give a reference" if part > min(UNRESOLVED, usual) else ""


def _mask(like: Array, at: Array) -> Array:
    """A mask that is true at some places."""
    mask = namespace(like).zeros_like(like)
    mask[at] = True
    return mask


def _strongest(at: Array, claimed: Array, measured: Array) -> tuple[int, ...]:
    """The rows under suspicion, largest gap first, NaN before all."""
    xp = namespace(at)
    gaps = xp.abs(xp.take(claimed, at) - xp.take(measured, at))
    gaps = xp.where(xp.isnan(gaps), xp.inf, gaps)
    order = xp.argsort(-gaps, stable=True)[:KEPT]
    return tuple(on_host(xp.take(at, order)).tolist())


# Differences in the precision of the map itself, and what they cannot tell.


def unsteady(map_: DifferentiableMap) -> str:
    """Why nothing can be measured of a function that changes its value at random; "" if not."""
    centre = evaluate.centre(map_)
    if centre.repeats:
        return ""
    size = rms(centre.value)
    part = rms(centre.noise) / size if size else float("inf")
    if part <= max(NO_ROUNDING, ROUNDINGS * map_.resolution):
        return ""
    return (
        f"the function returns another value every time: two runs at the same input differ by "
        f"{part:.0%}; fix its random state"
    )


def differences(claim: Claim) -> Witness:
    """What differences of the map in its own precision say of its claims."""
    map_, settings = claim.map, claim.settings
    notes: tuple[str, ...] = ()
    unit = directional.format_shown(map_, settings)
    if unit > map_.resolution:
        directional.begin_again(map_, unit)
    if map_.resolution > coarsest_dtype(map_).unit:
        claim = claim.of(map_, settings.at_precision(map_.resolution))
        notes = (in_fewer_bits(map_.resolution),)
    here = judge(claim)
    witness = Witness(differences_in(map_), Source.ITSELF, here, notes=notes)
    return _further(witness, claim)


def differences_in(map_: DifferentiableMap) -> str:
    """Those of the map's own precision, as a source of derivatives."""
    return f"differences in {bits_of(map_.resolution)}"


def formula(oracle: Oracle, claim: Claim) -> Witness:
    """What differences of an oracle say of its own derivative, in the mode of a claim."""
    claim = claim.of(oracle.map, oracle.settings)
    if not oracle.own:
        return _further(Witness(oracle.name, Source.REFERENCE, judge(claim)), claim)
    here = excusing_single(oracle.map, lambda: judge(claim), lambda said: said.findings)
    return _further(Witness(oracle.name, Source.FORMULA, here), claim)


def _further(witness: Witness, claim: Claim) -> Witness:
    """The witness; where the map is not smooth at the point, with what is seen beside it."""
    here = witness.here
    if not here.kinks or here.findings or BESIDE in claim.map.memo:
        return _tested(witness, claim)
    beside, missing = other_points.neighbours(claim, here.kinks, judge)
    return _tested(replace(witness, beside=beside, no_neighbour=missing), claim)


def _tested(witness: Witness, claim: Claim) -> Witness:
    """The witness; of claims that it confirms it tells which input no output depends on."""
    map_, settings = claim.map, claim.settings
    if settings.classic_step or claim.columnwise or map_.derived or not heard(witness).verified:
        return witness
    for position in map_.unreached():
        slot = map_.domain.slots[position]
        if slot.size and not _varies(map_, settings, map_.domain.span(position)):
            told = f"nothing was tested of {slot.name}: no output depends on it"
            return replace(witness, untested=told)
    return witness


def _varies(map_: DifferentiableMap, settings: Settings, span: slice) -> bool:
    """Whether a large move of some inputs alone changes any output."""
    xp = namespace(map_.point)
    index = xp.arange(map_.domain.size)
    inside = (index >= span.start) & (index < span.stop)
    move = xp.where(inside, probes.tangent(map_, settings.seed, 0), 0.0)
    start = evaluate.centre(map_)
    step = directional.plan(map_, settings).top
    for way in (step, -step):
        change = xp.abs(evaluate.value_beside(map_, move, way) - start.value)
        if bool(xp.any(~(change <= start.noise))):
            return True
    return False
