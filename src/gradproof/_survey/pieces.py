"""What is done with one file and with one case, in whichever process."""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import os
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gradproof._cases.arrays import Maker, described, used_by
from gradproof._cases.targets import TheirError, contained, of_file
from gradproof._data.cases import Case, collected, named
from gradproof._data.frames import as_told, sentence
from gradproof._data.inputs import CLAIMS
from gradproof._data.options import names_among
from gradproof._data.records import Report
from gradproof._data.settings import share_of
from gradproof._engine import check
from gradproof._output import OPTIONS, told
from gradproof._render import json
from gradproof._survey.cache import Cache, Entry
from gradproof.errors import UsageError


@dataclass(frozen=True)
class File:
    """A file whose cases are collected: `name` as the user wrote it, seen from `folder`."""

    name: str
    folder: str


@dataclass(frozen=True)
class Job:
    """One case to check, called `name`, with options of the run."""

    name: str
    found: Case | tuple[File, int]  # the case, or its file and its place among the cases there
    seed: int
    limits: Mapping[str, Any]
    framework: str | None = None  # of the arrays that are drawn; None where the case's module tells
    # When the time for all cases together ends, in seconds since the epoch: other machines have no
    # other clock in common.
    until: float = math.inf
    # For how many cases, one after the other, what is left of it is when this one begins.
    among: int = 1
    # Where reports of cases that passed are kept; None where every case is run.
    cache: Cache | None = None


Piece = File | Job  # of a survey


@dataclass(frozen=True)
class Outcome:
    """What became of a file or a case; plain texts, so that it can be sent."""

    name: str  # of the case, or of the file
    names: tuple[str, ...] = ()  # the cases of a file
    report: str = ""  # as JSON; "" where there is none
    error: str = ""  # one sentence, where the user's code raised; "" otherwise
    trace: str = ""  # what Python prints of it, without our frames
    line: int = 0  # of its file, where the function of a case begins; 0 where that is not known

    @functools.cached_property
    def found(self) -> Report | None:
        return json.load(self.report) if self.report else None


def work(piece: Piece) -> Outcome:
    """What becomes of a file, whose cases are collected, or of a case, which is checked."""
    with contained():
        return _collect(piece) if isinstance(piece, File) else _perform(piece)


def elsewhere(piece: Piece) -> Outcome:
    """What `work` returns, in a process where only the user's code can raise an interrupt."""
    try:
        return work(piece)
    except KeyboardInterrupt as error:
        return _raised(piece, "it", error)


def _raised(piece: Piece, what: str, error: BaseException, line: int = 0) -> Outcome:
    said = f"{what} raised {sentence(error)}"
    return Outcome(piece.name, error=said, trace=as_told(error), line=line)


def _collect(file: File) -> Outcome:
    try:
        cases = _cases(file)
    except KeyboardInterrupt:  # the user's own
        raise
    except BaseException as error:  # whatever the user's module raises
        return _raised(file, "importing it", error)
    return Outcome(file.name, names=tuple(f"{file.name}::{name}" for name in named(cases)))


def _cases(file: File) -> tuple[Case, ...]:
    """The cases of a file, as it is now; its code runs in the folder that it was named from."""
    with contextlib.suppress(OSError):  # another machine may not have it
        os.chdir(file.folder)
    path = os.path.join(file.folder, file.name)
    return _imported(path, os.stat(path).st_mtime_ns)


@functools.cache
def _imported(path: str, _changed: int) -> tuple[Case, ...]:
    """The cases of a file, imported once in each process; anew where it has changed."""
    with collected() as cases:
        module = of_file(path)
    return tuple(case for case in cases if case.module == module.__name__)


def _perform(job: Job) -> Outcome:
    line = 0
    try:
        case = _case(job)
        code = getattr(inspect.unwrap(case.function), "__code__", None)  # of Python's functions
        line = getattr(code, "co_firstlineno", 0)
        entry = _entry(case, job)
        report = entry.taken() if entry else None
        if report is not None:
            return Outcome(job.name, report=json.dump(report), line=line)
        report = _checked(case, job)
    except UsageError as error:
        trace = error.trace if isinstance(error, TheirError) else ""
        return Outcome(job.name, error=str(error), trace=trace, line=line)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # of the user's function, sys.exit() too
        return _raised(job, "it", error, line)
    if not isinstance(job.found, Case):
        command = shlex.join(["gradproof", "run", job.name, "--seed", str(job.seed)])
        limited = {} if job.until == math.inf else {"budget_seconds": "--total-seconds"}
        report = told(report, command, {**OPTIONS, **limited})
    if entry is not None:
        entry.keep(report)
    return Outcome(job.name, report=json.dump(report), line=line)


def _case(job: Job) -> Case:
    if isinstance(job.found, Case):
        return job.found
    file, position = job.found
    return _cases(file)[position]


def _entry(case: Case, job: Job) -> Entry | None:
    """The place of a case in the cache; None without one, and of a record: it is in no file."""
    if job.cache is None or isinstance(job.found, Case):
        return None
    file, position = job.found
    limits = (sorted(job.limits.items()), job.until < math.inf)
    asked = (job.name, file.folder, position, case.function, case.inputs, case.options, limits)
    return job.cache.entry(os.path.abspath(os.path.join(file.folder, file.name)), asked)


def _checked(case: Case, job: Job) -> Report:
    known = list(inspect.signature(check).parameters)[2:]  # after fn and inputs
    names_among(known)("case", list(case.options))
    by_hand = any(case.options.get(claim) is not None for claim in CLAIMS)
    maker = Maker("numpy" if by_hand else job.framework or used_by(case.module), job.seed)
    inputs = case.inputs
    if callable(inputs):
        inputs = maker.called(inputs, f"the inputs of {case.name}")
    options = {**case.options, "seed": job.seed, **job.limits}
    if job.until < math.inf:
        share = share_of(job.until - time.time(), job.among)
        options["budget_seconds"] = min(options.get("budget_seconds") or math.inf, share)
    inputs, kwargs = maker.arrays(described((inputs, options.pop("kwargs", None))))
    return check(case.function, inputs, kwargs, **options)
