"""The memory layout of the cotangent changes nothing, nor does that of the inputs.

Several layouts are tried on top of each other, in one backward; each by itself only where that
shows a gap, to name the one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from gradproof._checks.agreement import gradient_repeats, vector_findings
from gradproof._checks.outcome import failed_check, inconclusive_check, passed_check, skipped_check
from gradproof._checks.users_code import UsersError, users_errors
from gradproof._data.records import CheckResult, Finding, Verdict
from gradproof._data.space import Space, Values
from gradproof._data.visible import join_words
from gradproof._low_precision.combine import mode_result
from gradproof._maps.contract import DifferentiableMap, Unsupported
from gradproof._measurements import Measurements
from gradproof._numdiff.probes import Kind, random_entries, round_to_formats

_NAME = "memory_layout"
_WORDS = {
    "gaps": "with gaps",
    "offset": "with an offset",
    "negative": "with the negative bit",
    "conjugate": "with the conjugate bit",
}
_COTANGENT, _INPUTS = "the cotangent is", "the inputs are"  # subjects
_BITS = ("negative", "conjugate")  # which a backward may refuse, as `.numpy()` does
_MOST_FINDINGS = 3  # of one layout


@dataclass(frozen=True)
class WrongLayouts:
    """Evidence: memory layouts, several at once joined by "+", that change a result.

    Attributes:
        cotangent, inputs: those of the cotangent, and of the inputs.
    """

    cotangent: frozenset[str]
    inputs: frozenset[str]


@dataclass(frozen=True)
class _Trial:
    """What arrays in one layout, or in several at once, gave.

    Attributes:
        subject: whose layout it is.
        layout: names, joined by "+".
        findings: what is wrong.
        refusal: that the code does not take such arrays, which is no mistake; "" where it does.
        open: why nothing is decided; "" where something is.
    """

    subject: str
    layout: str
    findings: tuple[Finding, ...] = ()
    refusal: str = ""
    open: str = ""

    @property
    def is_right(self) -> bool:
        return not (self.findings or self.refusal or self.open)


def check(measurements: Measurements) -> CheckResult:
    """One gradient, and one value, whatever the layout of the cotangent and of the inputs."""
    map_ = measurements.map
    stacks = map_.layouts()
    ways = map_.input_layouts() if measurements.settings.other_inputs else ()
    if not stacks and not ways:
        return skipped_check(_NAME, "no output has a second memory layout")
    trials: list[_Trial] = []
    for stack in stacks:
        trials += _trials(stack, lambda layout: _cotangent_trial(measurements, layout))
    if ways:
        trials += _trials("+".join(ways), lambda layout: _inputs_trial(measurements, layout))
    if any(trial.findings for trial in trials) and not gradient_repeats(measurements):
        return inconclusive_check(_NAME, "the gradient does not repeat, in whatever layout")
    return _result(trials)


def _trials(stack: str, trial: Callable[[str], _Trial | None]) -> list[_Trial]:
    """The layouts of a stack at once; each by itself where these are not right."""
    together, parts = trial(stack), stack.split("+")
    if together is None:
        return []
    if together.is_right or len(parts) < 2:
        return [together]
    single = [found for part in parts if (found := trial(part)) is not None]
    return [together] if all(each.is_right for each in single) else single


def _result(trials: list[_Trial]) -> CheckResult:
    notes = tuple(dict.fromkeys(trial.refusal for trial in trials if trial.refusal))
    wrong = [trial for trial in trials if trial.findings]
    if not wrong:
        open_ = [trial.open for trial in trials if trial.open]
        if open_:
            return inconclusive_check(_NAME, open_[0], notes=notes)
        right = dict.fromkeys(name for trial in trials if trial.is_right for name in _names(trial))
        names = ", ".join(right) or "none that the function takes"
        return passed_check(_NAME, f"the same in another memory layout: {names}", notes=notes)
    layouts = {
        subject: [trial.layout for trial in wrong if trial.subject == subject]
        for subject in (_COTANGENT, _INPUTS)
    }
    where = " and ".join(
        f"{subject} {join_words([_phrase(layout) for layout in names], 'or')}"
        for subject, names in layouts.items()
        if names
    )
    evidence = WrongLayouts(frozenset(layouts[_COTANGENT]), frozenset(layouts[_INPUTS]))
    summary = f"right for contiguous arrays, wrong only where {where}"
    if "contiguous" in evidence.cotangent | evidence.inputs:
        summary = f"another result where {where}"
    findings = tuple(finding for trial in wrong for finding in trial.findings)
    return failed_check(
        _NAME, summary, findings, notes=notes, where=f"only where {where}", evidence=evidence
    )


def _cotangent_trial(measurements: Measurements, layout: str) -> _Trial | None:
    """What a cotangent in a layout gives; None where the map has no such layout."""
    what = f"cotangent {_phrase(layout)} against the same values, contiguous"
    findings: tuple[Finding, ...] = ()
    for v, expected in _cotangents(measurements, layout):
        try:
            with users_errors():
                got = measurements.map.vjp_layout(v, layout)
        except Unsupported:
            return None
        except UsersError as error:
            return _trial_of_error(_COTANGENT, layout, str(error))
        findings = findings or vector_findings(
            _NAME,
            measurements,
            got,
            expected,
            what,
            kind=f"layout: {layout}",
            most=_MOST_FINDINGS,
        )
    return _Trial(_COTANGENT, layout, findings)


def _cotangents(measurements: Measurements, layout: str) -> list[tuple[Values, Values]]:
    """Cotangents and their gradients: for stride 0 such that have equal entries."""
    if "expanded" not in layout:
        return [(measurements.cotangent(0), measurements.gradient(0))]
    found = [(measurements.constant_cotangent, measurements.constant_gradient)]
    space, seed = measurements.map.codomain, measurements.settings.seed
    if any(sum(extent > 1 for extent in slot.shape) > 1 for slot in space.slots):
        for axis in (0, -1):
            v = _cotangent_equal_along(space, seed, axis)
            found.append((v, measurements.map.vjp(v)))
    return found


def _cotangent_equal_along(space: Space, seed: int, axis: int) -> Values:
    """Random entries that are equal along the first, or last, dimension of each output, (m,).

    A sum along that dimension hands over such a cotangent.
    """
    found = random_entries(seed, Kind.SPECIAL, 8 - axis, space.size)
    for position, slot in enumerate(space.slots):
        axes = [k for k, extent in enumerate(slot.shape) if extent > 1]
        if axes and slot.entries is None and slot.size:
            span = space.span(position)
            entries = found[span].reshape(*slot.shape, len(slot.parts))
            entries[:] = entries.take([0], axes[axis])
            found[span] = entries.reshape(-1)
    return round_to_formats(space, found)


def _trial_of_error(subject: str, layout: str, error: str) -> _Trial:
    if layout in _BITS:
        text = f"the backward does not take a cotangent {_phrase(layout)}: {error}"
        return _Trial(subject, layout, refusal=text)
    message = (
        f"it raised where {subject} {_phrase(layout)}, though not for the same values as given: "
        f"{error}"
    )
    return _Trial(subject, layout, (Finding(_NAME, message, _kind(subject, layout)),))


def _inputs_trial(measurements: Measurements, layout: str) -> _Trial | None:
    """Value and gradient with the inputs in a layout; None where the map has no such layout."""
    map_, v = measurements.map, measurements.cotangent(0)
    try:
        with users_errors():
            other = map_.map_in_layout(layout)
            value = other.kept_value()
    except Unsupported:
        return None
    except UsersError as error:
        text = f"the function does not take inputs {_phrase(layout)}: {error}"
        return _Trial(_INPUTS, layout, refusal=text)
    findings = _value_findings(measurements, value, layout)
    how = map_.memory_dependence() if findings else ""
    if how:
        return _trial_of_another_function(measurements, other, layout, how, findings[0])
    try:
        with users_errors():
            got = other.vjp(v)
    except UsersError as error:
        raised = _trial_of_error(_INPUTS, layout, str(error))
        return replace(raised, findings=(*findings, *raised.findings))
    findings += vector_findings(
        _NAME,
        measurements,
        got,
        measurements.gradient(0),
        f"inputs {_phrase(layout)} against the same values as given",
        kind=f"input layout: {layout}",
        most=_MOST_FINDINGS,
    )
    return _Trial(_INPUTS, layout, findings)


def _value_findings(measurements: Measurements, got: Values, layout: str) -> tuple[Finding, ...]:
    """Where the function has another value: by more than half its digits."""
    expected, space = measurements.function.centre, measurements.map.codomain
    if np.array_equal(got, expected, equal_nan=True):
        return ()
    if got.shape != expected.shape:
        message = f"other outputs for inputs {_phrase(layout)} than for the same values as given"
        return (Finding(_NAME, message, f"input layout: {layout}"),)
    root = float(np.sqrt(max(measurements.unit, measurements.function.coarsest_unit)))
    allowed = root * np.nan_to_num(np.abs(expected), posinf=0.0) + measurements.settings.atol
    for position, slot in enumerate(space.slots):
        span = space.span(position)
        allowed[span] += root * np.max(allowed[span], initial=slot.grain.tiny)
    allowed += measurements.function.jitter * 8
    with np.errstate(invalid="ignore"):
        wrong = ~(np.abs(got - expected) <= allowed) & np.isfinite(expected)
    found = []
    for i in np.flatnonzero(wrong)[:_MOST_FINDINGS]:
        place, numbers = space.locate(int(i)), (float(got[i]), float(expected[i]))
        message = (
            f"value of {place}: {numbers[0]:.6g} for inputs {_phrase(layout)}, {numbers[1]:.6g} "
            f"for the same values as given; allowed {allowed[i]:.2g}"
        )
        kind, bound = f"input layout: {layout}", float(allowed[i])
        found.append(Finding(_NAME, message, kind, None, place, *numbers, 0.0, bound))
    return tuple(found)


def _trial_of_another_function(
    measurements: Measurements, other: DifferentiableMap, layout: str, how: str, finding: Finding
) -> _Trial:
    """A function that goes by how its inputs lie in memory, as `as_strided` does.

    It has another value there, and is to have it, if the derivative of that other function is
    right. A function that asks for no places misreads its inputs, even where its backward misreads
    them in the same way.
    """
    text = f"the function {how}: {finding.message}; its derivative "
    try:
        with users_errors():
            result = mode_result(
                other,
                measurements.settings,
                "backward",
                users_reference=Measurements(other, measurements.settings).reference,
            )
    except (Unsupported, UsersError) as error:
        return _Trial(_INPUTS, layout, open=f"{text}there is not decided: {error}")
    if result.verdict is Verdict.FAILED:
        return _Trial(_INPUTS, layout, (finding,))
    if result.verdict is Verdict.PASSED:
        return _Trial(_INPUTS, layout, refusal=f"{text}is right there as well")
    return _Trial(_INPUTS, layout, open=f"{text}there is not decided: {result.summary}")


def _kind(subject: str, layout: str) -> str:
    return f"layout: {layout}" if subject == _COTANGENT else f"input layout: {layout}"


def _names(trial: _Trial) -> list[str]:
    """How people write the layouts that are joined in one."""
    prefix = "inputs " if trial.subject == _INPUTS else ""
    return [prefix + _WORDS.get(part, part) for part in trial.layout.split("+")]


def _phrase(layout: str) -> str:
    return " and ".join(_WORDS.get(part, part) for part in layout.split("+"))
