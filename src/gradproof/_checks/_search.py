"""Locating wrong entries of a Jacobian that is too large to be measured whole."""

from __future__ import annotations

from dataclasses import replace

from gradproof._checks import _columns, _entries, _halved, _hunt, _kinks, _located
from gradproof._checks._claims import Claim
from gradproof._checks._found import BARS, count, sorted_findings
from gradproof._checks._hunt import Hunt
from gradproof._checks._outcome import failed, inconclusive, passed
from gradproof._checks._picked import Row, picked
from gradproof._checks._projections import dot_and_rounding, signs_count
from gradproof._checks._screen import Screen, summed
from gradproof._explain.localise import MANY
from gradproof._explain.ranges import rows_by_splitting
from gradproof._map import DifferentiableMap
from gradproof._numerics import measure, probes
from gradproof._numerics.packing import unpacked
from gradproof._records import CheckResult
from gradproof._settings import Settings
from gradproof._space import Array, namespace, norm, on_host

_ROUNDS = 3
_PROOF = 256  # parts of the outputs, of which a projection shows hundredths of rows surely
_OTHER = 2  # number of the cotangent whose signs a projection takes a second look with


def locate(
    map_: DifferentiableMap, settings: Settings, claim: Claim, screen: Screen
) -> CheckResult:
    """Find the wrong entries behind a suspicion and judge those."""
    hunt = Hunt(map_, settings, claim, whole=map_.codomain)
    if screen.suspicious:
        _follow(hunt, screen)
    if hunt.findings:
        return _refuted(hunt, screen)
    notes: tuple[str, ...] = ()
    if screen.blurred:
        if not settings.classic_step or 2 * map_.domain.size > settings.budget // 2:
            return _at_kinks(map_, settings, claim, screen)
        result = _entries.settle_classic(map_, settings, claim, screen.blurred)
        if result is not None:
            return result
        notes = ("rows with wide error bars were judged by plain central differences",)
    return _acquitted(hunt, screen, notes)


def hinted(
    map_: DifferentiableMap, settings: Settings, claim: Claim, screen: Screen
) -> CheckResult | None:
    """The failure that hints led to; None where they led to nothing, for they prove nothing."""
    assert screen.hints is not None  # asked only where there are some
    hunt = Hunt(map_, settings, claim, whole=map_.codomain)
    v = probes.cotangent(map_, settings.seed or 0, 1)
    screen = replace(screen, projected=(screen.hints[0], v))
    _follow(hunt, screen)
    return _refuted(hunt, screen) if hunt.findings else None


def _follow(hunt: Hunt, screen: Screen) -> None:
    """Rounds of: locate the columns of a few rows, measure those, see what they leave open."""
    rows = list(screen.suspects)
    hunt.many_rows = screen.count > len(rows)
    if not rows:
        found, complete = _suspect_rows(hunt, screen)
        rows, hunt.many_rows = list(found), not complete
    if not rows:  # what is wrong, if anything is, is spread over rows too thin to tell
        hunt.many_rows = True
        return
    hunt.map, hunt.claim, rows = picked(hunt.map, hunt.claim, rows)
    first = measure.along(hunt.map, hunt.settings, 0)
    along = hunt.claim.along(first.direction) if screen.suspects else None
    hunt.gap = None if along is None else along - first.estimate.value
    suspects = rows
    for _ in range(_ROUNDS):
        hunt.many_rows = hunt.many_rows or len(rows) > MANY
        hunt.rows = _spread(rows)
        hunt.claimed_rows = []  # the last ones make room for the next
        claimed = (hunt.claim.row(i) for i in hunt.rows)
        hunt.claimed_rows = [Row(row) for row in claimed if row is not None]
        columns = _columns.columns_of(hunt)
        fresh = [j for j in columns if j not in hunt.gaps and j not in hunt.shared][:MANY]
        _hunt.measured(hunt, fresh)
        if not hunt.findings:
            _hunt.measured(hunt, _halved.instead(hunt))
        rows = _unexplained(hunt, suspects, along)
        if not rows or not fresh or hunt.crowded or (hunt.many_rows and hunt.findings):
            break
    hunt.unexplained = rows


def _spread(rows: list[int]) -> list[int]:
    """As many rows as are followed: the strongest, and the first and the last of all."""
    if len(rows) <= MANY:
        return rows
    ends = [i for i in (min(rows), max(rows)) if i not in rows[: MANY - 2]]
    return [*rows[: MANY - len(ends)], *ends]


def _suspect_rows(hunt: Hunt, screen: Screen) -> tuple[tuple[int, ...], bool]:
    """Wrong rows, from projections on ranges of outputs: one VJP each and no evaluation."""
    map_, settings = hunt.map, hunt.settings
    assert screen.projected is not None  # no row is under suspicion, so a projection is
    number, v = screen.projected
    ladder = measure.ladder(map_, settings, number)
    along = measure.along(map_, settings, number)
    xp = namespace(map_.point)
    hinted_above = map_.codomain.size // _PROOF

    def asked(span: slice, other: Array | None = None) -> tuple[float, float]:
        rows = along.estimate.span(span)
        usable = xp.isfinite(rows.error)
        part = unpacked(v[span]) if other is None else unpacked(v[span]) * xp.sign(other[span])
        part = xp.where(usable, part, 0.0)
        gradient = hunt.claim.project(_only(map_.codomain.size, span, part))
        assert gradient is not None  # only a mode that projects is searched this way
        claimed, rounding = dot_and_rounding(map_, gradient, along.probe)
        sums = ladder.of_functionals(part[None, :], span, signs=signs_count(map_))
        whole = (float(sums.value[0]), float(sums.error[0]))
        measured, error = summed(whole, part, rows)
        size = norm(part * xp.where(usable, rows.value, 0.0))
        # Of a long range a gap is a hint, if that is what led here, and no more.
        bars = 1.0 if screen.hints and span.stop - span.start > hinted_above else BARS
        return claimed - measured, bars * error + 1e-10 * size + rounding

    def residual(low: int, high: int) -> tuple[float, float]:
        span = slice(low, high)
        found = asked(span)
        # Beside wide bars the gaps of many outputs may cancel: other signs are asked for, too.
        if abs(found[0]) > found[1] or high - low == 1 or not signs_count(map_):
            return found
        return asked(span, probes.cotangent(map_, settings.seed or 0, _OTHER))

    start = [(span.start, span.stop) for span in screen.hints[1]] if screen.hints else []
    return rows_by_splitting(residual, map_.codomain.size, start)


