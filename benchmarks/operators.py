"""Our verdict beside PyTorch's slow and fast gradcheck, on PyTorch's own operators.

Every differentiable operator of `torch.testing._internal.common_methods_invocations.op_db`, each
of its samples with at most 200 differentiable numbers going in and 2,000 coming out, in float64
and complex128, through gradcheck and, where the operator supports it, gradgradcheck, with default
arguments (and the operator's own `nondet_tol`).

A verdict is `pass`, `fail` (a GradcheckError) or `error` (any other exception). The tools take
turns within one case, in an order that rotates from case to case, so that a machine that slows
down slows all of them. Times are summed over the cases in which every tool passed or failed.

Differences between our verdict and that of the slow mode are looked up in explained.json, where
a sentence says which of the two is right. Exit code 1: a difference that is not explained there.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import _common as common
import _opdb
import torch
from torch.autograd.gradcheck import GradcheckError

EXPLAINED = Path(__file__).parent / "explained.json"
TOOLS = ("ours", "slow", "fast")
LABELS = {"ours": "gradproof", "slow": "PyTorch slow", "fast": "PyTorch fast"}
QUICK_EVERY = 12
QUICK_SAMPLES = 2


@dataclass(frozen=True)
class Outcome:
    """What one tool said about one case.

    Attributes:
        verdict: "pass", "fail" or "error".
        message: first line of what was raised, with the exception's type for an error.
        seconds: wall time of the call.
    """

    verdict: str
    message: str
    seconds: float


@dataclass(frozen=True)
class Case:
    """One operator, sample, dtype and order, with the outcome of each tool."""

    op: str
    sample: int
    dtype: str
    order: int
    outcomes: dict[str, Outcome]

    @property
    def differs(self) -> bool:
        """Whether ours and the slow mode, both asked, say different things."""
        ours, slow = self.outcomes.get("ours"), self.outcomes.get("slow")
        return ours is not None and slow is not None and ours.verdict != slow.verdict

    @property
    def judged(self) -> bool:
        """Whether every tool passed or failed."""
        return all(outcome.verdict != "error" for outcome in self.outcomes.values())


@dataclass(frozen=True)
class Plan:
    """What to run, sent to the worker processes."""

    tools: tuple[str, ...]
    orders: tuple[int, ...]
    limit: int | None
    timeout: float


@dataclass
class Harvest:
    """What came back from one operator in one dtype."""

    cases: list[Case] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    troubles: list[str] = field(default_factory=list)


def checkers(tools: Sequence[str], order: int) -> dict[str, Callable[..., bool]]:
    """The tools by name, as functions of (function, inputs)."""
    name = "gradcheck" if order == 1 else "gradgradcheck"
    peer = getattr(torch.autograd, name)
    found = {"slow": partial(peer, fast_mode=False), "fast": partial(peer, fast_mode=True)}
    if "ours" in tools:
        import gradproof.torch

        found["ours"] = getattr(gradproof.torch, name)
    return {tool: found[tool] for tool in tools}


def judge(tool: Callable[..., bool], sample: _opdb.Sample, timeout: float) -> Outcome:
    """Calls one tool and never raises what the tool raises."""
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _opdb.seed_everything(0)
        start = time.perf_counter()
        try:
            with alarm(timeout):
                tool(sample.function, sample.inputs, nondet_tol=sample.nondet_tol)
            verdict, message = "pass", ""
        except GradcheckError as error:
            verdict, message = "fail", common.first_line(str(error))
        except Exception as error:
            verdict = "error"
            message = f"{type(error).__name__}: {common.first_line(str(error))}"
        return Outcome(verdict, message, time.perf_counter() - start)


class alarm:
    """Raises TimeoutError in the block after so many seconds; nothing where signals are missing."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds if hasattr(signal, "SIGALRM") else 0.0

    def __enter__(self) -> None:
        if self.seconds:
            self.before = signal.signal(signal.SIGALRM, self._ring)
            signal.setitimer(signal.ITIMER_REAL, self.seconds)

    def __exit__(self, *_: object) -> None:
        if self.seconds:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self.before)

    def _ring(self, *_: object) -> None:
        raise TimeoutError(f"more than {self.seconds:g} s")


