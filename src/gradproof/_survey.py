"""Many checks, in this process or on any `concurrent.futures.Executor`, and a report of all."""

from __future__ import annotations

import io
import multiprocessing
import os
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import (
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    as_completed,
)
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from gradproof import _output
from gradproof._data.frames import as_told, sentence
from gradproof._data.inputs import name_of
from gradproof._data.records import Report, Verdict
from gradproof._engine import check
from gradproof._render import terminal
from gradproof._render._spans import WIDTH
from gradproof.errors import UsageError

INTERRUPTED_CASE = "interrupted before it was finished"  # the error of a case that Ctrl-C left

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Case:
    """A function and the inputs at which its derivatives are checked.

    Attributes:
        function: as for `gradproof.check`.
        inputs: as for `gradproof.check`, or a function without parameters that returns them. It is
            called where the case runs, so that large arrays are not sent there.
        options: keywords of `gradproof.check`.
        name: what the result is called; the name of the function where it is "".
    """

    function: Callable[..., Any]
    inputs: Any
    options: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise UsageError(f"function: expected one, got {type(self.function).__name__}")


@dataclass(frozen=True)
class CaseResult:
    """The report of one case, or why there is none.

    Attributes:
        name: of the case; `name[1]` is the second case of that name.
        report: None where the check could not be run.
        error: why not, in one sentence; "" where there is a report.
        trace: the traceback of what the user's code raised, without the frames of gradproof.
    """

    name: str
    report: Report | None = None
    error: str = ""
    trace: str = ""


def survey(cases: Iterable[Case], executor: Executor | None = None) -> Iterator[CaseResult]:
    """Check many cases, and yield the result of each as soon as it is known.

    Every case has exactly one result. A case that raises, or whose worker dies, has an error in
    place of a report, and the others go on: a case that was lost with a worker is run once more by
    itself, on the same executor, or in new processes where that is broken, as a process pool is
    once one of its processes has died. Ctrl-C ends the survey: the cases that it leaves have an
    error that says so. A terminal shows the progress.

    Args:
        cases: at least one.
        executor: where they run: `ProcessPoolExecutor()`, `dask.distributed.Client.get_executor()`,
            `mpi4py.futures.MPIPoolExecutor()`, ...; in this process, one after the other, where
            None. Cases are pickled for it. It stays open.

    Raises:
        UsageError: no case, or a case that is no `Case`.
    """
    named: dict[str, Case] = {}
    count: Counter[str] = Counter()
    for case in cases:
        if not isinstance(case, Case):
            raise UsageError(f"cases: expected records gradproof.Case, got {type(case).__name__}")
        function = case.function
        name = case.name or name_of(function)
        name = name.rpartition("<locals>.")[2]
        unique = name
        while unique in named:
            count[name] += 1
            unique = f"{name}[{count[name]}]"
        named[unique] = case
    if not named:
        raise UsageError("cases: expected at least one gradproof.Case")
    return _results(named, executor)


def _results(left: dict[str, Case], executor: Executor | None) -> Iterator[CaseResult]:
    console = Console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    work = _check_case if executor is None else _check_sent_case
    outcomes = spread(work, list(left.items()), executor)
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task("", total=len(left))
        try:
            for (name, _), outcome in outcomes:
                if isinstance(outcome, BrokenExecutor):
                    outcome = CaseResult(name, error="its process died")
                elif isinstance(outcome, Exception):
                    outcome = CaseResult(name, error=f"it could not be run: {sentence(outcome)}")
                del left[name]
                progress.update(task, advance=1, description=f"{name} is done")
                yield outcome
        except KeyboardInterrupt:
            pass
        finally:
            outcomes.close()
    for name in left:
        yield CaseResult(name, error=INTERRUPTED_CASE)


def _check_case(named: tuple[str, Case]) -> CaseResult:
    name, case = named
    try:
        inputs = case.inputs
        if isinstance(inputs, (FunctionType, partial)):
            inputs = inputs()
        return CaseResult(name, check(case.function, inputs, **case.options))
    except UsageError as error:
        return CaseResult(name, error=str(error))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # of the user's function, which may call sys.exit
        return CaseResult(name, error=f"it raised {sentence(error)}", trace=as_told(error))


