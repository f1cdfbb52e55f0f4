"""The cases of operators.py: one operator at one sample, and what each tool said about it."""

from __future__ import annotations

import argparse
import re
import signal
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import _common as common
import _opdb
import torch
from _inaccuracy import inaccuracy, nothing_to_test
from torch.autograd.gradcheck import GradcheckError

EXPLAINED = Path(__file__).parent / "explained.json"
LABELS = {
    "ours": "gradproof",
    "slow": "PyTorch slow",
    "fast": "PyTorch fast",
    "check": "gradproof.check",
}
QUICK_EVERY = 12


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
        nothing: whether there is nothing to test, for the derivative is zero at the sample and
            the function constant around it; asked where `gradproof.check` is inconclusive.
    """

    op: str
    sample: int
    dtype: str
    order: int
    outcomes: dict[str, Outcome]
    evidence: str = ""
    wrong: bool = False
    nothing: bool = False

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
        found["check"] = check_by_ours
    return {tool: found[tool] for tool in tools}


def check_by_ours(fn: _opdb.Function, inputs: Sequence[torch.Tensor], **_: object) -> Any:
    import gradproof

    return gradproof.check(_attached(fn), inputs, seed=0)


def _attached(fn: _opdb.Function) -> _opdb.Function:
    """Without outputs that do not require grad beside those that do, as PyTorch's gradcheck.

    The operators declare them to have no derivative (means and variances of a layer norm). Which
    they are the first call says: a later one may ask for the gradients of fewer inputs.
    """
    kept: list[int] = []

    def function(*inputs: Any) -> Any:
        output = fn(*inputs)
        if not isinstance(output, (tuple, list)):
            return output
        if not kept:
            kept.extend(k for k, part in enumerate(output) if getattr(part, "requires_grad", False))
        return tuple(output[k] for k in kept) if kept else output

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
        start = time.process_time()
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
        return Outcome(verdict, message, time.process_time() - start)


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
    verdict = outcomes["check"].verdict if "check" in names else ""
    if verdict == "inconclusive":
        return replace(case, nothing=nothing_to_test(sample))
    if verdict != "failed":
        return case
    wide = sample.in_double()
    # With forward mode, which `gradproof.check` asks for too; apart, for it may not be supported.
    slow = checkers(("slow",), order)["slow"]
    tools = (slow, partial(slow, check_forward_ad=True))
    wrong = any(judge(tool, wide, plan.timeout).verdict == "fail" for tool in tools)
    return replace(case, evidence=inaccuracy(sample), wrong=wrong)


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


def run_all(
    jobs: Sequence[tuple[str, str]], plan: Plan, options: argparse.Namespace
) -> list[Harvest]:
    """One harvest per job, in the order of the jobs."""
    return common.in_order(partial(_harvest, plan=plan), jobs, options, _trouble)


def _harvest(job: tuple[str, str], plan: Plan) -> Harvest:
    return run_operator(*job, plan)


def _trouble(job: tuple[str, str], how: str) -> Harvest:
    """A worker that died is a trouble of the operator, not of the run."""
    return Harvest(troubles=[f"{' '.join(job)}: {how}"])


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


def size_line(cases: Sequence[Case]) -> str:
    """How many operators and cases, in words."""
    return f"{len({case.op for case in cases})} operators, {len(cases):,} cases"
