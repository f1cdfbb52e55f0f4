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
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import _common as common
import _opdb
import torch
from torch.autograd.gradcheck import GradcheckError
from torch.utils import _pytree as pytree

EXPLAINED = Path(__file__).parent / "explained.json"
TOOLS = ("ours", "slow", "fast")
LOW_TOOLS = ("check", "slow")
LABELS = {
    "ours": "gradproof",
    "slow": "PyTorch slow",
    "fast": "PyTorch fast",
    "check": "gradproof.check",
}
# In low precision: per cent of the cases that pass at least, and that fail at most.
BARS = {
    "float32": (97.0, 0.5),
    "complex64": (97.0, 0.5),
    "bfloat16": (95.0, 0.5),
    "float16": (95.0, 0.5),
}
QUICK_EVERY = 12
QUICK_SAMPLES = 2


@dataclass(frozen=True)
class Outcome:
    """What one tool said about one case.

    Attributes:
        verdict: "pass", "fail" or "error"; of `gradproof.check` a verdict of its report.
        message: first line of what was raised, with the exception's type for an error; of a
            report the first finding, or the reason why it is inconclusive.
        seconds: wall time of the call.
    """

    verdict: str
    message: str
    seconds: float


@dataclass(frozen=True)
class Case:
    """One operator, sample, dtype and order, with the outcome of each tool.

    Attributes:
        evidence: how inaccurate the operator is, where `gradproof.check` refutes it.
        wrong: whether PyTorch's slow mode refutes it in double precision too: then the operator
            is wrong, and precision has nothing to do with it.
    """

    op: str
    sample: int
    dtype: str
    order: int
    outcomes: dict[str, Outcome]
    evidence: str = ""
    wrong: bool = False

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
    if "check" in tools:
        found["check"] = _check
    return {tool: found[tool] for tool in tools}


def _check(fn: _opdb.Function, inputs: Sequence[torch.Tensor], **_: object) -> Any:
    import gradproof

    return gradproof.check(_attached(fn), inputs, seed=0)


def _attached(fn: _opdb.Function) -> _opdb.Function:
    """Without outputs that do not require grad beside those that do, as PyTorch's gradcheck.

    The operators declare them to have no derivative (means and variances of a layer norm).
    """

    def function(*inputs: Any) -> Any:
        output = fn(*inputs)
        if isinstance(output, (tuple, list)):
            kept = [part for part in output if getattr(part, "requires_grad", False)]
            return tuple(kept) if kept else output
        return output

    return function


def said(answer: Any) -> tuple[str, str]:
    """Verdict and message of what a tool returned, True or a report."""
    if answer is True:
        return "pass", ""
    texts = [f"{finding.check}: {finding.message}" for finding in answer.findings]
    texts += [f"{result.name}: {result.summary}" for result in answer.checks
              if result.verdict is answer.verdict]  # fmt: skip
    message = texts[0].partition("\n")[0][:300] if texts and answer.verdict != "passed" else ""
    return str(answer.verdict), message


def judge(tool: Callable[..., Any], sample: _opdb.Sample, timeout: float) -> Outcome:
    """Calls one tool and never raises what the tool raises."""
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _opdb.seed_everything(0)
        start = time.perf_counter()
        try:
            with alarm(timeout) as watch:
                answer = tool(sample.function, sample.inputs, nondet_tol=sample.nondet_tol)
            verdict, message = said(answer)
            if watch.rang and answer is not True:
                # In the user's function, as it seemed to the check, which makes a finding of it.
                verdict, message = "error", f"TimeoutError: more than {timeout:g} s"
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
        self.rang = False

    def __enter__(self) -> alarm:
        if self.seconds:
            self.before = signal.signal(signal.SIGALRM, self._ring)
            signal.setitimer(signal.ITIMER_REAL, self.seconds)
        return self

    def __exit__(self, *_: object) -> None:
        if self.seconds:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self.before)

    def _ring(self, *_: object) -> None:
        self.rang = True
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
    case = Case(sample.op, sample.index, dtype, order, outcomes)
    if "check" not in names or outcomes["check"].verdict != "failed":
        return case
    wide = sample.in_double()
    # With forward mode, which `gradproof.check` asks for too; apart, for it may not be supported.
    slow = checkers(("slow",), order)["slow"]
    tools = (slow, partial(slow, check_forward_ad=True))
    wrong = any(judge(tool, wide, plan.timeout).verdict == "fail" for tool in tools)
    return replace(case, evidence=inaccuracy(sample), wrong=wrong)


# How inaccurate an operator is -------------------------------------------------------------------


