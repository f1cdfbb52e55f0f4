"""The checks, a function each: `(measurements) -> CheckResult`. Their table: `_data/checks.py`.

A check asks the map and the settings that its `Measurements` hold, writes nothing there, and knows
nothing of what another check concluded. The engine alone orders them.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import replace

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

    Claims of several runs say nothing where the function itself is random. In 16 bits rounding
    excuses much: a check that passes is asked again of the same function in float64.
    """
    settings = measurements.settings
    if settings.order < row.order:
        text = f"{NOT_ASKED}; order={row.order} asks for it"
        return CheckResult(row.name, Verdict.SKIPPED, text)
    found = check_function(row)(measurements)
    if row.compares and found.verdict is Verdict.FAILED and (reason := measurements.randomness):
        return CheckResult(row.name, Verdict.INCONCLUSIVE, reason)
    is_excused = found.verdict is Verdict.PASSED and measurements.unit > SINGLE
    again = row.compares and row.order == 1 and not (row.transform or row.named)
    if is_excused and again and not settings.trusted:
        return _failure_in_double(row, measurements) or found
    return found


def _failure_in_double(row: Check, measurements: Measurements) -> CheckResult | None:
    """The failure of the same function in float64; None where it does not fail or run there.

    It has to fail as well where its claims may be rounded as in float32: sums may be kept in that,
    whatever the arrays are.
    """
    check = check_function(row)
    try:
        exact = measurements.double
        for each in (exact, exact.with_claims_in_single()):
            found = check(each)
            if found.verdict is not Verdict.FAILED or exact.randomness:
                return None
    except (UsageError, MemoryError):
        raise
    except Unsupported:
        return None
    except Exception as error:  # whatever the user's code raises there alone
        if is_our_mistake(error):
            raise
        return None
    return replace(found, summary=f"{found.summary}, as the same function in float64 shows")


@functools.cache
def check_function(row: Check) -> CheckFunction:
    """The check of a row of the table."""
    module, _, name = row.run.partition(".")
    check: Callable[..., CheckResult] = getattr(
        importlib.import_module(f"{__name__}.{module}"), name
    )
    is_shared = sum(each.run == row.run for each in TABLE) > 1
    return functools.partial(check, row.name) if is_shared else check
