"""Causes of how a backward behaves: not linear, not repeatable, blind to layouts."""

from __future__ import annotations

import math
from dataclasses import replace

from gradproof._checks import extremes
from gradproof._checks.determinism import NotRepeated
from gradproof._checks.layout import WrongLayouts
from gradproof._checks.linearity import NotLinear
from gradproof._checks.traits import Spoilt
from gradproof._data.records import Cause, CheckResult
from gradproof._data.space import Array, namespace, norm
from gradproof._explain.diagnose import cause
from gradproof._explain.scaling import BITS, formats_of
from gradproof._judge.decide import half_the_digits
from gradproof._maps.contract import DifferentiableMap
from gradproof._measure import probes
from gradproof._measure.sizes import FINE

_ADDS = "every backward adds to what the ones before it left"
_SIZES = ("large cotangents", "small cotangents")


def nonlinear(evidence: NotLinear, result: CheckResult) -> CheckResult:
    """In which way a backward is not linear: at a few more VJPs."""
    map_, v, gradient = evidence.map, evidence.probe, evidence.gradient
    zero, back, twice = (map_.vjp(factor * v) for factor in (0.0, -1.0, 2.0))
    found = _way(map_, v, gradient, zero, back, twice)
    if found is None:
        found = _Sizes(map_, v, gradient).way(evidence.split)
    return result if found is None else replace(result, causes=(found,))


def _way(
    map_: DifferentiableMap, v: Array, one: Array, zero: Array, back: Array, twice: Array
) -> Cause | None:
    """What is not linear among cotangents of the usual size; None where nothing is."""
    size = norm(one) or 1.0
    near = 4 * half_the_digits(map_) * size

    def same(left: Array, right: Array) -> bool:
        return bool(norm(left - right) <= near)

    if same(one, back) and same(one, twice) and same(one, zero):
        return cause("cotangent ignored", "the gradient is the same whatever the cotangent")
    if norm(zero) > near:
        message = "something is added to the gradient that does not depend on the cotangent"
        return cause("offset", message, f"{norm(zero) / size:.2g} of it for a cotangent of zeros")
    if same(back, one) and same(twice, 2 * one):
        return cause("absolute value", "the gradient of -v is that of v, not minus that")
    # A gradient that is its cotangent's numbers has no more digits than that.
    fewer = [each for each in formats_of(one) if each not in formats_of(v)]
    if fewer and norm(back + one) <= near:
        name, bits = fewer[0]
        message = f"the cotangent, or the gradient, went through {name}"
        return cause(f"{name} inside", message, f"all of them are numbers of {bits} bits")
    if same(back, -one) and same(twice, 2 * one):
        return None
    told = f"{norm(twice) / size:.4g} times the gradient for twice the cotangent"
    return cause("non-linear", "the backward is not linear in the cotangent", told)


