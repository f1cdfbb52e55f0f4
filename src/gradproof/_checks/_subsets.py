"""The gradient of an input is the same, whichever other inputs need one.

A backward sees of each input whether it needs a gradient. With each input alone and each left out,
beside all of them, every mistake is seen that hangs on three inputs or fewer, or on an input being
the only one, or the only one without. Each is a run of its own: nothing else shows that mistake. So
of more than 18 inputs these are asked for some only, and halves see for all of them whatever hangs
on one input needing a gradient where another one does not.
"""

from __future__ import annotations

import itertools
from typing import Any

from gradproof._checks import _groups
from gradproof._checks._claims import gradient
from gradproof._checks._gradients import differences
from gradproof._checks._groups import Group
from gradproof._checks._outcome import first_line
from gradproof._map import DifferentiableMap, Refused, Unsupported
from gradproof._numerics import probes
from gradproof._records import Finding
from gradproof._settings import Settings
from gradproof._space import Array, namespace

_NAME = "traits"
_FEW = 4  # inputs up to which only each alone and each left out are tried: eight runs
_SPLITS = 18  # of more: two runs each
_COMPILED = 4  # where each run is compiled
_FINDINGS = 8  # after which the rest is not tried


class Subsets:
    """J^T v with some of the inputs marked as differentiable, which must be a part of the whole.

    Attributes:
        findings: where it is not.
        said: what was asked, for people.
        notes: that the function did not run for some of them.
    """

    def __init__(self, map_: DifferentiableMap, settings: Settings) -> None:
        self._map, self._settings = map_, settings
        self._every = frozenset(range(len(map_.domain.slots)))
        self._refused: dict[Group, str] = {}
        count, most = len(self._every), self._most()
        splits = _groups.splits(count, most, settings.seed or 0)
        found: dict[str, Finding] = {}
        for group in itertools.chain.from_iterable(splits):
            found |= {finding.message: finding for finding in self._compared(group)}
            if len(found) >= _FINDINGS:
                break
        self.findings = tuple(found.values())
        self.said = _said(count, 2 * len(splits), count <= most)

    def _most(self) -> int:
        """Splits at most."""
        count = len(self._every)
        if count <= _FEW:
            return _FEW
        most = _COMPILED if self._map.compiles_subsets() else _SPLITS
        return max(most, count) if self._settings.every_input else most

    @property
    def notes(self) -> tuple[str, ...]:
        if not self._refused:
            return ()
        group, reason = next(iter(self._refused.items()))
        others = len(self._refused) - 1
        more = f", and for {others} more such subsets" if others else ""
        return (f"the function does not run {_where(self._map, group)}{more}: {reason}",)

    def _compared(self, slots: Group) -> tuple[Finding, ...]:
        found, others = self._wrong(slots), self._every - slots
        if not found or min(len(slots), len(others)) <= _groups.LISTED:
            return found
        fewer = _groups.narrowed(others, lambda group: self._wrong(self._every - group))
        return found if fewer == others else self._wrong(self._every - fewer)

    def _wrong(self, slots: Group) -> tuple[Finding, ...]:
        map_, settings = self._map, self._settings
        where, whole = _where(map_, slots), gradient(map_, settings, 0)
        try:
            got = map_.vjp_wrt(probes.short_cotangent(map_, settings.seed or 0, 0), slots)
        except Refused as refusal:
            self._refused[slots] = refusal.reason
            return ()
        except Unsupported:
            raise
        except Exception as error:  # whatever the user's backward raises is the finding
            message = f"it raised {where}: {type(error).__name__}: {first_line(str(error))}"
            return (Finding(_NAME, message, "subset"),)
        options: dict[str, Any] = {"kind": "subset", "most": 2}
        options |= {"atol": settings.atol, "rtol": settings.slack}
        options["what"] = f"{where}, against all that need one"
        return differences(_NAME, map_, got, _part(map_, whole, slots), **options)


def _said(count: int, asked: int, each: bool) -> str:
    if count < 2:
        return ""
    if asked == 2**count - 2:
        return "whichever of the inputs need one"
    singles = "each input alone and each left out; " if each else ""
    return f"whichever of the inputs need one: {singles}{_groups.share(asked, count)}"


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
