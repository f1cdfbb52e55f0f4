"""The checks of one map, in order, within their budget; what they concluded, as a report."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gradproof._checks import conclude_check, requested_checks
from gradproof._data.checks import Check
from gradproof._data.exceptions import exception_line, short_line
from gradproof._data.frames import is_our_mistake, place_of_error
from gradproof._data.limits import border_notes
from gradproof._data.records import CheckResult, Finding, Report, Verdict
from gradproof._data.settings import RunSettings
from gradproof._data.space import Space
from gradproof._explain.explain import explain_result, without_factors_of_nonlinear_rules
from gradproof._maps.contract import (
    BudgetSpent,
    DifferentiableMap,
    OutputChangedError,
    Raised,
    Unsupported,
)
from gradproof._measurements import Measurements
from gradproof.errors import UsageError


def run_checks(map_: DifferentiableMap, settings: RunSettings, *, target: str) -> Report:
    """Run the checks that the settings ask for, in the order of the table, and report on them.

    The map is closed afterwards, whatever happens. `target` is the function's name in the report.

    Raises:
        UsageError: the map cannot be checked with these arguments.
    """
    started = time.perf_counter()
    map_.counts.limit(settings.budget, settings.budget_seconds)
    results: list[CheckResult] = []
    try:
        with np.errstate(all="ignore"):
            measurements = Measurements(map_, settings)
            for row in requested_checks(settings):
                skipped = _skipped_after_failure(row, results)
                results.append(skipped or check_result(row, measurements))
    finally:
        map_.close()
    results = without_factors_of_nonlinear_rules(results)
    notes = (*border_notes(map_.domain), *map_.notes)
    for place, result in enumerate(results):
        if result.verdict is not Verdict.SKIPPED:  # the first that ran has the notes of the map
            results[place] = replace(result, notes=(*result.notes, *notes))
            break
    return Report(
        target=target,
        inputs=_descriptions(map_.domain),
        outputs=_descriptions(map_.codomain),
        checks=tuple(results),
        calls=dict(map_.counts),
        seconds=time.perf_counter() - started,
        seed=settings.seed,
    )


def _skipped_after_failure(row: Check, results: Sequence[CheckResult]) -> CheckResult | None:
    """The row, skipped, where an earlier check has failed that leaves it nothing to add."""
    for result in results:
        if result.name in row.after and result.verdict is Verdict.FAILED:
            text = f"not asked, since {result.name} is wrong at the point itself"
            return CheckResult(row.name, Verdict.SKIPPED, text)
    return None


def check_result(row: Check, measurements: Measurements) -> CheckResult:
    """The result of one check, explained, with its calls and seconds.

    Exceptions of the user's code become findings; a spent budget leaves the check inconclusive.
    """
    map_, name, settings = measurements.map, row.name, measurements.settings
    started, before = time.perf_counter(), map_.counts.copy()
    try:
        still = map_.domain.still
        if still is not None and still.all():
            wanted = row.derivative and row.order <= settings.order
            verdict = Verdict.INCONCLUSIVE if wanted else Verdict.SKIPPED
            result = CheckResult(name, verdict, "no input is left that could be moved")
        else:
            result = conclude_check(row, measurements)
            if result.verdict is Verdict.FAILED:
                result = explain_result(result)
    except Unsupported as missing:
        result = _unsupported_result(row, missing, settings)
    except BudgetSpent as spent:
        result = CheckResult(name, Verdict.INCONCLUSIVE, str(spent))
    except OutputChangedError as changed:  # at the point, by a later call
        if row.derivative:
            raise
        result = CheckResult(name, Verdict.INCONCLUSIVE, str(changed))
    except (UsageError, MemoryError):
        raise
    except Exception as error:  # a rule of the user's that raises is a finding
        if is_our_mistake(error):
            raise
        text = f"it raised {exception_line(error)}"
        finding = Finding(name, f"{exception_line(error)}{place_of_error(error)}", "raised")
        result = CheckResult(name, Verdict.FAILED, text, (finding,))
    seconds, calls = time.perf_counter() - started, dict(map_.counts - before)
    return CheckResult(**vars(result) | {"seconds": seconds, "calls": calls, "evidence": None})


def _unsupported_result(row: Check, missing: Unsupported, settings: RunSettings) -> CheckResult:
    name, reason = row.name, missing.reason
    if isinstance(missing, Raised) and not row.compares:
        finding = Finding(name, reason, "raised")
        return CheckResult(name, Verdict.FAILED, f"it raised {short_line(reason)}", (finding,))
    if name not in settings.required:
        return CheckResult(name, Verdict.SKIPPED, reason)
    return CheckResult(name, Verdict.FAILED, reason, (Finding(name, reason, "unsupported"),))


def _descriptions(space: Space) -> tuple[str, ...]:
    return tuple(f"{slot.name}: {slot.describe}" for slot in space.slots)
