"""J^T is linear in its cotangent."""

from __future__ import annotations

from gradproof._checks import _behaviour, _faint
from gradproof._checks._claims import constant_gradient, gradient
from gradproof._checks._gradients import differences
from gradproof._checks._outcome import failed, passed
from gradproof._map import DifferentiableMap
from gradproof._numerics import probes
from gradproof._records import CheckResult
from gradproof._settings import Settings
from gradproof._space import namespace

_NAME = "linearity"
_MOST_ATOL = 1e-9  # an offset is a mistake of its own, however small the tolerance lets it be
# Their sum is not 1, so that an added constant shows too.
_A, _B = 2.0, -3.0


def check(map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """J^T (2 v - 3 w) = 2 J^T v - 3 J^T w; a backward that ignores its cotangent fails."""
    seed = settings.seed or 0
    gv, gw = gradient(map_, settings, 0), constant_gradient(map_, settings)
    both = _A * probes.cotangent(map_, seed, 0)
    both += _B * probes.constant_cotangent(map_, seed)
    got = map_.vjp(both)
    del both  # of a large map, a vector less where the gradients are compared
    terms = (_A * gv, _B * gw)
    found = differences(
        _NAME,
        map_,
        got,
        terms[0] + terms[1],
        kind="linearity",
        what="backward of 2 v - 3 w against 2 and -3 times the backwards of v and w",
        terms=terms,
        atol=min(settings.atol, _MOST_ATOL),
    )
    if found:
        v = abs(probes.cotangent(map_, seed, 0)) + abs(probes.constant_cotangent(map_, seed))
        if _faint.gradients(map_, settings, v, (gv, gw, got)):
            return passed(_NAME, "the backward is nothing but rounding")
    if not found:
        return passed(_NAME, "the backward is linear in the cotangent")
    if bool(namespace(got).all(got == gv)):
        result = failed(_NAME, "the backward ignores the cotangent", found)
    else:
        result = failed(_NAME, "the backward is not linear in the cotangent", found)
    return _behaviour.nonlinear(map_, settings, gv, result)
