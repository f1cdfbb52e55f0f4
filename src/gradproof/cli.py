"""The command line: `gradproof check`, `gradproof record` and `gradproof explain`.

Exit status: 0 passed, 1 failed, 2 usage, or the user's code could not be run, 3 inconclusive or
nothing but skipped checks, 130 interrupted.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import importlib.util
import os
import re
import runpy
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import numpy as np
from rich.console import Console

import gradproof
from gradproof import _output
from gradproof._data import files
from gradproof._data.frames import as_told, first_line, sentence
from gradproof._data.inputs import CLAIMS
from gradproof._data.options import shown as in_a_message
from gradproof._data.records import Compared, Report, Verdict
from gradproof._data.settings import CHECK_NAMES, SEED, fresh_seed
from gradproof._data.specs import COMPLEX, FLOATS, INTEGERS, ArraySpec
from gradproof._data.visible import visible
from gradproof._data.watch import observed
from gradproof._render import json, suite, terminal
from gradproof._render.progress import CheckProgress, shown
from gradproof._survey import INTERRUPTED_CASE
from gradproof.errors import UsageError

USAGE, INTERRUPTED = 2, 130
STATUS_OF = {Verdict.PASSED: 0, Verdict.FAILED: 1, Verdict.INCONCLUSIVE: 3, Verdict.SKIPPED: 3}

OVERVIEW = """\
Prove or refute a derivative.

  gradproof check torch.nn.functional:layer_norm "float64[8,16]" "[16]"
      is the derivative of a function right? The arrays are drawn at random.
  gradproof record train.py
      run a script of PyTorch, and check every custom derivative that it meets
  gradproof explain report.json
      print a report again that was kept with --json

`gradproof COMMAND --help` tells more. docs/command-line.md tells all.
"""
CHECK = f"""\
Check the derivative of a function.

  gradproof check torch:atan2 "float64[3]" "float64[3]" --order 2
  gradproof check my_ops.py:Attention.apply q.pt k.pt v.pt --kwarg causal=True
  gradproof check my_ops.py:fast_norm "bfloat16[64,32]" --reference my_ops.py:slow_norm
  gradproof check scipy.optimize:rosen "float64[3]" --grad scipy.optimize:rosen_der

TARGET is package.module:name or file.py:name; names may have dots.

ARGUMENT is an array of random numbers, DTYPE[SIZE,...], of one of the dtypes
{", ".join(FLOATS + COMPLEX)}
(standard normal, differentiated) and
{", ".join(INTEGERS)} (0 and 1);
an array in a file, .npy of NumPy or .pt of PyTorch; a literal of Python, such as 0.5, None or
"[16]"; or a word, which is a string.
"""
RECORD = """\
Run a script of PyTorch, and check every custom derivative that it meets at the inputs that it has.

  gradproof record train.py --html report.html
  gradproof record train.py -- --steps 1 --small     what follows -- is the script's

Custom autograd Functions and operators of torch.library are recorded, once for each kind of arrays.
"""
EXPLAIN = """\
Print reports again that were kept with --json or --gradproof-report.

  gradproof explain report.json
  gradproof explain report.json --html report.html
