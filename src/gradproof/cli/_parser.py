"""The arguments of every command, and the help that shows them: examples first."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NoReturn

import gradproof
from gradproof._data.inputs import CLAIMS
from gradproof._data.settings import CHECK_NAMES
from gradproof.errors import UsageError

MODES = ("forward", "reverse", "both")
SHELLS = ("bash", "zsh", "fish", "tcsh")
FILES = ("FILE", "SCRIPT", "FILE_OR_DIR", "TARGET")  # what a shell completes by files

OVERVIEW = """\
Prove or refute a derivative.

  gradproof check torch.nn.functional:layer_norm "float64[8,16]" --arg "[16]"
      is the derivative of a function right? The inputs are drawn at random.
  gradproof run kernels/
      check every function that says @gradproof.case(inputs=...), in all files
  gradproof record train.py
      run a script of PyTorch, and check every custom derivative that it meets
  gradproof explain report.json
      print a report again that was kept with --json

`gradproof COMMAND --help` tells more. docs/command-line.md tells all.
"""

CHECK = """\
Check the derivative of a function at inputs that are drawn at random.

  gradproof check torch:atan2 "float64[3]" "float64[3]:positive!nograd" --order 2
  gradproof check my_ops.py:Attention.apply "float32[2,8,4]" "float32[2,8,4]" --kwarg causal=True
  gradproof check my_ops.py:scaled "float64[8]" --kwarg "weight=float64[8]" --arg 0.5
  gradproof check my_ops.py:fast_norm "bfloat16[64,32]" --reference my_ops.py:slow_norm
  gradproof check "torch.nn:LayerNorm(16)" "float64[8,16]"
  gradproof check my_ops.py:step --inputs inputs.json --html report.html

TARGET is package.module:name or file.py:name; a class, or a name followed by (ARGUMENTS), is called
first and what it returns is checked. A module of PyTorch gets the dtype of the first array.

SPEC is DTYPE[SIZE,...], then optionally :VALUES and !nograd. VALUES is normal (the default),
normal(mean,deviation), uniform, uniform(low,high), positive, zeros, ones or arange. Integer
dtypes are uniform(0,2) unless told otherwise and are never differentiated. A list, tuple or dict
of texts like that, "{'x': 'float64[3]', 'mask': 'bool[3]'}", is one argument.
"""

STATUS = """\
exit status: 0 passed, 1 failed, 2 usage or the function raised, 3 inconclusive or nothing checked,
130 interrupted
"""

RUN = """\
Check every function that says @gradproof.case(inputs=...).

  gradproof run ops.py                      one file
  gradproof run kernels/ -j 4               a folder, in four processes
  gradproof run ops.py::softmax --seed 7    one function, repeated
  gradproof run kernels/ --html all.html    with a page about every one
  gradproof run kernels/ --cache .gradproof            what passed and has not changed is not run
  gradproof run kernels/ --dask tcp://10.0.0.1:8786    on the workers of a cluster

In a folder those files are imported in which both "gradproof" and "case" occur. With -j 2 or more
a crash ends the case, not the run.
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
  gradproof explain report.json --against last.json    what is new, gone, slower
"""

COMPLETION = """\
Print a script that completes the command line in a shell.

  bash:  gradproof completion bash > ~/.local/share/bash-completion/completions/gradproof
  zsh:   gradproof completion zsh > "${fpath[1]}/_gradproof"
  fish:  gradproof completion fish > ~/.config/fish/completions/gradproof.fish
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")


