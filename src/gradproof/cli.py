"""The command line: `gradproof check` and `gradproof explain`.

Exit status: 0 passed, 1 failed, 2 usage, or the user's code could not be run, 3 inconclusive or
nothing but skipped checks, 130 interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console
from rich.markup import escape

import gradproof
from gradproof._command_arguments import (
    UserCodeError,
    call_arguments,
    framework_of_arrays,
    target_function,
)
from gradproof._data.records import Verdict
from gradproof._data.settings import CHECK_NAMES, new_seed, parse_seed
from gradproof._data.visible import escape_invisible
from gradproof._render import json, prepare_file, save_reports, terminal
from gradproof._survey import CaseResult, SurveyReport
from gradproof.errors import UsageError

USAGE, INTERRUPTED = 2, 130
STATUS_OF = {Verdict.PASSED: 0, Verdict.FAILED: 1, Verdict.INCONCLUSIVE: 3, Verdict.SKIPPED: 3}

CHECK = """\
Check the derivative of a function.

  gradproof check torch.nn.functional:layer_norm "float64[8,16]" "[16]"
  gradproof check my_ops.py:Attention.apply q.pt k.pt v.pt --kwarg causal=True

TARGET is package.module:name or file.py:name. ARGUMENT is DTYPE[SIZE,...], an array of random
numbers; x.npy or x.pt, an array in a file; a literal of Python; or a word, which is a string.
"""
EXPLAIN = "Print reports again that were kept with --json or --gradproof-report."
STATUS = """\
exit status: 0 passed, 1 failed, 2 usage or the function raised, 3 inconclusive or nothing checked,
130 interrupted; docs/start.md explains more
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the words behind `gradproof`; those of the process where None.

    Returns:
        The exit status.
    """
    given = sys.argv[1:] if argv is None else list(argv)
    try:
        arguments = _parser().parse_args(given)
        status: int = arguments.run(arguments, given)
        return status
    except UsageError as error:
        if isinstance(error, UserCodeError) and error.trace:
            print(escape_invisible(error.trace), file=sys.stderr)
        print(escape_invisible(f"gradproof: {error}"), file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        print("gradproof: interrupted", file=sys.stderr)
        return INTERRUPTED


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="gradproof", description="Prove or refute a derivative.", epilog=STATUS)
    parser.add_argument("--version", action="version", version=f"gradproof {gradproof.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    form: Any = {"epilog": STATUS, "formatter_class": argparse.RawDescriptionHelpFormatter}

    summary = "check the derivative of a function"
    check = commands.add_parser("check", help=summary, description=CHECK, **form)
    add = check.add_argument
    add("target", metavar="TARGET", help="package.module:name or file.py:name")
    add("arguments", metavar="ARGUMENT", nargs="*", help="such as float64[8,16], 0.5, sum, x.npy")
    add("--kwarg", action="append", default=[], metavar="NAME=ARGUMENT", help="one by keyword")
    add("--device", metavar="DEVICE", help="where the arrays live, such as cuda")
    add("--framework", choices=("torch", "jax", "numpy"), help="default: what TARGET imports")
    add("--order", type=int, choices=(1, 2, 3), help="highest derivative checked; default: 1")
    add("--checks", metavar="A,B", help=f"only these of: {', '.join(CHECK_NAMES)}")
    add("--reference", metavar="TARGET", help="a function with the same value in plain operations")
    add("--sweep", action="store_true", help="also at zeros, ties, other scales and sizes")
    add("--transforms", action="store_true", help="also under AD transforms and compilers")
    add("--wrt", action="append", metavar="NAME", help="only this input, as a report calls it")
    add("--rtol", type=float, help="relative tolerance on an entry of the Jacobian")
    add("--atol", type=float, help="absolute tolerance on an entry; excuses, never certifies")
    add("--seed", type=int, metavar="N", help="of the arrays and of the probes")
    add("--budget", type=int, metavar="N", help="most calls, function and backward")
    add("--budget-seconds", type=float, metavar="S", help="most time")
    # The function may move to another folder, so file names are made absolute.
    add("--html", type=os.path.abspath, metavar="FILE.html", help="also write an HTML page")
    add("--json", type=os.path.abspath, metavar="FILE.json", help="also write the report as JSON")
    add("--quiet", action="store_true", help="print no report; the exit status tells")
    check.set_defaults(run=_run_check, sweep=None, transforms=None)

    summary = "print a kept report again"
    explain = commands.add_parser("explain", help=summary, description=EXPLAIN, **form)
    explain.add_argument("file", metavar="FILE", help="JSON, of one report or of many")
    explain.set_defaults(run=_run_explain)
    return parser


def _run_check(arguments: argparse.Namespace, argv: Sequence[str]) -> int:
    for form in ("html", "json"):  # refused now, if they cannot be written at the end
        if (file := getattr(arguments, form)) is not None:
            prepare_file(file, f"--{form}", (form,))
    is_drawn = arguments.seed is None
    seed = new_seed() if is_drawn else parse_seed("--seed", arguments.seed)
    with contextlib.redirect_stdout(sys.stderr):  # the report's alone
        function = target_function("TARGET", arguments.target)
        options = _check_options(arguments)
        framework = arguments.framework or framework_of_arrays(function)
        inputs, kwargs = call_arguments(arguments, framework, seed)
        try:
            with Console(stderr=True).status(f"checking {escape(arguments.target)}"):
                report = gradproof.check(function, tuple(inputs), kwargs, seed=seed, **options)
        except (UsageError, KeyboardInterrupt):
            raise
        except BaseException as error:  # the function refuses these arguments, or ends the process
            raise UserCodeError(arguments.target, error) from error
    # The seed makes the arrays too, so that this line repeats the whole run.
    line = shlex.join(["gradproof", *argv, *(["--seed", str(seed)] if is_drawn else [])])
    report = dataclasses.replace(report, repeat=line)
    if not arguments.quiet:
        _print_reports([CaseResult(report.target, report)])
    for form in ("json", "html"):
        if (file := getattr(arguments, form)) is not None:
            save_reports([(report.target, report)], file, f"--{form}")
    return STATUS_OF[report.verdict]


def _check_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Options of `gradproof.check`; None, its default, for what was not asked for."""
    names = ("order", "rtol", "atol", "budget", "budget_seconds", "sweep", "transforms", "wrt")
    options = {name: getattr(arguments, name) for name in names}
    if arguments.checks is not None:
        options["checks"] = tuple(name.strip() for name in arguments.checks.split(","))
    if arguments.reference is not None:
        options["reference"] = target_function("--reference", arguments.reference)
    return options


def _run_explain(arguments: argparse.Namespace, argv: Sequence[str]) -> int:  # noqa: ARG001
    try:
        text = Path(arguments.file).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # no text in UTF-8; a name with a NUL
        raise UsageError(f"FILE: cannot read {arguments.file!r}: {error}") from error
    try:
        reports = json.load_many(text)
    except UsageError as error:
        raise UsageError(f"FILE: {arguments.file!r}: {error}") from None
    _print_reports([CaseResult(name, report) for name, report in reports])
    return 0


def _print_reports(results: Sequence[CaseResult]) -> None:
    """One report, or each that did not pass and a table of all."""
    alone = results[0].report if len(results) == 1 else None
    shown_as = SurveyReport(results) if alone is None else terminal.styled_text(alone)
    Console(highlight=False).print(shown_as, crop=False)