"""
STATUS = """\
exit status: 0 passed, 1 failed, 2 usage or the function raised, 3 inconclusive or nothing checked,
130 interrupted
"""


class UserCodeError(UsageError):
    """The user's code raised; `trace` is what Python prints of it, without the frames of ours."""

    def __init__(self, what: str, error: BaseException) -> None:
        super().__init__(f"{what} raised {sentence(error)}")
        self.trace = as_told(error)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the words behind `gradproof`; those of the process where None.

    Returns:
        The exit status.
    """
    given = sys.argv[1:] if argv is None else list(argv)
    # What follows -- is the script's, whatever it looks like.
    ours = given.index("--") if given[:1] == ["record"] and "--" in given else len(given)
    try:
        arguments = _parser().parse_args(given[:ours])
        status: int = arguments.run(arguments, given)
        return status
    except UsageError as error:
        if isinstance(error, UserCodeError) and error.trace:
            print(visible(error.trace), file=sys.stderr)
        print(visible(f"gradproof: {error}"), file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        print("gradproof: interrupted", file=sys.stderr)
        return INTERRUPTED


# The arguments.


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")


def _parser() -> argparse.ArgumentParser:
    as_written = argparse.RawDescriptionHelpFormatter
    parser = _Parser(prog="gradproof", description=OVERVIEW, formatter_class=as_written)
    parser.add_argument("--version", action="version", version=f"gradproof {gradproof.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def add_command(
        name: str, run: Callable[..., int], summary: str, description: str, epilog: str = STATUS
    ) -> argparse.ArgumentParser:
        command = commands.add_parser(
            name, help=summary, description=description, epilog=epilog, formatter_class=as_written
        )
        command.set_defaults(run=run)
        return command

    check = add_command("check", _run_check, "check the derivative of one function", CHECK)
    add = check.add_argument
    add("target", metavar="TARGET", help="package.module:name or file.py:name")
    add("arguments", metavar="ARGUMENT", nargs="*", help="such as float64[8,16], 0.5, sum, x.npy")
    add("--kwarg", action="append", default=[], metavar="NAME=ARGUMENT", help="one by keyword")
    add("--device", metavar="DEVICE", help="where the arrays live, such as cuda")
    add("--framework", choices=("torch", "jax", "numpy"), help="default: what TARGET imports")
    add("--order", type=int, choices=(1, 2, 3), help="highest derivative checked; default: 1")
    add("--checks", metavar="A,B", help=f"only these of: {', '.join(CHECK_NAMES)}")
    add("--reference", metavar="TARGET", help="a slow function with the same value, to trust")
    add("--sweep", action="store_true", help="also at zeros, ties, other scales and sizes")
    add("--transforms", action="store_true", help="also under AD transforms and compilers")
    add("--wrt", action="append", metavar="NAME", help="only this input, as a report calls it")
    add("--rtol", type=float, help="relative tolerance on an entry of the Jacobian")
    add("--atol", type=float, help="absolute tolerance on an entry; excuses, never certifies")
    for claim in CLAIMS:
        add(f"--{claim}", metavar="TARGET", help="a derivative by hand, as of gradproof.check")

    record = add_command("record", _run_record, "check what a script of PyTorch meets", RECORD)
    record.add_argument("script", metavar="SCRIPT", help="a file of Python, run as python does")
    record.add_argument("--total-seconds", type=float, metavar="S", help="time for all together")

    explain = add_command("explain", _run_explain, "print a kept report again", EXPLAIN, "")
    explain.add_argument("file", metavar="FILE", help="JSON, of one report or of many")

    for command in (check, record):
        add = command.add_argument
        add("--seed", type=int, metavar="N", help="of the arrays and of the probes")
        add("--budget", type=int, metavar="N", help="calls of a check, function and backward")
        add("--budget-seconds", type=float, metavar="S", help="time of a check")
        add("--json", metavar="FILE", help="also write the reports as JSON; - writes it to stdout")
        add("--quiet", action="store_true", help="print no report; the exit status tells")
    for command in (check, record, explain):
        command.add_argument("--html", metavar="FILE", help="also write a page with pictures")
    explain.set_defaults(json=None)
    return parser


# gradproof check


def _run_check(arguments: argparse.Namespace, argv: Sequence[str]) -> int:
    json_file, html_file = _output_files(arguments)
    given = SEED("--seed", arguments.seed)
    seed = fresh_seed() if given is None else given
    follow = CheckProgress(arguments.target)
    with contextlib.redirect_stdout(sys.stderr):  # the report's alone
        function = _target_function("TARGET", arguments.target)
        inputs, kwargs = _call_arguments(arguments, _framework(arguments, function), seed)
        options = _check_options(arguments)
        try:
            with observed(follow), shown(follow):
                report = gradproof.check(function, tuple(inputs), kwargs, seed=seed, **options)
            status = STATUS_OF[report.verdict]
        except UsageError:
            raise
        except KeyboardInterrupt:
            if follow.partial is None:
                raise
            report, status = follow.partial, INTERRUPTED
        except BaseException as error:  # the function refuses these arguments, or ends the process
            raise UserCodeError(arguments.target, error) from error
    # The seed makes the arrays too, so that this line repeats the whole run.
    line = shlex.join(["gradproof", *argv, *(["--seed", str(seed)] if given is None else [])])
    report = _output.told(report, line, _output.OPTIONS)
    if not arguments.quiet and json_file != "-":
        _print_report(report)
    _write_files([(report.target, report)], json_file, html_file)
    return status


def _target_function(option: str, text: str) -> Callable[..., Any]:
    """The function that `package.module:name` or `file.py:name` names, its module imported."""
    where, colon, path = text.rpartition(":")
    if not (where and colon and path):
        raise UsageError(f"{option}: expected package.module:name or file.py:name, got {text!r}")
    if where.endswith(".py") and not Path(where).is_file():
        raise UsageError(f"{option}: there is no file {where!r}")
    try:
        found = _file_module(where) if where.endswith(".py") else _named_module(where)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever the user's module raises while imported
        raise UserCodeError(f"{option}: importing {where!r}", error) from error
    for name in path.split("."):
        if not hasattr(found, name):
            whole = "" if name == path else f" (looking for {path!r})"
            raise UsageError(f"{option}: {where!r} has no {name!r}{whole}")
        found = getattr(found, name)
    if not callable(found):
        kind = type(found).__name__
        raise UsageError(f"{option}: {text!r} is a {kind}, which cannot be called")
    return found  # type: ignore[no-any-return] # callable, as checked


def _named_module(name: str) -> Any:
    if "" not in sys.path:
        sys.path.insert(0, "")  # as `python -m` does
    return importlib.import_module(name)


def _file_module(name: str) -> Any:
    """The module of a file, run anew; its folder is on the path, as for a script."""
    file = Path(name).resolve()
    module_name = f"_gradproof_target_{file.stem}"
    spec = importlib.util.spec_from_file_location(module_name, file)
    if spec is None or spec.loader is None:
        raise ImportError("not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # dataclasses and pickle look their module up
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    spec.loader.exec_module(module)
    return module


def _framework(arguments: argparse.Namespace, function: Callable[..., Any]) -> str:
    """The framework of the arrays: as told, or what the function's module imports."""
    by_hand = any(getattr(arguments, claim) is not None for claim in CLAIMS)
    framework = str(arguments.framework or ("numpy" if by_hand else _imported_by(function)))
    if framework == "numpy" and not by_hand:
        claims = ", ".join(f"--{claim}" for claim in CLAIMS)
        raise UsageError(
            f"TARGET: {arguments.target} is not known to use PyTorch or JAX, and NumPy has no "
            f"automatic differentiation: say what the derivative is with {claims}, or choose "
            "--framework torch or jax"
        )
    return framework


