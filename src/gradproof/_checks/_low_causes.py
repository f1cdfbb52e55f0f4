"""Where and why a gradient in few bits is wrong, from the claims that were compared."""

from __future__ import annotations

from gradproof._evidence import Cause
from gradproof._explain import statistical
from gradproof._explain.diagnose import ranked
from gradproof._records import Finding
from gradproof._space import Array, Space, on_host

Why = tuple[str, tuple[Cause, ...]]
Values = tuple[Array, Array, list[Array]]


def explained(
    space: Space,
    findings: tuple[Finding, ...],
    values: tuple[Array, Array, list[Array]],
    unit: float,
) -> Why:
    """Words for the wrong entries, and causes; empty where they cannot be had.

    Args:
        space: of the gradients, or of the tangents.
        findings: one per wrong array.
        values: claimed and exact, (P, N), and for each slot the size of honest errors, (N,).
        unit: round-off of the arithmetic.
    """
    try:
        return _explained(space, findings, values, unit)
    except Exception:  # an explanation changes no verdict: where it fails there is none
        return "", ()


def _explained(
    space: Space,
    findings: tuple[Finding, ...],
    values: tuple[Array, Array, list[Array]],
    unit: float,
) -> Why:
    (got, exact), sizes = map(on_host, values[:2]), values[2]
    places = [finding.input or finding.output for finding in findings]
    words, causes = [], list[Cause]()
    slots = dict.fromkeys(place.slot for place in places if place is not None)
    for slot in slots:
        span = space.span(slot)
        sampled = statistical.Sampled(
            got=got[:, span],
            exact=exact[:, span],
            sigma=on_host(sizes[slot]),
            slot=space.slots[slot],
            eps=2 * unit,
        )
        where, found = statistical.explained(sampled)
        words.append(where)
        causes += found
    told = " and ".join(words) if all(words) else ""
    if len(slots) == len(space.slots) and all(w.startswith("all of") for w in words):
        told = "everywhere"
    return told, ranked(causes)
