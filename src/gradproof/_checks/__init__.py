"""The checks, a function each: `(measurements) -> CheckResult`. Their table: `_data/checks.py`.

A check asks the map and the settings that its `Measurements` hold, writes nothing there, and knows
nothing of what another check concluded. The engine alone orders them.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable
from dataclasses import replace

from gradproof._data.checks import TABLE, Check
from gradproof._data.formats import SINGLE
from gradproof._data.records import NOT_ASKED, CheckResult, Verdict
from gradproof._data.settings import CHECK_NAMES, RunSettings
from gradproof._maps.contract import Unsupported
from gradproof._maps.users_code import UsersError, users_errors
from gradproof._measurements import Measurements

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
            if row.named
            else row.always or row.order <= settings.order
        )
    ]


def conclude_check(row: Check, measurements: Measurements) -> CheckResult:
    """What a check concludes; skipped where its order was not asked for.

    Claims of several runs say nothing where the function itself is random. In 16 bits, which its
    arrays have or its values show, rounding excuses much: a check that passes is asked again of the
    same function in float64.
    """
    settings = measurements.settings
    if settings.order < row.order:
        text = f"{NOT_ASKED}; order={row.order} asks for it"
        return CheckResult(row.name, Verdict.SKIPPED, text)
    result = check_function(row.name)(measurements)
    if row.compares and result.verdict is Verdict.FAILED and (reason := measurements.randomness):
        return CheckResult(row.name, Verdict.INCONCLUSIVE, reason)
    may_run_in_double = row.compares and row.order == 1 and not (row.named or settings.trusted)
    is_in_few_bits = may_run_in_double and measurements.value_unit > SINGLE
    if result.verdict is not Verdict.PASSED or not is_in_few_bits:
        return result
    return _failure_in_double(row, measurements) or result


def _failure_in_double(row: Check, measurements: Measurements) -> CheckResult | None:
    """The failure of the same function in float64; None where it does not fail or run there.

    Nor does a rule run there that casts its gradients to a dtype by name.
    """
    try:
        with users_errors():
            exact = (measurements.in_few_bits or measurements).double_with_rounded_claims
            result = check_function(row.name)(exact)
            if result.verdict is not Verdict.FAILED or exact.randomness:
                return None
            with contextlib.suppress(Unsupported):  # forward mode alone has no gradients
                traits = exact.map.gradient_traits(exact.cotangent)
                if any(trait.what == "dtype" for trait in traits):
                    return None
    except (Unsupported, UsersError):  # what the user's code raises there alone
        return None
    return replace(result, summary=f"{result.summary}, as the same function in float64 shows")


@functools.cache
def check_function(check_name: str) -> CheckFunction:
    """The check of that name."""
    row = next(each for each in TABLE if each.name == check_name)
    module, _, name = (row.run or f"{row.name}.check").partition(".")
    check: Callable[..., CheckResult] = getattr(
        importlib.import_module(f"{__name__}.{module}"), name
    )
    is_shared = bool(row.run) and sum(each.run == row.run for each in TABLE) > 1
    return functools.partial(check, row.name) if is_shared else check
