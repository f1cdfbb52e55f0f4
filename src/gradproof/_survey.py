"""Many checks, in this process or on any `concurrent.futures.Executor`, and a report of all."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from types import FunctionType
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.progress import track

from gradproof._data.by_hand import ByHand
from gradproof._data.exceptions import exception_line
from gradproof._data.frames import users_traceback
from gradproof._data.inputs import name_of
from gradproof._data.options import parse_mapping, short_repr
from gradproof._data.records import Report, Verdict
from gradproof._engine import check
from gradproof._render import save_reports, terminal
from gradproof._render._spans import WIDTH
from gradproof.errors import UsageError

INTERRUPTED_CASE = "interrupted before it was finished"  # the error of a case that Ctrl-C left


@dataclass(frozen=True)
class Case:
    """A function and the inputs at which its derivatives are checked.

    Attributes:
        function: as `fn` of `gradproof.check`.
        inputs: as for `gradproof.check`; or a function without parameters that returns them, which
            is called where the case runs, so that large arrays are not sent there.
        options: keywords of `gradproof.check`.
        name: name of the result; "" takes the name of the function.
    """

    function: Callable[..., Any] | ByHand
    inputs: Any
    options: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""


@dataclass(frozen=True)
class CaseResult:
    """The report of one case, or why there is none.

    Attributes:
        name: name of the case; ``name[1]`` is the second case of this name.
        report: the `Report`; None if the check could not run.
        error: why it could not run, in one sentence; "" if there is a report.
        trace: the traceback of an exception of the user's code, without frames of gradproof.
    """

    name: str
    report: Report | None = None
    error: str = ""
    trace: str = ""


def survey(cases: Iterable[Case], executor: Executor | None = None) -> Iterator[CaseResult]:
    """Check many cases, and yield the result of each as soon as it is known.

    Every case has exactly one result. A case that raises, or whose worker dies, has an error
    instead of a report, and the others go on; cases that were lost with a worker run once more, one
    after another, at the end. After Ctrl-C the remaining cases have an error that says so. A
    terminal shows the progress.

    Args:
        cases: at least one `Case`.
        executor: where they run, such as `ProcessPoolExecutor()`,
            `dask.distributed.Client.get_executor()` or `mpi4py.futures.MPIPoolExecutor()`. Cases
            are pickled for it, and it stays open. None runs them in this process, in order.

    Returns:
        An iterator of `CaseResult`, in the order in which the cases end.

    Raises:
        UsageError: there is no case, or one that is not a `Case`.

    Example:
        >>> import numpy as np, gradproof
        >>> sine = gradproof.by_hand(np.sin, vjp=lambda x, v: v * np.cos(x))
        >>> [str(each.report.verdict) for each in gradproof.survey([gradproof.Case(sine, 1.0)])]
        ['passed']
    """
    if isinstance(cases, Case) or not isinstance(cases, Iterable):
        raise UsageError(f"cases: expected several gradproof.Case, got {short_repr(cases)}")
    if not (executor is None or hasattr(executor, "submit")) or isinstance(executor, type):
        raise UsageError(f"executor: expected one with submit(), got {short_repr(executor)}")
    named: dict[str, Case] = {}
    for case in cases:
        if not isinstance(case, Case):
            raise UsageError(f"cases: expected records gradproof.Case, got {type(case).__name__}")
        parse_mapping("options", case.options)
        named[unique_name(case.name or name_of(case.function), named)] = case
    if not named:
        raise UsageError("cases: expected at least one gradproof.Case")
    return _results(named, executor)


def unique_name(name: str, taken: Container[str]) -> str:
    """The name, or the first of name[1], name[2], ... that is not taken."""
    numbered = (f"{name}[{number}]" for number in itertools.count(1))
    return name if name not in taken else next(each for each in numbered if each not in taken)


def _results(cases: dict[str, Case], executor: Executor | None) -> Iterator[CaseResult]:
    here = (_check_case(name, case) for name, case in cases.items())
    results = here if executor is None else _results_from(executor, cases)
    console = Console(stderr=True)
    hidden = not console.is_terminal
    bar = track(results, "", len(cases), console=console, transient=True, disable=hidden)
    left = dict(cases)
    try:
        for result in bar:
            del left[result.name]
            yield result
    except KeyboardInterrupt:
        pass
    for name in left:
        yield CaseResult(name, error=INTERRUPTED_CASE)


def _check_case(name: str, case: Case, *, sent: bool = False) -> CaseResult:
    try:
        inputs = case.inputs
        if isinstance(inputs, (FunctionType, partial)):
            inputs = inputs()
        return CaseResult(name, check(case.function, inputs, **case.options))
    except UsageError as error:
        return CaseResult(name, error=str(error))
    except BaseException as error:  # of the user's function, which may call sys.exit
        if isinstance(error, KeyboardInterrupt) and not sent:  # on a worker it is not the user's
            raise
        return CaseResult(
            name, error=f"it raised {exception_line(error)}", trace=users_traceback(error)
        )


def _results_from(executor: Executor, cases: dict[str, Case]) -> Iterator[CaseResult]:
    lost = dict(cases)
    futures: list[Future[CaseResult]] = []
    try:
        with contextlib.suppress(BrokenExecutor):
            for name, case in cases.items():
                futures.append(executor.submit(_check_case, name, case, sent=True))
        for future in as_completed(futures):
            if not future.cancelled() and future.exception() is None:
                result = future.result()
                del lost[result.name]
                yield result
    finally:
        for future in futures:
            future.cancel()
    # A worker takes all that it holds with it, and nobody knows which case ended it. By itself, a
    # case that ends its worker again is the one.
    if lost:
        yield from _results_one_by_one(executor, lost)


def _results_one_by_one(executor: Executor, cases: dict[str, Case]) -> Iterator[CaseResult]:
    """Results of cases run one after another, in a new process where the executor is broken."""
    place: Executor | None = executor
    try:
        executor.submit(int)
    except BrokenExecutor:  # a pool of processes of which one has died
        place = None
    with contextlib.ExitStack() as opened:
        for name, case in cases.items():
            if place is None:
                context = get_context("spawn")
                place = opened.enter_context(ProcessPoolExecutor(1, mp_context=context))
            try:
                # Dask takes the same call twice for one task, and hands out its first error again.
                # A partial application is another call.
                yield place.submit(partial(_check_case, sent=True), name, case).result()
            except BrokenExecutor:
                place = None
                yield CaseResult(name, error="its process died")
            except Exception as error:
                yield CaseResult(name, error=f"it could not be run: {exception_line(error)}")


class SurveyReport:
    """All results of a survey. `print` shows reports that did not pass, and a table of all.

    It is false if a derivative was refuted or a case has no report.

    Attributes:
        results: the results, in the order in which they were given.

    Args:
        results: what `gradproof.survey` yields; all of it is waited for.
    """

    def __init__(self, results: Iterable[CaseResult]) -> None:
        self.results = tuple(results)

    @property
    def reports(self) -> dict[str, Report]:
        """The reports by the names of their cases."""
        return {each.name: each.report for each in self.results if each.report is not None}

    @property
    def errors(self) -> dict[str, str]:
        """Why the other cases have none, in one sentence each."""
        return {each.name: each.error for each in self.results if each.report is None}

    def __bool__(self) -> bool:
        return not self.errors and all(self.reports.values())

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for report in self.reports.values():
            if report.verdict is not Verdict.PASSED:
                yield terminal.styled_text(report)
                yield ""
        yield terminal.table_of_reports(
            [(each.name, each.report, each.error) for each in self.results]
        )

    def __str__(self) -> str:
        printed = io.StringIO()
        Console(file=printed, width=WIDTH, color_system=None).print(self, crop=False)
        return printed.getvalue().rstrip("\n")

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the reports to a file that ends in `.json` or, one page, `.html`.

        `gradproof explain FILE.json` prints them again.

        Raises:
            UsageError: another ending; a file that can't be written; Jinja2 is missing.
        """
        save_reports(list(self.reports.items()), str(path), "path")
        return Path(path)
