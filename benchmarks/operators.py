"""Our verdict beside PyTorch's slow and fast gradcheck, on PyTorch's own operators.

Every differentiable operator of `torch.testing._internal.common_methods_invocations.op_db`, each
of its samples with at most 200 differentiable numbers going in and 2,000 coming out, in float64
and complex128, through gradcheck and, where the operator supports it, gradgradcheck, with default
arguments (and the operator's own `nondet_tol`).

A verdict is `pass`, `fail` (a GradcheckError) or `error` (any other exception). The tools take
turns within one case, in an order that rotates from case to case, so that a machine that slows
down slows all of them. Times are of the processor, in which other work on the machine does not
show, summed over the cases in which every tool passed or failed.

Differences between our verdict and that of the slow mode are looked up in explained.json, where
a sentence says which of the two is right. Exit code 1: a difference that is not explained there.

With `--against RECORD`: our verdicts alone, at a sixth of the time, beside what a record of such a
run says of the same cases: each that differs is printed, with what the slow mode said. Exit code 1:
we fail a case that we and the slow mode had passed.

With `--dtype float32,complex64,bfloat16,float16`, or some of them: `gradproof.check` instead,
order 1, all checks, with its four verdicts, beside the slow mode in the same precision. Each
failure must be shown in explained.json to be an inaccuracy of the operator. What speaks for that
is printed: the error of the low-precision gradient beside the change of the float64 gradient when
the inputs move by one unit in the last place. Failures where the slow mode refutes the operator
in double precision too are set apart and enter no bar. Exit code 1: another failure that is not
explained, or a share outside its bar.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import _common as common
import _opdb
import _operators_low
from _cases import (
    EXPLAINED,
    LABELS,
    Case,
    Harvest,
    Plan,
    explanation,
    jobs_of,
    run_all,
    size_line,
)

TOOLS = ("ours", "slow", "fast")
QUICK_SAMPLES = 2

# What it means ---------------------------------------------------------------------------------


def verdict_rows(cases: Sequence[Case], tools: Sequence[str]) -> list[list[str]]:
    """One row per tool: counts of verdicts, agreement with slow, time."""
    judged = [case for case in cases if case.judged]
    peer = sum(case.outcomes["slow"].seconds for case in judged) if "slow" in tools else 0.0
    rows = []
    for tool in tools:
        count = Counter(case.outcomes[tool].verdict for case in cases)
        seconds = sum(case.outcomes[tool].seconds for case in judged)
        same = sum(
            case.outcomes[tool].verdict == case.outcomes["slow"].verdict
            for case in cases
            if "slow" in tools
        )
        ratio = f"{seconds / peer:.3f}" if peer else "-"
        agreement = common.percent(same, len(cases)) if "slow" in tools else "-"
        verdicts = [f"{count[verdict]:,}" for verdict in ("pass", "fail", "error")]
        rows.append([LABELS[tool], *verdicts, agreement, f"{seconds:.1f}", ratio])
    return rows


COLUMNS = ("tool", "pass", "fail", "error", "same as slow", "seconds", "time / slow")


def report(cases: Sequence[Case], options: argparse.Namespace) -> None:
    """Prints one table per dtype and order, and one over all."""
    groups = sorted({(case.dtype, case.order) for case in cases}, key=_group_order)
    names = {1: "gradcheck", 2: "gradgradcheck"}
    for dtype, order in groups if len(groups) > 1 else ():
        part = [case for case in cases if (case.dtype, case.order) == (dtype, order)]
        title = f"{names[order]}, {dtype}: {size_line(part)}"
        common.show(title, COLUMNS, verdict_rows(part, options.tools), markdown=options.markdown)
    title = f"PyTorch's operator database: {size_line(cases)}"
    common.show(title, COLUMNS, verdict_rows(cases, options.tools), markdown=options.markdown)
    judged = sum(case.judged for case in cases)
    print(f"Seconds, of the processor, are summed over the {judged:,} of {len(cases):,} cases in "
          "which every tool passed or failed.")  # fmt: skip
    print(f"Measured on {common.machine_line()}.")


def _group_order(group: tuple[str, int]) -> tuple[int, int]:
    return list(_opdb.DTYPES).index(group[0]), group[1]


def difference_groups(
    cases: Sequence[Case], explained: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The differences between ours and slow, one entry per operator, dtype, order and verdicts."""
    groups: dict[tuple[Any, ...], dict[str, Any]] = {}
    for case in cases:
        if not case.differs:
            continue
        said = {tool: outcome.verdict for tool, outcome in case.outcomes.items()}
        cause = explanation(case, explained)
        key = (case.op, case.dtype, case.order, *said.items(), cause)
        first = {
            "op": case.op,
            "dtype": case.dtype,
            "order": case.order,
            "verdicts": said,
            "cause": cause,
            "samples": [],
            "messages": {tool: outcome.message for tool, outcome in case.outcomes.items()},
        }
        groups.setdefault(key, first)["samples"].append(case.sample)
    return list(groups.values())


