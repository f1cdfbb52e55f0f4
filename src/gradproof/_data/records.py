"""Outcomes as values: verdicts, findings, results, the report.

Records hold strings, integers, floats and tuples of them; no array of a framework, no exception,
no traceback. Text is made from them last, in `_render`.
"""

from __future__ import annotations

import enum
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from gradproof._data import checks, files
from gradproof._data.options import unknown_name_message
from gradproof.errors import UnknownNameError

NOT_ASKED = "not asked for"  # how the reason begins of a check whose order was not
FORMS = ("txt", "json", "html")  # endings of files that a report can be written to


class Verdict(str, enum.Enum):
    """What a check, or a report, concluded: passed, failed, inconclusive or skipped."""

    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"
    SKIPPED = "skipped"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Place:
    """One entry of an input or output.

    Attributes:
        name: name of the argument or output, such as `x`, `weight` or `params['a'][0]`.
        slot: position among the inputs or outputs, from 0.
        index: multi-index of the entry in its array; `()` for a scalar.
        part: "real" or "imag" of a complex entry, else "".
    """

    name: str
    slot: int
    index: tuple[int, ...]
    part: str = ""

    def __str__(self) -> str:
        index = f"[{', '.join(map(str, self.index))}]" if self.index else ""
        return f"{self.name}{index}{'.' + self.part if self.part else ''}"


def digits_of_gap(one: float, other: float) -> int:
    """Significant digits in which two numbers differ: 6, or more where they agree in 6."""
    size, gap = max(abs(one), abs(other)), abs(one - other)
    if not (0 < gap < math.inf and size < math.inf):
        return 6
    return min(17, max(6, math.ceil(math.log10(size / gap)) + 2))


def round_up(part: float) -> float:
    """A bound in one digit, as it is told: never smaller than what it bounds."""
    if not 0 < part < math.inf:
        return part
    power = math.floor(math.log10(part))
    return float(f"{math.ceil(part / 10.0**power * (1 - 1e-12))}e{power}")


@dataclass(frozen=True)
class Finding:
    """One disagreement.

    Attributes:
        check: name of the check.
        message: one sentence: where, how much, how much was allowed.
        kind: what disagrees, in one word: "entry", "layout", "dtype", ...
        input: the `Place` in the input; None if no single input is concerned.
        output: the `Place` in the output, likewise.
        claimed: the derivative under test, in units of output per unit of input.
        measured: the same by differences, or by a reference.
        error: error bar of `measured`.
        allowed: the largest gap that is accepted, the error bar included.
    """

    check: str
    message: str
    kind: str = "entry"
    input: Place | None = None
    output: Place | None = None
    claimed: float = math.nan
    measured: float = math.nan
    error: float = math.nan
    allowed: float = math.nan

    @property
    def gap(self) -> float:
        return abs(self.claimed - self.measured)

    @property
    def input_name(self) -> str | None:
        return self.input.name if self.input else None

    @property
    def output_name(self) -> str | None:
        return self.output.name if self.output else None

    @property
    def input_index(self) -> tuple[int, ...] | None:
        return self.input.index if self.input else None

    @property
    def output_index(self) -> tuple[int, ...] | None:
        return self.output.index if self.output else None


@dataclass(frozen=True)
class Kink:
    """An entry of the Jacobian at which the function is not differentiable.

    Attributes:
        kind: "kink", or "infinite slope" where a slope is no finite number.
        output: the `Place` in the output.
        input: the `Place` in the input.
        low, high: the slopes on its two sides, the smaller one first.
        claimed: the derivative under test, which lies between them.
        message: one sentence with all of this.
    """

    kind: str
    output: Place
    input: Place
    low: float
    high: float
    claimed: float
    message: str


@dataclass(frozen=True)
class Statistic:
    """How far a derivative in few bits is from the exact one, in one respect.

    Attributes:
        reference: the source of the exact derivative.
        array: name of the input whose gradient, or output whose tangent, is compared.
        name: "slope", "row slope", "block slope", "mean", "rms", "worst entry", ...
        value: the deviation, relative to the size of the exact derivative, in units of `eps`.
        allowed: what rounding explains, in the same unit.
        eps: distance from 1 to the next number of the precision.
    """

    reference: str
    array: str
    name: str
    value: float
    allowed: float
    eps: float

    @property
    def ok(self) -> bool:
        return self.value <= self.allowed


@dataclass(frozen=True)
class Cause:
    """A kind of mistake that explains the findings of a check.

    Attributes:
        name: the kind, such as "factor", "sign" or "transposed".
        message: one sentence: "multiplied by 2".
        evidence: the numbers that show it: "ratio 2.000000 +- 3e-09 over 64 entries".
        advice: what to look at next; "" if there is nothing to add.
        score: the part of the wrong entries that it explains, from 0 to 1.
    """

    name: str
    message: str
    evidence: str = ""
    advice: str = ""
    score: float = 1.0


