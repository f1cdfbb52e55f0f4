"""A cotangent or tangent that is not there behaves like zero.

J^T v without the cotangents of a group of outputs, and without those of all others, add up to
J^T v: two runs for each way to split the outputs in two, and no reference. Of groups that hold
every output equally often they add up to a multiple of it. Of tangents and J u the same is true.
"""

from __future__ import annotations

import abc
import itertools
from collections.abc import Sequence

from gradproof._checks import groups
from gradproof._checks.groups import Family, Group
from gradproof._data.frames import inside
from gradproof._data.records import CheckResult, Finding, Place
from gradproof._data.settings import Settings
from gradproof._data.space import Array, Space, namespace
from gradproof._judge import claim_error
from gradproof._judge.claims import gradient, tangent
from gradproof._judge.decide import Tolerance, of_claims
from gradproof._judge.outcome import failed, passed, raised, skipped
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
        modes.append(_Cotangents(map_, settings))
        findings += modes[-1].findings()
    if forward and len(map_.domain.slots) > 1:
        try:
            tangents = _Tangents(map_, settings)
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


class _Mode(abc.ABC):
    """A mode of differentiation, of whose probe some slots may be missing."""

    noun: str
    space: Space  # of the probe
    slots: Sequence[int]  # those that may be missing
    probe: Array
    whole: Array  # what the whole probe gives

    def __init__(self, map_: DifferentiableMap, settings: Settings) -> None:
        self._map, self._settings = map_, settings

    @abc.abstractmethod
    def run(self, missing: Group) -> Array:
        """What the probe gives where these slots are missing."""

    @abc.abstractmethod
    def zeroed(self, probe: Array) -> Array:
        """What a probe gives that is there throughout."""

    @abc.abstractmethod
    def beyond(
        self, got: Array, expected: Array, terms: Sequence[Array], what: str
    ) -> Sequence[Finding]:
        """Where these are not the same, given the sizes of the terms that they are made of."""

    @property
    def _families(self) -> list[Family]:
        found = groups.families(len(self.slots), _SPLITS, self._settings.seed or 0)
        return [
            tuple(frozenset(self.slots[place] for place in group) for group in family)
            for family in found
        ]

    def left_out(self) -> tuple[str, ...]:
        """That there are more combinations than were tried."""
        asked, count = sum(map(len, self._families)), len(self.slots)
        if count < 2 or asked == 2**count - 2:
            return ()
        return (f"undefined {self.noun}s: {groups.share(asked, count)} were tried",)

    def findings(self) -> list[Finding]:
        """What is wrong where a group of slots is missing; of the first family that has such."""
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
        return found

    def _attempt(self, missing: Group) -> Array | Finding:
        try:
            return self.run(missing)
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
        xp, spans = namespace(self.probe), map(self.space.span, range(len(self.space.slots)))
        pieces = [self.probe[span] for span in spans]
        zeroed = xp.concat([xp.zeros_like(p) if k in missing else p for k, p in enumerate(pieces)])
        what = f"{self._what(missing)} undefined against zero"
        expected = self.zeroed(zeroed)
        return list(self.beyond(got, expected, (expected,), what))

    def _what(self, missing: Group) -> str:
        names = [self.space.slots[slot].name for slot in sorted(missing)]
        return f"{self.noun}{'s' * (len(names) > 1)} of {groups.listed(names)}"


class _Cotangents(_Mode):
    noun = "cotangent"

    def __init__(self, map_: DifferentiableMap, settings: Settings) -> None:
        super().__init__(map_, settings)
        self.space = map_.codomain
        self.slots = [k for k, slot in enumerate(map_.codomain.slots) if not slot.detached]
        self.probe = probes.cotangent(map_, settings.seed or 0, 0)
        self.whole = gradient(map_, settings, 0)  # what raises here is no matter of None

    def findings(self) -> list[Finding]:
        found = self._all_missing()
        if len(self.slots) > 1:
            found += super().findings()
        return found

    def _all_missing(self) -> list[Finding]:
        every = frozenset(range(len(self.space.slots)))
        got = self._attempt(every)
        if isinstance(got, Finding):
            return [got]
        zero = namespace(got).zeros_like(got)
        return list(
            differences(
                _NAME,
                self._map,
                Pair(got, zero, "all cotangents undefined"),
                Tolerance(self._settings.atol),
            )
        )

    def run(self, missing: Group) -> Array:
        return self._map.vjp_undefined(self.probe, missing)

    def zeroed(self, probe: Array) -> Array:
        return self._map.vjp(probe)

    def beyond(
        self, got: Array, expected: Array, terms: Sequence[Array], what: str
    ) -> Sequence[Finding]:
        found = differences(
            _NAME,
            self._map,
            Pair(got, expected, what, terms),
            of_claims(self._settings),
            most=2,
        )
        sizes = (expected, got, *terms)
        if found and claim_error.below_noise(self._map, self._settings, self.probe, sizes):
            return ()
        return found


class _Tangents(_Mode):
    noun = "tangent"

    def __init__(self, map_: DifferentiableMap, settings: Settings) -> None:
        super().__init__(map_, settings)
        self.space, self.slots = map_.domain, range(len(map_.domain.slots))
        self.probe = probes.tangent(map_, settings.seed or 0, 0)
        self.whole = tangent(map_, settings, 0)

    def run(self, missing: Group) -> Array:
        return self._map.jvp_undefined(self.probe, missing)

    def zeroed(self, probe: Array) -> Array:
        return self._map.jvp(probe)

    def beyond(
        self, got: Array, expected: Array, terms: Sequence[Array], what: str
    ) -> Sequence[Finding]:
        # What is missing was a part of the whole, and is rounded by it.
        pair = Pair(got, expected, what, (*terms, self.whole), forward=True, excuse=self._faint)
        kind = "undefined tangent"
        return differences(_NAME, self._map, pair, of_claims(self._settings), kind=kind, most=4)

    def _faint(self) -> Array:
        return claim_error.bars(self._map, self._settings)
