"""Cotangents and tangents as they are not drawn: zeros among them, very large, very small.

Probes are dense, of the size of 1 and of few digits: each sees the whole Jacobian. A derivative may
be right for those alone. So one more is taken apart: J^T (2 v - w + 4 e + 3 q + 5 z) is asked in
two parts, 2^20 times as large and as small, each with half of its entries exactly zero
(`probes.Split`), and what comes of them must add up to what is claimed of each of the five. No part
has both sizes: where rows are mixed, the large ones would hide what becomes of the small ones.

w is constant on each output: 1, which is what a loss is asked for and many a rule has a branch for.
e has a single entry, and is asked as large as the large part, with a sign that is not that of the
part's largest entry: a clamp may be on one side, and a single number has one sign. q is w / -4, and
z is 1 in one row, or column, and -1 in the next. Where memory layouts are tried w and z are handed
over with stride 0, which saves a VJP each: if the sum holds, those are right too. So are long
parts, in other layouts. J (2 u - s w + 4 e) is asked likewise, w being 1 throughout, and s the size
of the smallest input.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from gradproof._data.frames import raised
from gradproof._data.settings import Settings
from gradproof._data.space import Array, namespace, norm
from gradproof._data.vectors import largest_size
from gradproof._judge import claim_error
from gradproof._judge.claims import constant_gradient, gradient, pulled, tangent
from gradproof._maps.contract import DifferentiableMap
from gradproof._measure import directional, probes
from gradproof._measure.sizes import ROUNDINGS

# Their sum is not 1, so that an added constant shows too.
DENSE, CONSTANT, HOT, CANCELLING, EQUAL = 2.0, -1.0, 4.0, 5.0, 3.0
EXPANDED = "expanded"
LAID = (CONSTANT, CANCELLING)  # weights of what is handed over with stride 0, where that is asked
AGREES = ("layouts agree",)  # key of the memo: layouts of a cotangent with which the sum holds
_PARTS, _PART = "parts", "part"  # likewise
_USUAL = "parts of the usual size"  # key of the memo, with whether they are tangents
_TERMS = "terms of the whole"  # likewise
_SIZE = "size of a single entry"  # likewise
LESS = (8.0, 64.0, 512.0)  # how much smaller a part is asked again
Term = tuple[float, Array]  # a weight, and what is claimed
Special = Sequence[tuple[float, str, Array]]  # weights, layouts that are not as usual, and probes
_DENSE_AND_HOT = (probes.cotangent, probes.one_hot), (probes.tangent, probes.one_hot_tangent)


def expands(map_: DifferentiableMap, settings: Settings) -> bool:
    """Whether a cotangent with stride 0 is handed over in this run."""
    return "layout" in settings.checks and EXPANDED in map_.layouts()


def expanded_terms(map_: DifferentiableMap, settings: Settings) -> list[Term] | None:
    """J^T w and J^T z, handed over with stride 0; None where that is not asked, or raises."""
    try:
        return laid_terms(map_, settings, EXPANDED) if expands(map_, settings) else None
    except Exception:  # Unsupported, or whatever the user's backward raises: `layout` says it
        return None


def laid_terms(map_: DifferentiableMap, settings: Settings, layout: str = "") -> list[Term]:
    """J^T w and J^T z, of those that are asked, in that memory layout or as any other."""
    found = []
    for weight, _, probe in _special(map_, settings, tangents=False):
        if weight == CONSTANT and not layout:
            found.append((weight, constant_gradient(map_, settings)))
        elif weight in LAID:
            found.append((weight, pulled(map_, probe, layout)))
    return found


def dense_layouts(map_: DifferentiableMap, settings: Settings) -> tuple[str, ...]:
    """Stacks of layouts in which the two parts are handed over, where a VJP is dear."""
    if "layout" not in settings.checks or not directional.large(map_):
        return ()
    return tuple(stack for stack in map_.layouts() if EXPANDED not in stack)[:2]


def is_hot(map_: DifferentiableMap) -> bool:
    """Whether a cotangent with a single entry is worth a VJP of its own."""
    return map_.codomain.size > 1 and not directional.large(map_)


def _special(map_: DifferentiableMap, settings: Settings, tangents: bool) -> Special:
    """The probes that a rule may have a branch for.

    One of which two entries cancel is no drop-in's: these ask no more than they must.
    """
    seed = settings.seed
    found: list[tuple[float, str, Array]] = []
    if tangents:
        if not directional.large(map_):
            # It may cancel, as that of a softmax does, and its rounding is not to drown u, which is
            # of the size of the inputs.
            size = min((scale for scale in probes.largest_scales(map_) if scale), default=1.0)
            found.append((CONSTANT * size, "", probes.ones(map_)))
            if map_.domain.size:
                found.append((HOT, "", _single(map_, seed, found, tangents=True)))
        return found
    hot, layout = is_hot(map_), EXPANDED if expands(map_, settings) else ""
    cancels = hot and settings.other_inputs
    if map_.codomain.size == 1 or cancels or layout:
        found.append((CONSTANT, layout, probes.constant_cotangent(map_, seed)))
    if hot:
        found.append((EQUAL, "", probes.equal_cotangent(map_, seed)))
    if cancels:
        found.append((CANCELLING, layout, probes.cancelling(map_, seed)))
    if map_.codomain.size and not directional.large(map_):
        found.append((HOT, "", _single(map_, seed, found, tangents=False)))
    return found


def _single(map_: DifferentiableMap, seed: int, others: Special, *, tangents: bool) -> Array:
    """A probe of one entry, whose sign is not that of the largest entry of the large part."""
    dense, hot = _DENSE_AND_HOT[tangents]
    rest, single = DENSE * dense(map_, seed, 0), hot(map_, seed)
    for weight, _, probe in others:
        rest = rest + weight * probe
    most = namespace(rest).argmax(abs(rest) * probes.shares(map_, seed, tangents=tangents))
    return single if (rest[most] > 0) == (single.sum() > 0) else -single


def terms(map_: DifferentiableMap, settings: Settings, *, tangents: bool = False) -> list[Term]:
    """Weights and what is claimed, of the probe whose parts are asked; less what has stride 0."""
    key = (_TERMS, tangents)
    if key not in map_.memo:
        asked = _pushed if tangents else _pulled
        map_.memo[key] = asked(map_, settings, _special(map_, settings, tangents))
    claimed = tangent if tangents else gradient
    return [(DENSE, claimed(map_, settings, 0)), *map_.memo[key]]


def _pushed(map_: DifferentiableMap, settings: Settings, special: Special) -> list[Term]:
    """Weights and J u of the tangents among them."""
    return [
        (weight, _claimed(map_, settings, weight, probe, tangents=True))
        for weight, _, probe in special
    ]


def _pulled(map_: DifferentiableMap, settings: Settings, special: Special) -> list[Term]:
    """Weights and J^T v of the cotangents among them, each by itself; less what has stride 0."""
    found = [
        (weight, _claimed(map_, settings, weight, probe))
        for weight, _, probe in special
        if weight not in LAID
    ]
    return found if expands(map_, settings) else [*laid_terms(map_, settings), *found]


def _claimed(
    map_: DifferentiableMap,
    settings: Settings,
    weight: float,
    probe: Array,
    layout: str = "",
    *,
    tangents: bool = False,
) -> Array:
    """What is claimed of one of the special probes; of a single entry as large as the parts are."""
    ask = map_.jvp if tangents else partial(pulled, map_, stack=layout)
    if weight == HOT and (_USUAL, tangents) not in map_.memo:
        if tangents:  # whose parts are as large as what is claimed of these lets them be
            known = tangent(map_, settings, 0)
            sizes = HOT**2 * largest_size(probe), HOT**2 * largest_size(known)
            size = probes.reach(map_, sizes, directional.resolution(map_))[0]
        else:
            factor = parts_of(map_, settings).split.factors[0]
            size = 2.0 ** math.floor(math.log2(abs(factor)))
        with suppress(Exception):  # refused for its size, it is asked of the usual one
            found = ask(size * probe) / size
            map_.memo[_SIZE, tangents] = size
            return found
    return ask(probe)


@dataclass(frozen=True)
class Parts:
    """Two parts of a probe, and what is claimed of them."""

    map_: DifferentiableMap  # the map
    split: probes.Split  # the probe
    pull: Callable[[Array], Array]  # what is claimed of a part
    special: Special  # of what the probe is made beside the dense one

    def of(self, number: int, stack: str = "") -> Array:
        """What is claimed of a part, over its factor; of the first it is kept, for `batched`.

        The part of a cotangent may be in a stack of memory layouts.
        """
        key = (_PART, self.split.tangents)
        if number == 0 and key in self.map_.memo:
            return self.map_.memo[key]
        pull = partial(self.map_.vjp_layout, layout=stack) if stack else self.pull
        found = pull(self.split.part(number)) / self.split.factors[number]
        if number == 0 and not directional.large(self.map_):
            self.map_.memo[key] = found
        return found

    def pushed(self) -> tuple[Array, Array]:
        """`of` both parts of a tangent."""
        large, small = (self.map_.jvp(self.split.part(number)) for number in (0, 1))
        return self.over_factors((large, small))

    def over_factors(
        self, claimed: tuple[Array, Array], *, keep: bool = True
    ) -> tuple[Array, Array]:
        """`of` both parts, from what is claimed of them; the first is kept where it is as usual."""
        large, small = claimed[0] / self.split.factors[0], claimed[1] / self.split.factors[1]
        if keep:
            self.map_.memo[_PART, self.split.tangents] = large
        return large, small

    def rounding(self, number: int) -> Array:
        """What rounding does to `of` that part."""
        factor = self.split.factors[number]
        part, known = self.split.part(number), factor * self.of(number)
        found = claim_error.rounding(self.map_, self.pull, part, known) / abs(factor)
        if number == 0 and self.map_.resolution > directional.DOUBLE:
            found += self._lost(part, factor)
            for weight, _, probe in self.special:
                size = self.map_.memo.get((_SIZE, self.split.tangents), 1.0)
                if weight == HOT and size > 1:
                    found += weight * self._lost(size * probe, size)
        return found

    def _lost(self, part: Array, factor: float) -> Array:
        """What a large probe loses in few bits, and one of an eighth of its size an eighth of.

        The derivative of the matrix exponential is an exponential in which the probe stands, the
        less exact the larger that is. A clamp, or a format that is too small, begins somewhere:
        below nothing is lost, and above nearly all. The entries of a part differ by less than these
        sizes do, so that it is never in proportion. What a square of the probe adds is: but of the
        usual size rounding loses a few units in the last place, and a square as much as there is.
        """
        usual = self.pull(part / factor)
        gaps = [self.pull(part / less) * (less / factor) - usual for less in (1.0, *LESS)]
        whole = norm(gaps[0])
        of_usual = ROUNDINGS * self.map_.resolution * norm(usual)
        most = 2 * claim_error.HONEST  # times as large is the error of one of two runs
        as_much = whole <= abs(factor) * of_usual and all(
            whole / most <= less * norm(gap) <= most * whole
            for less, gap in zip(LESS, gaps[1:], strict=True)
        )
        return 2.0 * abs(gaps[0]) if as_much else 0.0 * usual


def both(make: Callable[[], Parts]) -> tuple[Parts, tuple[Array, Array], str]:
    """Two parts and what is claimed of them; of the usual size, and why, where others are refused.

    A rule may refuse a cotangent for its size, as PyTorch's of eigenvectors do, which test it with
    an absolute tolerance. It claims nothing wrong then. What it raises of the usual size it raises.
    """
    parts = make()
    try:
        return parts, (parts.of(0), parts.of(1)), ""
    except Exception as error:  # whatever the user's rule raises
        map_, tangents = parts.map_, parts.split.tangents
        for what in (_PART, _PARTS):
            map_.memo.pop((what, tangents), None)
        map_.memo[_USUAL, tangents] = True
        refused = f"the sizes {parts.split.words} were refused: {raised(error)}"
    usual = make()
    return usual, (usual.of(0), usual.of(1)), refused


def parts_of(map_: DifferentiableMap, settings: Settings, *, tangents: bool = False) -> Parts:
    """2 v - w + 4 e + 3 q + 5 z, or 2 u - s w + 4 e, or what of it is asked, in two parts.

    They are made once: checks that follow ask for the same. Long vectors are made anew.
    """
    if directional.large(map_):
        return _made(map_, settings, tangents)
    key = (_PARTS, tangents)
    if key not in map_.memo:
        map_.memo[key] = _made(map_, settings, tangents)
    found: Parts = map_.memo[key]
    return found


def _made(map_: DifferentiableMap, settings: Settings, tangents: bool) -> Parts:
    seed, large = settings.seed, directional.large(map_)
    special = _special(map_, settings, tangents)
    dense = probes.tangent if tangents else probes.cotangent

    def whole() -> Array:
        found = DENSE * dense(map_, seed, 0)
        for weight, _, probe in special:
            found += weight * probe
        return found

    kept = None if large else whole()
    sizes = None
    if (_USUAL, tangents) not in map_.memo:
        largest = largest_size(whole() if kept is None else kept)
        if tangents:
            known = sum(abs(w) * largest_size(x) for w, x in terms(map_, settings, tangents=True))
        else:
            known = largest * largest_size(gradient(map_, settings, 0)) if map_.domain.size else 0.0
        sizes = largest, known
    split = probes.split(
        map_,
        whole if kept is None else lambda: 1.0 * kept,
        sizes,
        seed=seed,
        unit=directional.resolution(map_),
        tangents=tangents,
    )
    return Parts(map_, split, map_.jvp if tangents else map_.vjp, special)


def terms_at_once(map_: DifferentiableMap, settings: Settings, equal: Array | None) -> list[Term]:
    """`terms`, those of stride 0 among them; `equal` is what is claimed of w / -4, if known."""
    terms, usual = [(DENSE, gradient(map_, settings, 0))], list[Term]()
    for weight, layout, probe in parts_of(map_, settings).special:
        known = equal if weight == EQUAL else None
        if known is None:
            known = _claimed(map_, settings, weight, probe, layout)
        term = weight, known
        terms.append(term)
        if not layout:
            usual.append(term)
    map_.memo[_TERMS, False] = usual
    return terms


def parts_at_once(
    map_: DifferentiableMap, settings: Settings, stacks: Sequence[str]
) -> tuple[tuple[Array, Array], Array | None]:
    """What is claimed of both parts, and J^T v, of a map that is not large.

    `stacks` are memory layouts of the two parts and of v, which is left out where there are two.
    """
    parts = parts_of(map_, settings)
    large = pulled(map_, parts.split.part(0), stacks[0])
    small = pulled(map_, parts.split.part(1), stacks[1])
    again = None
    if stacks[2:]:
        again = pulled(map_, probes.cotangent(map_, settings.seed, 0), stacks[2])
    return parts.over_factors((large, small), keep=not stacks[0]), again
