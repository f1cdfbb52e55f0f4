"""Functions in double precision against whose derivative claims are held."""

from __future__ import annotations

from dataclasses import dataclass

from gradproof._maps.contract import Unsupported
from gradproof._maps.users_code import UsersError, users_errors
from gradproof._measurements import Measurements


@dataclass(frozen=True)
class Reference:
    """A map against whose derivative claims are held.

    Attributes:
        name: for the report.
        is_own: whether it is the function under test, run in double precision: that its derivative
            is wrong is then a finding.
        measurements: at the same point.
        coarsest_unit: unit round-off of the arithmetic that its values show.
    """

    name: str
    is_own: bool
    measurements: Measurements
    coarsest_unit: float


def find_references(measurements: Measurements) -> tuple[list[Reference], list[str]]:
    """The references of a map in the order of `settings.references`, and why others are refused."""
    settings, usable, refused = measurements.settings, list[Reference](), list[str]()
    kinds = ("reference",) if settings.asks_reference_only else settings.references
    for kind in kinds:
        is_own = kind == "double" and not measurements.is_double
        if not is_own and (kind != "reference" or measurements.reference is None):
            continue
        name = "the same function in float64" if is_own else "the reference"
        try:
            with users_errors():
                found = measurements.double if is_own else measurements.users_reference
            usable.append(Reference(name, is_own, found, found.function.coarsest_unit))
            continue
        except Unsupported as missing:
            reason = missing.reason
        except UsersError as error:
            reason = f"it raised {error}"
        refused.append(f"{name}: {reason}")
    return usable, refused
