"""The commands that check: `gradproof check`, `run` and `record`; many checks are told alike."""

from __future__ import annotations

import argparse
import contextlib
import os
import runpy
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gradproof
from gradproof import _output
from gradproof._cases import arrays
from gradproof._cases.arrays import Maker, used_by
from gradproof._cases.targets import TheirError, contained, target
from gradproof._checks import asked
from gradproof._data import checks, options
from gradproof._data.inputs import CLAIMS
from gradproof._data.records import Report, Verdict
from gradproof._data.settings import SEED, TRANSFORM_NAMES, Settings, fresh_seed
from gradproof._data.visible import visible
from gradproof._data.watch import observed
from gradproof._render import summary
from gradproof._render.progress import CheckProgress, shown
from gradproof._survey import LIMITS, Survey, survey
from gradproof.cli import INTERRUPTED, USAGE, _print
from gradproof.errors import UsageError

EXIT = {Verdict.PASSED: 0, Verdict.FAILED: 1, Verdict.INCONCLUSIVE: 3, Verdict.SKIPPED: 3}

_PASSED_ON = (
    "order", "rtol", "atol", "budget", "budget_seconds", "sweep", "transforms", "wrt",
)  # fmt: skip  # options of the command that are those of `gradproof.check`


def check(arguments: argparse.Namespace, argv: Sequence[str]) -> int:
    """Run `gradproof check`; its exit status."""
    _print.refuse_early(arguments.json, arguments.html)
    # One for the inputs and the probes, so that the report's seed repeats the whole run.
    given = SEED("--seed", arguments.seed)
    seed = fresh_seed() if given is None else given
    follow = CheckProgress(arguments.target)
    with contained():
        report, status = _checked(arguments, seed, follow)
    report = _output.told(report, _repeat(argv, seed), _output.OPTIONS)
    if not arguments.quiet and arguments.json != "-":
        _print.report(report)
    _print.files([(report.target, report)], arguments.json, arguments.html)
    return EXIT[report.verdict] if status is None else status


def _checked(
    arguments: argparse.Namespace, seed: int, follow: CheckProgress
) -> tuple[Report, int | None]:
    """The report, and the exit status where it is not that of the verdict."""
    trees = _arguments(arguments)
    chosen = _options(arguments)
    named = target(arguments.target)
    by_hand = any(getattr(arguments, claim) is not None for claim in CLAIMS)
    framework = arguments.framework or ("numpy" if by_hand else None)
    framework = framework or used_by(getattr(named.found, "__module__", None))
    maker = Maker(framework, seed, arguments.device)
    function = maker.function(named, arguments.target, trees)
    inputs, kwargs = maker.arrays(trees)
    for option in ("reference", *CLAIMS):
        if (text := getattr(arguments, option)) is not None:
            chosen[option] = _helper(f"--{option}", text, maker, trees)
    try:
        with observed(follow), shown(follow):
            return gradproof.check(function, tuple(inputs), kwargs, seed=seed, **chosen), None
    except UsageError:
        raise
    except KeyboardInterrupt:
        if follow.partial is None:
            raise
        return follow.partial, INTERRUPTED
    except BaseException as error:  # the function refuses these arguments, or ends the process
        raise TheirError(arguments.target, error) from error


def _helper(option: str, text: str, maker: Maker, trees: Any) -> Any:
    """Another function of the user's, or True where the first returns this as well."""
    if text == "True" and option in ("--jac", "--grad"):
        return True
    return maker.function(target(text, option), text, trees)


def _arguments(arguments: argparse.Namespace) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments, arrays still described."""
    inputs = [arrays.positional(text) for text in arguments.specs]
    kwargs: dict[str, Any] = {}
    if arguments.inputs is not None:
        if inputs:
            raise UsageError("--inputs: give the arguments as SPECs or in a file, not both")
        inputs, kwargs = arrays.from_file(arguments.inputs)
    inputs += [arrays.value("--arg", text) for text in arguments.arg]
    for text in arguments.kwarg:
        arrays.assign("--kwarg", text, kwargs)
    if not arrays.specs_in((inputs, kwargs)):
        raise UsageError("SPEC: give at least one array, such as float64[8,16]")
    changed: tuple[list[Any], dict[str, Any]] = arrays.in_dtype((inputs, kwargs), arguments.dtype)
    return changed


def _options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Options of `gradproof.check`; what was not asked for keeps its default."""
    given = {name: getattr(arguments, name) for name in _PASSED_ON}
    given["checks"] = _checks(arguments)
    return {
        name: value for name, value in given.items() if value is not None and value is not False
    }


def _checks(arguments: argparse.Namespace) -> tuple[str, ...] | None:
    """The checks that --checks and --mode leave; None for all that the other options ask for."""
    names, mode = arguments.checks, arguments.mode
    if names is None and mode == "both":
        return None
    transforms = TRANSFORM_NAMES if arguments.transforms else ()
    # Those of a report of both modes: of transforms and higher orders those asked for.
    rows = asked(Settings(order=arguments.order, transforms=transforms))
    chosen = tuple(row.name for row in rows)
    if names is not None:
        chosen = tuple(name.strip() for name in names.split(","))
    if mode != "both":
        ours = {row.name for row in checks.TABLE if row.mode == mode}
        known = {row.name for row in checks.TABLE}
        chosen = tuple(name for name in chosen if name in ours or name not in known)
    if not chosen:
        raise UsageError(f"--mode: {mode} leaves none of the checks {names}")
    return chosen


def _repeat(argv: Sequence[str], seed: int) -> str:
    """The command that was given, with the seed that was drawn."""
    drawn = not any(word == "--seed" or word.startswith("--seed=") for word in argv)
    return shlex.join(["gradproof", *argv, *(["--seed", str(seed)] if drawn else [])])


# Many checks.


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
