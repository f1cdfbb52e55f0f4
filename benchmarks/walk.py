"""How much code a call walks through, and how much there is: what a newcomer would have to read.

Two calls: a plain `check(torch.sin, (x,), checks=["backward"])` that passes, and a `gradcheck` of a
backward that is wrong by a factor, whose text nobody reads. Each is made once before, so that
nothing is counted that is imported or built the first time. Counted are, of gradproof's own:

* files: modules with a function that ran;
* functions: the different code objects that ran, one for each function, lambda, comprehension;
* depth: the most of their frames that were on the stack at once.

And of the source: lines (all of a file, as `wc -l`); of the core, which is all but the adapters,
the faces, the renderers and the command line; and numeric constants, by this rule:

* named: what is assigned a value with a number in it at the top of a module; a tuple of names
  counts for as many;
* inline: numbers in functions and classes, but for 0, 1 and 2 and their negatives.

The bar of 120 is for the named ones of the core.
"""

from __future__ import annotations

import ast
import contextlib
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import _common as common

import gradproof

ROOT = Path(gradproof.__file__).parent
# What is not the core: it knows a framework, or what a report looks like.
RIM = (
    "_adapters", "_asserts.py", "_output.py", "_render", "cli", "jax.py", "pytest_plugin.py",
    "scipy.py", "strategies.py", "torch",
)  # fmt: skip
PLAIN = (0, 1, 2)  # and their negatives: numbers that need no source

CALLS = ("check that passes", "gradcheck that fails")
BARS = {
    CALLS[0]: {"files": 28, "functions": 170, "depth": 13},
    CALLS[1]: {"files": 48, "functions": 350, "depth": 20},
    "source": {"lines": 22_000, "core lines": 12_500, "named constants": 120, "largest folder": 16},
}


@dataclass(frozen=True)
class Walk:
    """What one call ran of gradproof.

    Attributes:
        files: modules, relative to the package.
        functions: how many different ones.
        deepest: names of the functions on the stack where it was highest, the outermost first.
        folders: how many functions of each folder.
    """

    files: tuple[str, ...]
    functions: int
    deepest: tuple[str, ...]
    folders: dict[str, int]


def walked(call: Callable[[], object]) -> Walk:
    """What a call runs, in this thread."""
    seen: set[CodeType] = set()
    stack: list[CodeType] = []
    deepest: tuple[CodeType, ...] = ()

    def profile(frame: FrameType, event: str, _: object) -> None:
        nonlocal deepest
        code = frame.f_code
        if event not in ("call", "return") or not _is_ours(code):
            return
        if event == "return":
            stack.pop()
            return
        seen.add(code)
        stack.append(code)
        if len(stack) > len(deepest):
            deepest = tuple(stack)

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(before)
    folders = Counter(_file(code).partition("/")[0] for code in seen)
    return Walk(
        tuple(sorted({_file(code) for code in seen})),
        len(seen),
        tuple(f"{_file(code)}: {getattr(code, 'co_qualname', code.co_name)}" for code in deepest),
        dict(folders.most_common()),
    )


def _is_ours(code: CodeType) -> bool:
    return code.co_filename.startswith(f"{ROOT}/")


def _file(code: CodeType) -> str:
    return Path(code.co_filename).relative_to(ROOT).as_posix()


def calls() -> Iterator[tuple[str, Callable[[], object]]]:
    """The calls that are walked, by name."""
    import torch

    from gradproof.torch import GradcheckError, gradcheck

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            return 2 * g * ctx.saved_tensors[0].cos()

    x = torch.linspace(-1, 1, 12, dtype=torch.float64, requires_grad=True)

    def fails() -> None:
        with contextlib.suppress(GradcheckError):
            gradcheck(Doubled.apply, (x,))
            raise AssertionError("the wrong backward passed")

    yield CALLS[0], lambda: gradproof.check(torch.sin, (x,), checks=["backward"], seed=0)
    yield CALLS[1], fails


@dataclass(frozen=True)
class Source:
    """How much there is to read; see the top of this file for the rules of counting."""

    lines: int
    core_lines: int
    named_constants: int
    all_named_constants: int
    inline_numbers: int
    all_inline_numbers: int
    largest_folder: int
    folder: str


def source() -> Source:
    """That of the package."""
    lines, named, inline, folders = (
        Counter[bool](),
        Counter[bool](),
        Counter[bool](),
        Counter[str](),
    )
    for file in sorted(ROOT.rglob("*.py")):
        core = file.relative_to(ROOT).parts[0] not in RIM
        text = file.read_text("utf-8")
        lines[core] += text.count("\n")
        counted = constants(ast.parse(text))
        named[core] += counted[0]
        inline[core] += counted[1]
        folders[file.parent.relative_to(ROOT).as_posix()] += 1
    folder, most = folders.most_common(1)[0]
    return Source(
        lines.total(),
        lines[True],
        named[True],
        named.total(),
        inline[True],
        inline.total(),
        most,
        folder,
    )


def constants(module: ast.Module) -> tuple[int, int]:
    """Named and inline numbers of a module."""
    named, at_the_top = 0, set[ast.AST]()
    for statement in module.body:
        if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
            inside = [node for node in ast.walk(statement.value) if _is_number(node)]
            at_the_top.update(inside)
            named += _names(statement) if inside else 0
    inline = [
        node
        for node in ast.walk(module)
        if _is_number(node) and node not in at_the_top and abs(node.value) not in PLAIN
    ]
    return named, len(inline)


def _names(statement: ast.Assign | ast.AnnAssign) -> int:
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return sum(len(one.elts) if isinstance(one, ast.Tuple) else 1 for one in targets)


def _is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) in (int, float, complex)


def rows(walks: dict[str, Walk], found: Source) -> list[tuple[str, str, int, int | None]]:
    """(of what, what, how much, bar or None)."""
    numbers = {
        name: {"files": len(one.files), "functions": one.functions, "depth": len(one.deepest)}
        for name, one in walks.items()
    }
    numbers["source"] = {
        "lines": found.lines,
        "core lines": found.core_lines,
        "named constants": found.named_constants,
        "largest folder": found.largest_folder,
        "named constants, everywhere": found.all_named_constants,
        "inline numbers": found.inline_numbers,
        "inline numbers, everywhere": found.all_inline_numbers,
    }
    return [
        (of, what, number, BARS[of].get(what))
        for of, each in numbers.items()
        for what, number in each.items()
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = common.parser(__doc__)
    parser.add_argument("--deepest", action="store_true", help="print the highest stacks too")
    options = parser.parse_args(arguments)
    walks = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, call in calls():
            call()  # what is imported and built the first time is not walked
            walks[name] = walked(call)
    table = rows(walks, source())
    shown = [
        (of, what, f"{number:,}", "" if bar is None else f"{bar:,}", _met(number, bar))
        for of, what, number, bar in table
    ]
    columns = ("of", "what", "now", "bar", "")
    common.show("What there is to read", columns, shown, markdown=options.markdown)
    if options.deepest:
        for name, one in walks.items():
            print(f"\n{name}")
            print("\n".join(f"  {'  ' * k}{each}" for k, each in enumerate(one.deepest)))
    common.record(
        options.json,
        {
            "rows": [dict(zip(("of", "what", "now", "bar"), row, strict=True)) for row in table],
            "walks": {name: asdict(one) for name, one in walks.items()},
        },
    )
    return 0


def _met(number: int, bar: int | None) -> str:
    return "" if bar is None else "met" if number <= bar else "over"


if __name__ == "__main__":
    sys.exit(main())
