"""The checks, a function each: `(map, settings) -> CheckResult`. Their table: `_data/checks.py`."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from gradproof._checks import reference, state, traits
from gradproof._data.checks import TABLE, Check
from gradproof._data.frames import is_our_mistake
from gradproof._data.records import NOT_ASKED, CheckResult, Verdict
from gradproof._data.settings import CHECK_NAMES, Settings
from gradproof._judge.decide import excusing_single
from gradproof._judge.outcome import inconclusive, skipped
from gradproof._maps.contract import DifferentiableMap, Unsupported
from gradproof._measure import steps
from gradproof._verdict import second
from gradproof._verdict.judge import unsteady
from gradproof.errors import UsageError

_IN_DOUBT = (Verdict.FAILED, Verdict.INCONCLUSIVE)


def asked(settings: Settings) -> list[Check]:
    """The rows of the report: also those that were named, to say why they are skipped."""
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


def concluded(row: Check, map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """What a check concludes; skipped where its order was not asked for."""
    if settings.order < row.order:
        reason = f"{NOT_ASKED}; order={row.order} asks for it"
        return skipped(row.name, reason)
    map_.memo[state.VERDICT, row.name] = Verdict.SKIPPED  # also where it raises
    found = _of_unspoilt(partial(function_of(row), map_, settings), map_, settings)
    map_.memo[state.VERDICT, row.name] = found.verdict
    if row.identity and settings.trusted and found.verdict is Verdict.FAILED:
        found = reference.identity(function_of(row), map_, settings, found)
    if row.compares and found.verdict is Verdict.FAILED and (reason := unsteady(map_)):
        return inconclusive(row.name, reason)
    again = row.compares and row.order == 1 and not (row.transform or row.named)
    if again and found.verdict is Verdict.PASSED and map_.resolution > steps.SINGLE:
        return _in_double(row, map_, settings, found)
    return found


def _of_unspoilt(
    ask: Callable[[], CheckResult], map_: DifferentiableMap, settings: Settings
) -> CheckResult:
    """The result of a check; in doubt, where backwards spoil their calls, of calls of their own."""
    try:
        found = ask()
        if found.verdict not in _IN_DOUBT or not traits.spoils(map_, settings):
            return found
    except (Unsupported, UsageError, MemoryError):
        raise
    except Exception:  # as PyTorch does where it sees that what was saved was written into
        if not traits.spoils(map_, settings):
            raise
    return ask()


def _in_double(
    row: Check, map_: DifferentiableMap, settings: Settings, found: CheckResult
) -> CheckResult:
    """What the check says of the same function in float64, where it fails there.

    In 16 bits rounding is excused as much as a term, or a row: what holds up to that may well be
    wrong. In float64 next to nothing is excused, but what float32 rounds.
    """
    try:
        exact = second.in_double(map_, settings)
        ask = partial(function_of(row), exact, settings)
        again = excusing_single(exact, ask, lambda said: said.verdict is Verdict.FAILED)
    except (UsageError, MemoryError):
        raise
    except Unsupported:  # there is no such run
        return found
    except Exception as error:  # whatever the user's code raises there alone
        if is_our_mistake(error):
            raise
        return found
    if again.verdict is not Verdict.FAILED or settings.trusted or unsteady(exact):
        return found
    return replace(again, summary=f"{again.summary}, as the same function in float64 shows")


@functools.cache
def function_of(row: Check) -> Callable[[DifferentiableMap, Settings], CheckResult]:
    """The check of a row."""
    module, _, name = row.run.partition(".")
    check = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    found: Callable[[DifferentiableMap, Settings], CheckResult]
    several = sum(each.run == row.run for each in TABLE) > 1
    found = partial(check, row.name) if several else check
    return found