def _only(size: int, span: slice, values: Array) -> Array:
    """A vector that is zero outside a span."""
    vector = namespace(values).zeros(size)
    vector[span] = values
    return vector


def _unexplained(hunt: Hunt, suspects: list[int], whole: Array | None) -> list[int]:
    """Rows whose residual the measured columns do not account for; `whole` is J u as claimed."""
    first = measure.along(hunt.map, hunt.settings, 0)
    rows = hunt.rows if whole is None else suspects
    xp = namespace(first.probe)
    at = xp.asarray(rows)
    claimed = _hunt.claimed(hunt, first.direction) if whole is None else xp.take(whole, at)
    residual = start = claimed - xp.take(first.estimate.value, at)
    for j, gap in hunt.gaps.items():
        residual = residual - xp.take(gap, at) * float(first.probe[j])
    for gap in hunt.grouped:
        residual = residual - xp.take(gap, at)
    bar = 4 * xp.take(first.estimate.error, at) + 1e-6 * xp.abs(start)
    bar = bar if isinstance(hunt.brief, float) else bar + xp.take(hunt.brief, at)
    open_ = ~(xp.abs(residual) <= bar)
    return [row for row, still in zip(rows, on_host(open_), strict=True) if still]


def _refuted(hunt: Hunt, screen: Screen) -> CheckResult:
    unique = {(str(f.output), str(f.input)): f for f in hunt.findings}
    kept = sorted_findings(list(unique.values()))
    size = f"{hunt.whole.size:,} x {hunt.map.domain.size:,} Jacobian"
    summary = f"{count(len(unique), 'wrong entry')} located in the {size}"
    if hunt.crowded:
        summary = f"rows of the {size} are wrong in many columns, {kept[0].output} first"
        kept = tuple(replace(found, kind="row") for found in kept)
    elif hunt.many_rows:
        told = f"{max(screen.count, len(screen.suspects)):,}" if screen.suspects else "many"
        summary = f"{told} rows of the {size} are wrong"
        if not hunt.unexplained and len({str(found.input) for found in kept}) == 1:
            summary += f", all with respect to {kept[0].input}"
    return _located.explained(hunt, screen, failed(hunt.claim.check, summary, kept))


def _acquitted(hunt: Hunt, screen: Screen, notes: tuple[str, ...]) -> CheckResult:
    """No measured entry is beyond its tolerance: believed if that explains the suspicion."""
    check = hunt.claim.check
    if screen.suspicious:
        note = "a projection differs, but every entry located is within its tolerance"
        explained = not hunt.unexplained and not hunt.many_rows and not hunt.crowded
        if not explained and not hunt.settings.classic_step:
            return inconclusive(check, "a projection differs, but no wrong entry could be located")
        notes = (*notes, note)
    return passed(
        check,
        f"{hunt.whole.size:,} x {hunt.map.domain.size:,} Jacobian, the entries under "
        "suspicion measured",
        resolution=screen.resolution,
        notes=notes,
    )


def _at_kinks(
    map_: DifferentiableMap, settings: Settings, claim: Claim, screen: Screen
) -> CheckResult:
    """Rows that could not be resolved: not differentiable, as far as that is what they are."""
    if settings.classic_step:
        return _blurred(map_, claim, screen)
    kinks, open_ = _kinks.along_probe(map_, settings, claim, screen.blurred)
    if wrong := tuple(_kinks.finding_of(claim.check, kink) for kink in kinks if not kink.within):
        summary = f"claims at {count(len(wrong), 'entry')} lie outside the one-sided slopes"
        return failed(claim.check, summary, sorted_findings(wrong), kinks=kinks)
    if open_:
        return replace(_blurred(map_, claim, replace(screen, blurred=open_)), kinks=kinks)
    return passed(
        claim.check,
        f"{map_.codomain.size:,} x {map_.domain.size:,} Jacobian, not differentiable in "
        f"{len(screen.blurred):,} outputs, the others verified to {screen.resolution:.0e}",
        resolution=screen.resolution,
        kinks=kinks,
    )


def _blurred(map_: DifferentiableMap, claim: Claim, screen: Screen) -> CheckResult:
    place = map_.codomain.locate(screen.blurred[0])
    why = map_.memo.get(("raised",))
    return inconclusive(
        claim.check,
        f"{len(screen.blurred):,} of {map_.codomain.size:,} outputs could not be resolved, "
        f"{place} first{': ' + why if why else ''}; the others agree to {screen.resolution:.0e}",
        resolution=screen.resolution,
    )