def inaccuracy(sample: _opdb.Sample) -> str:
    """The error of the low-precision gradient, and what one ulp of the inputs changes.

    Both in units of eps of the entry where the error exceeds the change by the largest factor:
    an error far above the change is the operator's own. Never raises.
    """
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return _inaccuracy(sample)
        except Exception as error:
            return f"no float64 gradient: {type(error).__name__}: {common.first_line(str(error))}"


def _inaccuracy(sample: _opdb.Sample) -> str:
    wide = sample.in_double()
    eps = max(torch.finfo(sample.inputs[i].dtype).eps for i in sample.differentiable)
    low, exact = _gradients(sample, seed=1), _gradients(wide, seed=1)
    error = (low - exact).abs()
    moved = torch.stack([(_gradients(_nudged(wide, eps, k), seed=1) - exact).abs()
                         for k in range(8)]).amax(0)  # fmt: skip
    # An entry below a thousandth of the rms counts as one of that size.
    size = torch.maximum(exact.abs(), 1e-3 * exact.abs().square().mean().sqrt())
    size = torch.where(size > 0, size, torch.ones_like(size))
    worst = int((error / (moved + eps * size)).nan_to_num(torch.inf).argmax())
    rms = float(exact.abs().square().mean().sqrt())
    total = float(error.square().mean().sqrt()) / (eps * rms) if rms else torch.nan
    off, change = (float(t[worst] / size[worst] / eps) for t in (error, moved))
    claimed, true = (complex(t[worst]) for t in (low, exact))
    return (
        f"gradient[{worst}] = {claimed:.6g}, in float64 {true:.6g}: off by {off:.3g} eps; "
        f"one ulp of the inputs moves it by {change:.3g} eps; rms error {total:.3g} eps"
    )


def _gradients(sample: _opdb.Sample, *, seed: int) -> torch.Tensor:
    """All gradients of one random functional of the outputs, end to end in double precision."""
    _opdb.seed_everything(0)
    leaves = [x.detach().requires_grad_() if i in sample.differentiable else x
              for i, x in enumerate(sample.inputs)]  # fmt: skip
    outputs = [y for y in pytree.tree_leaves(sample.function(*leaves))
               if isinstance(y, torch.Tensor) and y.requires_grad]  # fmt: skip
    generator = torch.Generator().manual_seed(seed)
    # Sixteenths: the same number in every precision.
    cotangents = [torch.randint(-16, 17, y.shape, generator=generator).div(16).to(y.dtype)
                  for y in outputs]  # fmt: skip
    wanted = [leaves[i] for i in sample.differentiable]
    grads = torch.autograd.grad(outputs, wanted, cotangents, allow_unused=True)
    return torch.cat([
        (torch.zeros_like(x) if g is None else g).to_dense().reshape(-1).to(torch.complex128)
        for g, x in zip(grads, wanted, strict=True)
    ])  # fmt: skip


def _nudged(sample: _opdb.Sample, eps: float, seed: int) -> _opdb.Sample:
    """The sample with each input entry moved up or down by one unit in the last place."""
    generator = torch.Generator().manual_seed(seed)
    moved = list(sample.inputs)
    for i, x in enumerate(moved):
        if isinstance(x, torch.Tensor):
            sign = 2 * torch.randint(2, x.shape, generator=generator) - 1
            moved[i] = (x.detach() * (1 + eps * sign)).requires_grad_(x.requires_grad)
    return replace(sample, inputs=tuple(moved))


# The run over all operators ------------------------------------------------------------------


def jobs_of(options: argparse.Namespace) -> list[tuple[str, str]]:
    """(operator, dtype) pairs in the order of the database."""
    dtypes = options.dtypes
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
    facts: dict[str, Any] = {"dtype": case.dtype, "order": case.order}
    facts |= {tool: case.outcomes[tool].verdict if tool in case.outcomes else None
              for tool in ("ours", "slow", "check")}  # fmt: skip
    for row in explained:
        if not re.fullmatch(row["op"], case.op):
            continue
        if any(key in row and row[key] != value for key, value in facts.items()):
            continue
        if "samples" in row and case.sample not in row["samples"]:
            continue
        if "says" in row and not re.search(row["says"], case.outcomes["check"].message):
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


# In low precision --------------------------------------------------------------------------------


