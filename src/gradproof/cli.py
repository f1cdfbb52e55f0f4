"""The command line: `gradproof check TARGET SPEC...`.

Exit status: 0 passed, 1 failed, 2 usage, 3 inconclusive or nothing but skipped checks.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import importlib.util
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from rich.console import Console

import gradproof
from gradproof._engine import check
from gradproof._numerics.probes import fresh_seed
from gradproof._records import Report, Verdict
from gradproof._render import json, terminal
from gradproof._settings import CHECK_NAMES
from gradproof._specs import parse
from gradproof.errors import UsageError

EXIT = {Verdict.PASSED: 0, Verdict.FAILED: 1, Verdict.INCONCLUSIVE: 3, Verdict.SKIPPED: 3}
USAGE = 2
SPINNER_AFTER = 2.0  # seconds; a shorter run shows nothing but its report

EPILOG = """\
SPEC is DTYPE[SIZE,...], then optionally :VALUES and !nograd. VALUES is normal (the default),
normal(mean,deviation), uniform, uniform(low,high), positive, zeros, ones or arange. Integer
dtypes are uniform(0,2) unless told otherwise and are never differentiated.

examples:
  gradproof check torch.nn.functional:layer_norm "float64[8,16]" --arg "[16]"
  gradproof check torch:atan2 "float64[3]" "float64[3]:positive!nograd" --order 2
  gradproof check my_ops.py:attention "float64[2,8,4]" "float64[2,8,4]" --kwarg "causal=True"

exit status: 0 passed, 1 failed, 2 usage, 3 inconclusive or nothing checked
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status. `argv` defaults to the process's arguments."""
    try:
        return _check(_parser().parse_args(argv))
    except UsageError as error:
        print(f"gradproof: {error}", file=sys.stderr)
        return USAGE


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="gradproof", description="Prove or refute a derivative.")
    parser.add_argument("--version", action="version", version=f"gradproof {gradproof.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    command = commands.add_parser(
        "check",
        help="check the derivative of a function",
        description="Check the derivative of a function on made inputs.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = command.add_argument
    add("target", metavar="TARGET", help="package.module:name or file.py:name")
    add("specs", metavar="SPEC", nargs="+", help="a tensor argument, such as float64[8,16]")
    add("--arg", action="append", default=[], metavar="VALUE", help="a literal, after the tensors")
    add("--kwarg", action="append", default=[], metavar="NAME=VALUE", help="a literal by keyword")
    add("--order", type=int, choices=(1, 2), default=1, help="highest derivative checked")
    add("--seed", type=int, metavar="N", help="of the inputs and of the probes")
    add("--rtol", type=float, help="relative tolerance on an entry of the Jacobian")
    add("--checks", metavar="A,B", help=f"only these of: {', '.join(CHECK_NAMES)}")
    add("--json", metavar="FILE", help="also write the report as JSON; - writes it to stdout")
    add("--quiet", action="store_true", help="print no report")
    return parser


def _check(arguments: argparse.Namespace) -> int:
    seed = _seed(arguments.seed)
    specs = [parse(text) for text in arguments.specs]
    literals = [_literal("--arg", text) for text in arguments.arg]
    kwargs = dict(_named_literal(text) for text in arguments.kwarg)
    options: dict[str, Any] = {"order": arguments.order, "seed": seed}
    if arguments.rtol is not None:
        options["rtol"] = arguments.rtol
    if arguments.checks is not None:
        options["checks"] = tuple(name.strip() for name in arguments.checks.split(","))
    function = _target(arguments.target)
    inputs = (*_tensors(specs, seed), *literals)
    try:
        with _spinner(arguments.target):
            report = check(function, inputs, kwargs, **options)
    except UsageError:
        raise
    except Exception as error:  # the function refuses these arguments
        sentence = " ".join(str(error).split())
        raise UsageError(f"{arguments.target} raised {type(error).__name__}: {sentence}") from error
    _write(report, arguments)
    return EXIT[report.verdict]


def _write(report: Report, arguments: argparse.Namespace) -> None:
    if arguments.json == "-":
        print(json.dump(report))
        return
    if not arguments.quiet:
        Console(highlight=False).print(terminal.render_rich(report), soft_wrap=True)
    if arguments.json:
        try:
            Path(arguments.json).write_text(json.dump(report) + "\n", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"--json: cannot write {arguments.json!r}: {error}") from error


def _seed(given: int | None) -> int:
    """One seed for the inputs and the probes, so that the report's seed repeats the whole run."""
    if given is None:
        return fresh_seed()
    if given < 0:
        raise UsageError(f"--seed: expected an integer >= 0, got {given}")
    return given


def _literal(option: str, text: str) -> Any:
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise UsageError(
            f"{option}: {text!r} is no Python literal (a string needs quotes of its own)"
        ) from None


def _named_literal(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not (equals and name.strip().isidentifier()):
        raise UsageError(f"--kwarg: expected NAME=VALUE, got {text!r}")
    return name.strip(), _literal(f"--kwarg {name.strip()}", value)


def _target(text: str) -> Callable[..., Any]:
    """The function that TARGET names; its module is imported as a script beside it would."""
    where, colon, path = text.rpartition(":")
    if not (colon and where and path):
        raise UsageError(f"TARGET: expected package.module:name or file.py:name, got {text!r}")
    try:
        found: Any = _module_of_file(where) if where.endswith(".py") else _module(where)
    except Exception as error:  # whatever the user's module raises while it is imported
        kind = type(error).__name__
        sentence = " ".join(str(error).split())
        raise UsageError(f"TARGET: importing {where!r} raised {kind}: {sentence}") from error
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise UsageError(f"TARGET: {where!r} has no {name!r} (looking for {path!r})") from None
    if not callable(found):
        raise UsageError(f"TARGET: {text!r} is a {type(found).__name__}, which cannot be called")
    return found  # type: ignore[no-any-return] # callable, as checked


def _module(name: str) -> Any:
    if "" not in sys.path:
        sys.path.insert(0, "")  # as `python -m` does
    return importlib.import_module(name)


def _module_of_file(name: str) -> Any:
    file = Path(name).resolve()
    module_name = f"_gradproof_target_{file.stem}"
    spec = importlib.util.spec_from_file_location(module_name, file)
    if spec is None or spec.loader is None:
        raise ImportError("not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # dataclasses and pickle look their module up
    sys.path.insert(0, str(file.parent))
    spec.loader.exec_module(module)
    return module


def _tensors(specs: Sequence[Any], seed: int) -> list[Any]:
    try:
        from gradproof._adapters.torch_specs import tensor_from_spec
    except ModuleNotFoundError as error:
        raise UsageError("PyTorch is needed: pip install 'gradproof[torch]'") from error
    rng = np.random.default_rng(seed)
    try:
        return [tensor_from_spec(spec, rng) for spec in specs]
    except (MemoryError, ValueError, OverflowError) as error:
        raise UsageError(f"SPEC: cannot make such an array: {error}") from error


@contextlib.contextmanager
def _spinner(target: str) -> Iterator[None]:
    """A sign of life on a terminal, once the run has taken a while."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    status = console.status(f"checking {target}")
    timer = threading.Timer(SPINNER_AFTER, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        status.stop()
