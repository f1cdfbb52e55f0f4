"""The memory layout of the cotangent changes nothing, nor does that of the inputs.

Several layouts are tried on top of each other, in one backward; each by itself only where that
shows a gap, to name the one.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from gradproof._checks import extremes
from gradproof._data.frames import inside, raised
from gradproof._data.records import CheckResult, Finding, Verdict
from gradproof._data.settings import Settings
from gradproof._data.space import Array, namespace, positions
from gradproof._data.visible import joined
from gradproof._judge.claims import Backward, gradient, pulled
from gradproof._judge.decide import of_claims, same_value
from gradproof._judge.outcome import failed, inconclusive, passed, skipped
from gradproof._maps.contract import DifferentiableMap, Unsupported
from gradproof._measure import directional, evaluate, probes
from gradproof._verdict.agree import Pair, differences
from gradproof._verdict.verify import verify

_NAME = "layout"
_WORDS = {
    "gaps": "with gaps",
    "offset": "with an offset",
    "negative": "with the negative bit",
    "conjugate": "with the conjugate bit",
}
_COTANGENT, _INPUTS = "the cotangent is", "the inputs are"  # subjects
_BITS = ("negative", "conjugate")  # which a backward may refuse, as `.numpy()` does
RIGHT = ("right layouts",)  # key of a map's memo: what is known already, and its words


def known_right(map_: DifferentiableMap, carried: str, inputs: str, other: str) -> str:
    """Remember that inputs in all these layouts, with a cotangent in that, changed nothing.

    Nor did one in another stack, of inputs as they are given. What is said, where that is all there
    is; else "".
    """
    of_inputs = tuple([f"inputs {word}" for word in words_of(inputs)])
    known = {carried: words_of(carried), _INPUTS: of_inputs, other: words_of(other)}
    map_.memo[RIGHT] = known
    summed = {stack: words_of(stack) for stack in map_.memo.get(extremes.AGREES, ())}
    if not set(map_.layouts()) <= {*known, *summed}:
        return ""
    words = dict.fromkeys(itertools.chain(*known.values(), *summed.values()))
    return same_in(words) if words else ""


def check(map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """One gradient, and one value, whatever the layout of the cotangent and of the inputs."""
    stacks = list(map_.layouts())
    # Of a large map a second set of inputs would stand beside the first in memory.
    ways = map_.input_layouts() if settings.other_inputs and not directional.large(map_) else ()
    if not stacks and not ways:
        return skipped(_NAME, "no output has a second memory layout")
    plain = [stack for stack in stacks if "expanded" not in stack]
    carried = plain[-1] if plain and ways else ""
    known: dict[str, tuple[str, ...]] = map_.memo.get(RIGHT, {})
    tried = _Tried(map_, settings, itertools.chain.from_iterable(known.values()))
    if ways and _INPUTS not in known and not tried.inputs(ways, carried):
        carried = ""
    for stack in stacks:
        if stack != carried and stack not in known:
            tried.cotangents(stack)
    if directional.large(map_):
        map_.memo.pop(("gradient", "constant"), None)  # nobody after this needs it
    return tried.result()


@dataclass(frozen=True)
class WrongLayouts:
    """Evidence: memory layouts, several at once joined by "+", that change a result."""

    cotangent: frozenset[str]  # those of the cotangent
    inputs: frozenset[str]  # those of the inputs


def same_in(layouts: Iterable[str]) -> str:
    """What is said where all these layouts, in words, gave the same."""
    told = ", ".join(layouts) or "none that the function takes"
    return f"the same in another memory layout: {told}"


@dataclass
class _Outcome:
    """What one layout, or several together, gave."""

    findings: tuple[Finding, ...] = ()
    raised: str = ""
    missing: bool = False

    @property
    def wrong(self) -> bool:
        return bool(self.findings or self.raised)


class _Tried:
    """What was tried so far, and what it showed; `right` is known from elsewhere."""

    def __init__(self, map_: DifferentiableMap, settings: Settings, right: Iterable[str]) -> None:
        self._map, self._settings = map_, settings
        self._findings: list[Finding] = []
        self._wrong: dict[str, dict[str, None]] = {}  # subject, to its layouts
        self._right: dict[str, None] = dict.fromkeys(right)
        self._notes: list[str] = []
        self._open = ""

    def result(self) -> CheckResult:
        """The verdict on all that was tried."""
        notes = tuple(self._notes)
        if not self._findings and self._open:
            return inconclusive(_NAME, self._open, notes=notes)
        if not self._findings:
            return passed(_NAME, same_in(self._right), notes=notes)
        wrong = " and ".join(
            f"{subject} {joined(list(map(_phrase, layouts)), 'or')}"
            for subject, layouts in self._wrong.items()
        )
        of_cotangent, of_inputs = (self._wrong.get(each, {}) for each in (_COTANGENT, _INPUTS))
        evidence = WrongLayouts(frozenset(of_cotangent), frozenset(of_inputs))
        summary = f"right for contiguous arrays, wrong only where {wrong}"
        if "contiguous" in evidence.cotangent | evidence.inputs:
            summary = f"another result where {wrong}"
        return failed(
            _NAME,
            summary,
            tuple(self._findings),
            notes=notes,
            where=f"only where {wrong}",
            evidence=evidence,
        )

    # Cotangents.

    def cotangents(self, stack: str) -> None:
        """A cotangent in these layouts at once; each by itself where that shows a gap."""
        together = self._cotangent(self._map, stack)
        if together.missing:
            return
        if not together.wrong:
            self._right.update(dict.fromkeys(words_of(stack)))
            return
        parts = stack.split("+")
        single = {part: self._cotangent(self._map, part) for part in parts} if parts[1:] else {}
        if not any(outcome.wrong for outcome in single.values()):
            single = {stack: together}
        for part, outcome in single.items():
            self._say(_COTANGENT, part, outcome)
            if not outcome.wrong:
                self._right.update(dict.fromkeys(words_of(part)))

    def _cotangent(self, map_: DifferentiableMap, layout: str, what: str = "") -> _Outcome:
        what = what or f"cotangent {_phrase(layout)} against the same values, contiguous"
        if layout in map_.memo.get(extremes.AGREES, ()):
            return _Outcome()  # the sum of `linearity` holds with it
        asked, plain, findings = self._asked(map_, layout), [self._gradient], tuple[Finding, ...]()
        if extremes.EXPANDED in layout:
            plain = [each for _, each in extremes.laid_terms(self._map, self._settings)]
        try:
            pairs = list(zip(asked(), plain, strict=True))
        except Unsupported:
            return _Outcome(missing=True)
        except Exception as error:  # whatever the user's backward raises is the finding
            return _Outcome(raised=f"{raised(error)}{inside(error)}")
        tolerance = of_claims(self._settings)
        for got, expected in pairs:
            pair = Pair(got, expected, what, (expected, self._gradient))
            findings = findings or differences(_NAME, self._map, pair, tolerance, most=3)
        return _Outcome(findings)

    def _asked(self, map_: DifferentiableMap, layout: str) -> Callable[[], list[Array]]:
        """What asks for the gradients of a dense cotangent, or of those with stride 0."""
        settings = self._settings
        if extremes.EXPANDED in layout:
            return lambda: [each for _, each in extremes.laid_terms(map_, settings, layout)]
        v = probes.cotangent(self._map, settings.seed, 0)
        return lambda: [pulled(map_, v, layout)]

    @property
    def _gradient(self) -> Array:
        return gradient(self._map, self._settings, 0)

    # Inputs.

    def inputs(self, ways: Sequence[str], carried: str) -> bool:
        """The inputs in all these layouts at once, with a cotangent in layout `carried`.

        False where the function does not take them, or is another one of them; the cotangent was
        then not tried.
        """
        other = self._restrided("+".join(ways))
        if other is None:
            fewer = [way for way in ways if way not in _BITS]
            return 0 < len(fewer) < len(ways) and self.inputs(fewer, carried)
        value = self._value(other.kept_value(), _phrase("+".join(ways)))
        if value.wrong and self._goes_by_memory(other, value):
            return False
        together = self._cotangent(other, carried)
        if not value.wrong and not together.wrong:
            self._right.update(dict.fromkeys(words_of(carried)))
            self._right.update({f"inputs {words}": None for words in words_of("+".join(ways))})
            return True
        if not value.wrong and not self._input_gradient(other, "+".join(ways)).wrong:
            self.cotangents(carried)
            return True
        if carried:
            self.cotangents(carried)
        single = [way for way in ways if self._input(way)] if len(ways) > 1 else []
        if not single:
            self._input("+".join(ways))
        return True

    def _restrided(self, layout: str) -> DifferentiableMap | None:
        try:
            return self._map.restrided(layout)
        except Unsupported:
            return None
        except Exception as error:  # the user's function may raise anything
            refused = f"the function does not take inputs {_phrase(layout)}: {raised(error)}"
            self._notes.append(refused)
            return None

    def _input(self, layout: str) -> bool:
        """Whether inputs in this layout give something else; it is then said."""
        other = self._restrided(layout)
        if other is None:
            return False
        value = self._value(other.kept_value(), _phrase(layout))
        outcomes = (value, self._input_gradient(other, layout))
        for outcome in outcomes:
            self._say(_INPUTS, layout, outcome)
        return any(outcome.wrong for outcome in outcomes)

    def _goes_by_memory(self, other: DifferentiableMap, value: _Outcome) -> bool:
        """Whether the function is another one of inputs that lie otherwise, and differentiable.

        `as_strided` says which places of the memory it reads: it has another value there, and that
        is what it is to have, if the derivative of that other function is right. Where this is not
        decided, no more is said. A function that asks for no places misreads its inputs, even
        where its backward misreads them in the same way. A mask of random numbers is another one
        there too.
        """
        how = self._map.by_memory()
        if not how:
            return False
        found = verify(Backward(other, self._settings))
        if found.verdict is Verdict.FAILED:
            return False
        right = found.verdict is Verdict.PASSED
        told = "is right there as well" if right else f"there is not decided: {found.summary}"
        message = f"the function {how}: {value.findings[0].message}; its derivative {told}"
        if right:
            self._notes.append(message)
        else:
            self._open = message
        return True

    def _input_gradient(self, other: DifferentiableMap, layout: str) -> _Outcome:
        what = f"inputs {_phrase(layout)} against the same values as given"
        return self._cotangent(other, "", what)

    def _value(self, got: Array, words: str) -> _Outcome:
        """Whether the function has another value there."""
        centre = evaluate.centre(self._map)
        expected = centre.value
        if bool(namespace(got).all(got == expected)):  # the very same bits, as nearly always
            return _Outcome()
        decided = same_value(self._map, got, expected, centre.noise)
        found = []
        for i in positions(decided.wrong)[:3]:
            place = self._map.codomain.locate(i)
            numbers = float(got[i]), float(expected[i]), float(decided.further[i])
            message = (
                f"value of {place}: {numbers[0]:.6g} for inputs {words}, {numbers[1]:.6g} for the "
                f"same values as given; allowed {numbers[2]:.2g}"
            )
            found.append(
                Finding(_NAME, message, "value", None, place, *numbers[:2], 0.0, numbers[2])
            )
        return _Outcome(tuple(found))

    # Words.

    def _say(self, subject: str, layout: str, outcome: _Outcome) -> None:
        if outcome.raised and layout in _BITS:
            self._notes.append(
                f"the backward does not take a cotangent {_phrase(layout)}: {outcome.raised}"
            )
            return
        kind = f"layout: {layout}" if subject == _COTANGENT else f"input layout: {layout}"
        if outcome.wrong:
            self._wrong.setdefault(subject, {})[layout] = None
        if outcome.raised:
            message = (
                f"it raised where {subject} {_phrase(layout)}, though not for the same values as "
                f"given: {outcome.raised}"
            )
            self._findings.append(Finding(_NAME, message, kind))
        for finding in outcome.findings:
            self._findings.append(replace(finding, kind=kind))


@functools.cache
def words_of(layout: str) -> tuple[str, ...]:
    """How people write the layouts that are joined in one."""
    return tuple([_WORDS.get(part, part) for part in layout.split("+") if part])


def _phrase(layout: str) -> str:
    return " and ".join(words_of(layout))