@dataclass(frozen=True)
class CheckResult:
    """What one check found, and what it cost.

    Attributes:
        name: name of the check.
        verdict: its `Verdict`.
        summary: one line: what was verified, or why not.
        findings: disagreements, the largest first.
        resolution: bound on the relative error of what passed, as part of the largest entry of a
            row (the number after "verified to"); NaN if the check measures nothing.
        calls: runs of the function ("function"), the backward ("vjp") and forward mode ("jvp").
        seconds: wall time.
        notes: remarks that do not change the verdict.
        kinks: entries at which the function is not differentiable.
        reference: what the claims were compared with; "" if with each other.
        refused: references that could not be used, each with the reason.
        statistics: deviations in few bits, with their limits.
        where: all wrong entries in words, "the last 3 of 67 rows"; "" if no description fits.
        causes: kinds of mistake that explain the findings, the most likely first.
        evidence: numbers for the explanation of a failure; None in a finished report. It is not
            compared, printed or saved.
    """

    name: str
    verdict: Verdict
    summary: str
    findings: tuple[Finding, ...] = ()
    resolution: float = math.nan
    calls: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    kinks: tuple[Kink, ...] = ()
    reference: str = ""
    refused: tuple[str, ...] = ()
    statistics: tuple[Statistic, ...] = ()
    where: str = ""
    causes: tuple[Cause, ...] = ()
    evidence: object = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, repr=False)
class Report:
    """Everything that a run found. It is false only if a derivative was refuted.

    `str` and `repr` are the text; `details()` is the complete text. Iterating yields the results of
    the checks, and ``report["backward"]`` is the result of one of them.

    Attributes:
        target: name of the function.
        inputs: one line for each input: name, dtype, shape.
        outputs: one line for each output.
        checks: one `CheckResult` for each check, in order.
        calls: calls by kind, of all checks and the set-up.
        seconds: wall time of the run.
        seed: seed of the probes. The same seed gives the same report.
        repeat: a line of a shell that repeats the run; "" if it was not started from one.
    """

    target: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    checks: tuple[CheckResult, ...]
    calls: Mapping[str, int]
    seconds: float
    seed: int
    repeat: str = ""

    # The report in a form of FORMS or as "details"; set by the package: layer 0 does not know the
    # renderers above it.
    renderer: ClassVar[Callable[[Report, str], str]]

    @property
    def verdict(self) -> Verdict:
        """Failed if any check failed, else inconclusive if any was, else passed if any did.

        It is skipped if every check that looks at a derivative was skipped.
        """
        found = {result.verdict for result in self.checks}
        derivatives = {row.name for row in checks.TABLE if row.derivative}
        if {each.verdict for each in self.checks if each.name in derivatives} == {Verdict.SKIPPED}:
            found.discard(Verdict.PASSED)
        for verdict in (Verdict.FAILED, Verdict.INCONCLUSIVE, Verdict.PASSED):
            if verdict in found:
                return verdict
        return Verdict.SKIPPED

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(finding for result in self.checks for finding in result.findings)

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(note for result in self.checks for note in result.notes)

    def __bool__(self) -> bool:
        return self.verdict is not Verdict.FAILED

    def __getitem__(self, check: str) -> CheckResult:
        for result in self.checks:
            if result.name == check:
                return result
        names = [result.name for result in self.checks]
        known = unknown_name_message(str(check), names)
        raise UnknownNameError(f"checks: this report has no {known}")

    def __iter__(self) -> Iterator[CheckResult]:
        return iter(self.checks)

    def __len__(self) -> int:
        return len(self.checks)

    def to_dict(self) -> dict[str, Any]:
        """The report as dicts, lists, strings and numbers, as `save("report.json")` writes them.

        Numbers that are not finite are the strings "nan", "inf" and "-inf".
        """
        document: dict[str, Any] = json.loads(self._render_as("json"))
        return document

    def __repr__(self) -> str:
        return self._render_as("txt")

    def details(self) -> str:
        """The complete text, with what every check found and why others did not run."""
        return self._render_as("details")

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the report to a file, in the format that its ending names.

        Args:
            path: ending in `.txt` (the text), `.json` (for programs) or `.html` (one page,
                which needs the extra `report`).

        Returns:
            The path.

        Raises:
            UsageError: another ending, a file that cannot be written, or a missing package.
        """
        form = files.form_of(path, "path", FORMS)
        files.write_file(path, self._render_as(form), "path")
        return Path(path)

    def _render_as(self, form: str) -> str:
        return type(self).renderer(self, form)
