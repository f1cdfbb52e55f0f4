"""`gradproof run FILE_OR_DIR...` and `gradproof record SCRIPT`: many checks, told alike."""

from __future__ import annotations

import argparse
import contextlib
import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gradproof import _output
from gradproof._cases.targets import TheirError
from gradproof._data import options
from gradproof._data.settings import SEED
from gradproof._data.visible import visible
from gradproof._render import summary
from gradproof._survey import LIMITS, Survey, survey
from gradproof.cli import INTERRUPTED, USAGE, _print
from gradproof.cli._check import EXIT
from gradproof.errors import UsageError


def run(arguments: argparse.Namespace, argv: Sequence[str]) -> int:  # noqa: ARG001 # as all
    """Run the command; its exit status."""
    _print.refuse_early(arguments.json, arguments.html)
    options.optional(options.whole(0, None, "0 or more"))("-j", arguments.jobs)
    cores = os.cpu_count() or 1
    jobs = 1 if arguments.jobs is None else arguments.jobs or cores
    with _client(arguments.dask, arguments.jobs or cores, arguments.jobs is not None) as client:
        more = {"cache": arguments.cache, **_limits(arguments)}
        found = survey(arguments.places, client=client, jobs=jobs, **more)
    return _told(found, arguments)


def _limits(arguments: argparse.Namespace) -> dict[str, Any]:
    limits = {name: getattr(arguments, name) for name in LIMITS}
    return {"seed": SEED("--seed", arguments.seed), **limits}


def _client(
    where: str | None, workers: int, numbered: bool
) -> contextlib.AbstractContextManager[Any]:
    """A client of the cluster that --dask names; None without it."""
    if where is None:
        return contextlib.nullcontext()
    if where != "local" and numbered:
        raise UsageError("-j: a cluster at an address has the workers that it has")
    try:
        from gradproof._survey.cluster import connected
    except ModuleNotFoundError as error:
        extra = "pip install 'gradproof[distributed]'"
        raise UsageError(f"--dask: {error.name} is needed: {extra}") from error
    return connected(where, workers)


def record(arguments: argparse.Namespace, argv: Sequence[str]) -> int:
    """Run `gradproof record SCRIPT`; its exit status."""
    _print.refuse_early(arguments.json, arguments.html)
    if not Path(arguments.script).is_file():
        raise UsageError(f"SCRIPT: no such file: {arguments.script}")
    try:
        from gradproof import torch
    except ModuleNotFoundError as error:
        raise UsageError(f"record: {error.name} is needed: pip install torch") from error
    before = sys.argv, sys.path[:]
    theirs = argv[argv.index("--") + 1 :] if "--" in argv else []
    sys.argv = [arguments.script, *theirs]
    sys.path.insert(0, str(Path(arguments.script).resolve().parent))
    try:
        with torch.record() as seen:
            runpy.run_path(arguments.script, run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0):
            raise TheirError(arguments.script, end) from end
    except Exception as error:  # whatever the script raises
        raise TheirError(arguments.script, error) from error
    finally:
        sys.argv, sys.path[:] = before
    found = seen.check(**_limits(arguments))
    return _told(found, arguments)


def _told(found: Survey, arguments: argparse.Namespace) -> int:
    """Print what is to be told of a survey, write its files, and return the exit status."""
    if not arguments.quiet:
        for outcome in found.outcomes:
            if outcome.error:
                _print.error(outcome.name, outcome.error, outcome.trace)
    if not arguments.quiet and arguments.json != "-":
        _print.many([(each.name, each.found, each.error) for each in found.outcomes])
        if found.interrupted:
            _print.show(f"interrupted: {len(found.unfinished)} not finished", soft_wrap=True)
    if _output.annotates() and arguments.json != "-":
        for each in found.outcomes:
            report, place = each.found, (each.name.partition("::")[0], each.line)
            said = each.error if report is None else "" if report else summary.annotation(report)
            if said:  # it was refuted, or could not run
                print(visible(_output.annotation("error", place, said)))
    _print.files(list(found.reports.items()), arguments.json, arguments.html)
    # Interrupted before refuted, before what could not run, before undecided.
    if found.interrupted:
        return INTERRUPTED
    reached = {EXIT[report.verdict] for report in found.reports.values()}
    reached |= {USAGE} if found.errors else set()
    return min(reached - {0}, default=0)
