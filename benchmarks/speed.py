"""What checks cost beside PyTorch's gradcheck, in processor time of one thread.

* small: samples of PyTorch's operator database in float64, with at most 200 numbers in and 2,000
  out: the first and the middle one of every eighth operator. Each in two dresses, as tests write
  them: a plain closure, and a function that puts its arguments together anew at every call.
* large: functions of 10^6 numbers.
* layer: one encoder layer, 512 wide, by `gradproof.check`, in seconds.
* first: the first call in a process, once everything is imported.
* pytest: whole processes of pytest with 300 tests of 25 numbers.

PyTorch's fast and slow mode stand beside every row. All tools are called once to warm up, and then
in turns; the median of `--repeats` times counts. A sample counts for a ratio where both tools
accept it. Seeds are fixed. Nothing is asserted: times are for people.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # of NumPy's BLAS, which reads it when it is loaded

import _common as common
import _opdb
import torch

import gradproof
import gradproof.torch

EVERY, QUICK_EVERY = 8, 80
PARTS = ("small", "large", "layer", "first", "pytest")
QUICK_PARTS = ("small", "first")

Function = Callable[..., Any]
TOOLS: dict[str, Function] = {
    "fast": partial(torch.autograd.gradcheck, fast_mode=True),
    "slow": torch.autograd.gradcheck,
    "gradcheck": gradproof.torch.gradcheck,
    "check": partial(gradproof.check, seed=0),
    "fast, second": partial(torch.autograd.gradgradcheck, fast_mode=True),
    "slow, second": torch.autograd.gradgradcheck,
    "gradgradcheck": gradproof.torch.gradgradcheck,
}
# Ours, or fast mode, -> what it stands beside.
BESIDE = {
    "gradcheck": ("fast", "slow"),
    "gradgradcheck": ("fast, second", "slow, second"),
    "check": ("fast", "slow"),
    "fast": ("slow",),
    "fast, second": ("slow, second",),
}


@dataclass(frozen=True)
class Timed:
    """Milliseconds of one function by tool, of the tools that accept it."""

    case: str
    inputs: int
    milliseconds: dict[str, float]


def time_in_turns(
    case: str, function: Function, inputs: Sequence[Any], names: Sequence[str], repeats: int
) -> Timed:
    """The median time of every tool, after a call of each that fills caches."""
    times: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(repeats + 1):
        for name in list(times):
            _opdb.seed_everything(0)
            started = time.process_time()
            try:
                accepted = TOOLS[name](function, tuple(inputs))
            except Exception:  # refuted, or refused
                accepted = False
            times[name].append(1e3 * (time.process_time() - started))
            if not accepted:
                del times[name]
    size = sum(x.numel() for x in inputs if isinstance(x, torch.Tensor) and x.requires_grad)
    return Timed(case, size, {k: statistics.median(v[1:]) for k, v in times.items()})


def small_samples(every: int) -> Iterator[tuple[str, Function, _opdb.Sample]]:
    """The first and the middle sample of every so many operators, each in two dresses."""
    for op in _opdb.differentiable_operators(torch.float64)[::every]:
        try:
            found = [
                sample
                for sample in _opdb.samples(op, torch.float64)
                if _opdb.output_size(sample) <= _opdb.MOST_OUTPUTS
            ]
        except Exception:  # a sample maker, or an operator, that does not run here
            continue
        for sample in found[:1] + found[len(found) // 2 : len(found) // 2 + (len(found) > 1)]:
            yield f"{sample.op}#{sample.index}", sample.function, sample
            if sample.plain is not None:
                yield f"{sample.op}#{sample.index}, closure", sample.plain, sample


def ratios(rows: Sequence[Timed]) -> dict[str, dict[str, float]]:
    """Median, sum and share above 1 of the ratios of two tools, by their names."""
    found = {}
    for ours, modes in BESIDE.items():
        for theirs in modes:
            both = [
                (row.milliseconds[ours], row.milliseconds[theirs])
                for row in rows
                if {ours, theirs} <= row.milliseconds.keys()
            ]
            if both:
                each = [one / other for one, other in both]
                found[f"{ours} / {theirs.removesuffix(', second')}"] = {
                    "median": statistics.median(each),
                    "sum": sum(one for one, _ in both) / sum(other for _, other in both),
                    "share above 1": sum(ratio > 1 for ratio in each) / len(each),
                    "functions": len(each),
                }
    return found


def large_functions() -> dict[str, tuple[Function, tuple[torch.Tensor, ...]]]:
    """Functions of a million numbers, inputs and weights together."""
    functional = torch.nn.functional

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, dtype=torch.float64).requires_grad_()

    def mlp(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x @ a) @ b

    return {
        "tanh": (torch.tanh, (normal(10**6),)),
        "softmax": (lambda x: x.softmax(1), (normal(1000, 1000),)),
        "layer_norm": (lambda x: functional.layer_norm(x, (1000,)), (normal(1000, 1000),)),
        "matmul": (torch.matmul, (normal(700, 700), normal(700, 700))),
        "conv2d": (functional.conv2d, (normal(4, 16, 124, 124), normal(16, 16, 3, 3))),
        "attention": (
            functional.scaled_dot_product_attention,
            (normal(8, 8, 80, 64), normal(8, 8, 80, 64), normal(8, 8, 80, 64)),
        ),
        "MLP": (mlp, (normal(256, 1024), normal(1024, 512), normal(512, 256))),
    }


def seconds_of_layer(dtype: torch.dtype) -> float:
    """Seconds of one `gradproof.check` of an encoder layer, 512 wide, and its parameters."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.0, batch_first=True)
    layer, x = layer.to(dtype), torch.randn(2, 16, 512, dtype=dtype)
    started = time.process_time()
    gradproof.check(layer, (x,), seed=0)
    return time.process_time() - started


