"""Operators in low precision: shares of our verdicts beside PyTorch's, failures with evidence."""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import _common as common
from _cases import (
    EXPLAINED,
    LABELS,
    Case,
    Harvest,
    Outcome,
    Plan,
    explanation,
    run_all,
    size_line,
)

TOOLS = ("check", "slow")
# Per cent of the cases that pass at least, and that fail at most.
BARS = {
    "float32": (97.0, 0.5),
    "complex64": (97.0, 0.5),
    "bfloat16": (95.0, 0.5),
    "float16": (95.0, 0.5),
}
VERDICTS = ("passed", "failed", "inconclusive", "skipped", "error")


def rows_of(cases: Sequence[Case], tools: Sequence[str]) -> list[list[str]]:
    """Per dtype: cases, our verdicts as shares, PyTorch's share passed, seconds."""
    rows = []
    for dtype in dict.fromkeys(case.dtype for case in cases):
        part = [case for case in cases if case.dtype == dtype]
        counts = {tool: Counter(case.outcomes[tool].verdict for case in part) for tool in tools}
        row = [dtype, f"{len(part):,}"]
        if "check" in tools:
            row += [_count(counts["check"][verdict], len(part)) for verdict in VERDICTS]
            row.append(f"{sum(case.wrong for case in part):,}")
            nothing = sum(case.nothing for case in part)
            row += [f"{nothing:,}", _count(counts["check"]["passed"], len(part) - nothing)]
        if "slow" in tools:
            row.append(_count(counts["slow"]["pass"], len(part)))
        row += [f"{sum(case.outcomes[tool].seconds for case in part):.1f}" for tool in tools]
        rows.append(row)
    return rows


def _count(part: int, whole: int) -> str:
    return f"{part:,} ({100 * part / whole:.2f} %)"


def report(cases: Sequence[Case], options: argparse.Namespace) -> None:
    """Prints the shares, then every failure, then what is undecided by reason."""
    columns = ["dtype", "cases"]
    ours = [*VERDICTS, "wrong in double too", "nothing to test", "passed of the rest"]
    columns += ours if "check" in options.tools else ()
    columns += ["PyTorch slow passed"] if "slow" in options.tools else ()
    columns += [f"{LABELS[tool]}, s" for tool in options.tools]
    title = f"PyTorch's operator database in low precision: {size_line(cases)}"
    common.show(title, columns, rows_of(cases, options.tools), markdown=options.markdown)
    print(f"Measured on {common.machine_line()}.")
    if "check" in options.tools:
        explained = json.loads(EXPLAINED.read_text())
        for verdict in ("failed", "inconclusive", "skipped", "error"):
            part = [case for case in cases if case.outcomes["check"].verdict == verdict]
            print(f"\n{verdict}: {len(part)}")
            for line in lines_of(part, explained):
                print(line)


def lines_of(part: Sequence[Case], explained: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Failures one by one with cause and evidence; the others by reason, most frequent first."""
    groups: dict[str, list[Case]] = {}
    for case in part:
        if case.outcomes["check"].verdict == "failed":
            yield f"- {case.op} {case.dtype} sample {case.sample}: {case.outcomes['check'].message}"
            yield f"    {case.evidence}"
            yield f"    {_cause(case, explained)}"
        else:
            groups.setdefault(reason(case.outcomes["check"].message), []).append(case)
    for text, cases in sorted(groups.items(), key=lambda item: -len(item[1])):
        ops = Counter(f"{case.op} {case.dtype}" for case in cases)
        named = ", ".join(f"{op} x{n}" if n > 1 else op for op, n in ops.most_common(8))
        more = f" and {len(ops) - 8} more" if len(ops) > 8 else ""
        yield f"- {len(cases)}: {text}"
        yield f"    {named}{more}"


def _cause(case: Case, explained: Sequence[dict[str, Any]]) -> str:
    cause = explanation(case, explained)
    if case.wrong:
        return f"PyTorch refutes it in double precision too. {cause or ''}".strip()
    return cause or "UNEXPLAINED"


def reason(message: str) -> str:
    """The message without its numbers and places, the same for the same cause."""
    # Places first: the name before an index says nothing about the cause.
    place = r"(?:(?:in|out)put \d+|[\w.']+)\[[^\]]*\](?:\.\w+)?|(?:in|out)put \d+(?:\.\w+)?"
    return re.sub(r"-?\b\d(?:[\d,.]*\d)?(?:e[-+]?\d+)?", "N", re.sub(place, "ENTRY", message))


def misses(cases: Sequence[Case]) -> list[str]:
    """One sentence per bar that is missed and per dtype with failures nobody explained."""
    explained = json.loads(EXPLAINED.read_text())
    found = []
    for dtype in dict.fromkeys(case.dtype for case in cases):
        part = [case for case in cases if case.dtype == dtype and not case.wrong]
        failed = [case for case in part if case.outcomes["check"].verdict == "failed"]
        passed = sum(case.outcomes["check"].verdict == "passed" for case in part)
        least, most = BARS[dtype]
        if 100 * passed < least * len(part):
            rest = len(part) - sum(case.nothing for case in part)
            found.append(
                f"{dtype}: {common.percent(passed, len(part))} passed, not {least:g} %; of the "
                f"{rest:,} with something to test {common.percent(passed, rest)}"
            )
        if 100 * len(failed) > most * len(part):
            found.append(f"{dtype}: {len(failed)} of {len(part)} failed, more than {most:g} %")
        if unknown := [case for case in failed if explanation(case, explained) is None]:
            found.append(f"{dtype}: {len(unknown)} failures are unexplained")
    return found


def summary(harvests: Sequence[Harvest], found: Sequence[str]) -> dict[str, Any]:
    """The record: counts per dtype and tool, and for which reasons ours does not pass."""
    cases = [case for harvest in harvests for case in harvest.cases]
    counts: dict[str, dict[str, Counter[str]]] = {}
    for case in cases:
        for tool, outcome in case.outcomes.items():
            counts.setdefault(case.dtype, {}).setdefault(tool, Counter())[outcome.verdict] += 1
    return {
        "cases": len(cases),
        "counts": counts,
        "bars_missed": list(found),
        "troubles": [trouble for harvest in harvests for trouble in harvest.troubles],
        "skipped": sum((harvest.skipped for harvest in harvests), Counter[str]()),
        "nothing_to_test": Counter(case.dtype for case in cases if case.nothing),
        "wrong_in_double": Counter(case.dtype for case in cases if case.wrong),
        "reasons": _reasons([case.outcomes["check"] for case in cases if "check" in case.outcomes]),
    }


def _reasons(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """How often ours does not pass, by verdict and reason, most frequent first."""
    found = Counter(
        (one.verdict, reason(one.message[:160])) for one in outcomes if one.verdict != "passed"
    )
    return [
        {"check": verdict, "reason": text, "cases": cases}
        for (verdict, text), cases in found.most_common()
    ]


def run(options: argparse.Namespace, plan: Plan, jobs: Sequence[tuple[str, str]]) -> int:
    harvests = run_all(jobs, plan, options)
    cases = [case for harvest in harvests for case in harvest.cases]
    report(cases, options)
    for trouble in (trouble for harvest in harvests for trouble in harvest.troubles):
        print(f"trouble: {trouble}")
    found = misses(cases) if "check" in options.tools else []
    for line in found:
        print(f"bar missed: {line}")
    common.record(options.json, summary(harvests, found))
    return 1 if found else 0
