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
from gradproof._data.records import CheckResult, Finding
from gradproof._data.space import Space, Values
from gradproof._data.visible import join_words
from gradproof._maps.contract import Unsupported
from gradproof._measurements import Measurements
from gradproof._numdiff.probes import Kind, random_entries, round_to_formats

_NAME = "memory_layout"
_WORDS = {
    "gaps": "with gaps",
    "offset": "with an offset",
    "negative": "with the negative bit",
    "conjugate": "with the conjugate bit",
}
_BITS = ("negative", "conjugate")  # which a backward may refuse, as `.numpy()` does
_MOST_FINDINGS = 3  # of one layout


@dataclass(frozen=True)
class _Trial:
    """What arrays in one layout, or in several at once, gave.

    Attributes:
        layout: names, joined by "+".
        of_inputs: whether the inputs have that layout; else the cotangent.
        findings: what is wrong.
        refusal: that the code does not take such arrays, which is no mistake; "" where it does.
    """

    layout: str
    of_inputs: bool
    findings: tuple[Finding, ...] = ()
    refusal: str = ""

    @property
    def is_right(self) -> bool:
        return not (self.findings or self.refusal)


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
    singles = [single for part in parts if (single := trial(part)) is not None]
    return [together] if all(single.is_right for single in singles) else singles


def _result(trials: list[_Trial]) -> CheckResult:
    notes = tuple(dict.fromkeys(trial.refusal for trial in trials if trial.refusal))
    wrong = [trial for trial in trials if trial.findings]
    if not wrong:
        right = dict.fromkeys(name for trial in trials if trial.is_right for name in _names(trial))
        names = ", ".join(right) or "none that the function takes"
        return passed_check(_NAME, f"the same in another memory layout: {names}", notes=notes)
    of_cotangent = [trial.layout for trial in wrong if not trial.of_inputs]
    of_inputs = [trial.layout for trial in wrong if trial.of_inputs]
    where = " and ".join(
        f"{subject} {join_words([_phrase(layout) for layout in layouts], 'or')}"
        for subject, layouts in (("the cotangent is", of_cotangent), ("the inputs are", of_inputs))
        if layouts
    )
    summary = f"right for contiguous arrays, wrong only where {where}"
    if "contiguous" in of_cotangent + of_inputs:
        summary = f"another result where {where}"
    return failed_check(
        _NAME,
        summary,
        tuple(finding for trial in wrong for finding in trial.findings),
        notes=notes,
        where=f"only where {where}",
    )


def _cotangent_trial(measurements: Measurements, layout: str) -> _Trial | None:
    """What a cotangent in a layout gives; None where the map has no such layout."""
    trial = _Trial(layout, of_inputs=False)
    what = f"cotangent {_phrase(layout)} against the same values, contiguous"
    for v, expected in _cotangents_with_gradients(measurements, layout):
        try:
            with users_errors():
                got = measurements.map.vjp_layout(v, layout)
        except Unsupported:
            return None
        except UsersError as error:
            if layout in _BITS:
                text = f"the backward does not take a cotangent {_phrase(layout)}: {error}"
                return replace(trial, refusal=text)
            return _trial_that_raised(trial, f"the cotangent is {_phrase(layout)}", error)
        if findings := _gradient_findings(measurements, trial, got, expected, what):
            return replace(trial, findings=findings)
    return trial


def _cotangents_with_gradients(
    measurements: Measurements, layout: str
) -> list[tuple[Values, Values]]:
    """Cotangents and their gradients: for stride 0 such that have equal entries."""
    if "expanded" not in layout:
        return [(measurements.cotangent, measurements.gradient)]
    pairs = [(measurements.constant_cotangent, measurements.constant_gradient)]
    space, seed = measurements.map.codomain, measurements.settings.seed
    if any(sum(extent > 1 for extent in slot.shape) > 1 for slot in space.slots):
        for axis in (0, -1):
            v = _cotangent_equal_along(space, seed, axis)
            pairs.append((v, measurements.map.vjp(v)))
    return pairs