def low_rows(cases: Sequence[Case], tools: Sequence[str]) -> list[list[str]]:
    """Per dtype: cases, our verdicts as shares, PyTorch's share passed, seconds."""
    rows = []
    for dtype in dict.fromkeys(case.dtype for case in cases):
        part = [case for case in cases if case.dtype == dtype]
        counts = {tool: Counter(case.outcomes[tool].verdict for case in part) for tool in tools}
        row = [dtype, f"{len(part):,}"]
        if "check" in tools:
            row += [_count(counts["check"][verdict], len(part)) for verdict in OUR_VERDICTS]
            row.append(f"{sum(case.wrong for case in part):,}")
        if "slow" in tools:
            row.append(_count(counts["slow"]["pass"], len(part)))
        row += [f"{sum(case.outcomes[tool].seconds for case in part):.1f}" for tool in tools]
        rows.append(row)
    return rows


OUR_VERDICTS = ("passed", "failed", "inconclusive", "skipped", "error")


def _count(part: int, whole: int) -> str:
    return f"{part:,} ({100 * part / whole:.2f} %)"


def report_low(cases: Sequence[Case], options: argparse.Namespace) -> None:
    """Prints the shares, then every failure, then what is undecided by reason."""
    columns = ["dtype", "cases"]
    columns += [*OUR_VERDICTS, "wrong in double too"] if "check" in options.tools else ()
    columns += ["PyTorch slow passed"] if "slow" in options.tools else ()
    columns += [f"{LABELS[tool]}, s" for tool in options.tools]
    title = f"PyTorch's operator database in low precision: {_size(cases)}"
    common.show(title, columns, low_rows(cases, options.tools), markdown=options.markdown)
    print(f"Measured on {common.machine_line()}.")
    if "check" in options.tools:
        explained = json.loads(EXPLAINED.read_text())
        for verdict in ("failed", "inconclusive", "skipped", "error"):
            part = [case for case in cases if case.outcomes["check"].verdict == verdict]
            print(f"\n{verdict}: {len(part)}")
            for line in low_lines(part, explained):
                print(line)


def low_lines(part: Sequence[Case], explained: Sequence[dict[str, Any]]) -> Iterator[str]:
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
            found.append(f"{dtype}: {common.percent(passed, len(part))} passed, not {least:g} %")
        if 100 * len(failed) > most * len(part):
            found.append(f"{dtype}: {len(failed)} of {len(part)} failed, more than {most:g} %")
        if unknown := [case for case in failed if explanation(case, explained) is None]:
            found.append(f"{dtype}: {len(unknown)} failures are unexplained")
    return found


def low_summary(harvests: Sequence[Harvest], found: Sequence[str]) -> dict[str, Any]:
    """The record: counts per dtype and tool, and every case that ours does not pass."""
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
        "not_passed": [asdict(case) for case in cases
                       if "check" in case.outcomes and case.outcomes["check"].verdict != "passed"],
    }  # fmt: skip


def main_low(options: argparse.Namespace, plan: Plan, jobs: Sequence[tuple[str, str]]) -> int:
    harvests = run_all(jobs, plan, options.jobs)
    cases = [case for harvest in harvests for case in harvest.cases]
    report_low(cases, options)
    for trouble in (trouble for harvest in harvests for trouble in harvest.troubles):
        print(f"trouble: {trouble}")
    found = misses(cases) if "check" in options.tools else []
    for line in found:
        print(f"bar missed: {line}")
    common.record(options.json, low_summary(harvests, found))
    return 1 if found else 0


# The command line --------------------------------------------------------------------------------


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
    parser.add_argument("--dtype", metavar="NAMES", default="both",
                        help=f"both, that is {' and '.join(_opdb.DOUBLE)}, or one of them, or a "
                        f"comma-separated list of {', '.join(_opdb.LOW)}")  # fmt: skip
    parser.add_argument("--order", choices=["1", "2", "both"], default="both")
    parser.add_argument("--ops", metavar="REGEX", help="only operators whose whole name matches")
    parser.add_argument("--limit-samples", type=int, metavar="N", help="per operator and dtype")
    parser.add_argument("--jobs", type=int, default=1, help="worker processes")
    parser.add_argument("--tools", help="comma-separated, of ours, slow, fast; in low precision "
                        "of check, slow")  # fmt: skip
    parser.add_argument("--no-fast", action="store_true", help="leave PyTorch's fast mode out")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds per call of a tool")
    options = parser.parse_args(arguments)
    options.dtypes = list(_opdb.DOUBLE) if options.dtype == "both" else options.dtype.split(",")
    options.low = options.dtypes[0] in _opdb.LOW
    known = _opdb.LOW if options.low else _opdb.DOUBLE
    if unknown := [dtype for dtype in options.dtypes if dtype not in known]:
        parser.error(f"--dtype: {unknown[0]!r} is unknown, or not of the kind of the first")
    tools = LOW_TOOLS if options.low else TOOLS
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
        return main_low(options, plan, jobs)
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
