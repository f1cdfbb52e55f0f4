"""The gradient of an input is the same, whichever other inputs need one.

A backward sees of each input whether it needs a gradient. With each input alone and each left out,
beside all of them, every mistake is seen that hangs on three inputs or fewer, or on an input being
the only one, or the only one without. Each is a run of its own: nothing else shows that mistake. So
of more than 18 inputs these are asked for some only, and halves see for all of them whatever hangs
on one input needing a gradient where another one does not.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from gradproof._checks import determinism, groups
from gradproof._checks.groups import Group
from gradproof._data.frames import inside, raised
from gradproof._data.records import CheckResult, Finding, Place
from gradproof._data.settings import Settings
from gradproof._data.space import Array, namespace
from gradproof._judge.claims import gradient
from gradproof._judge.decide import of_claims
from gradproof._judge.outcome import failed, passed
from gradproof._maps.contract import (
    BudgetSpent,
    DifferentiableMap,
    Observed,
    Refused,
    Unsupported,
)
from gradproof._measure import probes, steps
from gradproof._measure.sizes import DRAWS, LISTED, MANY
from gradproof._verdict import second
from gradproof._verdict.agree import Pair, differences, same

_NAME = "traits"
_SPLITS = 18  # of more inputs than are drawn, two runs each


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
        asked = list(itertools.chain(*groups.families(count, most, settings.seed)))
        found: dict[str, Finding] = {}
        for group in asked:
            found |= {finding.message: finding for finding in self._compared(group)}
            if len(found) >= MANY:
                break
        self.findings = tuple(found.values())
        self.said = _said(count, len(asked), count <= most)

    def _most(self) -> int:
        """Splits at most."""
        count = len(self._every)
        # Each alone and each left out are eight runs. Of more as many where each is compiled.
        if count <= DRAWS:
            return DRAWS
        return DRAWS if self._map.compiles_subsets() else _SPLITS

    @property
    def differs(self) -> bool:
        """Whether a gradient is another one, and not only one that raised."""
        return any(not math.isnan(finding.measured) for finding in self.findings)

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
        if not found or min(len(slots), len(others)) <= LISTED:
            return found
        fewer = groups.narrowed(others, lambda group: self._wrong(self._every - group))
        return found if fewer == others else self._wrong(self._every - fewer)

    def _wrong(self, slots: Group) -> tuple[Finding, ...]:
        map_, settings = self._map, self._settings
        where, whole = _where(map_, slots), gradient(map_, settings, 0)
        try:
            got = map_.vjp_wrt(probes.cotangent(map_, settings.seed, 0), slots)
        except Refused as refusal:
            self._refused[slots] = refusal.reason
            return ()
        except Unsupported:
            raise
        except Exception as error:  # whatever the user's backward raises is the finding
            message = f"it raised {where}: {raised(error)}{inside(error)}"
            return (Finding(_NAME, message, "subset"),)
        pair = Pair(got, _part(map_, whole, slots), f"{where}, against all that need one")
        return differences(_NAME, map_, pair, of_claims(settings), kind="subset", most=2)


def _said(count: int, asked: int, each: bool) -> str:
    if count < 2:
        return ""
    if asked == 2**count - 2:
        return "whichever of the inputs need one"
    singles = "each input alone and each left out; " if each else ""
    return f"whichever of the inputs need one: {singles}{groups.share(asked, count)}"


def _where(map_: DifferentiableMap, slots: Group) -> str:
    every = map_.domain.slots
    names = [slot.name for place, slot in enumerate(every) if place in slots]
    others = [slot.name for place, slot in enumerate(every) if place not in slots]
    if len(others) < len(names) and len(names) > LISTED:
        return f"where {groups.listed(others)} {'needs' if len(others) == 1 else 'need'} none"
    verb = "needs" if len(names) == 1 else "need"
    return f"where only {groups.listed(names)} {verb} a gradient"


def _part(map_: DifferentiableMap, whole: Array, slots: Group) -> Array:
    """The entries of these slots; zero elsewhere."""
    xp, spans = namespace(whole), map(map_.domain.span, range(len(map_.domain.slots)))
    pieces = [(place in slots, whole[span]) for place, span in enumerate(spans)]
    return xp.concat([piece if kept else xp.zeros_like(piece) for kept, piece in pieces])


# Each gradient has its input's dtype, device, shape and layout, and does not mind the others.


ALIKE = "gradients have dtype, device, shape and layout of their inputs"


def check(map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """A gradient is the same kind of array as its input, whichever other inputs need one."""
    v = probes.cotangent(map_, settings.seed, 0)
    findings = []
    for trait in map_.gradient_traits(v):
        name = map_.domain.slots[trait.slot].name
        message = (
            f"gradient of {name}: its {trait.what} is {trait.claimed}, "
            f"the input's is {trait.expected}"
        )
        findings.append(Finding(_NAME, message, trait.what, Place(name, trait.slot, ())))
    if findings:
        return failed(
            _NAME, "a gradient is not the kind of array that its input is", tuple(findings)
        )
    return among_others(map_, settings)


def among_others(map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """The same where the kept call's gradients are known to be of that kind."""
    if not settings.other_inputs:
        return passed(_NAME, ALIKE)
    try:
        subsets = _subsets(map_, settings)
    except Unsupported:
        return passed(_NAME, ALIKE)
    if subsets.findings:
        summary = "a gradient depends on which other inputs need one"
        return failed(_NAME, summary, subsets.findings, notes=subsets.notes)
    asked = f", {subsets.said}" if subsets.said else ""
    return passed(_NAME, ALIKE + asked, notes=subsets.notes)


