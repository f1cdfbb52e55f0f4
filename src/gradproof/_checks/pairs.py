"""What second derivatives must obey, whatever their values: no differences.

With a and b tangents, v a cotangent and D^2 F[a, b] the second derivative of F along both,
v . D^2 F[a, b] is one number, however it is computed: reverse over reverse and forward over
reverse give H a with H the Hessian of <v, F>, reverse over forward gives H a from J a, forward
over forward gives D^2 F[a, b] itself. It is symmetric in a and b, and linear in v.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from gradproof._checks.backward import PAIRS
from gradproof._checks.extremes import CONSTANT, HOT
from gradproof._data.frames import shortened
from gradproof._data.records import CheckResult, Finding
from gradproof._data.settings import Settings
from gradproof._data.space import Array, dot, namespace, norm
from gradproof._data.vectors import finite, largest_size
from gradproof._judge.claims import Forward
from gradproof._judge.decide import Bar, Decision, Tolerance, decide, of_second_order
from gradproof._judge.outcome import failed, identity, passed
from gradproof._maps.contract import DifferentiableMap, Unsupported
from gradproof._measure import probes
from gradproof._measure.evaluate import centre
from gradproof._verdict import second as _second
from gradproof._verdict.agree import Pair, differences

_A, _B = HOT, CONSTANT  # whose sum is not 1 either
_WORDS = {pair: pair.replace("_", " ") for pair in PAIRS} | {"second_order": "reverse over reverse"}


def check_symmetry(map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """<b, H a> = <a, H b>, H from the double backward."""
    name = "symmetry"
    map_ = _second.in_double(map_, settings)
    backward = _aligned(map_, settings)
    a, b = _tangents(map_, settings)
    of_a, of_b = (backward.vjp(each)[: map_.domain.size] for each in (a, b))
    left, right = dot(b, of_a), dot(a, of_b)
    _require_numbers((left, right))
    found = _decided(map_, settings, (left, right), norm(b * of_a) + norm(a * of_b))
    if found.right:
        return passed(name, "the Hessian of the double backward is symmetric")
    said = (
        f"the Hessian H of <v, F> is not symmetric: <b, H a> is {left:.6g}, <a, H b> is {right:.6g}"
    )
    finding = identity(name, found, said)
    return failed(name, "the double backward claims a Hessian that is not symmetric", (finding,))


def check_linearity(map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """The double backward is linear in both of its cotangents."""
    name = "second_linearity"
    map_ = _second.in_double(map_, settings)
    first = _second.of_backward(map_, settings)
    v, other = (_second.cotangent(map_, settings, number) for number in (0, 1))
    w, w_other = (probes.cotangent(first, settings.seed, number) for number in (0, 1))
    of_w = first.vjp(w)
    floor = of_second_order(map_, 0.0, largest_size(_values(map_, v)))
    of_both = first.vjp(_A * w + _B * w_other), of_w, first.vjp(w_other)
    findings = _unequal(first, of_both, floor, "its cotangent")
    mixed, second = (map_.derivative(each) for each in (_A * v + _B * other, other))
    part = map_.domain.size
    kept = namespace(of_w).arange(of_w.shape[0]) < part
    zero = namespace(of_w).zeros_like(of_w)
    of_mixed, of_first, of_second = (
        namespace(of_w).where(kept, each.vjp(w), zero) if each.codomain.size == w.shape[0] else zero
        for each in (mixed, first, second)
    )
    of_both = of_mixed, of_first, of_second
    findings += _unequal(first, of_both, floor, "the cotangent of the backward")
    if not findings:
        return passed(name, "the double backward is linear in both cotangents")
    return failed(name, "the double backward is not linear in its cotangents", findings)


def _unequal(
    map_: DifferentiableMap, pulled: tuple[Array, Array, Array], floor: float, which: str
) -> tuple[Finding, ...]:
    """Findings where the first of three gradients is not 4 times the second less the third."""
    got, one, two = pulled
    terms = (_A * one, _B * two)
    what = f"double backward of 4 v - w, in {which}, against 4 and -1 times those of v and w"
    # In the units of each entry: a derivative of the gradient that is zero by cancellation.
    quiet = floor / (probes.scales_of(map_) * max(probes.largest_scales(map_)))
    return differences(
        "second_linearity",
        map_,
        Pair(got, terms[0] + terms[1], what, terms),
        Tolerance(quiet),
        kind="linearity",
    )


def check_pairs(map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """The number v . D^2 F[a, b] is the same in every pair of modes there is."""
    name = "pairs"
    map_ = _second.in_double(map_, settings)
    found: dict[str, float] = {}
    size, reasons = 0.0, []
    for pair in PAIRS:
        try:
            found[pair], terms = _number(pair, map_, settings)
        except Unsupported as missing:
            reasons.append(f"{_WORDS[pair]}: {missing.reason}")
            continue
        size = max(size, terms)
    if len(found) < 2:
        raise Unsupported(shortened(f"fewer than two pairs of modes exist; {reasons[0]}"))
    _require_numbers(found.values())
    extremes = max(found.values()), min(found.values())
    decided = _decided(map_, settings, extremes, size)
    if decided.right:
        named = ", ".join(_WORDS[pair] for pair in found)
        return passed(name, f"one second derivative in {len(found)} pairs of modes: {named}")
    return failed(
        name,
        "pairs of modes claim different second derivatives",
        (_disagreement(name, found, decided),),
    )


def _require_numbers(found: Iterable[float]) -> None:
    """Unsupported where no pair claims a number: the rows that measure have more to say of that.

    Where some do, those that do not disagree with them.
    """
    if not any(math.isfinite(number) for number in found):
        raise Unsupported("the second derivative is claimed to be no number here")


def _disagreement(name: str, found: Mapping[str, float], decided: Decision) -> Finding:
    """Which pair is the odd one out, where there is one."""
    numbers = sorted(found.values())
    middle = numbers[len(numbers) // 2] if len(numbers) > 2 else found[next(iter(found))]
    odd = max(found, key=lambda pair: abs(found[pair] - middle))
    said = ", ".join(f"{_WORDS[pair]} {number:.6g}" for pair, number in found.items())
    apart = replace(decided, claimed=found[odd], measured=middle)
    return identity(name, apart, f"v . D^2 F[a, b] is not one number: {said}")


def _decided(
    map_: DifferentiableMap, settings: Settings, numbers: tuple[float, float], size: float
) -> Decision:
    """Two numbers that are one, made of factors of this size."""
    value = norm(_values(map_, _second.cotangent(map_, settings)))
    return decide(*numbers, Bar(), of_second_order(map_, size, value))


def _values(map_: DifferentiableMap, v: Array) -> Array:
    return v * finite(centre(map_).value)


def _tangents(map_: DifferentiableMap, settings: Settings) -> tuple[Array, Array]:
    return _second.tangent(map_, settings), probes.tangent(map_, settings.seed, 1)


def _aligned(map_: DifferentiableMap, settings: Settings) -> DifferentiableMap:
    """(x, v) -> J(x)^T v, where its value has the coordinates of x."""
    backward = _second.of_backward(map_, settings)
    if backward.codomain.size != map_.domain.size:
        raise Unsupported("an input has no gradient at all")
    return backward


def _number(pair: str, map_: DifferentiableMap, settings: Settings) -> tuple[float, float]:
    """What a pair of modes makes of v . D^2 F[a, b], and the size of its terms."""
    made, mode = PAIRS[pair]
    a, b = _tangents(map_, settings)
    if made is _second.of_backward:  # at v: J^T v moves along a, and is held against b
        derivative, moved, held = _aligned(map_, settings), a, b
    else:  # at a: J a moves along b, and is held against v
        derivative, moved = made(map_, settings), b
        held = _second.cotangent(map_, settings)
        if derivative.codomain.size != map_.codomain.size:
            raise Unsupported("an output has no tangent at all")
    if mode is Forward:
        found, other = derivative.jvp(_extended(moved, derivative.domain.size)), held
    else:
        found, other = derivative.vjp(held)[: map_.domain.size], moved
    return dot(found, other), norm(found * other)


def _extended(u: Array, size: int) -> Array:
    """u, then zeros: x moves, what the derivative is multiplied with does not."""
    xp = namespace(u)
    return xp.concat([u, xp.zeros(size - u.shape[0])])
