"""What a mode claims of the two parts of a split probe, and of each term of the sum.

A rule may refuse a probe for its size, as PyTorch's of eigenvectors do, which test it with an
absolute tolerance; or a format of a small range may not hold what it adds up. It claims nothing
wrong then, and is asked for parts of the usual size.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gradproof._checks.special_probes import Term
from gradproof._checks.split_probes import SplitProbe, split_cotangent, split_tangent
from gradproof._data.exceptions import exception_line
from gradproof._data.space import Values
from gradproof._maps.contract import DifferentiableMap, Unsupported
from gradproof._measurements import Measurements
from gradproof.errors import UsageError

_SMALL_RANGE = 1e6  # largest number of a format, as of float16, that honest sums may exceed


@dataclass(frozen=True)
class SplitProducts:
    """What a mode claims of a split probe.

    Attributes:
        split: the probe.
        parts: of its two parts, over their factors.
        terms: of every term, times its weight.
        refused: why parts of other sizes than usual were refused; "" where they were not.
    """

    split: SplitProbe
    parts: tuple[Values, Values]
    terms: tuple[Values, ...]
    refused: str

    @property
    def sizes_of_terms(self) -> list[Values]:
        """The terms, those of large weights as they were claimed: so large rounding is of them."""
        pairs = zip(self.terms, self.split.terms, strict=True)
        return [product / max(1.0, abs(term.weight)) for product, term in pairs]

    @property
    def is_single_asked(self) -> bool:
        return any(term.kind == "single" for term in self.split.terms)


def products_of_split_probe(measurements: Measurements, *, forward: bool) -> SplitProducts:
    """What is claimed of both parts, and of the terms."""
    map_, refused = measurements.map, ""
    ask = map_.jvp if forward else map_.vjp
    if forward:
        split = split_tangent(measurements)
        known = {"dense": measurements.pushforward(0)}
    else:
        split = split_cotangent(measurements)
        known = {"dense": measurements.gradient(0)}
        if len(split.terms) > 1:
            known["constant"] = measurements.constant_gradient
    try:
        parts = _products_of_parts(ask, split)
        if _has_small_range(map_) and not np.isfinite(parts).all():
            refused = f"the sizes {split.sizes} overflow"
    except (Unsupported, UsageError, MemoryError):
        raise
    except Exception as error:  # whatever the user's rule raises
        refused = f"the sizes {split.sizes} were refused: {exception_line(error)}"
    if refused:
        split = split.probe_of_usual_size()
        parts = _products_of_parts(ask, split)
    terms = []
    for term in split.terms:
        product = known.get(term.kind)
        if product is None:
            product = _product_of_term(ask, term, abs(split.factors[0]))
        terms.append(term.weight * product)
    return SplitProducts(split, parts, tuple(terms), refused)


def _products_of_parts(ask: Callable[[Values], Values], split: SplitProbe) -> tuple[Values, Values]:
    large, small = (ask(split.part(number)) / split.factors[number] for number in (0, 1))
    return large, small


def _product_of_term(ask: Callable[[Values], Values], term: Term, factor: float) -> Values:
    """What is claimed of a term; of a single entry, as large as the large part is.

    Of the usual size where that is refused for its size, or overflows: the parts show that.
    """
    large = 2.0 ** math.floor(math.log2(factor))
    if term.kind == "single" and large > 1:
        try:
            product = ask(large * term.probe) / large
        except (Unsupported, UsageError, MemoryError):
            raise
        except Exception:  # whatever the user's rule raises
            return ask(term.probe)
        if np.isfinite(product).all():
            return product
    return ask(term.probe)


def _has_small_range(map_: DifferentiableMap) -> bool:
    """Whether an array is in a format whose numbers end below what is added up here."""
    slots = (*map_.domain.slots, *map_.codomain.slots)
    return any(slot.size and slot.grain.largest < _SMALL_RANGE for slot in slots)
