"""`gradproof run FILE_OR_DIR...`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gradproof._data.records import Verdict
from gradproof._data.watch import observed
from gradproof._render import json
from gradproof.cli import _print
from gradproof.cli._check import INTERRUPTED, seed_of
from gradproof.cli._pool import Crashed, Pool
from gradproof.cli._progress import CheckProgress, RunProgress, shown
from gradproof.cli._work import Job, Outcome, work
from gradproof.errors import UsageError

PASSED, FAILED, COULD_NOT, UNDECIDED = range(4)  # exit statuses
SKIPPED_FOLDERS = {"__pycache__", "node_modules", "build", "dist", "site-packages"}


def run(arguments: argparse.Namespace, argv: Sequence[str]) -> int:  # noqa: ARG001 # as all
    """Run the command; its exit status."""
    _print.refuse_early(arguments.json, arguments.html)
    seed = seed_of(arguments.seed)
    if arguments.jobs < 0:
        raise UsageError(f"-j: expected a number >= 0, got {arguments.jobs}")
    files, wanted = _files(arguments.places)
    given = {"budget": arguments.budget, "budget_seconds": arguments.seconds}
    limits = {name: value for name, value in given.items() if value is not None}
    session = _Session(arguments.jobs or os.cpu_count() or 1)
    try:
        with shown(session.progress):
            session.work(files, wanted, seed, limits)
    except KeyboardInterrupt:
        session.interrupted = True
    finally:
        session.close()
    if not session.done and not session.interrupted:
        raise UsageError(f"no @gradproof.case in {', '.join(arguments.places)}")
    _tell(session, arguments)
    return INTERRUPTED if session.interrupted else _status(session.done)


class _Session:
    """One run: what is done, whatever stops it."""

    def __init__(self, processes: int) -> None:
        self.progress = RunProgress()
        self.done: list[Outcome] = []
        self.left = 0
        self.interrupted = False
        self._pool: Pool[str | Job, Outcome] | None = None
        if processes > 1:
            self._pool = Pool(work, processes)

    def work(
        self, files: Sequence[str], wanted: dict[str, set[str]], seed: int, limits: dict[str, Any]
    ) -> None:
        """Import the files, then check their cases."""
        imported = list(self._each("importing", files))
        imported.sort(key=lambda outcome: files.index(outcome.name))
        self.done += [outcome for outcome in imported if outcome.error]
        jobs = [
            Job(outcome.name, position, name, seed, limits)
            for outcome in imported
            for position, name in enumerate(outcome.names)
            if _is_wanted(name, wanted)
        ]
        self.left = len(jobs)
        for outcome in self._each("checking", jobs):
            self.done.append(outcome)
            self.left -= 1
        order = {job.name: place for place, job in enumerate(jobs)}
        self.done.sort(key=lambda outcome: order.get(outcome.name, -1))

    def close(self) -> None:
        """End the processes."""
        if self._pool is not None:
            self._pool.close()

    def _each(self, phase: str, pieces: Sequence[str | Job]) -> Iterator[Outcome]:
        """The outcome of every piece, as they end."""
        self.progress.begin(phase, len(pieces))
        if self._pool is None:
            yield from map(self._here, pieces)
            return
        for piece, result in self._pool.results(pieces, lambda p: self.progress.starts(_name(p))):
            self.progress.ends(_name(piece))
            yield Outcome(_name(piece), error=result.how) if isinstance(result, Crashed) else result

    def _here(self, piece: str | Job) -> Outcome:
        """The outcome of a piece in this process; what is known of it where the user interrupts."""
        follow = CheckProgress(_name(piece))
        self.progress.starts(_name(piece))
        try:
            with observed(follow):
                outcome = work(piece)
        except KeyboardInterrupt:
            if follow.partial is not None:
                self.done.append(Outcome(_name(piece), report=json.dump(follow.partial)))
            raise
        self.progress.ends(_name(piece))
        return outcome


def _name(piece: str | Job) -> str:
    return piece if isinstance(piece, str) else piece.name


def _is_wanted(name: str, wanted: dict[str, set[str]]) -> bool:
    file, _, case = name.partition("::")
    return not wanted[file] or case in wanted[file] or case.partition("[")[0] in wanted[file]


def _files(places: Sequence[str]) -> tuple[list[str], dict[str, set[str]]]:
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
    return list(wanted), wanted


def _python_files(folder: Path) -> Iterator[Path]:
    """The files of a folder that may have cases; importing others would run them for nothing."""
    for root, folders, names in os.walk(folder):
        folders[:] = [
            name
            for name in folders
            if name not in SKIPPED_FOLDERS
            and not name.startswith(".")
            and not Path(root, name, "pyvenv.cfg").exists()
        ]
        for name in names:
            path = Path(root, name)
            if path.suffix == ".py":
                text = path.read_text(encoding="utf-8", errors="replace")
                if "gradproof" in text and "case" in text:
                    yield path


def _status(done: Sequence[Outcome]) -> int:
    """Refuted before what could not run, before undecided."""
    reports = [outcome.found for outcome in done]
    verdicts = {report.verdict for report in reports if report is not None}
    if Verdict.FAILED in verdicts:
        return FAILED
    if None in reports:
        return COULD_NOT
    return UNDECIDED if verdicts - {Verdict.PASSED} else PASSED


def _tell(session: _Session, arguments: argparse.Namespace) -> None:
    rows = [(each.name, each.found, each.error) for each in session.done]
    reports = [(name, report) for name, report, _ in rows if report is not None]
    if not arguments.quiet:
        for outcome in session.done:
            if outcome.error:
                _print.error(outcome.name, outcome.error, outcome.trace)
    if not arguments.quiet and arguments.json != "-":
        for _, report in reports:
            if report.verdict is not Verdict.PASSED:
                _print.report(report, after="\n")
        _print.table(rows)
        if session.interrupted:
            _print.line(f"interrupted: {session.left} not finished")
    _print.files(reports, arguments.json, arguments.html)
