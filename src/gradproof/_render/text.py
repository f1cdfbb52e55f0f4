"""The report as plain text, as wide as the terminal, 80 columns elsewhere, unless a name is longer.

A failure takes at most 25 lines: the checks that failed, then a line for those that passed, one
for those that were skipped, and the line that repeats it. A report that passed says what every
check found, and why others did not run.
"""

from __future__ import annotations

import html
from collections.abc import Iterator

from gradproof._data.records import CheckResult, Report, Verdict
from gradproof._data.visible import visible_in
from gradproof._render._details import BRIEFNESS, Told, advised, details
from gradproof._render._spans import Line, Span, columns, command, plain, wrap, wrapped
from gradproof._render.summary import unverified

MOST = 25  # lines of a failure: what does not fit is in the records, and on the page
LONGEST_LIST = 4  # lines for the names of inputs, or of outputs


def render(report: Report) -> str:
    """The report as text, without a line break at its end."""
    return "\n".join(map(plain, lines(report)))


def lines(report: Report) -> list[Line]:
    """The lines of the report, as spans; of a failure as much detail as fits."""
    report = visible_in(report)
    for briefness in BRIEFNESS:
        found = list(_lines(report, Told(briefness, advised(report))))
        if len(found) <= MOST or report.verdict is not Verdict.FAILED:
            break
    return found


def _lines(report: Report, told: Told) -> Iterator[Line]:
    yield from _header(report)
    # What passed has no line beside what did not, only its name in a list.
    passed = report.verdict is Verdict.PASSED
    told_of = (Verdict.PASSED,) if passed else (Verdict.FAILED, Verdict.INCONCLUSIVE)
    # What failed comes before what is open, and is what is told where just one is.
    shown = [result for word in told_of for result in report.checks if result.verdict is word]
    if told.first_only:
        shown = shown[:1]
    if shown:
        yield ()
    name_width = max((len(result.name) for result in shown), default=0)
    verdict_width = max((len(result.verdict) for result in shown), default=0)
    for result in shown:
        yield from _check_line(result, name_width, verdict_width)
        yield from details(result, told)
    others = list(_others(report, shown, told))
    if others:
        yield ()
    yield from others


def _header(report: Report) -> Iterator[Line]:
    target = " ".join(report.target.split())
    verdict = _verdict(report.verdict)
    cost = cost_of(report)
    missing = f", {open_}" if (open_ := unverified(report)) else ""
    left = f"gradproof  {target}  {verdict.text}{missing}"
    name = Span(f"  {target}", "title")
    start = (Span("gradproof", "dim"), name, Span("  "), verdict, Span(missing, "inconclusive"))
    gap = max(2, min(6, columns() - len(left) - len(cost)))
    if len(left) + gap + len(cost) <= columns():
        yield (*start, Span(" " * gap), Span(cost, "dim"))
    else:
        yield start
        yield from wrapped("  cost     ", cost, "dim")
    if report.inputs:
        yield from _listed("  inputs   ", report.inputs)
    if report.outputs:
        yield from _listed("  outputs  ", report.outputs)


def _listed(label: str, names: tuple[str, ...]) -> Iterator[Line]:
    """As many of the names as fit a few lines."""
    shown = len(names)
    while shown > 1 and len(wrap(_list(names, shown), columns() - len(label))) > LONGEST_LIST:
        shown -= 1
    yield from wrapped(label, _list(names, shown))


def _list(names: tuple[str, ...], shown: int) -> str:
    rest = len(names) - shown
    return ", ".join(names[:shown]) + (f", ... and {rest:,} more" if rest else "")


def cost_of(report: Report) -> str:
    """Seed, calls and time, in a line."""
    nouns = (("function", "call"), ("vjp", "VJP"), ("jvp", "JVP"))
    counts = [
        f"{report.calls[kind]:,} {noun}{'' if report.calls[kind] == 1 else 's'}"
        for kind, noun in nouns
        if report.calls.get(kind)
    ]
    return ", ".join([f"seed {report.seed}", *counts, f"{report.seconds:.2f} s"])


def _verdict(verdict: Verdict, width: int = 0) -> Span:
    word = verdict.value.upper() if verdict is Verdict.FAILED else verdict.value
    return Span(word.ljust(width), verdict.value)


def _check_line(result: CheckResult, name_width: int, verdict_width: int) -> Iterator[Line]:
    name = f"  {result.name.ljust(name_width)}  "
    verdict = _verdict(result.verdict, verdict_width)
    indent = len(name) + len(verdict.text) + 2
    first, *rest = wrap(result.summary, columns() - indent) or [""]
    yield (Span(name), verdict, Span(f"  {first}"))
    for line in rest:
        yield (Span(" " * indent + line),)


def _others(report: Report, shown: list[CheckResult], told: Told) -> Iterator[Line]:
    """The checks that have no line of their own, and how to repeat the run."""
    rest = [result for result in report.checks if not any(result is one for one in shown)]
    passed = [result for result in rest if result.verdict is Verdict.PASSED]
    missing = [result for result in rest if result.verdict is Verdict.SKIPPED]
    if failed := [result for result in rest if result.verdict is Verdict.FAILED]:
        yield from wrapped("  FAILED   ", ", ".join(result.name for result in failed), "failed")
    if passed:
        yield from wrapped("  passed   ", ", ".join(result.name for result in passed))
        notes = dict.fromkeys(note for result in passed for note in result.notes)
        for note in filter(told.news, list(notes)[: told.most_notes]):
            yield from wrapped("    note: ", note, "dim")
    if missing and report.verdict is Verdict.FAILED:
        yield from wrapped("  skipped  ", ", ".join(result.name for result in missing), "dim")
    elif missing:
        yield from _with_reasons(missing)
    if report.repeat and report.verdict is not Verdict.PASSED:
        yield from command("  repeat   ", report.repeat)


def _with_reasons(missing: list[CheckResult]) -> Iterator[Line]:
    """What was not tested, and why: the checks of one reason together."""
    reasons: dict[str, list[str]] = {}
    for result in missing:
        reasons.setdefault(result.summary, []).append(result.name)
    label = "  skipped  "
    for reason, names in reasons.items():
        yield from wrapped(label, f"{', '.join(names)}: {reason}", "dim")
        label = " " * len(label)


# In a notebook: the same lines, in colours that suit a light page and a dark one.

# Of medium brightness: a contrast of at least 3 against white and against near-black.
_STYLES = {
    "title": "font-weight: 600",
    "dim": "opacity: 0.75",
    "place": "color: #3f84c8",
    "passed": "color: #3d9257",
    "failed": "color: #d2543d; font-weight: 600",
    "inconclusive": "color: #b07a1e",
    "skipped": "opacity: 0.75",
}
# Notebooks give what they show a font and a wrapping of their own, in which columns do not align.
_PAGE = "font-family: ui-monospace, monospace; white-space: pre; line-height: 1.4; overflow-x: auto"


def in_notebook(report: Report) -> str:
    """A piece of HTML that needs nothing else."""
    shown = "\n".join("".join(map(_span, line)) for line in lines(report))
    return f'<pre style="{_PAGE}">{shown}</pre>'


def _span(span: Span) -> str:
    words = html.escape(span.text)
    style = _STYLES.get(span.role)
    return f'<span style="{style}">{words}</span>' if style else words