def print_differences(groups: Sequence[dict[str, Any]]) -> None:
    """Every difference with its cause, the unexplained ones last, with how to run them again."""
    if not groups:
        print("\nNo difference between our verdict and that of the slow mode.")
        return
    print(f"\nDifferences from the slow mode: {sum(len(group['samples']) for group in groups)}")
    for group in sorted(groups, key=lambda group: group["cause"] is None):
        said = ", ".join(f"{tool} {verdict}" for tool, verdict in group["verdicts"].items())
        where = f"{group['op']} {group['dtype']} order {group['order']}"
        print(f"- {where}, samples {_ranges(group['samples'])}: {said}")
        print(f"    {group['cause'] or 'UNEXPLAINED'}")
        if group["cause"] is None:
            for tool, message in group["messages"].items():
                print(f"    {tool}: {message}" if message else f"    {tool}: (passed)")
            print(f"    python benchmarks/operators.py --ops '{re.escape(group['op'])}' "
                  f"--dtype {group['dtype']} --order {group['order']}")  # fmt: skip


Recorded = dict[tuple[Any, ...], dict[str, str]]


def recorded(record: dict[str, Any]) -> Recorded:
    """Of each case that some tool did not pass the verdicts; every other was passed by all."""
    found: Recorded = {}
    for row in record["not_passed"]:
        said = {tool: row[tool] for tool in TOOLS if tool in row}
        for sample in _samples(row["samples"]):
            found[row["op"], row["dtype"], row["order"], sample] = said
    return found


def print_changes(cases: Sequence[Case], before: Recorded) -> bool:
    """Every verdict of ours that differs from the record; whether one is newly in doubt."""
    changes: dict[tuple[str, ...], list[int]] = {}
    for case in cases:
        said = before.get((case.op, case.dtype, case.order, case.sample), {})
        was, now = said.get("ours", "pass"), case.outcomes["ours"].verdict
        if was != now:
            where = f"{case.op} {case.dtype} order {case.order}"
            changes.setdefault((where, was, now, said.get("slow", "pass")), []).append(case.sample)
    for (where, was, now, slow), samples in sorted(changes.items()):
        print(f"- {where}, samples {_ranges(samples)}: ours {was} before, {now} now; slow {slow}")
    print(f"Ours differs from the record in {sum(map(len, changes.values())):,} cases.")
    return any(was == slow == "pass" for _, was, _, slow in changes)


def _samples(ranges: str) -> list[int]:
    """1, 2, 3, 7 of `1-3, 7`."""
    ends = [[int(end) for end in part.split("-")] for part in ranges.split(", ")]
    return [sample for first, *last in ends for sample in range(first, (last or [first])[0] + 1)]