def _check_sent_case(named: tuple[str, Case]) -> CaseResult:
    """The same on a worker: an interrupt there is not the user's at this terminal."""
    try:
        return _check_case(named)
    except KeyboardInterrupt as error:
        return CaseResult(named[0], error=f"it raised {sentence(error)}", trace=as_told(error))


def spread(
    function: Callable[[Item], Result], items: Sequence[Item], executor: Executor | None
) -> Generator[tuple[Item, Result | Exception], None, None]:
    """Each item with what the function returns for it, in the order in which they end.

    An exception stands in place of the result of an item that the executor could not run, twice.
    """
    if executor is None:
        yield from ((item, function(item)) for item in items)
        return
    futures: dict[Future[Result], Item] = {}
    failed: list[Item] = []
    broken = False
    try:
        for item in items:
            try:
                futures[executor.submit(function, item)] = item
            except BrokenExecutor:
                broken = True
                failed.append(item)
        for future in as_completed(futures):
            error = future.exception() if not future.cancelled() else CancelledError()
            if isinstance(error, Exception):
                broken = broken or isinstance(error, BrokenExecutor)
                failed.append(futures[future])
            else:
                yield futures[future], future.result()
    finally:
        for future in futures:
            future.cancel()
    # A worker takes all that it holds with it, and nobody knows which item ended it. By itself, an
    # item that ends its worker again is the one.
    if broken:
        yield from _run_in_own_processes(function, failed, getattr(executor, "_max_workers", 1))
        return
    for item in failed:
        outcome = _run_alone(executor, function, item)
        yield item, outcome


def _run_alone(
    executor: Executor, function: Callable[[Item], Result], item: Item
) -> Result | Exception:
    """The result of one item, or the exception that stands in its place."""
    try:
        # Dask takes the same call twice for one task, and hands out its first error again. A
        # partial application is another call.
        return executor.submit(partial(function), item).result()
    except Exception as error:
        return error


def _run_in_own_processes(
    function: Callable[[Item], Result], items: Sequence[Item], count: int
) -> Iterator[tuple[Item, Result | Exception]]:
    """The same in `count` pools of one process each, of which a new one follows one that breaks."""
    own = threading.local()
    pools: list[ProcessPoolExecutor] = []

    def run(item: Item) -> Result | Exception:
        if not hasattr(own, "pool"):
            context = multiprocessing.get_context("spawn")  # threads do not survive a fork
            own.pool = ProcessPoolExecutor(1, mp_context=context)
            pools.append(own.pool)
        outcome = _run_alone(own.pool, function, item)
        if isinstance(outcome, BrokenExecutor):
            del own.pool
        return outcome

    threads = ThreadPoolExecutor(count)
    try:
        futures = {threads.submit(run, item): item for item in items}
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
        for pool in pools:
            pool.shutdown(wait=False, cancel_futures=True)


class SurveyReport:
    """The results of a survey, all of them: printed, saved and asked together.

    False where a derivative was refuted or a case has no report. `print` it for the report of each
    case that did not pass and a table of all.

    Attributes:
        results: in the order in which they are handed over.

    Args:
        results: what `gradproof.survey` yields, which this waits for.
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

    def __str__(self) -> str:
        screen = io.StringIO()
        for report in self.reports.values():
            if report.verdict is not Verdict.PASSED:
                screen.write(f"{report}\n\n")
        rows = [(each.name, each.report, each.error) for each in self.results]
        Console(file=screen, width=WIDTH).print(terminal.many_rich(rows))
        return screen.getvalue().rstrip("\n")

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the reports to a file that ends in `.json` or, one page with pictures, `.html`.

        `gradproof explain FILE.json` prints them again.

        Raises:
            UsageError: another ending; a file that can't be written; Jinja2 is missing.
        """
        _output.save(list(self.reports.items()), str(path), "path")
        return Path(path)
