"""The memory layout of the cotangent changes nothing, nor does that of the inputs.

Several layouts are tried on top of each other, in one backward; each by itself only where that
shows a gap, to name the one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace

from gradproof._checks.agreement import gradient_repeats, value_findings, vector_findings
from gradproof._checks.outcome import failed_check, inconclusive_check, passed_check, skipped_check
from gradproof._data.records import CheckResult, Finding
from gradproof._data.space import Space, Values
from gradproof._data.visible import join_words
from gradproof._maps.contract import Unsupported
from gradproof._maps.users_code import UsersError, users_errors
from gradproof._measurements import ClaimedProducts, Measurements
from gradproof._numdiff.probes import Kind, random_entries, round_to_formats

_NAME = "memory_layout"
_WORDS = {
    "gaps": "with gaps",
    "offset": "with an offset",
    "negative": "with the negative bit",
    "conjugate": "with the conjugate bit",
}
_COTANGENT, _INPUTS = "the cotangent is", "the inputs are"  # which has another layout
_BITS = ("negative", "conjugate")  # which a backward may refuse, as `.numpy()` does


@dataclass(frozen=True)
class _Trial:
    """What arrays in one layout, or in several at once, gave.

    Attributes:
        subject: whose layout it is, "the cotangent is" or "the inputs are".
        layout: names, joined by "+".
        findings: what is wrong.
        refusal: that the code does not take such arrays; "" where it does.
    """

    subject: str
    layout: str
    findings: tuple[Finding, ...] = ()
    refusal: str = ""

    @property
    def is_right(self) -> bool:
        return not (self.findings or self.refusal)

    @property
    def phrase(self) -> str:
        """The layout in words: "transposed and with gaps"."""
        return " and ".join(_WORDS.get(part, part) for part in self.layout.split("+"))

    @property
    def kind(self) -> str:
        """The kind of its findings."""
        return f"{'input ' if self.subject == _INPUTS else ''}layout: {self.layout}"

    def with_error(self, error: UsersError) -> _Trial:
        """The trial with the finding that the user's code raised."""
        where = f"where {self.subject} {self.phrase}"
        text = f"it raised {where}, though not for the same values as given: {error}"
        return replace(self, findings=(*self.findings, Finding(_NAME, text, self.kind)))


def check(measurements: Measurements) -> CheckResult:
    """One gradient, and one value, whatever the layout of the cotangent and of the inputs."""
    map_ = measurements.map
    stacks = map_.layouts()
    ways = map_.input_layouts() if measurements.settings.other_inputs else ()
    if not stacks and not ways:
        return skipped_check(_NAME, "no output or input can be laid out in memory otherwise")
    trials: list[_Trial] = []
    for stack in stacks:
        trials += _trials(_cotangent_trial, measurements, stack)
    if ways:
        with contextlib.suppress(Unsupported):
            trials += _trials(_input_trial, measurements, "+".join(ways))
    if any(trial.findings for trial in trials) and not gradient_repeats(measurements):
        return inconclusive_check(_NAME, "the gradient does not repeat, in whatever layout")
    return _result(trials)


def _trials(
    try_layout: Callable[[Measurements, str], _Trial], measurements: Measurements, stack: str
) -> list[_Trial]:
    """The layouts of a stack at once; each by itself where these are not right."""
    together, parts = try_layout(measurements, stack), stack.split("+")
    if together.is_right or len(parts) < 2:
        return [together]
    singles = [try_layout(measurements, part) for part in parts]
    return [together] if all(single.is_right for single in singles) else singles


def _result(trials: list[_Trial]) -> CheckResult:
    """The result of all trials: which layouts are wrong, or which are right."""
    notes = tuple(dict.fromkeys(trial.refusal for trial in trials if trial.refusal))
    wrong = [trial for trial in trials if trial.findings]
    if not wrong:
        right = dict.fromkeys(
            ("inputs " if trial.subject == _INPUTS else "") + _WORDS.get(part, part)
            for trial in trials
            if trial.is_right
            for part in trial.layout.split("+")
        )
        names = ", ".join(right) or "none that the function takes"
        return passed_check(_NAME, f"the same in another memory layout: {names}", notes=notes)
    phrases = {
        subject: [trial.phrase for trial in wrong if trial.subject == subject]
        for subject in dict.fromkeys(trial.subject for trial in wrong)
    }
    where = " and ".join(f"{subject} {join_words(phrases[subject], 'or')}" for subject in phrases)
    summary = f"right for contiguous arrays, wrong only where {where}"
    if any(trial.layout == "contiguous" for trial in wrong):
        summary = f"another result where {where}"
    findings = tuple(finding for trial in wrong for finding in trial.findings)
    return failed_check(_NAME, summary, findings, notes=notes, where=f"only where {where}")


def _cotangent_trial(measurements: Measurements, layout: str) -> _Trial:
    """The gradient of a cotangent in a layout, compared with that of a contiguous one."""
    trial, products = _Trial(_COTANGENT, layout), measurements.backward
    what = f"cotangent {trial.phrase} against the same values, contiguous"
    for v, expected in _cotangents_with_gradients(products, layout):
        try:
            with users_errors():
                got = measurements.map.vjp_layout(v, layout)
        except UsersError as error:
            if layout not in _BITS:
                return trial.with_error(error)
            text = f"the backward does not take a cotangent {trial.phrase}: {error}"
            return replace(trial, refusal=text)
        if findings := vector_findings(_NAME, products, got, expected, what, kind=trial.kind):
            return replace(trial, findings=findings)
    return trial


def _input_trial(measurements: Measurements, layout: str) -> _Trial:
    """Value and gradient with the inputs in a layout, compared with those for the inputs as given.

    Raises:
        Unsupported: no input can be handed over otherwise.
    """
    trial, map_, products = _Trial(_INPUTS, layout), measurements.map, measurements.backward
    try:
        with users_errors():
            other = map_.map_in_layout(layout)
            value = other.kept_value()
    except UsersError as error:
        text = f"the function does not take inputs {trial.phrase}: {error}"
        return replace(trial, refusal=text)
    what = f"inputs {trial.phrase} against the same values as given"
    findings = value_findings(_NAME, measurements, value, what, trial.kind)
    if findings and (how := map_.memory_dependence()):  # it is, and is to be, another function
        text = f"the function {how}, and has another value for inputs {trial.phrase}: not compared"
        return replace(trial, refusal=text)
    trial = replace(trial, findings=findings)
    try:
        with users_errors():
            got = products.ask(products.probe, other)
    except UsersError as error:
        return trial.with_error(error)
    findings += vector_findings(_NAME, products, got, products.product, what, kind=trial.kind)
    return replace(trial, findings=findings)


def _cotangents_with_gradients(
    products: ClaimedProducts, layout: str
) -> list[tuple[Values, Values]]:
    """Cotangents and their gradients: for stride 0 such that have equal entries."""
    if "expanded" not in layout:
        return [(products.probe, products.product)]
    pairs = [(products.constant_probe, products.constant_product)]
    space, seed = products.probe_space, products.measurements.settings.seed
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
