"""The checks, a function each: `(measurements) -> CheckResult`. Their table: `_data/checks.py`."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import replace

from gradproof._checks import reference
from gradproof._data.checks import TABLE, Check
from gradproof._data.formats import SINGLE
from gradproof._data.frames import is_our_mistake
from gradproof._data.records import NOT_ASKED, CheckResult, Verdict
from gradproof._data.settings import CHECK_NAMES, RunSettings
from gradproof._maps.contract import Unsupported
from gradproof._measurements import Measurements
from gradproof.errors import UsageError

CheckFunction = Callable[[Measurements], CheckResult]


def requested_checks(settings: RunSettings) -> list[Check]:
    """The rows of the report: those named, or all of the orders asked for.

    A row whose order was not asked for is reported as skipped, where its table row says so.
    """
    if settings.checks != CHECK_NAMES:
        return [row for row in TABLE if row.name in settings.checks]
    return [
        row
        for row in TABLE
        if (
            row.name in settings.transforms
            if row.transform or row.named
            else row.always or row.order <= settings.order
        )
    ]


def conclude_check(row: Check, measurements: Measurements) -> CheckResult:
    """What a check concludes; skipped where its order was not asked for.

    An identity that the user's trusted reference does not keep either is no fault. Claims of
    several runs say nothing where the function itself is random. In 16 bits rounding excuses much:
    a check that passes is asked again of the same function in float64.
    """
    settings = measurements.settings
    if settings.order < row.order:
        text = f"{NOT_ASKED}; order={row.order} asks for it"
        return CheckResult(row.name, Verdict.SKIPPED, text)
    check = check_function(row)
    found = check(measurements)
    failed = found.verdict is Verdict.FAILED
    if row.identity and settings.trusted and failed:
        found = reference.identity(check, measurements, found)
    if row.compares and failed and (reason := measurements.randomness):
        return CheckResult(row.name, Verdict.INCONCLUSIVE, reason)
    again = row.compares and row.order == 1 and not (row.transform or row.named)
    if again and found.verdict is Verdict.PASSED and measurements.unit > SINGLE:
        return _failure_in_double(row, measurements, found)
    return found


def _failure_in_double(row: Check, measurements: Measurements, found: CheckResult) -> CheckResult:
    """The failure of the same function in float64, if it fails there; else what was found."""
    if measurements.settings.trusted:
        return found
    try:
        exact = measurements.double
        again = check_function(row)(exact)
        if again.verdict is Verdict.FAILED:  # sums may be kept in float32 whatever the arrays are
            again = check_function(row)(exact.with_claims_in_single())
    except (UsageError, MemoryError):
        raise
    except Unsupported:  # it does not run there
        return found
    except Exception as error:  # whatever the user's code raises there alone
        if is_our_mistake(error):
            raise
        return found
    if again.verdict is not Verdict.FAILED or exact.randomness:
        return found
    return replace(again, summary=f"{again.summary}, as the same function in float64 shows")


@functools.cache
def check_function(row: Check) -> CheckFunction:
    """The check of a row of the table."""
    module, _, name = row.run.partition(".")
    check: Callable[..., CheckResult] = getattr(
        importlib.import_module(f"{__name__}.{module}"), name
    )
    several = sum(each.run == row.run for each in TABLE) > 1
    return functools.partial(check, row.name) if several else check
