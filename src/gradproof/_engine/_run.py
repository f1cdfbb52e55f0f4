"""The checks of one map, in order, within their budget; what they concluded, as a report."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from gradproof._checks import asked, concluded, determinism, traits
from gradproof._data import watch
from gradproof._data.checks import Check
from gradproof._data.frames import inside, is_our_mistake, raised, shortened
from gradproof._data.options import altered
from gradproof._data.records import CheckResult, Finding, Report, Verdict
from gradproof._data.settings import Settings
from gradproof._data.space import Space
from gradproof._engine._first import settled
from gradproof._explain.evidence import crossed, explain
from gradproof._judge.outcome import failed, inconclusive, skipped
from gradproof._maps.contract import (
    BudgetSpent,
    DifferentiableMap,
    OutputChangedError,
    Raised,
    Unsupported,
)
from gradproof._maps.metered import Metered
from gradproof._measure import directional
from gradproof._verdict import oracles
from gradproof.errors import UsageError


def run(map_: DifferentiableMap, settings: Settings, *, target: str) -> Report:
    """Run the checks that the settings ask for, in the order of the table; never raise for one.

    The map is closed afterwards, whatever happens. Whoever observes is told of each check, and
    what is known so far where the user interrupts.
    """
    started = time.perf_counter()
    settings = settings.seeded()
    metered = Metered(map_, settings.budget, settings.budget_seconds)
    rows = asked(settings)
    last = next((row for row in reversed(rows) if row.derivative and row.order == 1), None)
    results: list[CheckResult] = []
    observer, count = watch.current(), len(rows)

    def report() -> Report:
        return _report(metered, results, started, settings.seed, target)

    try:
        with np.errstate(all="ignore"):
            for position, row in enumerate(rows, 1):
                if observer is not watch.NOBODY:
                    observer.checking(target, row.name, (position, count), metered.calls)
                if position == 1:
                    first = settled(metered, settings)
                    others = _calls_of(first.values())
                if metered.memo.get(traits.SPOILT):  # they were asked of such calls
                    first.clear()
                if row.name not in first or (row.hears and determinism.unexplained(metered)):
                    results.append(one_result(row, metered, settings, others))
                    others = metered.calls.now()
                else:
                    results.append(first[row.name])
                if row is last and position < count:
                    # Nothing reads the measurements, long vectors, after this check.
                    directional.resolution(metered)  # remembered from what is forgotten now
                    directional.forget(metered)
                    oracles.forget(metered)
    except KeyboardInterrupt:
        results += _unfinished(rows[len(results) :])
        observer.interrupted(report())
        raise
    finally:
        map_.close()
        metered.memo.clear()  # what holds the map would keep it until garbage is collected
    return report()


def _unfinished(rows: Sequence[Check]) -> list[CheckResult]:
    """Results of the checks that an interrupt left: the one that ran, and those after it."""
    return [
        skipped(row.name, "not reached: the run was interrupted")
        if place
        else inconclusive(row.name, "interrupted before it was decided")
        for place, row in enumerate(rows)
    ]


def _report(
    metered: Metered, results: Sequence[CheckResult], started: float, seed: int, target: str
) -> Report:
    map_, told = metered.inner, tuple(results)
    if Verdict.FAILED in [result.verdict for result in told]:
        told = crossed(told)
    return Report(
        target=target,
        inputs=_described(map_.domain),
        outputs=_described(map_.codomain),
        checks=_with_notes(told, tuple(map_.notes)),
        calls=_calls(metered),
        seconds=time.perf_counter() - started,
        seed=seed,
    )


def _described(space: Space) -> tuple[str, ...]:
    return tuple([f"{slot.name}: {slot.describe}" for slot in space.slots])


def _with_notes(
    results: tuple[CheckResult, ...], notes: tuple[str, ...]
) -> tuple[CheckResult, ...]:
    """The results; the first of a check that ran carries what the map has to say as well."""
    if not notes:
        return results
    ran = [place for place, result in enumerate(results) if result.verdict is not Verdict.SKIPPED]
    if not ran:
        return results
    first = replace(results[ran[0]], notes=(*results[ran[0]].notes, *notes))
    return (*results[: ran[0]], first, *results[ran[0] + 1 :])


def _calls(metered: Metered) -> dict[str, int]:
    """Calls by kind; a map that counts runs of the user's own code knows better than we do."""
    calls = metered.calls
    ours = {"function": calls["value"] + calls["jvp"], "vjp": calls["vjp"]}
    return {**calls, **ours, **metered.counts}


def one_result(
    row: Check, metered: Metered, settings: Settings, others: dict[str, int] | None = None
) -> CheckResult:
    """What a check says; its calls are all but those of `others`."""
    started, before = time.perf_counter(), metered.calls.now() if others is None else others
    if metered.spent:
        told = inconclusive if row.derivative and row.order <= settings.order else skipped
        return told(row.name, "no input is left that could be moved")
    try:
        result = explain(concluded(row, metered, settings))
    except Unsupported as missing:
        result = _unsupported(row, missing, settings)
    except BudgetSpent as spent:
        result = inconclusive(row.name, spent.reason)
    except OutputChangedError as changed:
        if metered.resolution < directional.DOUBLE:
            raise
        # It is run in float64 as well, and may hand out what it kept of that, as by an `id`.
        result = inconclusive(row.name, str(changed))
    except (UsageError, MemoryError):
        raise
    except Exception as error:  # a rule of the user's that raises is a finding
        if is_our_mistake(error):
            raise
        result = _raised(row.name, error)
    own = metered.calls.since(before)
    return altered(result, seconds=time.perf_counter() - started, calls=own)


def _calls_of(results: Iterable[CheckResult]) -> dict[str, int]:
    """Calls of some checks together."""
    total: dict[str, int] = defaultdict(int)
    for each in results:
        for kind in each.calls:
            total[kind] += each.calls[kind]
    return total


def _unsupported(row: Check, missing: Unsupported, settings: Settings) -> CheckResult:
    name, reason = row.name, missing.reason
    if isinstance(missing, Raised) and not row.compares:
        finding = Finding(name, reason, "raised")
        return failed(name, f"it raised {shortened(reason)}", (finding,))
    if name not in settings.required:
        return skipped(name, reason)
    return failed(name, reason, (Finding(name, reason, "unsupported"),))


def _raised(name: str, error: Exception) -> CheckResult:
    finding = Finding(name, f"{raised(error)}{inside(error)}", "raised")
    return failed(name, f"it raised {raised(error)}", (finding,))
