"""Many cases, checked here, in several processes or on a cluster, and one record of all."""

from __future__ import annotations

import contextlib
import io
import math
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from gradproof import _output
from gradproof._cases.arrays import used_by
from gradproof._data import files
from gradproof._data.cases import Case, named
from gradproof._data.options import optional, positive, whole
from gradproof._data.records import Report, Verdict
from gradproof._data.settings import Settings
from gradproof._data.watch import observed
from gradproof._render import json, terminal
from gradproof._render._spans import WIDTH
from gradproof._render.progress import CheckProgress, RunProgress, shown
from gradproof._survey.cache import Cache
from gradproof._survey.pieces import File, Job, Outcome, Piece, elsewhere, work
from gradproof._survey.pool import Crashed, Pool
from gradproof.errors import UsageError

if TYPE_CHECKING:
    from gradproof._survey.cluster import Cluster

    Spread = Pool[Piece, Outcome] | Cluster[Piece, Outcome]

SKIPPED_FOLDERS = {"__pycache__", "node_modules", "build", "dist", "site-packages"}
LIMITS = ("budget", "budget_seconds", "total_seconds")  # keywords of `survey`


@dataclass(frozen=True)
class Survey:
    """What became of many cases. False where one was refuted, could not run, or was not finished.

    Attributes:
        outcomes: of each case that ended, in the order of the cases, whatever order they ended in;
            before them the files that could not be imported.
        unfinished: names of the cases that an interrupt left.
        interrupted: whether there was one; a case at which it stopped may be among the outcomes,
            with what was known.
    """

    outcomes: tuple[Outcome, ...]
    unfinished: tuple[str, ...] = ()
    interrupted: bool = False

    @property
    def reports(self) -> dict[str, Report]:
        """The reports by the names of their cases."""
        return {each.name: each.found for each in self.outcomes if each.found is not None}

    @property
    def errors(self) -> dict[str, str]:
        """In one sentence, why the other cases and files could not run."""
        return {each.name: each.error for each in self.outcomes if each.found is None}

    def __bool__(self) -> bool:
        ran = not (self.errors or self.unfinished or self.interrupted)
        return ran and all(self.reports.values())

    def __str__(self) -> str:
        """The report of each case that did not pass, then a table of all."""
        screen = io.StringIO()
        for report in self.reports.values():
            if report.verdict is not Verdict.PASSED:
                screen.write(f"{report}\n\n")
        rows = [(each.name, each.found, each.error) for each in self.outcomes]
        Console(file=screen, width=WIDTH).print(terminal.many_rich(rows))
        if self.interrupted:
            screen.write(f"interrupted: {len(self.unfinished)} not finished\n")
        return screen.getvalue().rstrip("\n")

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the reports to a file that ends in `.json` or, one page with pictures, `.html`.

        `gradproof explain FILE.json` prints them again.

        Raises:
            UsageError: another ending; a file that can't be written; Jinja2 is missing.
        """
        _output.save(list(self.reports.items()), str(path), "path")
        return Path(path)


def survey(
    cases: Sequence[str | os.PathLike[str] | Case],
    *,
    client: Any = None,
    jobs: int = 1,
    seed: int | None = None,
    budget: int | None = None,
    budget_seconds: float | None = None,
    total_seconds: float | None = None,
    cache: str | os.PathLike[str] | None = None,
) -> Survey:
    """Check many cases, here, in several processes, or on a cluster of Dask.

    The reports are the same wherever they are made, but for their times: a case is drawn from the
    seed alone. A crash of a case's process is that case's error; so is the death of a worker, once
    the case has been tried on others. The other cases lose nothing. A terminal shows how far it is.

    Args:
        cases: files and folders, of which every function marked with `gradproof.case` is checked,
            `file.py::name` for one function; and `gradproof.Case` records.
        client: a `dask.distributed.Client`, on whose workers the cases run, one to a thread. They
            need gradproof in the same version, and to see files under the same path.
        jobs: without a client, the number of processes; in 1 the cases run here. What goes to
            another process must be picklable: functions of modules, no lambdas.
        seed: of the inputs and the probes of every case; drawn where None.
        budget: calls of a case, function and backward together.
        budget_seconds: time for a case; what is undecided then is inconclusive.
        total_seconds: wall time for all cases together: each gets an equal part of what is left
            when it begins, so that what one does not need is passed on.
        cache: a folder. A case of a file that passed is not run again where no code that it can
            depend on has changed: its report is taken from there, and says so. With a seed, only
            a report of that seed. Data files, and what is edited in place among the installed
            packages, are not seen; `gradproof.Case` records are always run.

    Returns:
        A record of all, also where the user interrupts: what is running then is cancelled, and
        what is known is kept.

    Raises:
        UsageError: no such file, no case, a client without gradproof, a number below its least,
            a folder that cannot be written.
    """
    session = _Session(_spread(client, jobs))
    kept = _cache(cache, seed)
    given: dict[str, Any] = {"budget": budget, "budget_seconds": budget_seconds}
    limits = {name: value for name, value in given.items() if value is not None}
    seed = Settings(**{"seed": seed, **limits}).seeded().seed  # refuses what is no such number
    seconds = optional(positive)("total_seconds", total_seconds)
    until = math.inf if seconds is None else time.time() + seconds
    places = [os.fspath(each) for each in cases if not isinstance(each, Case)]
    records = [each for each in cases if isinstance(each, Case)]
    jobs_of = [
        Job(name, case, seed, limits, used_by(case.module), until)
        for name, case in zip(named(records), records, strict=True)
    ]
    wanted = _wanted(places)
    with session.running():
        jobs_of += [
            Job(name, found, seed, limits, until=until, cache=kept)
            for name, found in session.collected(wanted)
        ]
        session.check(_sharing(jobs_of, session.at_once()))
    if not session.done and not session.interrupted:
        raise UsageError(f"no @gradproof.case in {', '.join(places)}" if places else "no cases")
    return session.survey()


def _sharing(jobs: Sequence[Job], at_once: int) -> list[Job]:
    """The jobs, each with the number of those that what is left of the time is for."""
    count = len(jobs)
    return [replace(job, among=math.ceil((count - k) / at_once)) for k, job in enumerate(jobs)]


def _cache(folder: str | os.PathLike[str] | None, seed: int | None) -> Cache | None:
    if folder is None:
        return None
    place = os.path.abspath(folder)
    files.prepare(os.path.join(place, "record.json"), "cache")
    return Cache(place, seed)


def _spread(client: Any, jobs: int) -> Spread | None:
    """What applies a function to pieces in other processes; None for this one."""
    whole(1, None, "at least 1")("jobs", jobs)
    if client is not None:
        from gradproof._survey import cluster

        return cluster.Cluster(elsewhere, client)
    return Pool(elsewhere, jobs) if jobs > 1 else None


class _Session:
    """One survey: what is done, whatever stops it."""

    def __init__(self, spread: Spread | None) -> None:
        self.progress = RunProgress()
        self.done: list[Outcome] = []
        self.interrupted = False
        self._spread = spread
        self._left: dict[str, None] = {}
        self._order: dict[str, int] = {}

    def collected(self, wanted: dict[str, set[str]]) -> list[tuple[str, tuple[File, int]]]:
        """The names and places of the cases of the files, which are imported for that."""
        files = [File(name, os.getcwd()) for name in wanted]
        outcomes = {each.name: each for each in self._each("importing", files)}
        self.done += [outcomes[file.name] for file in files if outcomes[file.name].error]
        return [
            (name, (file, position))
            for file in files
            for position, name in enumerate(outcomes[file.name].names)
            for case in [name.partition("::")[2]]
            if not (names := wanted[file.name]) or {case, case.partition("[")[0]} & names
        ]

    def at_once(self) -> int:
        return 1 if self._spread is None else self._spread.at_once()

    def check(self, jobs: Sequence[Job]) -> None:
        self._left = dict.fromkeys(job.name for job in jobs)
        self._order = {name: place for place, name in enumerate(self._left)}
        for outcome in self._each("checking", jobs):
            self.done.append(outcome)
            del self._left[outcome.name]

    def survey(self) -> Survey:
        done = sorted(self.done, key=lambda outcome: self._order.get(outcome.name, -1))
        return Survey(tuple(done), tuple(self._left), self.interrupted)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """While it runs, its progress is shown; an interrupt ends the block, and no more."""
        try:
            with shown(self.progress):
                yield
        except KeyboardInterrupt:
            self.interrupted = True
        finally:
            if self._spread is not None:
                self._spread.close()

    def _each(self, phase: str, pieces: Sequence[Piece]) -> Iterator[Outcome]:
        """The outcome of every piece, as they end."""
        self.progress.begin(phase, len(pieces))
        if self._spread is None:
            yield from map(self._here, pieces)
            return
        results = self._spread.results(pieces, lambda piece: self.progress.starts(piece.name))
        with contextlib.closing(results):  # an interrupt cancels the rest at once
            for piece, result in results:
                self.progress.ends(piece.name)
                if isinstance(result, Crashed):
                    result = Outcome(piece.name, error=result.how)
                yield result

    def _here(self, piece: Piece) -> Outcome:
        """The outcome of a piece in this process; what is known of it where the user interrupts."""
        follow = CheckProgress(piece.name)
        self.progress.starts(piece.name)
        try:
            with observed(follow):
                outcome = work(piece)
        except KeyboardInterrupt:
            if follow.partial is not None:
                self.done.append(Outcome(piece.name, report=json.dump(follow.partial)))
            raise
        self.progress.ends(piece.name)
        return outcome


def _wanted(places: Sequence[str]) -> dict[str, set[str]]:
    """The files to import, and of each the cases that were named; none where all are wanted."""
    wanted: dict[str, set[str]] = {}
    for place in places:
        name, _, case = place.partition("::")
        path = Path(name)
        if not path.exists():
            raise UsageError(f"FILE_OR_DIR: there is no {name!r}")
        if path.is_dir():
            for file in sorted(_python_files(path)):
                wanted.setdefault(str(file), set())
        else:
            named = wanted.setdefault(str(path), set())
            if case:
                named.add(case)
    return wanted


def _python_files(folder: Path) -> Iterator[Path]:
    """The files of a folder that may have cases; importing others would run them for nothing."""
    for path in files.below(folder, SKIPPED_FOLDERS):
        if path.suffix == ".py":
            text = path.read_text(encoding="utf-8", errors="replace")
            if "gradproof" in text and "case" in text:
                yield path