def _subsets(map_: DifferentiableMap, settings: Settings) -> Subsets:
    """What subsets say; in 16 bits, where as much as a row is excused, those in float64 as well."""
    found = Subsets(map_, settings)
    if found.findings or map_.resolution <= steps.SINGLE:
        return found
    try:
        exact = Subsets(second.in_double(map_, settings), settings)
    except Unsupported:  # there is no such run
        return found
    return exact if exact.differs else found


# The function and its backward change nothing that is not theirs.


_HYGIENE_NAME = "hygiene"
CLEAN = "inputs, cotangent, saved arrays and global state are left as they were"
_CHANGED = "something was changed that should not be"
_VALUED = "the function has another value where it is differentiated"
# Backwards that must give the same gradient for an effect on them alone to be none: one that draws
# and goes another way in a fifth of its runs shows in 97 % of 16; a work space that is written to
# shows in the next.
_RUNS = {"drawn": 16, "saved": 2}
OBSERVED = ("observed",)  # key of the memo: a run that was watched, if one was
SPOILT = ("spoilt",)  # likewise: gradients of one call in a row, where its backward spoils it


@dataclass(frozen=True)
class Spoilt:
    """Evidence: what backwards of any one call give in a row, infinite where one raises.

    Only the first of them is what the function claims.
    """

    gradients: Array  # (4, n)

    def __str__(self) -> str:
        raises = not bool(namespace(self.gradients).isfinite(self.gradients[1, :]).any())
        what = "raises" if raises else "gives another gradient"
        return f"a second backward of the same call {what}"


def spoils(map_: DifferentiableMap, settings: Settings) -> bool:
    """Whether it shows now, and did not before, that a backward spoils its call."""
    if SPOILT in map_.memo:
        return False
    map_.memo[SPOILT] = None
    try:
        found = Spoilt(map_.spoilt(probes.cotangent(map_, settings.seed, 0)))
    except (Exception, BudgetSpent):  # it is met, and told, by who asks for the backward next
        return False
    map_.memo.clear()  # what was asked of calls that were spoilt
    map_.memo[SPOILT] = found
    return True


def check_hygiene(map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """Cotangent, inputs, saved arrays, stored gradients and global state stay as they were."""
    with contextlib.suppress(Unsupported):  # a backward of the kept call: what it left is seen too
        gradient(map_, settings, 0)
    effects, notes = list(dict.fromkeys(_effects(map_, settings))), list[str]()
    found = _spoilt(map_, settings)
    for own, runs in _RUNS.items():
        told = [sentence for kind, sentence in effects if kind == own]
        harmless = told and not (found and own == "saved")
        if harmless and determinism.repeats(map_, settings, runs):
            effects = [effect for effect in effects if effect[0] != own]
            notes += [f"{sentence}; {runs} runs gave the same gradient" for sentence in told]
    effects[:0] = [("spoilt", str(found))] * bool(found)
    findings = tuple(Finding(_HYGIENE_NAME, _told(*effect), effect[0]) for effect in effects)
    if findings:
        changed = any(finding.kind != "primal" for finding in findings)
        summary = _CHANGED if changed else _VALUED
        return failed(_HYGIENE_NAME, summary, findings, evidence=found)
    if notes:
        summary = "inputs and cotangent are left as they were"
        return passed(_HYGIENE_NAME, summary, notes=tuple(dict.fromkeys(notes)))
    return passed(_HYGIENE_NAME, CLEAN)


def _spoilt(map_: DifferentiableMap, settings: Settings) -> Spoilt | None:
    """That a backward spoils its call by more than may lie between two gradients, if it does."""
    found: Spoilt | None = map_.memo.get(SPOILT)
    if found is None:
        return None
    first, again = found.gradients[0, :], found.gradients[1, :]
    alike = same(map_, Pair(again, first, ""), of_claims(settings))
    return None if alike and determinism.agree(settings, first, again) else found


def _effects(map_: DifferentiableMap, settings: Settings) -> Sequence[tuple[str, str]]:
    """What a run changed, and what all of them left behind."""
    run: Observed | None = map_.memo.get(OBSERVED)
    if run is not None:
        return [*run.effects, *run.left()]
    return map_.side_effects(probes.cotangent(map_, settings.seed, 0))


def _told(kind: str, sentence: str) -> str:
    return f"{sentence}, and gives other gradients each time" if kind == "drawn" else sentence


# Where the domain covers only some entries of an input, the others have gradient zero.


_SPARSE_NAME = "sparse"


def check_sparse(map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """No entry outside the domain has a gradient."""
    v = probes.cotangent(map_, settings.seed, 0)
    findings = []
    for slot, index, value in map_.outside_domain(v):
        place = Place(map_.domain.slots[slot].name, slot, index)
        message = f"gradient of {place}: {value:.6g}, but the entry is unspecified: expected 0"
        findings.append(
            Finding(_SPARSE_NAME, message, "outside", place, None, value, 0.0, 0.0, 0.0)
        )
    if findings:
        return failed(_SPARSE_NAME, "unspecified entries have a gradient", tuple(findings))
    return passed(_SPARSE_NAME, "unspecified entries have no gradient")