def _ranges(numbers: Sequence[int]) -> str:
    """`1-3, 7` for 1, 2, 3, 7."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(f"{part[0]}-{part[-1]}" if part[1:] else str(part[0]) for part in parts)


# The command line --------------------------------------------------------------------------------


def summary(
    harvests: Sequence[Harvest], groups: Sequence[dict[str, Any]], tools: Sequence[str]
) -> dict[str, Any]:
    """The record of the run: counts and times by dtype and order, and what some tool refuses."""
    cases = [case for harvest in harvests for case in harvest.cases]
    counts: dict[str, dict[str, Any]] = {}
    for case in cases:
        entry = counts.setdefault(
            f"{case.dtype}, order {case.order}",
            {tool: Counter() for tool in tools} | {"seconds": Counter()},
        )
        for tool, outcome in case.outcomes.items():
            entry[tool][outcome.verdict] += 1
            entry["seconds"][tool] = round(entry["seconds"][tool] + outcome.seconds, 4)
    not_passed: dict[tuple[Any, ...], list[int]] = {}
    for case in cases:
        said = tuple((tool, outcome.verdict) for tool, outcome in case.outcomes.items())
        if any(verdict != "pass" for _, verdict in said):
            not_passed.setdefault((case.op, case.dtype, case.order, said), []).append(case.sample)
    return {
        "cases": len(cases),
        "judged_by_all": sum(case.judged for case in cases),
        "seconds_over_judged": {
            tool: sum(case.outcomes[tool].seconds for case in cases if case.judged)
            for tool in tools
        },
        "differences": sum(len(group["samples"]) for group in groups),
        "unexplained": sum(len(g["samples"]) for g in groups if g["cause"] is None),
        "troubles": [trouble for harvest in harvests for trouble in harvest.troubles],
        "skipped": sum((harvest.skipped for harvest in harvests), Counter[str]()),
        "counts": counts,
        "not_passed": [
            {"op": op, "dtype": dtype, "order": order, **dict(said), "samples": _ranges(samples)}
            for (op, dtype, order, said), samples in not_passed.items()
        ],
    }


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common.parser(__doc__)
    parser.add_argument("--dtype", metavar="NAMES", default="both",
                        help=f"both, that is {' and '.join(_opdb.DOUBLE)}, or one of them, or a "
                        f"comma-separated list of {', '.join(_opdb.LOW)}")  # fmt: skip
    parser.add_argument("--order", choices=["1", "2", "both"], default="both")
    parser.add_argument("--ops", metavar="REGEX", help="only operators whose whole name matches")
    parser.add_argument("--limit-samples", type=int, metavar="N", help="per operator and dtype")
    common.spreading(parser)
    parser.add_argument("--tools", help="comma-separated, of ours, slow, fast; in low precision "
                        "of check, slow")  # fmt: skip
    parser.add_argument("--no-fast", action="store_true", help="leave PyTorch's fast mode out")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds per call of a tool")
    parser.add_argument("--against", type=Path, metavar="RECORD",
                        help="ours alone, beside a recorded run in double precision")  # fmt: skip
    options = parser.parse_args(arguments)
    if options.against is not None:
        options.tools = "ours"
    options.dtypes = list(_opdb.DOUBLE) if options.dtype == "both" else options.dtype.split(",")
    options.low = options.dtypes[0] in _opdb.LOW
    known = _opdb.LOW if options.low else _opdb.DOUBLE
    if unknown := [dtype for dtype in options.dtypes if dtype not in known]:
        parser.error(f"--dtype: {unknown[0]!r} is unknown, or not of the kind of the first")
    tools = _operators_low.TOOLS if options.low else TOOLS
    wanted = options.tools.split(",") if options.tools else tools
    if unknown := [tool for tool in wanted if tool not in tools]:
        parser.error(f"--tools: unknown {unknown[0]!r}; choose from {', '.join(tools)}")
    options.tools = tuple(t for t in tools if t in wanted and not (options.no_fast and t == "fast"))
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = options_of(arguments)
    limit = options.limit_samples
    if limit is None and options.quick:
        limit = QUICK_SAMPLES
    orders = (1, 2) if options.order == "both" else (int(options.order),)
    orders = (1,) if options.low else orders
    plan = Plan(options.tools, orders, limit, options.timeout)
    jobs = jobs_of(options)
    if not jobs:
        print("no operator matches", file=sys.stderr)
        return 2
    if options.low:
        return _operators_low.run(options, plan, jobs)
    harvests = run_all(jobs, plan, options)
    cases = [case for harvest in harvests for case in harvest.cases]
    groups = difference_groups(cases, json.loads(EXPLAINED.read_text()))
    report(cases, options)
    if options.against is None:
        print_differences(groups)
    for trouble in (trouble for harvest in harvests for trouble in harvest.troubles):
        print(f"trouble: {trouble}")
    common.record(options.json, summary(harvests, groups, options.tools))
    if options.against is not None:
        return int(print_changes(cases, recorded(json.loads(options.against.read_text()))))
    unexplained = sum(len(group["samples"]) for group in groups if group["cause"] is None)
    if unexplained:
        print(f"\n{unexplained} differences are unexplained.")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
