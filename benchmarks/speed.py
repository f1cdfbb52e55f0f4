"""What a check costs beside PyTorch's gradcheck, in processor time, on PyTorch's operator database.

Samples of differentiable operators in float64, with at most 200 numbers in and 2,000 out: the
first and the middle one of every operator, or of every so many of them (`--every`). Each tool is
called on each, in one process and in turns, and the least of `--repeats` times counts: other work
on the machine then spoils the ratios little. Left out is what a tool refuses or refutes.

* fast, slow: `torch.autograd.gradcheck` (`gradgradcheck`), with and without `fast_mode`;
* gradcheck, gradgradcheck: those of `gradproof.torch`; check: `gradproof.check`, default checks.

Fast mode is held against slow mode as well: what it cannot do, no tool can that asks more.

Ratios are of single samples: their median, and how many are above 1; a sum is that of ours over
that of theirs, and mostly tells the largest samples. Exit code 1: a bar of `BARS` is missed.

Beside the time each tool's calls are counted, of functions of Python and of C that Python calls:
the same on every machine, however busy it is, and of small samples nearly all of the time.

`--passes` instead tells what a `check` costs in passes, each one forward and its backward: of a
function of 100 tensors, and of 12 layers of a transformer's encoder in float32.

`--pytest N` instead runs N tests of 25 entries each in pytest, a process for each tool, and one
whose tests only call the function: the processor's time of whole processes, imports and all.

`--first` instead tells what the first call in a process costs, once everything is imported: one
process for each of `--repeats`, of which the least counts.

`--failing` instead tells what a `gradcheck` costs that fails, its exception caught and not read:
of a product with a dense matrix whose backward has some entries a tenth too large.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import _common as common
import _opdb
import numpy as np
import torch

import gradproof
import gradproof.torch

QUICK_EVERY = 40
SMALL = 3  # inputs up to which a sample counts as a small one
WORST = 3  # samples named
# What is asked of the medians and sums below, by their names.
BARS = {
    "gradcheck / fast, median": 2.0,
    "gradcheck / slow, median": 0.8,
    "gradcheck / slow, sum": 0.2,
    "gradcheck / slow, share above 1": 0.1,
    "gradcheck / slow, sum of at most 3 inputs": 2.0,
    "gradcheck / slow, dearest": 4.0,
    "gradgradcheck / slow, sum": 0.2,
    "gradgradcheck / fast, sum": 2.0,
    "check / fast, median": 4.0,
}
# What a test of `--pytest` says, by tool; "alone" is what all of them cost without any.
SAID = {
    "alone": "fn(x)",
    "fast": "assert torch.autograd.gradcheck(fn, x, fast_mode=True)",
    "slow": "assert torch.autograd.gradcheck(fn, x)",
    "gradcheck": "assert gradproof.torch.gradcheck(fn, x)",
    "check_derivatives": "check_derivatives(fn, x)",
}
PYTEST_BARS = {f"{name} / fast, whole process": 1.5 for name in ("gradcheck", "check_derivatives")}
TESTS = """
import pytest, torch{more}
torch.set_num_threads(1)
@pytest.mark.parametrize("k", range({count}))
def test_derivative(k{fixture}):
    x = torch.randn(5, 5, dtype=torch.float64, requires_grad=True)
    fn = [torch.sin, torch.tanh, lambda x: x.softmax(1), lambda x: x @ x.T][k % 4]
    {said}
"""

FIRST_BAR = 40.0  # milliseconds, of the first check in a process
# What is called first in a process, by name.
FIRST = {
    "gradproof.check": "gradproof.check(torch.sin, x)",
    "gradproof.check of a wrong Function": "gradproof.check(Wrong.apply, x)",
    "gradproof.check of 2 * x, whose forward mode imports PyTorch's compiler": (
        "gradproof.check(lambda x: 2 * x, x)"
    ),
    "gradproof.torch.gradcheck": "gradproof.torch.gradcheck(torch.sin, x)",
    "torch.autograd.gradcheck, fast": "torch.autograd.gradcheck(torch.sin, x, fast_mode=True)",
}
PROCESS = """
import time, torch, gradproof, gradproof.torch
gradproof.check  # imports what is needed for it
torch.set_num_threads(1)
x = (torch.linspace(1, 2, 25, dtype=torch.float64).reshape(5, 5).requires_grad_(),)