class _Sizes:
    """What a backward makes of cotangents that are no probes, as v with its gradient `one` is."""

    def __init__(self, map_: DifferentiableMap, v: Array, one: Array) -> None:
        self._map, self._v, self._one = map_, v, one

    def way(self, split: probes.Split) -> Cause | None:
        """What of its digits, its zeros or its size is mistaken; None where it is none of these."""
        if (full := self._gap(probes.FULL[0])) > half_the_digits(self._map):
            return self._rounded(full)
        zeros = [self._v * (0.5 * share) for share in (split.shares, 2 - split.shares)]
        left = self._one - self._map.vjp(zeros[0]) - self._map.vjp(zeros[1])
        if self._part(left) > self._near:
            message = "entries of the cotangent that are exactly zero change what others give"
            return cause("zeros skipped", message, "two cotangents of zeros and v add up to v")
        for factor, name, where in zip(split.factors, _SIZES, ("beyond", "below"), strict=True):
            far = round(math.log2(abs(factor)))
            if far and self._gap(2.0**far) > self._near:
                limit = f"{where} about {2.0 ** self._first(far):.0e}"
                message = f"cotangents {limit} come out wrong; those of the size of 1 do not"
                return cause(name, message)
        return None

    @property
    def _near(self) -> float:
        return 4 * half_the_digits(self._map)

    def _gap(self, factor: float) -> float:
        """How far the gradient of a multiple is from that multiple, in parts of it."""
        return self._part(self._map.vjp(factor * self._v) / factor - self._one)

    def _part(self, gap: Array) -> float:
        found = norm(gap) / (norm(self._one) or 1.0)
        return found if math.isfinite(found) else math.inf

    def _first(self, far: int) -> int:
        """The binary exponent, between 0 and `far`, from which the gap is there."""
        right, wrong = 0, far
        while abs(wrong - right) > 1:
            middle = (right + wrong) // 2
            if self._gap(2.0**middle) > self._near:
                wrong = middle
            else:
                right = middle
        return wrong

    def _rounded(self, gap: float) -> Cause | None:
        """The cause that digits of a cotangent are lost: as many of each entry, or below a grid."""
        smaller = extremes.LESS[1]
        # Rounded to so many digits it is off by the same part; else by one as many times larger.
        if self._gap(probes.FULL[0] / smaller) < math.sqrt(smaller) * gap:
            for name, bits in BITS:
                if 2.0 ** -(bits + 4) <= gap <= 2.0 ** (1 - bits):
                    message = f"the cotangent goes through {name}"
                    told = f"digits beyond the first {bits} make no difference"
                    return cause(f"{name} inside", message, told)
            return None
        # A rounding to multiples of q errs by the root of q^2 / 12.
        told = f"to multiples of about {math.sqrt(12) * gap:.0e}"
        return cause("cotangent rounded", f"the cotangent is rounded {told}")


def unsteady(evidence: NotRepeated, result: CheckResult) -> CheckResult:
    """Whether a backward that gives another gradient every time adds up, or is noise."""
    first, second, v = evidence.first, evidence.second, evidence.probe
    third, fourth = evidence.map.vjp(v), evidence.map.vjp(v)
    grown, again = third - second, fourth - third  # others ran between the first two
    xp = namespace(grown)
    if not bool(xp.all(xp.isfinite(grown) & xp.isfinite(again))):
        return result
    if norm(fourth) and not norm(again):  # what adds up, or is scaled, goes on
        message = "a backward gives another gradient now and then"
        found = cause("noise", message, "two further runs of that cotangent are the same")
    elif _adds_up(grown, again):
        found = cause("accumulated", _ADDS, "two further runs differ by the same")
    elif norm(third * third - second * fourth) <= FINE * norm(third * third):
        message = "every backward scales what the ones before it left"
        told = "two further runs by the same" if norm(fourth) else "by now zeros are left"
        found = cause("saved overwritten", message, told)
    else:
        part = norm(grown) / (norm(first) or 1.0)
        message = "the backward gives another gradient every time"
        found = cause("noise", message, f"two runs differ by {part:.1g} of the gradient")
    return replace(result, causes=(found,))


def _adds_up(grown: Array, again: Array) -> bool:
    return bool(norm(grown) and norm(grown - again) <= FINE * norm(grown))


def of_spoilt(evidence: Spoilt, result: CheckResult) -> CheckResult:
    """Whether backwards of one call add up, or what one writes over is what the next reads."""
    _, second, third, fourth = (evidence.gradients[k, :] for k in range(4))
    message = "a backward writes over what its call keeps for it"
    found = cause("saved overwritten", message, "of another call's it gives the same again")
    if _adds_up(third - second, fourth - third):
        found = cause("accumulated", _ADDS, "further ones differ by the same")
    return replace(result, causes=(found,))


def of_layouts(evidence: WrongLayouts, result: CheckResult) -> CheckResult:
    """Why a gradient depends on these memory layouts of the cotangent, or something on others."""
    contiguous = "is read as if it lay in memory contiguously"
    if evidence.inputs:
        found = cause("input layout ignored", f"an input {contiguous}")
    elif evidence.cotangent <= {"negative", "conjugate"}:
        message = (
            "the memory of the cotangent is read without the bit that negates or conjugates it"
        )
        found = cause("bit ignored", message)
    elif evidence.cotangent == {"expanded"}:
        message = "a cotangent of stride 0 is read as if each of its entries were in memory"
        found = cause("expanded cotangent", message)
    else:
        found = cause("layout ignored", f"the cotangent {contiguous}")
    return replace(result, causes=(found,))
