"""Reports in the words of the command line."""

from __future__ import annotations

from dataclasses import replace

from gradproof import _output
from gradproof._records import CheckResult, Report

# What a sentence says of an argument of `gradproof.check`, and of the option that sets it here.
_OPTIONS = (("raise budget=", "raise --budget"), ("raise budget_seconds=", "raise --seconds"))


def told(report: Report, line: str) -> Report:
    """The report, which a line for a shell repeats, and whose advice names options."""
    return _output.repeated(replace(report, checks=tuple(map(_told, report.checks))), line)


def _told(result: CheckResult) -> CheckResult:
    for argument, option in _OPTIONS:
        if result.summary.endswith(argument):
            summary = result.summary.removesuffix(argument) + option
            return replace(result, summary=summary)
    return result
