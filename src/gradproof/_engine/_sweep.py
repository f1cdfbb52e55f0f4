"""A check at many inputs: what fails beside the given point is made small and said."""

from __future__ import annotations

import itertools
import math
import sys
import sysconfig
import time
import types
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from gradproof._adapters import codes_in, globals_of, parts_of
from gradproof._adapters.samples import Samples
from gradproof._data import checks, watch
from gradproof._data.records import CheckResult, Report, Verdict
from gradproof._data.settings import Settings
from gradproof._data.space import on_host
from gradproof._engine import _repeat
from gradproof._engine._question import Asked, Question
from gradproof._engine._run import run
from gradproof._judge.outcome import failed, inconclusive, passed
from gradproof._maps.contract import DifferentiableMap
from gradproof._measure.evaluate import call_again
from gradproof._measure.regimes import Case, Sample, cases, smaller
from gradproof._measure.sizes import LISTED

_NAME = "sweep"
_EACH = 4_000  # calls that one input may cost: a kink or a wide gap, not a puzzle
_SHRINKING = 60  # runs to make a failure small
_NUMBERS = 16  # of those that the code names, two inputs each

Build = Callable[[Sequence[Any]], DifferentiableMap]


@dataclass
class Sweep:
    """One sweep of a function."""

    build: Build  # the map at other arrays; may raise whatever the function raises
    samples: Sequence[Sample]  # the arrays of the given call
    settings: Settings  # of the runs; its budgets are those of the whole sweep
    target: str  # the function's name
    numbers: Sequence[float] = ()  # that its code, or that of its derivative, names
    calls: Counter[str] = field(default_factory=Counter)
    _failures: list[tuple[Case, Report]] = field(default_factory=list)
    _tested: int = 0
    _outside: int = 0
    _undecided: list[str] = field(default_factory=list)
    _raised: list[str] = field(default_factory=list)

    def result(self) -> tuple[CheckResult, tuple[Case, str] | None]:
        """What the sweep says; the smallest case that fails, and in which check."""
        started = time.perf_counter()
        every = list(cases(self.samples, self.settings.seed, self.numbers))
        stopped = ""
        for position, case in enumerate(every, 1):
            left = self._left(started)
            if left is None:
                stopped = f"the budget was spent after {position - 1} of {len(every)} inputs"
                break
            watch.current().checking(
                self.target, f"sweep: {case.label}", (position, len(every)), self.calls
            )
            self._try(case, left)
            if len(self._failures) >= LISTED:  # as many as a sentence names
                break
        small = self._shrunk(started) if self._failures else None
        failing = (small[0], _failing(small[1])[0]) if small else None
        return self._concluded(stopped, small, started), failing

    def _left(self, started: float) -> Settings | None:
        """The settings of one more run; None where the budget is spent."""
        calls = self.settings.budget - self.calls.total()
        limit = self.settings.budget_seconds
        seconds = None if limit is None else limit - (time.perf_counter() - started)
        if calls < 1 or (seconds is not None and seconds <= 0):
            return None
        elsewhere = {row.name for row in checks.TABLE if row.elsewhere}
        asked = tuple(name for name in self.settings.checks if name in elsewhere)
        limits: dict[str, Any] = {"budget": min(calls, _EACH), "budget_seconds": seconds}
        return replace(self.settings, checks=asked, sweep=False, **limits)

    def _run(self, case: Case, settings: Settings) -> Report | None:
        """The report there; None where the function does not take these inputs."""
        self.calls["function"] += 1
        try:
            map_ = self.build(case.arrays)
        except Exception:  # what the function raises for inputs that it does not take
            return None
        try:
            with np.errstate(all="ignore"):
                finite = bool(np.all(np.isfinite(on_host(call_again(map_)))))
        except Exception:  # likewise
            finite = False
        if not finite:
            map_.close()
            return None
        with watch.observed(watch.Observer()):
            report = run(map_, settings.at_precision(map_.resolution), target=self.target)
        self.calls.update(report.calls)
        return report

    def _try(self, case: Case, settings: Settings) -> None:
        report = self._run(case, settings)
        if report is None:
            self._outside += 1
            return
        self._tested += 1
        if report.verdict is Verdict.INCONCLUSIVE:
            self._undecided.append(case.label)
        elif report.verdict is Verdict.FAILED:
            if case.shaped and all(finding.kind == "raised" for finding in report.findings):
                self._raised.append(f"{case.label}: {report.findings[0].message}")
            else:
                self._failures.append((case, report))

    def _shrunk(self, started: float) -> tuple[Case, Report]:
        """The first failure with fewer entries and rounder values, in the same check."""
        case, report = self._failures[0]
        check = _failing(report)[0]
        base = [sample.values for sample in self.samples]
        tries, found = 0, True
        while found and tries < _SHRINKING:
            found = False
            for candidate in smaller(case, base):
                settings = self._left(started)
                if settings is None or tries >= _SHRINKING:
                    return case, report
                tries += 1
                other = self._run(candidate, replace(settings, checks=(check,)))
                if other is not None and check in _failing(other):
                    case, report, found = candidate, other, True
                    break
        return case, report

    def _concluded(
        self, stopped: str, small: tuple[Case, Report] | None, started: float
    ) -> CheckResult:
        notes = [stopped] if stopped else []
        if self._outside:
            notes.append(f"{self._outside} inputs were none that the function takes")
        if self._undecided:
            notes.append(f"undecided at {len(self._undecided)}: {', '.join(self._undecided[:4])}")
        notes += [f"the backward raised at {raised}" for raised in self._raised[:2]]
        more: dict[str, Any] = {
            "notes": tuple(notes),
            "calls": dict(self.calls),
            "seconds": time.perf_counter() - started,
        }
        if small is None:
            if not self._tested:
                return inconclusive(_NAME, "the function takes no other inputs", **more)
            return passed(_NAME, f"right at {self._tested} other inputs", **more)
        case, report = small
        result = report[_failing(report)[0]]
        findings = tuple(
            replace(finding, check=_NAME, message=f"at {case.label}: {finding.message}")
            for finding in result.findings
        )
        labels = ", ".join(dict.fromkeys(found.label for found, _ in self._failures))
        summary = f"wrong at other inputs ({result.name}): {labels}"
        return failed(_NAME, summary, findings, where=f"at {labels}", causes=result.causes, **more)


