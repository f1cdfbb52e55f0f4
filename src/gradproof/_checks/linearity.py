"""J^T is linear in its cotangent, and J in its tangent, whatever their sizes and zeros."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gradproof._checks import extremes
from gradproof._data.records import CheckResult, Finding, Verdict
from gradproof._data.settings import DOUBLE, Settings
from gradproof._data.space import Array, namespace, norm
from gradproof._data.vectors import finite
from gradproof._judge import claim_error
from gradproof._judge.claims import Backward, Forward, gradient
from gradproof._judge.decide import Tolerance, half_the_digits
from gradproof._judge.outcome import failed, passed
from gradproof._maps.contract import DifferentiableMap, Raised, Unsupported
from gradproof._measure import probes
from gradproof._verdict.agree import Pair, cancelled, differences, same

_NAME, LIKEWISE = "linearity", "; forward mode likewise"


@dataclass(frozen=True)
class NotLinear:
    """Evidence: a backward whose gradients of the parts of a cotangent do not add up."""

    map: DifferentiableMap  # whose backward it is
    probe: Array  # a cotangent: dense, of the size of 1, of few digits
    gradient: Array  # that is claimed for it
    split: probes.Split  # the parts that were asked


def check(map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """What is claimed of two parts of a probe adds up to what is claimed of the whole.

    A backward that ignores its cotangent fails, and one that flushes, clamps, rounds it, or skips
    its zeros. Of a forward mode without a backward, or that alone is checked, it is asked by
    itself: unit tangents do not tell a square from its root.
    """
    if Forward.check in settings.checks and Backward.check not in settings.checks:
        return _forward(map_, settings)
    try:
        result = _backward(map_, settings)
    except Raised:
        raise
    except Unsupported:
        if not has_forward(map_):
            raise
        return _forward(map_, settings)
    if has_forward(map_):
        result = _joined(result, _forward(map_, settings))
    return result


def has_forward(map_: DifferentiableMap) -> bool:
    """Whether forward mode was asked, and answered."""
    return ("tangent", 0) in map_.memo


def _backward(map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """J^T of a cotangent that is made of several, in two parts, against J^T of each."""
    if (long := _in_layouts(map_, settings)) is not None:
        return passed(_NAME, linear_in(long))
    parts, got, refused = extremes.both(lambda: extremes.parts_of(map_, settings))
    terms = extremes.terms(map_, settings)
    found = _laid_otherwise(map_, settings, parts, got, terms)
    gv = gradient(map_, settings, 0)
    if found and _is_rounding(map_, settings, (gv, *got)):
        return passed(_NAME, "the backward is nothing but rounding")
    if not found:
        notes = (refused,) if refused else ()
        return passed(_NAME, linear_in(parts, hot=extremes.is_hot(map_)), notes=notes)
    ignores = norm(got[0] * parts.split.factors[0] - gv) <= half_the_digits(map_) * norm(gv)
    summary = f"the backward {'ignores' if ignores else 'is not linear in'} the cotangent"
    evidence = NotLinear(map_, probes.cotangent(map_, settings.seed, 0), gv, parts.split)
    return failed(_NAME, summary, found, evidence=evidence)


def _in_layouts(map_: DifferentiableMap, settings: Settings) -> extremes.Parts | None:
    """Long parts, which are linear, and right in other memory layouts; None where that is open.

    What is handed over in layouts is the parts, and what has stride 0.
    """
    stacks = extremes.dense_layouts(map_, settings)
    laid = extremes.expanded_terms(map_, settings) if stacks else None
    if laid is None:
        return None
    parts, terms = extremes.parts_of(map_, settings), extremes.terms(map_, settings)
    try:
        one, other = (parts.of(k, (*stacks, "")[k]) for k in (0, 1))
    except Exception:  # whatever the user's rule raises: what is asked next tells where
        return None
    pair = _pair(parts, (one, other), [*terms, *laid])
    if not same(map_, pair, _tolerance(settings, parts)):
        return None
    map_.memo[extremes.AGREES] = frozenset((*stacks, extremes.EXPANDED))
    return parts


def linear_in(parts: extremes.Parts, *, hot: bool = False) -> str:
    """What is said of a backward that is linear; `hot` where one entry was asked by itself."""
    single = " and of one entry" if hot else ""
    return f"the backward is linear in cotangents of {parts.split.words}, with zeros{single}"


def adds_up(
    map_: DifferentiableMap,
    settings: Settings,
    parts: extremes.Parts,
    got: tuple[Array, Array],
    terms: Sequence[tuple[float, Array]],
) -> bool:
    """Whether what is claimed of two parts is that of the terms, up to rounding as it is usual.

    What is no number in one of them must be none in all.
    """
    xp, pair = namespace(got[0]), _pair(parts, got, terms)
    if xp.any(xp.isnan(pair.got) | xp.isnan(pair.expected)):
        missing = xp.isnan(xp.stack([*got, *[each for _, each in terms]]))
        if xp.any(missing != missing[:1, :]):
            return False
    return same(map_, pair, _tolerance(settings, parts))


def _pair(
    parts: extremes.Parts,
    got: tuple[Array, Array],
    terms: Sequence[tuple[float, Array]],
    what: str = "",
    excuse: Callable[[], Array | float] = float,
) -> Pair:
    """What is claimed of the two parts, and of the terms."""
    (factor, one), *others = terms
    expected, sizes = factor * one, [one, finite(got[0]), finite(got[1])]
    for weight, each in others:
        if weight == -1.0:  # of the longest vectors the only one
            expected -= each
        else:
            expected += weight * each
        sizes.append(each)
    forward = parts.split.tangents
    return Pair(got[0] + got[1], expected, what, sizes, forward=forward, excuse=excuse)


def _laid_otherwise(
    map_: DifferentiableMap,
    settings: Settings,
    parts: extremes.Parts,
    got: tuple[Array, Array],
    terms: list[tuple[float, Array]],
) -> tuple[Finding, ...]:
    """Findings, with stride 0 where that is asked, and as usual on a gap only.

    Where the sum holds only with what rounding is measured to do to all of it, which in few bits is
    as much as one term, it does not show that what has stride 0 is right: `layout` compares that.
    """
    if not extremes.expands(map_, settings):
        return _findings(map_, settings, parts, got, terms)
    laid = extremes.expanded_terms(map_, settings)
    if laid is not None and adds_up(map_, settings, parts, got, [*terms, *laid]):
        map_.memo[extremes.AGREES] = frozenset((extremes.EXPANDED,))
        return ()
    if laid is not None and not _findings(map_, settings, parts, got, [*terms, *laid]):
        return ()
    every = [*terms, *extremes.laid_terms(map_, settings)]
    return _findings(map_, settings, parts, got, every)


def _findings(
    map_: DifferentiableMap,
    settings: Settings,
    parts: extremes.Parts,
    got: tuple[Array, Array],
    terms: Sequence[tuple[float, Array]],
) -> tuple[Finding, ...]:
    """Entries in which the two parts do not add up to the terms."""
    forward = parts.split.tangents
    # Each term is rounded by itself, before it is multiplied. In few bits the factor on honest
    # errors has room for that.
    more = sum(abs(weight) for weight, _ in terms) - 1 if map_.resolution < DOUBLE else 0.0

    def excuse() -> Array:
        usual = claim_error.tangents if forward else claim_error.gradients
        each_term = usual(map_) + (0.0 if forward else cancelled(map_))
        return parts.rounding(0) + parts.rounding(1) + more * each_term

    probe = "tangent" if forward else "cotangent"
    what = f"two parts of a {probe}, of {parts.split.words}, against the whole"
    return differences(
        _NAME,
        map_,
        _pair(parts, got, terms, what, excuse),
        _tolerance(settings, parts),
        kind="linearity of forward mode" if forward else "",
        most=3 if forward else 8,
    )


def _tolerance(settings: Settings, parts: extremes.Parts) -> Tolerance:
    """Over the factor of the small part, an offset is a million times as large."""
    return Tolerance(settings.atol + parts.split.lost, settings.slack)


def _is_rounding(map_: DifferentiableMap, settings: Settings, found: Sequence[Array]) -> bool:
    """Whether all that is claimed is below what the best measurement tells from zero."""
    seed = settings.seed
    v = abs(probes.cotangent(map_, seed, 0)) + abs(probes.constant_cotangent(map_, seed))
    return claim_error.below_noise(map_, settings, v, found)


def forward_adds_up(map_: DifferentiableMap, settings: Settings) -> bool:
    """The same of forward mode; False where that was not asked."""
    if not has_forward(map_):
        return False
    parts = extremes.parts_of(map_, settings, tangents=True)
    terms = extremes.terms(map_, settings, tangents=True)
    return adds_up(map_, settings, parts, parts.pushed(), terms)


def _forward(map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """J (2 u - s w + 4 e), in two parts, against 2 J u - s J w + 4 J e."""
    parts, got, refused = extremes.both(lambda: extremes.parts_of(map_, settings, tangents=True))
    terms = extremes.terms(map_, settings, tangents=True)
    found = _findings(map_, settings, parts, got, terms)
    if found and _is_faint(map_, settings, (*(each for _, each in terms), *got)):
        found = ()
    if found:
        return failed(_NAME, "forward mode is not linear in the tangent", found)
    notes = (f"forward mode: {refused}",) if refused else ()
    return passed(_NAME, "forward mode is linear in the tangent", notes=notes)


def _is_faint(map_: DifferentiableMap, settings: Settings, found: Sequence[Array]) -> bool:
    """Likewise of tangents."""
    bars = claim_error.bars(map_, settings)
    return all(bool(namespace(bars).all(abs(each) <= bars)) for each in found)


def _joined(backward: CheckResult, forward: CheckResult) -> CheckResult:
    """One result of both modes."""
    if forward.verdict is Verdict.PASSED and backward.verdict is Verdict.PASSED:
        notes = (*backward.notes, *forward.notes)
        return passed(_NAME, f"{backward.summary}{LIKEWISE}", notes=notes)
    if forward.verdict is Verdict.PASSED:
        return backward
    if backward.verdict is Verdict.PASSED:
        return forward
    summary = f"{backward.summary}; {forward.summary}"
    findings = (*backward.findings, *forward.findings)
    return replace(backward, summary=summary, findings=findings)
