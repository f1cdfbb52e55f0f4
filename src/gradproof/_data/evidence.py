"""Evidence of a failure whose coordinates are not those of the function that was checked."""

from __future__ import annotations

from dataclasses import dataclass

from gradproof._data.space import Space, Values


@dataclass(frozen=True)
class EvidenceElsewhere:
    """What is wrong with a derivative of the function, or with the function at another point.

    Attributes:
        evidence: measured entries, or products.
        domain, codomain: of the map that was measured, as of the derivative of a backward.
        point: values of its inputs, (n,).
        value: values of its outputs, (m,).
    """

    evidence: object
    domain: Space
    codomain: Space
    point: Values
    value: Values
