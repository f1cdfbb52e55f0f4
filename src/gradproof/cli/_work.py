"""What `gradproof run` does with one file and with one case, in whichever process."""

from __future__ import annotations

import functools
import inspect
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gradproof._data.by_hand import CLAIMS
from gradproof._data.cases import Case, collected
from gradproof._data.frames import as_told, sentence
from gradproof._data.records import Report
from gradproof._engine import check
from gradproof._render import json
from gradproof.cli._arrays import Maker, used_by
from gradproof.cli._contained import contained
from gradproof.cli._errors import TheirError
from gradproof.cli._print import told
from gradproof.cli._targets import of_file
from gradproof.cli._values import described
from gradproof.errors import UsageError


@dataclass(frozen=True)
class Job:
    """One case to check: the `position`-th of `file`, called `name`, with options of the run."""

    file: str
    position: int
    name: str
    seed: int
    limits: Mapping[str, Any]

    @property
    def repeat(self) -> str:
        """The command that repeats it."""
        return shlex.join(["gradproof", "run", self.name, "--seed", str(self.seed)])


@dataclass(frozen=True)
class Outcome:
    """What became of a file or a case; plain texts, so that it can be sent.

    Attributes:
        name: of the case, or of the file.
        names: the cases of a file.
        report: as JSON; "" where there is none.
        error: one sentence, where the user's code raised; "" otherwise.
        trace: what Python prints of it, without our frames.
    """

    name: str
    names: tuple[str, ...] = ()
    report: str = ""
    error: str = ""
    trace: str = ""

    @property
    def found(self) -> Report | None:
        """The report."""
        return json.load(self.report) if self.report else None


def work(piece: str | Job) -> Outcome:
    """What becomes of a file, whose cases are collected, or of a case, which is checked."""
    with contained():
        return _collect(piece) if isinstance(piece, str) else _perform(piece)


def _collect(file: str) -> Outcome:
    """The names of the cases of a file."""
    try:
        cases = _cases(file)
    except KeyboardInterrupt:  # the user's own
        raise
    except BaseException as error:  # whatever the user's module raises
        return Outcome(file, error=f"importing it raised {sentence(error)}", trace=as_told(error))
    count: dict[str, int] = {}
    names = []
    for case in cases:
        count[case.name] = count.get(case.name, 0) + 1
        nth = f"[{count[case.name] - 1}]" if count[case.name] > 1 else ""
        names.append(f"{file}::{case.name}{nth}")
    return Outcome(file, names=tuple(names))


@functools.cache
def _cases(file: str) -> tuple[Case, ...]:
    """The cases of a file, imported once in each process."""
    with collected() as cases:
        module = of_file(os.path.abspath(file))
    return tuple(case for case in cases if case.module == module.__name__)


def _perform(job: Job) -> Outcome:
    """Check one case."""
    try:
        report = _checked(_cases(job.file)[job.position], job)
    except UsageError as error:
        trace = error.trace if isinstance(error, TheirError) else ""
        return Outcome(job.name, error=str(error), trace=trace)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # of the user's function, sys.exit() too
        return Outcome(job.name, error=f"it raised {sentence(error)}", trace=as_told(error))
    return Outcome(job.name, report=json.dump(told(report, job.repeat)))


def _checked(case: Case, job: Job) -> Report:
    known = list(inspect.signature(check).parameters)[2:]  # after fn and inputs
    for name in case.options:
        if name not in known:
            raise UsageError(f"case: unknown option {name!r}; there are {', '.join(known)}")
    by_hand = any(case.options.get(claim) is not None for claim in CLAIMS)
    maker = Maker("numpy" if by_hand else used_by(case.module), job.seed)
    inputs = case.inputs
    if callable(inputs):
        inputs = maker.called(inputs, f"the inputs of {case.name}")
    options = {**case.options, "seed": job.seed, **job.limits}
    inputs, kwargs = maker.arrays(described((inputs, options.pop("kwargs", None))))
    return check(case.function, inputs, kwargs, **options)
