"""AD transforms: whatever the framework makes of a function claims the same Jacobian."""

from __future__ import annotations

from gradproof._checks.agreement import vector_findings
from gradproof._checks.outcome import failed_check, passed_check
from gradproof._data.records import CheckResult
from gradproof._maps.contract import Unsupported
from gradproof._measurements import Measurements


def check(name: str, measurements: Measurements) -> CheckResult:
    """The transform of that name claims what the backward, or forward mode, claims.

    Raises:
        Unsupported: there is no such transform of this function, or no mode to compare it with.
    """
    map_ = measurements.map
    transform = next((each for each in map_.transforms() if each.name == name), None)
    if transform is None:
        raise Unsupported("there is no such transform of this function")
    products = measurements.forward if transform.forward else measurements.backward
    got = map_.transformed_product(products.probe, transform)
    what = f"by {transform.what}, against {products.mode_name}"
    if findings := vector_findings(name, products, got, products.product, what):
        return failed_check(name, f"{transform.what}: not what {products.mode_name} says", findings)
    return passed_check(name, f"{transform.what}: the same {products.product_name}")
