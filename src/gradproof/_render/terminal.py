"""The report for a terminal: the plain text, with colours by verdict.

Rich leaves the colours out where the output is piped or NO_COLOR is set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from gradproof._data.records import Report, Verdict
from gradproof._data.visible import visible_in
from gradproof._render import summary, text
from gradproof._render._spans import WIDTH, wide

STYLES = {
    "title": "bold",
    "dim": "dim",
    "place": "cyan",
    "passed": "green",
    "failed": "bold red",
    "inconclusive": "yellow",
    "skipped": "dim",
}


@dataclass(frozen=True)
class OnTerminal:
    """A report for `rich.console.Console.print(..., soft_wrap=True)`, as wide as that is then."""

    report: Report

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        with wide(console.width if console.is_terminal else WIDTH):
            yield _styled(self.report)


def _styled(report: Report) -> Text:
    styled = Text(no_wrap=True, overflow="ignore")
    for number, line in enumerate(text.lines(report)):
        if number:
            styled.append("\n")
        for span in line:
            styled.append(span.text, STYLES.get(span.role))
    return styled


# Many reports: a line each, how many there are of what, and what changed since.


NAMES = 36  # columns that a name gets at least, if it needs them

Row = tuple[str, Report | None, str]  # name, report, and in place of a report why there is none


def many_rich(rows: Sequence[Row]) -> RenderableType:
    """A table of named reports, and the line that counts them."""
    grid = Table(box=None, pad_edge=False, header_style="dim")
    grid.add_column("verdict", no_wrap=True)
    longest = max((len(name) for name, _, _ in rows), default=0)
    grid.add_column("function", overflow="fold", style="bold", min_width=min(longest, NAMES))
    grid.add_column("to", no_wrap=True)
    grid.add_column("calls", justify="right", no_wrap=True)
    grid.add_column("s", justify="right", no_wrap=True)
    grid.add_column("what", overflow="fold")
    for name, report, reason in visible_in(tuple(rows)):
        grid.add_row(*_cells(name, report, reason))
    reports = [report for _, report, _ in rows if report is not None]
    line = summary.tally((report.verdict, summary.resolution(report)) for report in reports)
    if kept := sum(bool(summary.kept(report)) for report in reports):
        line += f", {kept} {summary.FROM_CACHE}"
    if broken := len(rows) - len(reports):
        line += f", {broken} could not run"
    return Group(grid, "", line)


def _cells(name: str, report: Report | None, reason: str) -> list[RenderableType]:
    if report is None:
        return [Text("error", STYLES["failed"]), Text(name), "", "", "", Text(reason)]
    word = report.verdict.value
    what = "; ".join(filter(None, (summary.unverified(report), summary.kept(report))))
    calls = sum(report.calls.get(kind, 0) for kind in ("function", "vjp", "jvp"))
    return [
        Text(word.upper() if word == "failed" else word, STYLES[word]),
        Text(name),  # brackets in it are no markup
        summary.bounded(summary.resolution(report)),
        f"{calls:,}",
        f"{report.seconds:.1f}",
        Text(what if report.verdict is Verdict.PASSED else summary.deciding(report)),
    ]


# What changed from one file of reports to the next.

SLOWER = 2.0  # times the seconds: less is what a shared machine does from run to run
LEAST = 0.1  # seconds more, likewise

Named = Sequence[tuple[str, Report]]
_KINDS = ("new failure", "no longer passes", "other verdict", "repaired", "new", "gone", "slower")
_COLOURS = {"new failure": "failed", "no longer passes": "inconclusive", "repaired": "passed"}


class Change(NamedTuple):
    """One difference: its kind, the name of the reports, and what is said of it."""

    kind: str
    name: str
    says: str


def changes(now: Named, before: Named) -> list[Change]:
    """What differs, worst first; reports belong together by their names."""
    earlier, later = dict(before), dict(now)
    found = [_of_verdict(name, report, earlier.get(name)) for name, report in later.items()]
    found += [
        Change("gone", name, f"was {report.verdict}")
        for name, report in earlier.items()
        if name not in later
    ]
    found += [_of_time(name, later[name], was) for name, was in earlier.items() if name in later]
    return sorted(filter(None, found), key=lambda change: _KINDS.index(change.kind))


def _of_verdict(name: str, now: Report, before: Report | None) -> Change | None:
    if now.verdict is Verdict.FAILED and (before is None or before.verdict is not now.verdict):
        return Change("new failure", name, summary.deciding(now))
    if before is None:
        return Change("new", name, str(now.verdict))
    if before.verdict is now.verdict:
        return None
    if before.verdict is Verdict.PASSED:
        return Change("no longer passes", name, f"{now.verdict}: {summary.deciding(now)}")
    kind = "repaired" if now.verdict is Verdict.PASSED else "other verdict"
    return Change(kind, name, f"was {before.verdict}, is {now.verdict}")


def _of_time(name: str, now: Report, before: Report) -> Change | None:
    if now.seconds <= max(SLOWER * before.seconds, before.seconds + LEAST):
        return None
    calls, were = (sum(each.calls.values()) for each in (now, before))
    seconds = f"{now.seconds:.2f} s, was {before.seconds:.2f}"
    return Change("slower", name, f"{seconds}; {calls:,} calls, were {were:,}")


def changes_rich(now: Named, before: Named) -> RenderableType:
    """A table of what changed, and how many reports did not."""
    found = changes(now, before)
    grid = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("change", "function", "what"):
        grid.add_column(name, no_wrap=name == "change", overflow="fold")
    for change in visible_in(tuple(found)):
        kind, name, says = change
        grid.add_row(Text(kind, STYLES.get(_COLOURS.get(kind, ""), "")), Text(name), Text(says))
    changed = {change.name for change in found if change.kind != "gone"}
    same = sum(name not in changed for name, _ in now)
    line = f"against the last: {len(found)} changes, {same} of {len(now)} as they were"
    return Group(grid, "", line) if found else Group(line)