def _failing(report: Report) -> list[str]:
    return [result.name for result in report.checks if result.verdict is Verdict.FAILED]


def extended(report: Report, question: Question, asked: Asked, settings: Settings) -> Report:
    """The report with a row for the sweep, and with the call that repeats its failure."""
    samples: Samples = question.adapter.Samples(question.fn, question.arguments, question.kwargs)
    roots = (asked.fn, *asked.derivative.claims.values())
    sweep = Sweep(
        lambda arrays: question.build(*samples.call(arrays)),
        samples.found,
        settings,
        report.target,
        constants(roots)[:_NUMBERS],
    )
    try:
        with samples.guard():
            result, failing = sweep.result()
    except KeyboardInterrupt:
        watch.current().interrupted(report)
        raise
    repeat = report.repeat
    if failing is not None and report:
        case, checks = failing[0], (failing[1],)
        inputs, kwargs = samples.call(case.arrays)
        there = replace(asked.settings, sweep=False, checks=checks)
        again = _repeat.call(replace(asked, inputs=inputs, kwargs=kwargs, settings=there), "fn")
        repeat = "\n".join([*samples.written(case.arrays), again])
    calls = Counter(report.calls)
    calls.update(sweep.calls)
    return replace(
        report,
        checks=(*report.checks, result),
        calls=dict(calls),
        seconds=report.seconds + result.seconds,
        repeat=repeat,
    )


# Numbers that the code of a function, and of what it calls, names: where branches may lie.
#
# Whatever a kernel compares with or clips at in Python stands in its code objects, in its closures
# and defaults, or is a global that it reads. What it calls is looked into likewise: functions,
# classes such as those that hold a backward, callables with rules as attributes.


_MOST_LOOKED_AT = 2_000  # functions, classes and objects
_INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})


def constants(roots: Iterable[Any]) -> list[float]:
    """Real finite numbers that the code of these functions names, each once, fractions first.

    Whole numbers, of which many are axes and extents, come last; each by size.

    What is installed, the standard library and other packages, is looked into only where one of
    the roots belongs to the same package.
    """
    roots = [root for root in roots if root is not None]
    homes = {_package(root) for root in roots} - {""}
    found: set[float] = set()
    seen: dict[int, Any] = {}  # kept, so that no identity comes twice
    waiting = list(roots)
    while waiting and len(seen) < _MOST_LOOKED_AT:
        value = waiting.pop(0)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            if math.isfinite(value):
                found.add(float(value))
        elif id(value) not in seen:
            seen[id(value)] = value
            waiting += _inside(value, homes)
    return sorted(found, key=lambda number: (number.is_integer(), abs(number), number))


def _package(value: Any) -> str:
    """The top-level package in which a function was written; "" where it says none."""
    value = getattr(value, "__func__", value)
    module = getattr(value, "__module__", None) or getattr(type(value), "__module__", "")
    return str(module).partition(".")[0]


def _inside(value: Any, homes: set[str]) -> Iterator[Any]:
    """What a value holds that may name a number."""
    if isinstance(value, (types.FunctionType, type)) and not _is_users(value, homes):
        return
    yield from itertools.islice(parts_of(value), _MOST_LOOKED_AT)
    if isinstance(value, types.FunctionType):
        constants = (code.co_consts for code in codes_in(value.__code__))
        yield from itertools.chain.from_iterable(constants)
        yield from globals_of(value)
    elif isinstance(value, type):
        yield from vars(value).values()
    elif callable(value):
        yield from _of_object(value)


def _of_object(value: Any) -> Iterator[Any]:
    """The class of a callable, what it wraps, and its attributes; none of an array's."""
    try:
        if hasattr(value, "__array__"):
            return
        inside = (type(value), getattr(value, "__wrapped__", None), dict(vars(value)))
    except Exception:  # whatever an attribute of the user's raises: nothing is named there
        inside = (type(value), None, {})
    yield from inside


def _is_users(value: Any, homes: set[str]) -> bool:
    """Whether a function or class was written by the user, or beside what is under test."""
    if _package(value) in homes:
        return True
    code = getattr(value, "__code__", None)
    file = code.co_filename if code else getattr(sys.modules.get(value.__module__), "__file__", "")
    return bool(file) and not any(Path(file).is_relative_to(path) for path in _INSTALLED)