def _imported_by(function: Callable[..., Any]) -> str:
    """The framework that the function's module is of, or imports; "numpy" where it is neither."""
    name = getattr(function, "__module__", None) or type(function).__module__
    used = {name.partition(".")[0]}
    for value in list(vars(sys.modules[name]).values()) if name in sys.modules else []:
        of = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", "")
        used.add(str(of).partition(".")[0])
    for framework in ("torch", "jax"):
        if framework in used:
            return framework
    for framework in ("torch", "jax"):  # imported by a module that this one imports
        if framework in sys.modules:
            return framework
    # A function of plain Python takes the tensors of PyTorch.
    return "torch" if "numpy" not in used and importlib.util.find_spec("torch") else "numpy"


def _call_arguments(
    arguments: argparse.Namespace, framework: str, seed: int
) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments of the call, arrays drawn or read."""
    try:
        arrays = importlib.import_module(f"gradproof._adapters.{framework}.samples")
    except ModuleNotFoundError as error:
        extra = f"pip install 'gradproof[{framework}]'"
        raise UsageError(f"--framework: {error.name} is needed: {extra}") from error
    rng, device = np.random.default_rng(seed), arguments.device

    def argument_value(option: str, text: str) -> Any:
        if not _is_array(text):
            return _literal_value(option, text)
        described = ArraySpec.parse(text) if not text.endswith((".npy", ".pt")) else None
        if text.endswith(".pt") and framework != "torch":
            raise UsageError(f"{option}: {text!r} is of PyTorch, and the arrays are of {framework}")
        try:
            if described is not None:
                return arrays.array_from_numpy(described.drawn_values(rng), described.dtype, device)
            if text.endswith(".npy"):
                values = np.load(text)
                return arrays.array_from_numpy(values, str(values.dtype), device)
            return arrays.array_from_file(text, device)
        except Exception as error:  # no such file, device or dtype, or no memory
            said = first_line(error)
            raise UsageError(f"{option}: cannot make an array of {text!r}: {said}") from error

    named = {}
    for text in arguments.kwarg:
        name, equals, written = text.partition("=")
        if not (equals and name.strip().isidentifier()):
            raise UsageError(f"--kwarg: expected NAME=ARGUMENT, got {in_a_message(text)}")
        named[name.strip()] = written
    if not any(map(_is_array, [*arguments.arguments, *named.values()])):
        raise UsageError("ARGUMENT: give at least one array, such as float64[8,16] or x.npy")
    inputs = [argument_value("ARGUMENT", text) for text in arguments.arguments]
    return inputs, {name: argument_value(f"--kwarg {name}", text) for name, text in named.items()}


def _is_array(text: str) -> bool:
    return text.endswith((".npy", ".pt")) or re.match(r"\s*\w+\s*\[", text) is not None


def _literal_value(option: str, text: str) -> Any:
    """A literal of Python, or the text itself where it is a word."""
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        if re.fullmatch(r"[^\W\d][\w.-]*", text):
            return text
        raise UsageError(
            f"{option}: expected an array such as float64[3,4], a file .npy or .pt, a literal of "
            f"Python or a word, got {in_a_message(text)}"
        ) from None


def _check_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Options of `gradproof.check`; what was not asked for keeps its default."""
    names = ("order", "rtol", "atol", "budget", "budget_seconds", "sweep", "transforms", "wrt")
    options = {name: getattr(arguments, name) for name in names}
    if arguments.checks is not None:
        options["checks"] = tuple(name.strip() for name in arguments.checks.split(","))
    for name in ("reference", *CLAIMS):
        if (text := getattr(arguments, name)) is not None:
            options[name] = _target_function(f"--{name}", text)
    return {
        name: value for name, value in options.items() if value is not None and value is not False
    }


