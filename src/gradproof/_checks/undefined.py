"""A cotangent or tangent that is not there behaves like zero.

J^T v without the cotangents of a group of outputs, and without those of all others, add up to
J^T v: two runs for each way to split the outputs in two, and no reference. Of groups that hold
every output equally often they add up to a multiple of it. Of tangents and J u the same is true.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

from gradproof._checks import groups
from gradproof._checks.groups import Family, Group
from gradproof._data.frames import inside, raised
from gradproof._data.records import CheckResult, Finding, Place
from gradproof._data.settings import Settings
from gradproof._data.space import Array, namespace
from gradproof._judge import claim_error
from gradproof._judge.claims import gradient, tangent
from gradproof._judge.decide import Tolerance, of_claims
from gradproof._judge.outcome import failed, passed, skipped
from gradproof._maps.contract import DifferentiableMap, Unsupported
from gradproof._measure import probes
from gradproof._verdict.agree import Pair, differences

_NAME, LIKE_ZERO = "undefined", "undefined {} behave like zero"
_SPLITS = 9  # with all missing at once and the whole, 20 VJPs


def check(map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """Undefined cotangents give the gradient of zero ones; missing tangents likewise."""
    findings: list[Finding] = []
    modes: list[_Mode] = []
    forward = settings.measures("forward")
    if not forward or settings.measures("reverse"):
        modes.append(_Mode(map_, settings, forward=False))
        findings += modes[-1].all_missing() + modes[-1].findings()
    if forward and len(map_.domain.slots) > 1:
        try:
            tangents = _Mode(map_, settings, forward=True)
            findings += tangents.findings()
            modes.append(tangents)
        except Unsupported:
            pass  # the forward check says why there is no forward mode
    if findings:
        summary = "an undefined cotangent or tangent is not treated as zero"
        return failed(_NAME, summary, tuple(findings))
    if not modes:
        return skipped(_NAME, "one input only: without its tangent there is none")
    names = " and ".join(f"{mode.noun}s" for mode in modes)
    notes = tuple(note for mode in modes for note in mode.left_out())
    return passed(_NAME, LIKE_ZERO.format(names), notes=notes)


class _Mode:
    """A mode of differentiation, of whose probe some slots may be missing."""

    def __init__(self, map_: DifferentiableMap, settings: Settings, *, forward: bool) -> None:
        self._map, self._settings, self._forward = map_, settings, forward
        self.noun = "tangent" if forward else "cotangent"
        self.space = map_.domain if forward else map_.codomain
        self.slots = [k for k, slot in enumerate(self.space.slots) if not slot.detached]
        drawn = probes.tangent if forward else probes.cotangent
        self.probe = drawn(map_, settings.seed, 0)
        self.run: Callable[[Array, Group], Array] = map_.vjp_undefined
        self.pull: Callable[[Array], Array] = map_.vjp
        if forward:
            self.run, self.pull = map_.jvp_undefined, map_.jvp
        # Of the whole probe; what raises here is no matter of one that is missing.
        self.whole = (tangent if forward else gradient)(map_, settings, 0)

    def beyond(
        self, got: Array, expected: Array, terms: Sequence[Array], what: str
    ) -> Sequence[Finding]:
        """Where these are not the same, given the sizes of the terms that they are made of."""
        map_, settings = self._map, self._settings
        pair, tolerance = Pair(got, expected, what, terms), of_claims(settings)
        if self._forward:
            # What is missing was a part of the whole, and is rounded by it.
            faint = functools.partial(claim_error.bars, map_, settings)
            pair = replace(pair, terms=(*terms, self.whole), forward=True, excuse=faint)
            return differences(_NAME, map_, pair, tolerance, kind="undefined tangent", most=4)
        found = differences(_NAME, map_, pair, tolerance, most=2)
        sizes = (expected, got, *terms)
        quiet = found and claim_error.below_noise(map_, settings, self.probe, sizes)
        return () if quiet else found

    @functools.cached_property
    def _families(self) -> list[Family]:
        found = groups.families(len(self.slots), _SPLITS, self._settings.seed)
        return [
            tuple(frozenset(self.slots[place] for place in group) for group in family)
            for family in found
        ]

    def all_missing(self) -> list[Finding]:
        """What is wrong where the whole probe is missing."""
        got = self._attempt(frozenset(range(len(self.space.slots))))
        if isinstance(got, Finding):
            return [got]
        pair = Pair(got, namespace(got).zeros_like(got), "all cotangents undefined")
        return list(differences(_NAME, self._map, pair, Tolerance(self._settings.atol)))

    def left_out(self) -> tuple[str, ...]:
        """That there are more combinations than were tried."""
        count = len(self.slots)
        if count < 2 or (asked := sum(map(len, self._families))) == 2**count - 2:
            return ()
        return (f"undefined {self.noun}s: {groups.share(asked, count)} were tried",)

    def findings(self) -> list[Finding]:
        """What is wrong where a group of slots is missing; of the first family that has such."""
        if len(self.slots) < 2:
            return []
        for family in self._families:
            if found := self._compared(family):
                return found
        return []

    def _compared(self, family: Family) -> list[Finding]:
        parts = [self._attempt(missing) for missing in family]
        if not any(isinstance(part, Finding) for part in parts):
            there = sum(self.slots[0] not in missing for missing in family)
            terms = (self.whole, *parts)
            if not self.beyond(sum(parts), there * self.whole, terms, ""):
                return []
        wrong = (missing for missing in family if self._wrong(missing))
        found: list[Finding] = []
        for missing in itertools.islice(wrong, 2):
            found += self._wrong(groups.narrowed(missing, self._wrong))
        return found or self._not_added(family)

    def _not_added(self, family: Family) -> list[Finding]:
        """What is wrong where zeros are treated as what is missing is, and wrongly."""
        parts = [self.pull(self._zeroed(missing)) for missing in family]
        there = sum(self.slots[0] not in missing for missing in family)
        what = f"{self.noun}s of some slots with zeros for the others, added up, against the whole"
        return list(self.beyond(sum(parts), there * self.whole, (self.whole, *parts), what))

    def _attempt(self, missing: Group) -> Array | Finding:
        try:
            return self.run(self.probe, missing)
        except Unsupported:
            raise
        except Exception as error:  # whatever the user's rule raises is the finding
            message = f"{self._what(missing)} undefined: it raised {raised(error)}{inside(error)}"
            place = None
            if self.space is self._map.codomain and len(missing) == 1:
                (slot,) = missing
                place = Place(self.space.slots[slot].name, slot, ())
            return Finding(_NAME, message, "undefined: raised", None, place)

    def _wrong(self, missing: Group) -> list[Finding]:
        """Missing, compared with zero."""
        got = self._attempt(missing)
        if isinstance(got, Finding):
            return [got]
        what = f"{self._what(missing)} undefined against zero"
        expected = self.pull(self._zeroed(missing))
        return list(self.beyond(got, expected, (expected,), what))

    def _zeroed(self, missing: Group) -> Array:
        xp, spans = namespace(self.probe), map(self.space.span, range(len(self.space.slots)))
        pieces = [self.probe[span] for span in spans]
        return xp.concat([xp.zeros_like(p) if k in missing else p for k, p in enumerate(pieces)])

    def _what(self, missing: Group) -> str:
        names = [self.space.slots[slot].name for slot in sorted(missing)]
        return f"{self.noun}{'s' * (len(names) > 1)} of {groups.listed(names)}"
