"""The memory layout of the cotangent changes nothing, nor does that of the inputs.

Several layouts are tried on top of each other, in one backward; each by itself only where that
shows a gap, to name the one.
"""

from __future__ import annotations

from dataclasses import dataclass

from gradproof._checks.agreement import gradient_repeats, value_findings, vector_findings
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


@dataclass(frozen=True)
class _Trial:
    """What arrays in one layout, or in several at once, gave.

    Attributes:
        layout: names, joined by "+".
        of_inputs: whether the inputs have that layout; else the cotangent.
        findings: what is wrong.
        refusal: that the code does not take such arrays; "" where it does.
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
        return skipped_check(_NAME, "no output or input can be laid out in memory otherwise")
    trials: list[_Trial] = []
    for stack in stacks:
        trials += _trials(measurements, stack, of_inputs=False)
    if ways:
        trials += _trials(measurements, "+".join(ways), of_inputs=True)
    if any(trial.findings for trial in trials) and not gradient_repeats(measurements):
        return inconclusive_check(_NAME, "the gradient does not repeat, in whatever layout")
    return _result(trials)


def _trials(measurements: Measurements, stack: str, *, of_inputs: bool) -> list[_Trial]:
    """The layouts of a stack at once; each by itself where these are not right."""
    together, parts = _trial(measurements, stack, of_inputs=of_inputs), stack.split("+")
    if together is None or together.is_right or len(parts) < 2:
        return [together] if together else []
    singles = [_trial(measurements, part, of_inputs=of_inputs) for part in parts]
    known = [single for single in singles if single is not None]
    return [together] if all(single.is_right for single in known) else known


def _trial(measurements: Measurements, layout: str, *, of_inputs: bool) -> _Trial | None:
    """What arrays in a layout give; None where the map has no such layout."""
    findings_of = _findings_of_inputs if of_inputs else _findings_of_cotangent
    try:
        findings = findings_of(measurements, layout)
    except Unsupported:
        return None
    if isinstance(findings, str):
        return _Trial(layout, of_inputs, refusal=findings)
    return _Trial(layout, of_inputs, findings)


def _result(trials: list[_Trial]) -> CheckResult:
    notes = tuple(dict.fromkeys(trial.refusal for trial in trials if trial.refusal))
    wrong = [trial for trial in trials if trial.findings]
    if not wrong:
        right = dict.fromkeys(
            ("inputs " if trial.of_inputs else "") + _WORDS.get(part, part)
            for trial in trials
            if trial.is_right
            for part in trial.layout.split("+")
        )
        names = ", ".join(right) or "none that the function takes"
        return passed_check(_NAME, f"the same in another memory layout: {names}", notes=notes)
    layouts = {
        subject: [_phrase(trial.layout) for trial in wrong if trial.of_inputs == of_inputs]
        for subject, of_inputs in (("the cotangent is", False), ("the inputs are", True))
    }
    where = " and ".join(
        f"{subject} {join_words(phrases, 'or')}" for subject, phrases in layouts.items() if phrases
    )
    summary = f"right for contiguous arrays, wrong only where {where}"
    if any(trial.layout == "contiguous" for trial in wrong):
        summary = f"another result where {where}"
    findings = tuple(finding for trial in wrong for finding in trial.findings)
    return failed_check(_NAME, summary, findings, notes=notes, where=f"only where {where}")


def _findings_of_cotangent(measurements: Measurements, layout: str) -> tuple[Finding, ...] | str:
    """What is wrong with the gradient of a cotangent in a layout; or that it is not taken."""
    kind = f"layout: {layout}"
    what = f"cotangent {_phrase(layout)} against the same values, contiguous"
    for v, expected in _cotangents_with_gradients(measurements, layout):
        try:
            with users_errors():
                got = measurements.map.vjp_layout(v, layout)
        except UsersError as error:
            if layout in _BITS:
                return f"the backward does not take a cotangent {_phrase(layout)}: {error}"
            return (_finding_of_error(f"the cotangent is {_phrase(layout)}", error, kind),)
        products = measurements.backward
        if findings := vector_findings(_NAME, products, got, expected, what, kind=kind):
            return findings
    return ()


def _cotangents_with_gradients(
    measurements: Measurements, layout: str
) -> list[tuple[Values, Values]]:
    """Cotangents and their gradients: for stride 0 such that have equal entries."""
    products = measurements.backward
    if "expanded" not in layout:
        return [(products.probe, products.product)]
    pairs = [(products.constant_probe, products.constant_product)]
    space, seed = measurements.map.codomain, measurements.settings.seed
    if any(sum(extent > 1 for extent in slot.shape) > 1 for slot in space.slots):
        for axis in (0, -1):
            v = _cotangent_equal_along(space, seed, axis)
            pairs.append((v, products.ask(v)))
    return pairs


def _cotangent_equal_along(space: Space, seed: int, axis: int) -> Values:
    """Random entries that are equal along the first, or last, dimension of each output, (m,).

    A sum along that dimension hands over such a cotangent.
    """
    cotangent = random_entries(seed, Kind.SPECIAL, 8 - axis, space.size)
    for position, slot in enumerate(space.slots):
        axes = [k for k, extent in enumerate(slot.shape) if extent > 1]
        if axes and slot.entries is None and slot.size:
            entries = cotangent[space.span(position)].reshape(*slot.shape, len(slot.parts))
            entries[:] = entries.take([0], axes[axis])
    return round_to_formats(space, cotangent)


def _findings_of_inputs(measurements: Measurements, layout: str) -> tuple[Finding, ...] | str:
    """What is wrong with value and gradient with the inputs in a layout; or why none is taken."""
    map_, kind, where = measurements.map, f"input layout: {layout}", _phrase(layout)
    try:
        with users_errors():
            other = map_.map_in_layout(layout)
            value = other.kept_value()
    except UsersError as error:
        return f"the function does not take inputs {where}: {error}"
    what = f"inputs {where} against the same values as given"
    findings = value_findings(_NAME, measurements, value, what, kind)
    if findings and (how := map_.memory_dependence()):  # it is, and is to be, another function
        return f"the function {how}, and has another value for inputs {where}: not compared"
    try:
        with users_errors():
            got = other.vjp(measurements.cotangent)
    except UsersError as error:
        return (*findings, _finding_of_error(f"the inputs are {where}", error, kind))
    products = measurements.backward
    return findings + vector_findings(_NAME, products, got, products.product, what, kind=kind)


def _finding_of_error(where: str, error: UsersError, kind: str) -> Finding:
    text = f"it raised where {where}, though not for the same values as given: {error}"
    return Finding(_NAME, text, kind)


def _phrase(layout: str) -> str:
    return " and ".join(_WORDS.get(part, part) for part in layout.split("+"))
