"""The gradient of an input is the same, whichever other inputs need one."""

from __future__ import annotations

import itertools

from gradproof._checks._claims import gradient
from gradproof._checks._gradients import differences
from gradproof._checks._outcome import first_line
from gradproof._map import DifferentiableMap, Unsupported
from gradproof._numerics import probes
from gradproof._records import Finding
from gradproof._settings import Settings
from gradproof._space import namespace

_NAME = "traits"
_ALL = 3  # inputs of which every subset is tried; of more, each alone and each left out
_MOST = 8  # subsets at most


def findings(map_: DifferentiableMap, settings: Settings) -> tuple[Finding, ...]:
    """Where J^T v with some of the inputs marked as differentiable is no part of the whole."""
    found: list[Finding] = []
    for slots in _subsets(len(map_.domain.slots)):
        found += _compare(map_, settings, slots)
    return tuple(found)


def _subsets(count: int) -> list[frozenset[int]]:
    every = range(count)
    if count < 2:
        return []
    if count <= _ALL:
        sizes = range(1, count)
        return [frozenset(found) for size in sizes for found in itertools.combinations(every, size)]
    alone = [frozenset({place}) for place in every]
    left_out = [frozenset(every) - one for one in alone]
    half = _MOST // 2
    return [*alone[:half], *left_out[:half]]


def _compare(
    map_: DifferentiableMap, settings: Settings, slots: frozenset[int]
) -> tuple[Finding, ...]:
    names = " and ".join(map_.domain.slots[place].name for place in sorted(slots))
    where = f"where only {names} {'needs' if len(slots) == 1 else 'need'} a gradient"
    whole = gradient(map_, settings, 0)
    try:
        got = map_.vjp_wrt(probes.short_cotangent(map_, settings.seed or 0, 0), slots)
    except Unsupported:
        raise
    except Exception as error:  # whatever the user's backward raises is the finding
        message = f"it raised {where}: {type(error).__name__}: {first_line(str(error))}"
        return (Finding(_NAME, message, "subset"),)
    xp = namespace(whole)
    index, expected = xp.arange(whole.shape[0]), xp.zeros_like(whole)
    for place in slots:
        span = map_.domain.span(place)
        expected = xp.where((index >= span.start) & (index < span.stop), whole, expected)
    what = f"{where}, against all that need one"
    return differences(
        _NAME, map_, got, expected, kind="subset", what=what, atol=settings.atol, most=2
    )