# What a process calls first -> the call.
FIRST = {
    "gradproof.check": "gradproof.check(torch.sin, x)",
    "gradproof.check of 2 * x": "gradproof.check(lambda x: 2 * x, x)",
    "gradproof.torch.gradcheck": "gradproof.torch.gradcheck(torch.sin, x)",
    "torch.autograd.gradcheck, fast": "torch.autograd.gradcheck(torch.sin, x, fast_mode=True)",
}
PROCESS = """
import gc, sys, time, torch, gradproof, gradproof.torch
gradproof.check
torch.set_num_threads(1)
x = (torch.linspace(1, 2, 25, dtype=torch.float64).reshape(5, 5).requires_grad_(),)
gc.collect()  # else one of 70 ms falls into the call of some tool
started, wall = time.process_time(), time.perf_counter()
{call}
print(1e3 * (time.process_time() - started), 1e3 * (time.perf_counter() - wall))
"""


def first_calls(repeats: int) -> dict[str, tuple[float, float]]:
    """Milliseconds of the processor, and of the clock, of the first call in a process."""
    found = {}
    for name, call in FIRST.items():
        command = [sys.executable, "-c", PROCESS.format(call=call)]
        runs = []
        for _ in range(repeats):
            run = subprocess.run(command, check=True, capture_output=True, text=True)
            runs.append(tuple(map(float, run.stdout.split())))
        found[name] = min(runs)
    return found


# What a test of 25 numbers says, by tool.
TESTS_SAY = {
    "fast": "assert torch.autograd.gradcheck(fn, x, fast_mode=True)",
    "gradcheck": "assert gradproof.torch.gradcheck(fn, x)",
    "check_derivatives": "check_derivatives(fn, x)",
}
TESTS = """
import pytest, torch, gradproof.torch
torch.set_num_threads(1)
@pytest.mark.parametrize("k", range({count}))
def test_derivative(k, check_derivatives):
    x = torch.randn(5, 5, dtype=torch.float64, requires_grad=True)
    fn = [torch.sin, torch.tanh, lambda x: x.softmax(1), lambda x: x @ x.T][k % 4]
    {said}
"""


def seconds_in_pytest(count: int) -> dict[str, float]:
    """Seconds of the processor of a whole run of pytest with so many tests, by tool."""
    spent = {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "test_small.py")
        for name, said in TESTS_SAY.items():
            file.write_text(TESTS.format(count=count, said=said))
            before = os.times()
            command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder)
            after = os.times()
            spent[name] = sum(after[2:4]) - sum(before[2:4])  # of children
    return spent


def arguments() -> argparse.Namespace:
    made = common.parser(__doc__)
    made.add_argument("--repeats", type=int, default=5, metavar="N", help="of which the median")
    made.add_argument("--every", type=int, metavar="N", help="of the operators, every N-th")
    made.add_argument("--parts", nargs="*", choices=PARTS, help="which of them; all by default")
    return made.parse_args()


def main() -> None:
    options = arguments()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    parts = options.parts or (QUICK_PARTS if options.quick else PARTS)
    repeats = 3 if options.quick else options.repeats
    found: dict[str, Any] = {}

    def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        common.show(title, columns, rows, markdown=options.markdown)
        sys.stdout.flush()

    if "small" in parts:
        every = options.every or (QUICK_EVERY if options.quick else EVERY)
        samples, rows = list(small_samples(every)), []
        for number, (case, function, sample) in enumerate(samples, 1):
            rows.append(time_in_turns(case, function, sample.inputs, list(TOOLS), repeats))
            if number % 20 == 0 or number == len(samples):
                print(f"{number} of {len(samples)} functions", file=sys.stderr, flush=True)
        found["small"] = {"ratios": ratios(rows), "rows": [asdict(row) for row in rows]}
        columns = ("ours / PyTorch's mode", "median", "sum", "share above 1", "functions")
        table = [[name, *(f"{x:.3g}" for x in row.values())] for name, row in ratios(rows).items()]
        show("Small checks", columns, table)
    if "large" in parts:
        torch.manual_seed(0)
        rows = []
        for name, (function, inputs) in large_functions().items():
            rows.append(time_in_turns(name, function, inputs, ("fast", "gradcheck"), 3))
            print(f"large: {name}", file=sys.stderr, flush=True)
        found["large"] = [asdict(row) for row in rows]
        table = [
            [row.case, f"{row.inputs:,}", f"{fast:.0f}", f"{ours / fast:.2f}"]
            for row in rows
            for fast, ours in (row.milliseconds.values(),)
        ]
        show("A million numbers", ("function", "numbers", "fast, ms", "gradcheck / fast"), table)
    if "layer" in parts:
        dtypes = (torch.float32, torch.bfloat16)
        found["layer"] = {str(dtype): seconds_of_layer(dtype) for dtype in dtypes}
        table = [[name, f"{seconds:.1f}"] for name, seconds in found["layer"].items()]
        show("An encoder layer, 512 wide", ("dtype", "check, s"), table)
    if "first" in parts:
        found["first"] = first_calls(repeats)
        table = [[name, *(f"{x:.0f}" for x in ms)] for name, ms in found["first"].items()]
        show("The first call in a process", ("call", "processor, ms", "clock, ms"), table)
    if "pytest" in parts:
        found["pytest"] = seconds_in_pytest(300)
        fast = found["pytest"]["fast"]
        table = [[name, f"{s:.2f}", f"{s / fast:.2f}"] for name, s in found["pytest"].items()]
        show("300 tests in pytest", ("tests call", "s", "of fast"), table)
    print(f"Measured on {common.machine_line()}.")
    common.record(options.json, found)


if __name__ == "__main__":
    main()