# gradproof record


def _run_record(arguments: argparse.Namespace, argv: Sequence[str]) -> int:
    json_file, html_file = _output_files(arguments)
    seed = SEED("--seed", arguments.seed)
    if not Path(arguments.script).is_file():
        raise UsageError(f"SCRIPT: there is no file {arguments.script!r}")
    try:
        from gradproof import torch
    except ModuleNotFoundError as error:
        extra = "pip install 'gradproof[torch]'"
        raise UsageError(f"record: {error.name} is needed: {extra}") from error
    before = sys.argv, sys.path[:]
    sys.argv = [arguments.script, *(argv[argv.index("--") + 1 :] if "--" in argv else [])]
    sys.path.insert(0, str(Path(arguments.script).resolve().parent))
    try:
        with torch.record() as seen, contextlib.redirect_stdout(sys.stderr):
            runpy.run_path(arguments.script, run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0):
            raise UserCodeError(arguments.script, end) from end
    except Exception as error:  # whatever the script raises
        raise UserCodeError(arguments.script, error) from error
    finally:
        sys.argv, sys.path[:] = before
    limits = {name: getattr(arguments, name) for name in ("budget", "budget_seconds")}
    limits = {name: value for name, value in limits.items() if value is not None}
    found = seen.check(seed=seed, total_seconds=arguments.total_seconds, **limits)
    for each in found.results:
        if each.error and not arguments.quiet:
            print(visible(f"{each.trace}\n{each.name}: {each.error}".lstrip()), file=sys.stderr)
    if not arguments.quiet and json_file != "-":
        _print_reports([(each.name, each.report, each.error) for each in found.results])
    _write_files(list(found.reports.items()), json_file, html_file)
    reached = {STATUS_OF[report.verdict] for report in found.reports.values()}
    if found.errors:
        interrupted = INTERRUPTED_CASE in found.errors.values()
        reached.add(INTERRUPTED if interrupted else USAGE)
    # Interrupted before failed, before what could not run, before undecided.
    return INTERRUPTED if INTERRUPTED in reached else min(reached - {0}, default=0)


# gradproof explain


def _run_explain(arguments: argparse.Namespace, argv: Sequence[str]) -> int:  # noqa: ARG001
    _, html_file = _output_files(arguments)
    try:
        text = Path(arguments.file).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # no text in UTF-8; a name with a NUL
        raise UsageError(f"FILE: cannot read {arguments.file!r}: {error}") from error
    try:
        reports, compared = json.load_many(text), json.compared_in(text)
    except UsageError as error:
        raise UsageError(f"FILE: {arguments.file!r}: {error}") from None
    if len(reports) == 1:
        _print_report(reports[0][1])
    else:
        _print_reports([(name, report, "") for name, report in reports])
    if compared is not None:
        Console(highlight=False).print(suite.render(compared), soft_wrap=True)
    _write_files(reports, None, html_file, compared)
    return 0


# Reports: in colour on a terminal, plain where the output is piped.


def _print_report(report: Report, end: str = "") -> None:
    console = Console(highlight=False)
    console.print(terminal.OnTerminal(report), soft_wrap=True)
    console.print(end, end="")


def _print_reports(rows: Sequence[terminal.Row]) -> None:
    """Each report that did not pass in full, then all of them, a line each."""
    for _, report, _ in rows:
        if report is not None and report.verdict is not Verdict.PASSED:
            _print_report(report, end="\n")
    Console(highlight=False).print(terminal.many_rich(rows))


def _output_files(arguments: argparse.Namespace) -> tuple[str | None, str | None]:
    """The files for JSON and for the page, refused now where they cannot be written at the end."""
    json_file, html_file = arguments.json, arguments.html
    if html_file is not None:
        _output.format_of(html_file, "--html", ("html",))
        html_file = os.path.abspath(html_file)  # the function may move elsewhere
        files.prepare(html_file, "--html")
    if json_file not in (None, "-"):
        json_file = os.path.abspath(json_file)
        files.prepare(json_file, "--json")
    return json_file, html_file


def _write_files(
    reports: _output.Named,
    json_file: str | None,
    html_file: str | None,
    compared: Sequence[Compared] | None = None,
) -> None:
    if json_file == "-":
        print(_output.as_json(reports), end="")
    elif json_file is not None:
        _output.save(reports, json_file, "--json", form="json")
    if html_file is not None:
        _output.save(reports, html_file, "--html", form="html", compared=compared)
