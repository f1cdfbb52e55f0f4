"""What the benchmark scripts share: the machine they ran on, tables, progress, records."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import (
    BrokenExecutor,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    as_completed,
)
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from gradproof._data import files

Job = TypeVar("Job")
Result = TypeVar("Result")

RESULTS = Path(__file__).parent / "results"

# Wide enough that no cell of a piped table is cut.
PIPED_WIDTH = 160


def parser(description: str | None) -> argparse.ArgumentParser:
    """An argument parser with the options that every script has."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--quick", action="store_true", help="a small deterministic part of the run")
    made.add_argument("--markdown", action="store_true", help="print tables as Markdown")
    made.add_argument("--json", type=Path, metavar="FILE", help="where to record the results")
    return made


def spreading(made: argparse.ArgumentParser) -> None:
    """Adds the option that says in how many processes the jobs of a script are done."""
    made.add_argument("--jobs", type=int, default=1, help="worker processes")


def spread(
    function: Callable[[Job], Result], jobs: Sequence[Job], options: argparse.Namespace
) -> Iterator[tuple[Job, Result | Exception]]:
    """Each job with its result as they end, done here or in processes.

    An exception stands in place of the result of a job that raises in its process, or ends it.
    """
    if options.jobs == 1:
        yield from ((job, function(job)) for job in jobs)
        return
    own = threading.local()  # a process for each thread: a job that ends it takes no other along

    def outcome(job: Job) -> Result | Exception:
        if not hasattr(own, "process"):
            own.process = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
        try:
            return own.process.submit(function, job).result()
        except Exception as error:
            if isinstance(error, BrokenExecutor):
                del own.process
            return error

    with ThreadPoolExecutor(options.jobs) as threads:
        futures = {threads.submit(outcome, job): job for job in jobs}
        for future in as_completed(futures):
            yield futures[future], future.result()


def in_order(
    function: Callable[[Job], Result],
    jobs: Sequence[Job],
    options: argparse.Namespace,
    instead: Callable[[Job, str], Result],
) -> list[Result]:
    """The results of `spread` in the order of the jobs, with a bar on the way.

    `instead` says what stands in place of the result of a job whose process died, and how.
    """
    found: dict[Job, Result] = {}
    with progress("jobs", len(jobs)) as advance:
        for job, result in spread(function, jobs, options):
            found[job] = instead(job, str(result)) if isinstance(result, Exception) else result
            advance(job if isinstance(job, str) else " ".join(job))
    return [found[job] for job in jobs]


def refused(job: Any, how: str) -> NoReturn:
    """For `in_order`, where every result is needed."""
    raise RuntimeError(f"{job}: {how}")


def machine() -> dict[str, Any]:
    """Where and when the numbers were measured: versions, CPU, date."""
    import importlib.metadata

    versions = {}
    for name in ("torch", "jax"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        **versions,
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "system": platform.system(),
    }


def machine_line() -> str:
    """The same as `machine`, in one line for the foot of a table."""
    found = machine()
    names = {"torch": "PyTorch", "jax": "JAX"}
    versions = [f"{name} {found[key]}" for key, name in names.items() if key in found]
    return (
        f"{found['date']}, Python {found['python']}, {', '.join(versions)}, {found['cpu']}, "
        f"{found['cores']} cores, one thread per process"
    )


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def show(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, markdown: bool
) -> None:
    """Prints a table to standard output; the first column is text, the others numbers."""
    rows = list(rows)
    if markdown:
        print(f"\n{title}\n")
        print(markdown_table(columns, rows))
        return
    table = Table(title=title, title_justify="left")
    for position, column in enumerate(columns):
        table.add_column(column, justify="right" if position else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    console().print(table, markup=False)


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The table as GitHub Markdown, one line per row."""
    lines = ["| " + " | ".join(columns) + " |"]
    lines.append("| --- |" + " ---: |" * (len(columns) - 1))
    lines += ["| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def console() -> Console:
    """Standard output; wide where it is not a terminal."""
    return Console() if sys.stdout.isatty() else Console(width=PIPED_WIDTH, highlight=False)


@contextmanager
def progress(description: str, total: int) -> Iterator[Callable[[str], None]]:
    """A progress bar on standard error, silent where that is no terminal.

    Yields a function that advances the bar by one and names the step.
    """
    shown = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[step]}"),
    )
    with Progress(*columns, console=shown, disable=not shown.is_terminal, transient=True) as bar:
        task = bar.add_task(description, total=total, step="")
        yield lambda step: bar.update(task, advance=1, step=step)


def record(path: Path | None, content: dict[str, Any]) -> None:
    """Writes the results as JSON, with the machine they come from; nothing where path is None."""
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"machine": machine(), **content}, indent=1, default=str)
    files.write_file(path, text, "--json")


def percent(part: int, whole: int) -> str:
    """`part` of `whole` in per cent, rounded down so that only all of them is 100 %."""
    if not whole:
        return "-"
    tenths = 1000 * part // whole
    return f"{tenths // 10} %" if tenths % 10 == 0 else f"{tenths / 10:.1f} %"


def first_line(text: str) -> str:
    """The first line of a message that holds something, cut to 160 characters."""
    for line in text.splitlines():
        if line.strip():
            return line.strip()[:160]
    return ""


def counted(run: Callable[[], object]) -> int:
    """Functions that a run calls, of Python and of C."""
    count = 0

    def tell(frame: object, event: str, argument: object) -> None:  # Python's
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(tell)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count