class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0]

before = time.process_time()
{said}
print(1e3 * (time.process_time() - before))
"""

FAILING_BAR = 1.0  # of ours / slow, of every row of `--failing`
FAILING_SIZES = (10, 100, 1_000)
# Which entries of n x n are wrong, by name.
FAILING: dict[str, Callable[[int], Any]] = {
    "all": lambda n: np.s_[:, :],
    "one entry": lambda n: np.s_[n // 3, n // 2],
    "one row": lambda n: np.s_[n // 3],
    "the last tenth": lambda n: np.s_[:, n - n // 10 :],
}

PASSES_BAR = 100.0  # of every row of `--passes`
PASSES = 20  # timed together, of which one is a part

Tool = Callable[[Any, Any], object]
TOOLS: dict[str, Tool] = {
    "fast": partial(torch.autograd.gradcheck, fast_mode=True),
    "slow": torch.autograd.gradcheck,
    "gradcheck": gradproof.torch.gradcheck,
    "check": gradproof.check,
    "fast, second": partial(torch.autograd.gradgradcheck, fast_mode=True),
    "slow, second": torch.autograd.gradgradcheck,
    "gradgradcheck": gradproof.torch.gradgradcheck,
}
DEAREST = (("gradcheck", "slow"), ("check", "slow"), ("gradgradcheck", "slow, second"))


@dataclass(frozen=True)
class Timed:
    """One sample: milliseconds of the processor, and calls, by tool, of those that accept it."""

    case: str
    inputs: int
    milliseconds: dict[str, float]
    calls: dict[str, int]


def chosen(every: int) -> Iterator[_opdb.Sample]:
    """The first and the middle sample of every so many operators."""
    for op in _opdb.differentiable_operators(torch.float64)[::every]:
        try:
            found = [s for s in _opdb.samples(op, torch.float64) if _fits(s)]
        except Exception:  # a sample maker that does not run here
            continue
        yield from found[:1]
        yield from found[len(found) // 2 : len(found) // 2 + (len(found) > 1)]


def _fits(sample: _opdb.Sample) -> bool:
    try:
        return _opdb.output_size(sample) <= _opdb.MOST_OUTPUTS
    except Exception:  # an operator that needs what is not installed
        return False


def timed(sample: _opdb.Sample, names: Sequence[str], repeats: int) -> Timed:
    """The least time of every tool, all of them in turns."""
    least: dict[str, float] = {}
    failed: set[str] = set()
    for _ in range(repeats + 1):  # the first one fills caches
        for name in names:
            if name in failed:
                continue
            _opdb.seed_everything(0)
            try:
                started = time.process_time()
                accepted = TOOLS[name](sample.function, sample.inputs)
                spent = 1e3 * (time.process_time() - started)
            except Exception:  # it is refuted, or refused
                accepted, spent = False, 0.0
            if not accepted:
                failed.add(name)
            least[name] = min(least.get(name, spent), spent)
    size = sum(sample.inputs[i].numel() for i in sample.differentiable)
    kept = {name: least[name] for name in names if name not in failed}
    calls = {}
    for name in kept:
        _opdb.seed_everything(0)
        calls[name] = common.counted(partial(TOOLS[name], sample.function, sample.inputs))
    return Timed(f"{sample.op}#{sample.index}", size, kept, calls)


def pairs(found: Sequence[Timed], ours: str, theirs: str) -> list[tuple[float, float, Timed]]:
    """The two times of the samples that both tools accept."""
    both = [t for t in found if {ours, theirs} <= set(t.milliseconds)]
    return [(t.milliseconds[ours], t.milliseconds[theirs], t) for t in both]


def summaries(found: Sequence[Timed]) -> dict[str, float]:
    """Medians and sums of the ratios, by name."""
    told: dict[str, float] = {}
    tools = (("gradcheck", ""), ("check", ""), ("gradgradcheck", ", second"), ("fast", ""))
    for ours, second in tools:
        for theirs in ("fast", "slow"):
            both = pairs(found, ours, theirs + second)
            if not both or ours == theirs:
                continue
            name = f"{ours} / {theirs}"
            ratios = [one / other for one, other, _ in both]
            told[f"{name}, median"] = statistics.median(ratios)
            told[f"{name}, sum"] = _of_sums(both)
            told[f"{name}, share above 1"] = sum(r > 1 for r in ratios) / len(ratios)
            told[f"{name}, dearest"] = max(ratios)
            small = [pair for pair in both if pair[2].inputs <= SMALL]
            if small:
                told[f"{name}, sum of at most {SMALL} inputs"] = _of_sums(small)
    return told


def _of_sums(both: Sequence[tuple[float, float, Timed]]) -> float:
    return sum(one for one, _, _ in both) / sum(other for _, other, _ in both)


def print_tables(found: Sequence[Timed], *, markdown: bool) -> None:
    told = summaries(found)
    rows = [
        [name, f"{value:.3g}", f"{BARS[name]:g}" if name in BARS else ""]
        for name, value in told.items()
    ]
    title = f"Processor time, {len(found)} samples"
    common.show(title, ("ratio", "measured", "bar"), rows, markdown=markdown)
    for ours, theirs in (
        ("gradcheck", "slow"),
        ("check", "slow"),
        ("gradgradcheck", "slow, second"),
    ):
        both = sorted(pairs(found, ours, theirs), key=lambda pair: pair[1] / pair[0])[:WORST]
        said = [f"{t.case} {one:.3g} ms against {other:.3g}" for one, other, t in both]
        print(f"Dearest of {ours} beside {theirs}: {'; '.join(said)}.")
    for name in TOOLS:
        if calls := [t.calls[name] for t in found if name in t.calls]:
            print(f"Calls of {name}: {statistics.median(calls):,.0f} by the median sample.")
    print(f"Measured on {common.machine_line()}.")


def in_pytest(count: int) -> dict[str, float]:
    """Seconds of the processor of a whole run of pytest with so many tests, by tool."""
    spent = {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "test_small.py")
        for name, said in SAID.items():
            more = ", gradproof.torch" if "gradproof" in said else ""
            fixture = f", {name}" if said.startswith(name) else ""
            file.write_text(TESTS.format(more=more, count=count, fixture=fixture, said=said))
            before = os.times()
            command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder)
            after = os.times()
            spent[name] = sum(after[2:4]) - sum(before[2:4])  # of children
    return spent


def print_in_pytest(count: int, spent: dict[str, float], *, markdown: bool) -> dict[str, float]:
    """A table; ratios by name."""
    rows = [
        [name, f"{seconds:.3g}", f"{seconds / spent['fast']:.3g}"]
        for name, seconds in spent.items()
    ]
    title = f"Processor time of pytest, {count} tests"
    common.show(title, ("tests call", "seconds", "of those of fast"), rows, markdown=markdown)
    print(f"Measured on {common.machine_line()}.")
    return {name: spent[name.split(" / ")[0]] / spent["fast"] for name in PYTEST_BARS}


def of_many_tensors() -> tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]:
    """100 tensors of 16 entries each, and a function of all of them."""
    inputs = tuple(torch.randn(16, dtype=torch.float64, requires_grad=True) for _ in range(100))
    return lambda *given: torch.stack([x.sin() for x in given]).prod(1), inputs


def encoder(activation: str) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """12 layers of width 64 with 4 heads, in float32, at 4 sequences of 16."""
    layer = torch.nn.TransformerEncoderLayer(
        64, 4, 128, dropout=0.0, batch_first=True, activation=activation
    )
    module = torch.nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)
    return module, (torch.randn(4, 16, 64),)


def in_passes() -> dict[str, dict[str, float]]:
    """Processor time of one check in that of a forward and its backward, by what is checked.

    What a process imports for its first check in few bits is not counted.
    """
    gradproof.check(torch.tanh, (torch.ones(3, requires_grad=True),), seed=0)
    made = {
        "100 tensors, float64": of_many_tensors,
        "encoder of 12 layers, gelu, float32": partial(encoder, "gelu"),
        "encoder of 12 layers, relu, float32": partial(encoder, "relu"),
    }
    found = {}
    for name, make in made.items():
        torch.manual_seed(0)
        function, inputs = make()
        function(*inputs).sum().backward()  # the first is dearer
        before = time.process_time()
        for _ in range(PASSES):
            function(*inputs).sum().backward()
        one = (time.process_time() - before) / PASSES
        before = time.process_time()
        report = gradproof.check(function, inputs, seed=0)
        spent = time.process_time() - before
        if not report:
            raise SystemExit(f"{name} was not accepted: {report.verdict}")
        found[name] = {"milliseconds of a pass": 1e3 * one, "passes": spent / one}
    return found


def print_in_passes(found: dict[str, dict[str, float]], *, markdown: bool) -> None:
    columns = ("check of", "milliseconds of a pass", "passes", "bar")
    rows = [
        [name, *(f"{number:.3g}" for number in row.values()), f"{PASSES_BAR:g}"]
        for name, row in found.items()
    ]
    common.show("A check in passes: a forward and its backward", columns, rows, markdown=markdown)
    print(f"Measured on {common.machine_line()}.")


def first_calls(repeats: int) -> dict[str, float]:
    """Milliseconds of the processor of the first call in a process, by what is called."""
    found = {}
    for name, said in FIRST.items():
        command = [sys.executable, "-c", PROCESS.format(said=said)]
        runs = (subprocess.run(command, check=True, capture_output=True) for _ in range(repeats))
        found[name] = min(float(run.stdout) for run in runs)
    return found


def print_first_calls(found: dict[str, float], *, markdown: bool) -> None:
    rows = [[name, f"{milliseconds:.3g}"] for name, milliseconds in found.items()]
    title = "The first call in a process, after the imports"
    common.show(title, ("call", "milliseconds"), rows, markdown=markdown)
    print(f"Measured on {common.machine_line()}.")


@dataclass(frozen=True)
class Failing:
    """One wrong backward; what each tool takes to refute it, by tool: slow mode and ours."""

    inputs: int
    wrong: str
    milliseconds: dict[str, float]
    calls: dict[str, int]  # of Python and of C
    forwards: dict[str, int]
    backwards: dict[str, int]

    @property
    def ratio(self) -> float:
        """Ours / slow."""
        return self.milliseconds["gradcheck"] / self.milliseconds["slow"]


def dense(n: int, wrong: str) -> tuple[Callable[..., Any], torch.Tensor, Counter[str]]:
    """A product with a matrix of n x n, its input, and how often it and its backward are run."""
    matrix = torch.randn(n, n, dtype=torch.float64)
    claimed, runs = matrix.clone(), Counter[str]()
    claimed[FAILING[wrong](n)] *= 1.1

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            runs["forward"] += 1
            return matrix @ x

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            runs["backward"] += 1
            return g @ claimed

    return Product.apply, torch.randn(n, dtype=torch.float64, requires_grad=True), runs


def refuted(n: int, wrong: str, repeats: int) -> Failing:
    """The least time of every tool, in turns; and its calls."""
    torch.manual_seed(0)
    function, x, runs = dense(n, wrong)
    found = Failing(n, wrong, {}, {}, {}, {})

    def refute(name: str) -> None:
        with contextlib.suppress(RuntimeError):
            TOOLS[name](function, (x,))
            raise SystemExit(f"{name} accepted {wrong} wrong of {n}")

    for _ in range(repeats):
        for name in ("slow", "gradcheck"):
            started = time.process_time()
            refute(name)
            spent = 1e3 * (time.process_time() - started)
            found.milliseconds[name] = min(found.milliseconds.get(name, spent), spent)
    for name in ("slow", "gradcheck"):
        runs.clear()
        found.calls[name] = common.counted(partial(refute, name))
        found.forwards[name], found.backwards[name] = runs["forward"], runs["backward"]
    return found


def print_failing(found: Sequence[Failing], *, markdown: bool) -> None:
    def pair(of: dict[str, Any], form: str = ",") -> str:
        return f"{of['gradcheck']:{form}} / {of['slow']:{form}}"

    rows = []
    for each in found:
        counts = (pair(each.forwards), pair(each.backwards), pair(each.calls))
        times = (pair(each.milliseconds, ".3g"), f"{each.ratio:.2g}")
        rows.append([f"{each.inputs:,}", each.wrong, *counts, *times])
    columns = ("inputs", "wrong", "F", "VJPs", "calls", "milliseconds", "ours / slow")
    common.show("A gradcheck that fails: ours / slow", columns, rows, markdown=markdown)
    print(f"Measured on {common.machine_line()}.")


def arguments() -> argparse.Namespace:
    made = common.parser(__doc__)
    made.add_argument("--every", type=int, default=1, metavar="N", help="operators: every N-th")
    made.add_argument(
        "--repeats", type=int, default=3, metavar="N", help="of which the least counts"
    )
    made.add_argument("--pytest", type=int, metavar="N", help="instead N tests in pytest")
    made.add_argument("--passes", action="store_true", help="instead checks in passes")
    made.add_argument("--first", action="store_true", help="instead first calls in a process")
    made.add_argument("--failing", action="store_true", help="instead checks that fail")
    made.add_argument("--tools", nargs="*", choices=list(TOOLS), default=list(TOOLS))
    return made.parse_args()


def main() -> int:
    options = arguments()
    if options.pytest:
        spent = in_pytest(options.pytest)
        told = print_in_pytest(options.pytest, spent, markdown=options.markdown)
        record = {"tests": options.pytest, "seconds": spent, "ratios": told, "bars": PYTEST_BARS}
        common.record(options.json, record)
        return int(any(told[name] > bar for name, bar in PYTEST_BARS.items()))
    if options.first:
        calls = first_calls(options.repeats)
        print_first_calls(calls, markdown=options.markdown)
        common.record(options.json, {"milliseconds": calls, "bar": FIRST_BAR})
        return int(calls["gradproof.check"] > FIRST_BAR)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if options.failing:
        sizes = FAILING_SIZES[:1] if options.quick else FAILING_SIZES
        failing = [refuted(n, wrong, options.repeats) for n in sizes for wrong in FAILING]
        print_failing(failing, markdown=options.markdown)
        common.record(
            options.json, {"rows": [asdict(each) for each in failing], "bar": FAILING_BAR}
        )
        return int(any(each.ratio > FAILING_BAR for each in failing))
    if options.passes:
        rows = in_passes()
        print_in_passes(rows, markdown=options.markdown)
        common.record(options.json, {"rows": rows, "bar": PASSES_BAR})
        return int(any(row["passes"] > PASSES_BAR for row in rows.values()))
    samples = list(chosen(QUICK_EVERY if options.quick else options.every))
    found = []
    with common.progress("samples", len(samples)) as advance:
        for sample in samples:
            advance(sample.op)
            found.append(timed(sample, options.tools, options.repeats))
    print_tables(found, markdown=options.markdown)
    told = summaries(found)
    common.record(options.json, {"ratios": told, "bars": BARS, "samples": len(found)})
    return int(any(told.get(name, 0.0) > bar for name, bar in BARS.items()))


if __name__ == "__main__":
    sys.exit(main())
