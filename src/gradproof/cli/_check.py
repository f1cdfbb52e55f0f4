"""`gradproof check TARGET SPEC...`."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from typing import Any

from gradproof._cases import arrays
from gradproof._cases.arrays import Maker, used_by
from gradproof._cases.targets import TheirError, contained, target
from gradproof._checks import asked
from gradproof._data import checks
from gradproof._data.inputs import CLAIMS
from gradproof._data.records import Report, Verdict
from gradproof._data.settings import SEED, TRANSFORM_NAMES, Settings, fresh_seed
from gradproof._data.watch import observed
from gradproof._engine import check
from gradproof._output import OPTIONS, told
from gradproof._render.progress import CheckProgress, shown
from gradproof.cli import INTERRUPTED, _print
from gradproof.errors import UsageError

EXIT = {Verdict.PASSED: 0, Verdict.FAILED: 1, Verdict.INCONCLUSIVE: 3, Verdict.SKIPPED: 3}

_PASSED_ON = (
    "order", "rtol", "atol", "budget", "budget_seconds", "sweep", "transforms", "wrt",
)  # fmt: skip  # options of the command that are those of `gradproof.check`


def run(arguments: argparse.Namespace, argv: Sequence[str]) -> int:
    _print.refuse_early(arguments.json, arguments.html)
    # One for the inputs and the probes, so that the report's seed repeats the whole run.
    given = SEED("--seed", arguments.seed)
    seed = fresh_seed() if given is None else given
    follow = CheckProgress(arguments.target)
    with contained():
        report, status = _checked(arguments, seed, follow)
    report = told(report, _repeat(argv, seed), OPTIONS)
    if not arguments.quiet and arguments.json != "-":
        _print.report(report)
    _print.files([(report.target, report)], arguments.json, arguments.html)
    return EXIT[report.verdict] if status is None else status


def _checked(
    arguments: argparse.Namespace, seed: int, follow: CheckProgress
) -> tuple[Report, int | None]:
    """The report, and the exit status where it is not that of the verdict."""
    trees = _arguments(arguments)
    options = _options(arguments)
    named = target(arguments.target)
    by_hand = any(getattr(arguments, claim) is not None for claim in CLAIMS)
    framework = arguments.framework or ("numpy" if by_hand else None)
    framework = framework or used_by(getattr(named.found, "__module__", None))
    maker = Maker(framework, seed, arguments.device)
    function = maker.function(named, arguments.target, trees)
    inputs, kwargs = maker.arrays(trees)
    for option in ("reference", *CLAIMS):
        if (text := getattr(arguments, option)) is not None:
            options[option] = _helper(f"--{option}", text, maker, trees)
    try:
        with observed(follow), shown(follow):
            return check(function, tuple(inputs), kwargs, seed=seed, **options), None
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
