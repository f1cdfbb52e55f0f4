"""The gradient of an input is the same, whichever other inputs need one.

A backward sees of each input whether it needs a gradient. With each input alone and each left out,
beside all of them, every mistake is seen that hangs on three inputs or fewer, or on an input being
the only one, or the only one without. Each is a run of its own: nothing else shows that mistake. So
of more than 18 inputs these are asked for some only, and halves see for all of them whatever hangs
on one input needing a gradient where another one does not.
"""

from __future__ import annotations

import itertools

from gradproof._checks import _groups
from gradproof._checks._claims import gradient
from gradproof._checks._gradients import differences
from gradproof._checks._groups import Group
from gradproof._checks._outcome import first_line
from gradproof._map import DifferentiableMap, Unsupported
from gradproof._numerics import probes
from gradproof._records import Finding
from gradproof._settings import Settings
from gradproof._space import Array, namespace

_NAME = "traits"
_FEW = 4  # inputs up to which only each alone and each left out are tried: eight runs
_SPLITS = 18  # of more: two runs each
_COMPILED = 4  # where each run is compiled
_FINDINGS = 8  # after which the rest is not tried


def findings(map_: DifferentiableMap, settings: Settings) -> tuple[tuple[Finding, ...], str]:
    """Where J^T v with some of the inputs marked as differentiable is no part of the whole.

    And what was asked, for people.
    """
    count = len(map_.domain.slots)
    most = _most(map_, count)
    if settings.every_input:
        most = max(most, count)
    splits = _groups.splits(count, most, settings.seed or 0)
    found: dict[str, Finding] = {}
    for group in itertools.chain.from_iterable(splits):
        found |= {finding.message: finding for finding in _compare(map_, settings, group)}
        if len(found) >= _FINDINGS:
            break
    return tuple(found.values()), _said(count, 2 * len(splits), count <= most)


def _most(map_: DifferentiableMap, count: int) -> int:
    if count <= _FEW:
        return _FEW
    return _COMPILED if map_.compiles_subsets() else _SPLITS


def _said(count: int, asked: int, each: bool) -> str:
    if count < 2:
        return ""
    if asked == 2**count - 2:
        return "whichever of the inputs need one"
    singles = "each input alone and each left out; " if each else ""
    return f"whichever of the inputs need one: {singles}{_groups.share(asked, count)}"


def _compare(map_: DifferentiableMap, settings: Settings, slots: Group) -> tuple[Finding, ...]:
    found = _wrong(map_, settings, slots)
    every = frozenset(range(len(map_.domain.slots)))
    others = every - slots
    if not found or min(len(slots), len(others)) <= _groups.LISTED:
        return found
    fewer = _groups.narrowed(others, lambda group: _wrong(map_, settings, every - group))
    return found if fewer == others else _wrong(map_, settings, every - fewer)


def _wrong(map_: DifferentiableMap, settings: Settings, slots: Group) -> tuple[Finding, ...]:
    where = _where(map_, slots)
    whole = gradient(map_, settings, 0)
    try:
        got = map_.vjp_wrt(probes.short_cotangent(map_, settings.seed or 0, 0), slots)
    except Unsupported:
        raise
    except Exception as error:  # whatever the user's backward raises is the finding
        message = f"it raised {where}: {type(error).__name__}: {first_line(str(error))}"
        return (Finding(_NAME, message, "subset"),)
    expected = _part(map_, whole, slots)
    what = f"{where}, against all that need one"
    return differences(
        _NAME,
        map_,
        got,
        expected,
        kind="subset",
        what=what,
        atol=settings.atol,
        rtol=settings.slack,
        most=2,
    )


def _where(map_: DifferentiableMap, slots: Group) -> str:
    every = map_.domain.slots
    names = [slot.name for place, slot in enumerate(every) if place in slots]
    others = [slot.name for place, slot in enumerate(every) if place not in slots]
    if len(others) < len(names) and len(names) > _groups.LISTED:
        return f"where {_groups.listed(others)} {'needs' if len(others) == 1 else 'need'} none"
    verb = "needs" if len(names) == 1 else "need"
    return f"where only {_groups.listed(names)} {verb} a gradient"


def _part(map_: DifferentiableMap, whole: Array, slots: Group) -> Array:
    """The entries of these slots; zero elsewhere."""
    xp, spans = namespace(whole), map(map_.domain.span, range(len(map_.domain.slots)))
    pieces = [(place in slots, whole[span]) for place, span in enumerate(spans)]
    return xp.concat([piece if kept else xp.zeros_like(piece) for kept, piece in pieces])