def run_operator(name: str, dtype: str, plan: Plan) -> Harvest:
    """Every case of one operator in one dtype; what goes wrong is noted, never raised."""
    torch.set_num_threads(1)
    harvest = Harvest()
    wanted = _opdb.DTYPES[dtype]
    try:
        (op,) = (op for op in _opdb.differentiable_operators(wanted) if op.full_name == name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            usable = list(_usable(op, wanted, plan, harvest))
    except Exception as error:
        harvest.troubles.append(f"{name} {dtype}: no samples: {type(error).__name__}: {error}")
        return harvest
    for order in plan.orders:
        if order == 2 and not op.supports_gradgrad:
            harvest.skipped["second order not supported by the operator"] += len(usable)
            continue
        harvest.cases += [run_case(sample, dtype, order, plan) for sample in usable]
    return harvest


def _usable(op: Any, dtype: torch.dtype, plan: Plan, harvest: Harvest) -> Iterator[_opdb.Sample]:
    """The samples small enough; counts the others."""
    taken = 0
    for sample in _opdb.samples(op, dtype):
        if plan.limit is not None and taken >= plan.limit:
            return
        if _opdb.output_size(sample) > _opdb.MOST_OUTPUTS:
            harvest.skipped[f"more than {_opdb.MOST_OUTPUTS} outputs"] += 1
            continue
        taken += 1
        yield sample


def run_case(sample: _opdb.Sample, dtype: str, order: int, plan: Plan) -> Case:
    """All tools on one sample, the first in turn depending on the sample's position."""
    tools = checkers(plan.tools, order)
    names = list(tools)
    turn = sample.index % len(names)
    found = {name: judge(tools[name], sample, plan.timeout) for name in names[turn:] + names[:turn]}
    outcomes = {name: found[name] for name in names}
    return Case(sample.op, sample.index, dtype, order, outcomes)


# The run over all operators ------------------------------------------------------------------


def jobs_of(options: argparse.Namespace) -> list[tuple[str, str]]:
    """(operator, dtype) pairs in the order of the database."""
    dtypes = list(_opdb.DTYPES) if options.dtype == "both" else [options.dtype]
    names = {
        dtype: [op.full_name for op in _opdb.differentiable_operators(_opdb.DTYPES[dtype])]
        for dtype in dtypes
    }
    jobs = [(name, dtype) for dtype in dtypes for name in names[dtype]]
    if options.quick and options.ops is None:
        jobs = jobs[::QUICK_EVERY]
    if options.ops is not None:
        jobs = [job for job in jobs if re.fullmatch(options.ops, job[0])]
    return jobs


def run_all(jobs: Sequence[tuple[str, str]], plan: Plan, processes: int) -> list[Harvest]:
    """One harvest per job, in the order of the jobs."""
    with common.progress("operators", len(jobs)) as advance:
        if processes == 1:
            return [_run_here(job, plan, advance) for job in jobs]
        found: dict[tuple[str, str], Harvest] = {}
        with ProcessPoolExecutor(processes) as pool:
            futures = {pool.submit(run_operator, *job, plan): job for job in jobs}
            for future in as_completed(futures):
                found[futures[future]] = _result(future, futures[future])
                advance(" ".join(futures[future]))
        return [found[job] for job in jobs]


def _run_here(job: tuple[str, str], plan: Plan, advance: Callable[[str], None]) -> Harvest:
    advance(" ".join(job))
    return run_operator(*job, plan)


def _result(future: Any, job: tuple[str, str]) -> Harvest:
    """The future's harvest; a worker that died is a trouble of the operator, not of the run."""
    try:
        harvest: Harvest = future.result()
    except BrokenProcessPool:
        harvest = Harvest(troubles=[f"{' '.join(job)}: a worker process died"])
    return harvest


# What it means ---------------------------------------------------------------------------------


def explanation(case: Case, explained: Sequence[dict[str, Any]]) -> str | None:
    """The cause of a difference, from the first row of explained.json that fits it."""
    facts = {"dtype": case.dtype, "order": case.order}
    for row in explained:
        if not re.fullmatch(row["op"], case.op):
            continue
        if any(key in row and row[key] != value for key, value in facts.items()):
            continue
        if "samples" in row and case.sample not in row["samples"]:
            continue
        if any(row.get(tool, case.outcomes[tool].verdict) != case.outcomes[tool].verdict
               for tool in ("ours", "slow")):  # fmt: skip
            continue
        return str(row["cause"])
    return None


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
        title = f"{names[order]}, {dtype}: {_size(part)}"
        common.show(title, COLUMNS, verdict_rows(part, options.tools), markdown=options.markdown)
    title = f"PyTorch's operator database: {_size(cases)}"
    common.show(title, COLUMNS, verdict_rows(cases, options.tools), markdown=options.markdown)
    judged = sum(case.judged for case in cases)
    print(f"Seconds are summed over the {judged:,} of {len(cases):,} cases in which every tool "
          "passed or failed.")  # fmt: skip
    print(f"Measured on {common.machine_line()}.")


def _group_order(group: tuple[str, int]) -> tuple[int, int]:
    return list(_opdb.DTYPES).index(group[0]), group[1]


def _size(cases: Sequence[Case]) -> str:
    return f"{len({case.op for case in cases})} operators, {len(cases):,} cases"


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


def _ranges(numbers: Sequence[int]) -> str:
    """`1-3, 7` for 1, 2, 3, 7."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(f"{part[0]}-{part[-1]}" if part[1:] else str(part[0]) for part in parts)


def summary(
    harvests: Sequence[Harvest], groups: Sequence[dict[str, Any]], tools: Sequence[str]
) -> dict[str, Any]:
    """The record of the run: counts and times per operator, every difference, every failure."""
    cases = [case for harvest in harvests for case in harvest.cases]
    operators: dict[str, dict[str, Any]] = {}
    for case in cases:
        entry = operators.setdefault(
            f"{case.op} {case.dtype} {case.order}",
            {tool: Counter() for tool in tools} | {"seconds": Counter()},
        )
        for tool, outcome in case.outcomes.items():
            entry[tool][outcome.verdict] += 1
            entry["seconds"][tool] = round(entry["seconds"][tool] + outcome.seconds, 4)
    not_passed = [
        asdict(case)
        for case in cases
        if any(outcome.verdict != "pass" for outcome in case.outcomes.values())
    ]
    return {
        "cases": len(cases),
        "judged_by_all": sum(case.judged for case in cases),
        "seconds_over_judged": {
            tool: sum(case.outcomes[tool].seconds for case in cases if case.judged)
            for tool in tools
        },
        "differences": list(groups),
        "troubles": [trouble for harvest in harvests for trouble in harvest.troubles],
        "skipped": sum((harvest.skipped for harvest in harvests), Counter[str]()),
        "operators": operators,
        "not_passed": not_passed,
    }


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common.parser(__doc__)
    parser.add_argument("--dtype", choices=[*_opdb.DTYPES, "both"], default="both")
    parser.add_argument("--order", choices=["1", "2", "both"], default="both")
    parser.add_argument("--ops", metavar="REGEX", help="only operators whose whole name matches")
    parser.add_argument("--limit-samples", type=int, metavar="N", help="per operator and dtype")
    parser.add_argument("--jobs", type=int, default=1, help="worker processes")
    parser.add_argument("--tools", default=",".join(TOOLS), help="comma-separated, of %(default)s")
    parser.add_argument("--no-fast", action="store_true", help="leave PyTorch's fast mode out")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds per call of a tool")
    options = parser.parse_args(arguments)
    wanted = options.tools.split(",")
    if unknown := [tool for tool in wanted if tool not in TOOLS]:
        parser.error(f"--tools: unknown {unknown[0]!r}; choose from {', '.join(TOOLS)}")
    options.tools = tuple(t for t in TOOLS if t in wanted and not (options.no_fast and t == "fast"))
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = options_of(arguments)
    limit = options.limit_samples
    if limit is None and options.quick:
        limit = QUICK_SAMPLES
    orders = (1, 2) if options.order == "both" else (int(options.order),)
    plan = Plan(options.tools, orders, limit, options.timeout)
    jobs = jobs_of(options)
    if not jobs:
        print("no operator matches", file=sys.stderr)
        return 2
    harvests = run_all(jobs, plan, options.jobs)
    cases = [case for harvest in harvests for case in harvest.cases]
    groups = difference_groups(cases, json.loads(EXPLAINED.read_text()))
    report(cases, options)
    print_differences(groups)
    for trouble in (trouble for harvest in harvests for trouble in harvest.troubles):
        print(f"trouble: {trouble}")
    common.record(options.json, summary(harvests, groups, options.tools))
    unexplained = sum(len(group["samples"]) for group in groups if group["cause"] is None)
    if unexplained:
        print(f"\n{unexplained} differences are unexplained.")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
