"""A check at many other inputs. Those that the function does not take are no fault."""

from __future__ import annotations

import math
import time
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np

from gradproof._adapters.samples import Samples
from gradproof._checks.outcome import failed_check, inconclusive_check, passed_check
from gradproof._data import checks
from gradproof._data.records import CheckResult, Report, Verdict
from gradproof._data.settings import RunSettings
from gradproof._engine._question import Question
from gradproof._engine._run import run_checks

MOST_CALLS = 4_000  # at one input: it may be a kink or a wide gap, but must leave some for others


def report_with_sweep(report: Report, question: Question, settings: RunSettings) -> Report:
    """The report with a row for the sweep, which ends at the first input that fails.

    Args:
        report: of the given inputs.
        question: the function and its arguments.
        settings: of the run; the budgets hold for the whole sweep.
    """
    started, calls = time.perf_counter(), Counter[str]()
    end = started + (settings.budget_seconds or math.inf)
    samples = Samples(question.adapter, question.function, question.arguments, question.kwargs)
    cases = list(samples.cases(settings.seed))
    repeated = {row.name for row in checks.TABLE if row.elsewhere}
    requested = tuple(name for name in settings.checks if name in repeated)
    reports: dict[str, Report] = {}  # by label, of the inputs that the function takes
    notes: list[str] = []
    refused = 0
    for position, case in enumerate(cases, 1):
        left, seconds = settings.budget - calls.total(), end - time.perf_counter()
        if left < 1 or seconds <= 0:
            notes.append(f"the budget was spent after {position - 1} of {len(cases)} inputs")
            break
        budget = min(left, MOST_CALLS)
        there = replace(settings, checks=requested, budget=budget, budget_seconds=seconds)
        calls["function"] += 1
        at_case = _report_at(question, samples.call(case), there, report.target)
        if at_case is None:
            refused += 1
            continue
        reports[case.label] = at_case
        calls.update(at_case.calls)
        if not at_case:
            break
    if refused:
        notes.append(f"{refused} inputs were none that the function takes")
    seconds = time.perf_counter() - started
    row = replace(_sweep_result(reports, notes), calls=dict(calls), seconds=seconds)
    return replace(
        report,
        checks=(*report.checks, row),
        calls=dict(Counter(report.calls) + calls),
        seconds=report.seconds + seconds,
    )


def _report_at(
    question: Question, arguments: tuple[Any, Any], settings: RunSettings, target: str
) -> Report | None:
    """The report at other arguments; None where the function raises or has no finite value."""
    try:
        with np.errstate(all="ignore"):
            map_ = question.build(*arguments)
            if not np.all(np.isfinite(map_.value(map_.point))):
                map_.close()
                return None
    except Exception:  # whatever the function raises for inputs that it does not take
        return None
    return run_checks(map_, settings.with_precision(map_.resolution), target=target)


def _sweep_result(reports: dict[str, Report], notes: list[str]) -> CheckResult:
    unclear = [label for label, report in reports.items() if report.verdict is Verdict.INCONCLUSIVE]
    if unclear:
        notes.append(f"undecided at {len(unclear)}: {', '.join(unclear[:4])}")
    for label, report in reports.items():
        if not report:
            result = next(each for each in report.checks if each.verdict is Verdict.FAILED)
            where = f"at {label} ({', '.join(report.inputs)})"
            summary = f"wrong {where}: {result.name}: {result.summary}"
            more = {"where": result.where, "causes": result.causes, "notes": tuple(notes)}
            findings = tuple(replace(each, check="sweep") for each in result.findings)
            return failed_check("sweep", summary, findings, **more)
    if not reports:
        return inconclusive_check("sweep", "the function takes no other inputs", notes=tuple(notes))
    return passed_check("sweep", f"right at {len(reports)} other inputs", notes=tuple(notes))
