"""Forward mode against the backward: <v, J u> = <J^T v, u>, no differences."""

from __future__ import annotations

from gradproof._data.records import CheckResult
from gradproof._data.settings import DOUBLE, Settings
from gradproof._data.space import Array, Space, dot, namespace
from gradproof._judge import claim_error
from gradproof._judge.claims import gradient, tangent
from gradproof._judge.decide import drawn, two_modes
from gradproof._judge.outcome import failed, identity, passed, skipped
from gradproof._maps.contract import DifferentiableMap
from gradproof._measure import probes
from gradproof._measure.sizes import ALIKE
from gradproof._verdict import stochastic

_NAME, _AGREE = "adjoint", "forward mode and backward agree"


def check(map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """Both modes claim one and the same Jacobian, to rounding."""
    seed = settings.seed
    u, v = probes.tangent(map_, seed, 0), probes.cotangent(map_, seed, 0)
    forward, backward = tangent(map_, settings, 0), gradient(map_, settings, 0)
    found = two_modes(map_, (v, u), (forward, backward))
    if found.right:  # as nearly always, and not where one of them is infinite
        return passed(_NAME, _AGREE)
    xp = namespace(forward)
    if bool(xp.any(xp.isinf(forward))) and bool(xp.any(xp.isinf(backward))):
        return skipped(_NAME, "both modes claim an infinite slope here")
    if _beyond(map_.domain, backward) or _beyond(map_.codomain, forward):
        return skipped(_NAME, "one mode claims more than the format's largest number")
    errors = stochastic.remembered(map_)
    if not isinstance(errors, float):
        found = found.plus(2 * claim_error.HONEST * drawn(u * errors))  # of two modes
    # Each entry may be off by as much as the user says, and all to one side.
    found = found.plus(settings.slack * (dot(abs(v), abs(forward)) + dot(abs(u), abs(backward))))
    left, right = found.claimed, found.measured
    if found.wrong:
        bar = drawn(v * claim_error.bars(map_, settings))
        # At a kink each mode may claim another slope between the two: two half-gaps, and what is
        # like them. Whether it does lie between is for the checks of the two modes to say.
        kink = 2 * (1 + ALIKE) * drawn(v * claim_error.kinks(map_, settings))
        faint = bar if max(abs(left), abs(right)) <= bar else 0.0
        found = found.plus(faint + kink + claim_error.in_both(map_, u, v))
    if found.right:
        return passed(_NAME, _AGREE)
    said = f"forward mode and backward disagree: <v, J u> is {left:.6g}, <J^T v, u> is {right:.6g}"
    finding = identity(_NAME, found, said)
    return failed(_NAME, "the two modes claim different Jacobians", (finding,))


def _beyond(space: Space, claimed: Array) -> bool:
    """Whether an array of few bits is claimed to be infinite: what is beyond its largest number is.

    Whether it is that, the check of its own mode says.
    """
    few = [k for k, slot in enumerate(space.slots) if slot.grain.unit > DOUBLE]
    parts = [claimed[space.span(k)] for k in few]
    return any(bool(namespace(part).any(namespace(part).isinf(part))) for part in parts)