def make_parser() -> argparse.ArgumentParser:
    """The parser; its namespace names in `place` where the command is: a function of a module."""
    parser = _Parser(
        prog="gradproof",
        description=OVERVIEW,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"gradproof {gradproof.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, (summary, description, add, place) in _COMMANDS.items():
        command = commands.add_parser(
            name,
            help=summary,
            description=description,
            epilog=STATUS if name in ("check", "run", "record") else None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.set_defaults(place=place)
        add(command)
    return parser


def _check(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("target", metavar="TARGET", help="package.module:name, file.py:name or file.py:lib::op")
    add("specs", metavar="SPEC", nargs="*", help="an argument, such as float64[8,16]")
    add = command.add_argument_group("the arguments of the function").add_argument
    add("--arg", action="append", default=[], metavar="VALUE", help="a literal, after the arrays")
    add(
        "--kwarg",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="by keyword: a literal or a SPEC; NAME may be a path, batch.mask[0]=bool[4]",
    )
    add("--inputs", metavar="FILE", help='JSON: {"args": [...], "kwargs": {...}}, texts are SPECs')
    add("--dtype", metavar="DTYPE", help="instead of those of the SPECs; integers stay")
    add("--device", metavar="DEVICE", help="where the arrays live, such as cuda")
    add("--framework", choices=("torch", "jax", "numpy"), help="default: what TARGET imports")
    add = command.add_argument_group("what is checked, and how").add_argument
    add("--order", type=int, choices=(1, 2, 3), default=1, help="highest derivative checked")
    add("--mode", choices=MODES, default="both", help="of automatic differentiation")
    add("--checks", metavar="A,B", help=f"only these of: {', '.join(CHECK_NAMES)}")
    add("--reference", metavar="TARGET", help="a slow function with the same value, to trust")
    add("--sweep", action="store_true", help="also at zeros, ties, other scales and sizes")
    add("--transforms", action="store_true", help="also compiled, checkpointed, by torch.func, ...")
    add("--wrt", action="append", metavar="NAME", help="only this input, as a report calls it")
    add("--rtol", type=float, help="relative tolerance on an entry of the Jacobian")
    add("--atol", type=float, help="absolute tolerance on an entry; excuses, never certifies")
    add = command.add_argument_group("derivatives written by hand, of NumPy's arrays").add_argument
    for claim in CLAIMS:
        returned = ", or True: TARGET returns it too" if claim in ("jac", "grad") else ""
        add(f"--{claim}", metavar="TARGET", help=f"as {claim}= of gradproof.check{returned}")
    _limits(command)
    _outputs(command)


def _limits(command: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    group = command.add_argument_group("repeating, and limits")
    add = group.add_argument
    add("--seed", type=int, metavar="N", help="of the inputs and of the probes")
    add("--budget", type=int, metavar="N", help="calls, function and backward together")
    add(
        "--budget-seconds",
        type=float,
        metavar="S",
        help="time; what is undecided then is inconclusive",
    )
    return group


def _limits_of_many(command: argparse.ArgumentParser) -> None:
    _limits(command).add_argument(
        "--total-seconds", type=float, metavar="S", help="time for all together"
    )


def _outputs(command: argparse.ArgumentParser) -> None:
    add = command.add_argument_group("output").add_argument
    add("--html", metavar="FILE", help="also write a page with pictures")
    add("--json", metavar="FILE", help="also write the reports as JSON; - writes it to stdout")
    add("--quiet", action="store_true", help="print no report; the exit status tells")


def _run(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("places", metavar="FILE_OR_DIR", nargs="+", help="or FILE::NAME, one function of a file")
    add("-j", "--jobs", type=int, metavar="N", help="processes; 0: one for each core")
    add(
        "--dask",
        metavar="WHERE",
        help="a cluster of Dask: the address of its scheduler, or local, one of -j N processes",
    )
    add(
        "--cache",
        metavar="FOLDER",
        help="take from there what passed and depends on no code that changed (data files are not "
        "seen), and keep there what passes",
    )
    _limits_of_many(command)
    _outputs(command)


def _record(command: argparse.ArgumentParser) -> None:
    command.add_argument("script", metavar="SCRIPT", help="a file of Python, run as python does")
    _limits_of_many(command)
    _outputs(command)


def _explain(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", metavar="FILE", help="JSON, of one report or of many")
    command.add_argument("--against", metavar="FILE", help="an earlier one: new, gone, slower")
    command.add_argument("--html", metavar="FILE", help="also write a page with pictures")


def _completion(command: argparse.ArgumentParser) -> None:
    command.add_argument("shell", choices=SHELLS)


# Command -> what it does, its help, what adds its arguments, and where its function is.
_COMMANDS = {
    "check": ("check the derivative of one function", CHECK, _check, "_run.check"),
    "run": ("check every function that asks for it", RUN, _run, "_run.run"),
    "record": ("check what a script of PyTorch meets", RECORD, _record, "_run.record"),
    "explain": ("print a kept report again", EXPLAIN, _explain, "_print.explain"),
    "completion": (
        "complete the command line in a shell",
        COMPLETION,
        _completion,
        "_parser.completion",
    ),
}


def completion(arguments: argparse.Namespace, argv: Sequence[str]) -> int:  # noqa: ARG001 # as all
    """Run `gradproof completion SHELL`; its exit status."""
    try:
        import shtab
    except ModuleNotFoundError as error:
        raise UsageError("shtab is needed: pip install 'gradproof[completion]'") from error
    parser = make_parser()
    [commands] = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    for command in commands.choices.values():
        for action in command._actions:
            if action.metavar in FILES:
                action.complete = shtab.FILE
    print(shtab.complete(parser, shell=arguments.shell))
    return 0