def _cotangent_equal_along(space: Space, seed: int, axis: int) -> Values:
    """Random entries that are equal along the first, or last, dimension of each output, (m,).

    A sum along that dimension hands over such a cotangent.
    """
    cotangent = random_entries(seed, Kind.SPECIAL, 8 - axis, space.size)
    for position, slot in enumerate(space.slots):
        axes = [k for k, extent in enumerate(slot.shape) if extent > 1]
        if axes and slot.entries is None and slot.size:
            span = space.span(position)
            entries = cotangent[span].reshape(*slot.shape, len(slot.parts))
            entries[:] = entries.take([0], axes[axis])
            cotangent[span] = entries.reshape(-1)
    return round_to_formats(space, cotangent)


def _inputs_trial(measurements: Measurements, layout: str) -> _Trial | None:
    """Value and gradient with the inputs in a layout; None where the map has no such layout."""
    map_, trial, where = measurements.map, _Trial(layout, of_inputs=True), _phrase(layout)
    try:
        with users_errors():
            other = map_.map_in_layout(layout)
            value = other.kept_value()
    except Unsupported:
        return None
    except UsersError as error:
        return replace(trial, refusal=f"the function does not take inputs {where}: {error}")
    findings = _value_findings(measurements, value, trial)
    if findings and (how := map_.memory_dependence()):  # it is, and is to be, another function
        text = f"the function {how}, and has another value for inputs {where}: not compared"
        return replace(trial, refusal=text)
    try:
        with users_errors():
            got = other.vjp(measurements.cotangent)
    except UsersError as error:
        raised = _trial_that_raised(trial, f"the inputs are {where}", error)
        return replace(raised, findings=(*findings, *raised.findings))
    what = f"inputs {where} against the same values as given"
    findings += _gradient_findings(measurements, trial, got, measurements.gradient, what)
    return replace(trial, findings=findings)


def _value_findings(measurements: Measurements, got: Values, trial: _Trial) -> tuple[Finding, ...]:
    """Where the function has another value: by more than half its digits."""
    expected, space = measurements.function.centre, measurements.map.codomain
    if np.array_equal(got, expected, equal_nan=True):
        return ()
    where = _phrase(trial.layout)
    if got.shape != expected.shape:
        message = f"other outputs for inputs {where} than for the same values as given"
        return (Finding(_NAME, message, _kind(trial)),)
    root = float(np.sqrt(max(measurements.unit, measurements.function.coarsest_unit)))
    allowed = root * np.nan_to_num(np.abs(expected), posinf=0.0) + measurements.settings.atol
    for position, slot in enumerate(space.slots):
        span = space.span(position)
        allowed[span] += root * np.max(allowed[span], initial=slot.grain.tiny)
    allowed += measurements.function.jitter * 8
    wrong = ~(np.abs(got - expected) <= allowed) & np.isfinite(expected)
    if wrong.any():  # what is left of terms that cancel is rounding, as differences show
        allowed += 16 * np.nan_to_num(measurements.slopes.noise)
        wrong &= ~(np.abs(got - expected) <= allowed)
    findings = []
    for i in np.flatnonzero(wrong)[:_MOST_FINDINGS]:
        place, numbers = space.locate(int(i)), (float(got[i]), float(expected[i]))
        message = (
            f"value of {place}: {numbers[0]:.6g} for inputs {where}, {numbers[1]:.6g} for the "
            f"same values as given; allowed {allowed[i]:.2g}"
        )
        bound = float(allowed[i])
        findings.append(Finding(_NAME, message, _kind(trial), None, place, *numbers, 0.0, bound))
    return tuple(findings)


def _gradient_findings(
    measurements: Measurements, trial: _Trial, got: Values, expected: Values, what: str
) -> tuple[Finding, ...]:
    return vector_findings(
        _NAME, measurements, got, expected, what, kind=_kind(trial), most=_MOST_FINDINGS
    )


def _trial_that_raised(trial: _Trial, where: str, error: UsersError) -> _Trial:
    text = f"it raised where {where}, though not for the same values as given: {error}"
    return replace(trial, findings=(Finding(_NAME, text, _kind(trial)),))


def _kind(trial: _Trial) -> str:
    """The kind of a finding of this layout."""
    return f"input layout: {trial.layout}" if trial.of_inputs else f"layout: {trial.layout}"


def _names(trial: _Trial) -> list[str]:
    """How people write the layouts that are joined in one."""
    prefix = "inputs " if trial.of_inputs else ""
    return [prefix + _WORDS.get(part, part) for part in trial.layout.split("+")]


def _phrase(layout: str) -> str:
    return " and ".join(_WORDS.get(part, part) for part in layout.split("+"))
