"""The report as one page that needs nothing else: no network, no other file, no script.

What the page shows is gathered here; `report.html.jinja` is its form, pictures of Jacobians
included. Needs Jinja2, the extra `report`.
"""

from __future__ import annotations

import functools
import importlib.util
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gradproof._data.records import Patch, Report, Verdict
from gradproof._data.visible import escape_invisible
from gradproof._render import summary, text
from gradproof.errors import UsageError

if TYPE_CHECKING:
    import jinja2

WORST_FIRST = (Verdict.FAILED, Verdict.INCONCLUSIVE, Verdict.PASSED, Verdict.SKIPPED)
NEEDED = "jinja2"
SECTIONS = 500  # reports in full; further ones are listed only
_WHITE, _RED, _BLUE = (255, 255, 255), (178, 24, 43), (33, 102, 172)


def render(report: Report) -> str:
    """The report as a page. UsageError where the extra `report` is not installed."""
    return render_many([(report.target, report)])


def render_many(reports: Sequence[tuple[str, Report]]) -> str:
    """Several named reports as one page, the worst first, with a table of them all.

    Args:
        reports: name and report of each.

    Raises:
        UsageError: the extra `report` is not installed.
    """
    require_template_engine()
    rows = sorted(reports, key=lambda row: WORST_FIRST.index(row[1].verdict))
    sections = [
        {
            "name": name,
            "report": report,
            "text": text.html_text(report, full=True),
            "pictures": list(_pictures(report)),
        }
        for name, report in rows[:SECTIONS]
    ]
    return _template().render(title=_title(rows), rows=rows, sections=sections)


def require_template_engine() -> None:
    """UsageError where a page could not be made, because the extra is not installed."""
    if importlib.util.find_spec(NEEDED) is None:
        raise UsageError(f"HTML needs {NEEDED}: pip install {NEEDED}")


@functools.cache
def _template() -> jinja2.Template:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: escape_invisible(value) if type(value) is str else value,
    )
    environment.globals.update(
        bounded=summary.bound_text,
        result_line=_result_line,
    )
    return environment.get_template("report.html.jinja")


def _title(rows: Sequence[tuple[str, Report]]) -> str:
    """`layer_norm: failed`, or `layer_norm and 2 more: 1 failed, 2 passed`."""
    if not rows:
        return "gradproof: no reports"
    name, first = rows[0]
    if len(rows) == 1:
        return f"{name}: {first.verdict}"
    counts = {word: sum(report.verdict is word for _, report in rows) for word in WORST_FIRST}
    verdicts = ", ".join(f"{count:,} {word}" for word, count in counts.items() if count)
    return f"{name} and {len(rows) - 1:,} more: {verdicts}"


def _result_line(report: Report) -> str:
    """The result of a report in a line of the overview."""
    if report.verdict is not Verdict.PASSED:
        return summary.deciding_text(report)
    passed = ", ".join(r.name for r in report.checks if r.verdict is Verdict.PASSED)
    return "; ".join(filter(None, (passed, summary.unverified_text(report))))


def _pictures(report: Report) -> Iterator[tuple[list[_Table], str]]:
    """Tables and caption of the Jacobian around each failure for which it was measured."""
    for result in report.checks:
        patch = result.patch
        if patch is not None and patch.outputs and patch.inputs:
            yield (
                _tables_of_patch(patch),
                f"{result.name}: the Jacobian around the first wrong entry; rows are outputs "
                f"{_range(patch.outputs)}, columns inputs {_range(patch.inputs)}. Refuted entries "
                "have a frame; colours go with the root of the size.",
            )


@dataclass(frozen=True)
class _Table:
    """One table of a picture: a title, and the colour of every cell."""

    title: str
    colours: list[list[str]]
    wrong: tuple[tuple[bool, ...], ...]


def _tables_of_patch(patch: Patch) -> list[_Table]:
    """Claimed, measured and gap of a piece of a Jacobian; the first two have one scale."""
    gap = [
        [abs(c - m) for c, m in zip(*rows, strict=True)]
        for rows in zip(patch.claimed, patch.measured, strict=True)
    ]
    both = _largest_size(*patch.claimed, *patch.measured)
    return [
        _Table(
            f"{title}, colours up to {largest:.2g}",
            [[_colour(value, largest) for value in row] for row in table],
            patch.wrong,
        )
        for title, table, largest in (
            ("claimed", patch.claimed, both),
            ("measured", patch.measured, both),
            ("gap", gap, _largest_size(*gap)),
        )
    ]


def _largest_size(*rows: Sequence[float]) -> float:
    return max((abs(value) for row in rows for value in row if math.isfinite(value)), default=0.0)


def _colour(value: float, largest: float) -> str:
    """From white to red, or to blue, by the root, which shows small entries beside large ones."""
    if not math.isfinite(value):
        return "#ccc"
    part = math.sqrt(min(1.0, abs(value) / largest)) if largest else 0.0
    end = _RED if value > 0 else _BLUE
    mixed = (round(w + part * (e - w)) for w, e in zip(_WHITE, end, strict=True))
    return f"rgb({','.join(map(str, mixed))})"


def _range(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
