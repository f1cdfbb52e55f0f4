"""AD transforms: whatever the framework makes of a function claims the same Jacobian."""

from __future__ import annotations

from gradproof._data.records import CheckResult, Finding
from gradproof._data.settings import Settings
from gradproof._data.space import Array
from gradproof._judge.claims import gradient, tangent
from gradproof._judge.decide import of_claims, two_modes
from gradproof._judge.outcome import failed, identity, passed
from gradproof._maps.contract import DifferentiableMap, Transform, Unsupported
from gradproof._measure import probes
from gradproof._verdict.agree import Pair, differences


def check(name: str, map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """A transform claims what the backward, or forward mode, claims.

    Args:
        name: of the transform, one of `TRANSFORM_NAMES`.
        map_: the function at a point.
        settings: of the check.

    Raises:
        Unsupported: the framework has no such transform, or not of this function.
    """
    transform = next((each for each in map_.transforms() if each.name == name), None)
    if transform is None:
        raise Unsupported("there is no such transform of this function")
    compare = _tangent_differences if transform.forward else _gradient_differences
    if findings := compare(map_, settings, transform):
        return failed(name, f"{transform.what}: not what the backward says", findings)
    kind = "tangent" if transform.forward else "gradient"
    return passed(name, f"{transform.what}: the same {kind}")


def _gradient_differences(
    map_: DifferentiableMap, settings: Settings, transform: Transform
) -> tuple[Finding, ...]:
    """Findings where J^T v by the transform is not that of the backward, entry by entry."""
    pair = Pair(
        map_.vjp_transform(probes.cotangent(map_, settings.seed, 0), transform.name),
        gradient(map_, settings, 0),
        f"by {transform.what}, against the backward",
    )
    return differences(transform.name, map_, pair, of_claims(settings))


def _tangent_differences(
    map_: DifferentiableMap, settings: Settings, transform: Transform
) -> tuple[Finding, ...]:
    """Findings where J u by the transform is not that of forward mode, entry by entry.

    Where there is no forward mode <v, J u> is compared with <J^T v, u>.
    """
    u = probes.tangent(map_, settings.seed, 0)
    by_transform = map_.jvp_transform(u, transform.name)
    try:
        expected = tangent(map_, settings, 0)
    except Unsupported:
        return _inner_product_differences(map_, settings, transform, by_transform)
    told = f"by {transform.what}, against forward mode"
    pair = Pair(by_transform, expected, told, forward=True)
    return differences(transform.name, map_, pair, of_claims(settings))


def _inner_product_differences(
    map_: DifferentiableMap, settings: Settings, transform: Transform, by_transform: Array
) -> tuple[Finding, ...]:
    seed = settings.seed
    u, v = probes.tangent(map_, seed, 0), probes.cotangent(map_, seed, 0)
    products = two_modes(map_, (v, u), (by_transform, gradient(map_, settings, 0)))
    if products.right:
        return ()
    message = (
        f"{transform.what} and the backward disagree: <v, J u> is {products.claimed:.6g}, "
        f"<J^T v, u> is {products.measured:.6g}"
    )
    return (identity(transform.name, products, message),)
