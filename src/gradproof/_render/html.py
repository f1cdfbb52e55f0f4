"""The report as one page that needs nothing else: no network, no other file.

What the page shows is gathered here; how, is in `report.html.jinja` and the files beside it. Needs
the extra `report`: Jinja2, and matplotlib for the curves.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gradproof._data.records import (
    CheckResult,
    Compared,
    Finding,
    Patch,
    Report,
    Statistic,
    Verdict,
)
from gradproof._data.visible import visible, visible_in
from gradproof._render import plots, suite, summary
from gradproof._render._details import advised, tables
from gradproof._render._spans import number, numbers, places
from gradproof._render.text import cost_of
from gradproof.errors import UsageError

if TYPE_CHECKING:
    import jinja2

FOLDER = Path(__file__).parent
WORST_FIRST = (Verdict.FAILED, Verdict.INCONCLUSIVE, Verdict.PASSED, Verdict.SKIPPED)
LARGEST = 5_000_000  # bytes of all reports of a page; then they are listed only
PICTURES = 2_500_000  # bytes after which no more pictures are drawn
SHOWN = 6  # findings of a check
SHOWN_KINKS = 3


def render(report: Report) -> str:
    """The report as a page. UsageError where Jinja2 is missing."""
    return render_many([(report.target, report)], title=f"{report.target}: {report.verdict.value}")


def ready() -> None:
    """UsageError where a page could not be made, because Jinja2 is missing."""
    _environment()


def render_many(
    reports: Sequence[tuple[str, Report]],
    *,
    title: str = "gradproof",
    compared: Sequence[Compared] | None = None,
) -> str:
    """Several named reports as one page, the worst first, with a table of them all.

    Calls that were answered twice have a table of their own. UsageError where Jinja2 is missing.
    """
    named = sorted(visible_in(tuple(reports)), key=lambda it: WORST_FIRST.index(it[1].verdict))
    parts: Any = _environment().get_template("section.html.jinja").module
    sections: list[str] = []
    size = 0
    for position, (name, report) in enumerate(named):
        if size > LARGEST:
            break
        view = _report(name, report, position, pictures=size < PICTURES)
        sections.append(parts.section(view))
        size += len(sections[-1].encode())
    return (
        _environment()
        .get_template("report.html.jinja")
        .render(
            title=visible(title),
            sections=sections,
            rows=named,
            counts={
                verdict.value: sum(report.verdict is verdict for _, report in named)
                for verdict in WORST_FIRST
            },
            compared=None if compared is None else visible_in(tuple(compared)),
            files={
                name: (FOLDER / name).read_text("utf-8") for name in ("report.css", "report.js")
            },
        )
    )


@functools.cache
def _environment() -> jinja2.Environment:
    try:
        import jinja2
    except ModuleNotFoundError as error:
        raise UsageError(
            "HTML needs Jinja2, and matplotlib for its curves: pip install 'gradproof[report]'"
        ) from error
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    of_records = (suite.counts, suite.different, suite.said, summary.bounded, cost_of, _says)
    made.filters.update({each.__name__.strip("_"): each for each in of_records})
    return made


def _says(report: Report) -> str:
    """What was found, in the line of a table."""
    if report.verdict is not Verdict.PASSED:
        return summary.deciding(report)
    passed = ", ".join(r.name for r in report.checks if r.verdict is Verdict.PASSED)
    return "; ".join(filter(None, (passed, summary.unverified(report))))


def _report(name: str, report: Report, position: int, *, pictures: bool) -> dict[str, Any]:
    advice = advised(report)
    results = [
        {**_check(result, f"r{position}c{place}", pictures), "advice": advice.get(result.name, "")}
        for place, result in enumerate(report.checks)
    ]
    return {"name": name, "id": f"r{position}", "record": report, "checks": results}


def _check(result: CheckResult, name: str, pictures: bool) -> dict[str, Any]:
    """What a page shows of a check; `more` is whether that is more than its line."""
    draws, kinks = pictures and plots.available(), result.kinks[:SHOWN_KINKS]
    # Ids are of the page: they must differ in all its parts.
    unique = name + hashlib.sha256(repr(result).encode()).hexdigest()[:6]
    curves = [
        {"record": curve, "svg": plots.error_against_step(curve, f"{unique}v{place}")}
        for place, curve in enumerate(result.curves if draws else ())
    ]
    view = {
        "id": name,
        "record": result,
        "findings": [_finding(finding) for finding in result.findings[:SHOWN]],
        "left_out": max(0, len(result.findings) - SHOWN),
        "statistics": list(_statistics(tables(result))),
        "map": map_of(result.patch) if result.patch and pictures else None,
        "curves": curves,
        "kinks": kinks,
        "kinks_left_out": max(0, len(result.kinks) - SHOWN_KINKS),
        "slopes": plots.slopes(kinks, f"{unique}k") if draws and kinks else None,
        "undrawn": bool(result.curves or result.kinks) and not plots.available(),
    }
    shown = ("statistics", "map", "curves", "kinks")
    view["more"] = any(view[part] for part in shown) or bool(result.notes)
    return view


def _finding(finding: Finding) -> dict[str, Any]:
    """Numbers where there are any; else the message alone."""
    where = places(finding).replace(" -> ", " → ")
    unknown = finding.claimed != finding.claimed and finding.measured != finding.measured
    told = None if unknown else numbers(finding, "±")
    return {"where": where, "message": finding.message, "numbers": told}


def _statistics(found: Mapping[tuple[str, str], list[Statistic]]) -> Iterator[dict[str, Any]]:
    """A table per oracle: a row per array, a column per statistic."""
    oracles = dict.fromkeys(oracle for oracle, _ in found)
    for oracle in oracles:
        of_oracle = {array: rows for (asked, array), rows in found.items() if asked == oracle}
        columns = list(dict.fromkeys(row.name for rows in of_oracle.values() for row in rows))
        lines = []
        for array, rows in of_oracle.items():
            cells = {row.name: row for row in rows}
            lines.append((array, rows[0].eps, [cells.get(column) for column in columns]))
        yield {"oracle": oracle, "columns": columns, "rows": lines}


# A piece of a Jacobian as tables whose cells have colours: claimed, measured and gap.

NUMBERS = 8  # columns up to which the cells show their numbers
Table = tuple[tuple[float, ...], ...]


class Cell(NamedTuple):
    """One entry: how strong its colour is from 0 to 1, its classes, its number."""

    strength: float
    kind: str
    text: str


def map_of(patch: Patch) -> dict[str, Any]:
    """What the page shows of a patch: three tables of the same entries, and a sentence on each."""
    gap = tuple(
        tuple(abs(c - m) for c, m in zip(*rows, strict=True))
        for rows in zip(patch.claimed, patch.measured, strict=True)
    )
    largest = _largest(patch.claimed, patch.measured)
    (output, outputs), (input_, inputs) = _common(patch.outputs), _common(patch.inputs)
    return {
        "common": (output, input_),
        "outputs": outputs,
        "inputs": inputs,
        "heats": [
            _heat("claimed", patch.claimed, largest, patch),
            _heat("measured", patch.measured, largest, patch),
            _heat("gap", gap, _largest(gap), patch),
        ],
        "told": [
            [_told_of(patch, gap, i, j) for j in range(len(inputs))] for i in range(len(outputs))
        ],
        "wide": len(inputs) > NUMBERS,
    }


def _largest(*tables: Table) -> float:
    sizes = [abs(x) for table in tables for row in table for x in row if math.isfinite(x)]
    return max(sizes, default=0.0)


def _heat(title: str, table: Table, largest: float, patch: Patch) -> dict[str, Any]:
    rows = [
        [_cell(value, largest, bad, title) for value, bad in zip(*both, strict=True)]
        for both in zip(table, patch.wrong, strict=True)
    ]
    return {"title": title, "largest": f"{largest:.2g}", "rows": rows}


def _cell(value: float, largest: float, wrong: bool, title: str) -> Cell:
    if not math.isfinite(value):
        return Cell(0.0, "odd wrong" if wrong else "odd", f"{value:g}")
    # The root shows small entries beside large ones; zero stays without colour.
    strength = math.sqrt(abs(value) / largest) if largest else 0.0
    kinds = ["gap" if title == "gap" else "minus" if value < 0 else "plus"]
    return Cell(round(strength, 2), " ".join(kinds + ["wrong"] * wrong), _short(value))


def _short(value: float) -> str:
    """A number of at most six characters, which a cell has room for."""
    text = f"{value:.2g}"
    if "e" in text:
        digits, _, power = f"{value:.0e}".partition("e")
        return f"{digits}e{int(power)}"
    return text.replace("0.", ".", 1) if abs(value) < 1 else text


def _told_of(patch: Patch, gap: Table, i: int, j: int) -> str:
    verdict = "refuted" if patch.wrong[i][j] else "not refuted"
    return (
        f"{patch.inputs[j]} to {patch.outputs[i]}: claimed {number(patch.claimed[i][j])}, "
        f"measured {number(patch.measured[i][j])} ± {patch.error[i][j]:.1g}, "
        f"gap {gap[i][j]:.2g}, {verdict}"
    )


def _common(names: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """`x[1, 2]`, `x[1, 3]` -> `x` and the indices; nothing where the arrays differ."""
    heads = {name.partition("[")[0] for name in names}
    if len(heads) != 1 or not all(name.endswith("]") for name in names):
        return "", names
    (head,) = heads
    return head, tuple(name[len(head) :] for name in names)
