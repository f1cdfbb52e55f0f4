"""Time, calls and memory against the size of the input, beside PyTorch's gradcheck.

tanh, softmax and layer_norm over rows of 64, a product with a 32 x 32 matrix, a 3 x 3 convolution
of 4 channels, attention of heads of 64 x 64, and two linear layers of 64 and 128 with gelu between
them, in float64, from 10^2 to 10^6 numbers going in. Every tool with default arguments.

Times: CPU time in one fresh process per function and size, in which the tools take turns, and the
function with one backward among them; a ratio is the median of the ratios within one turn, so that
a machine that slows down slows both. The load of the machine is recorded with them. Memory: one
fresh process per function, size and tool; peak resident memory above what the process holds after
a run on a small input and with the inputs made, in vectors of n doubles; only from 10^5 on, below
which pages and buffers of the allocator hide it. Calls are counted by the function, VJPs by a hook
on its output (a batched backward counts once).

With `--locate`: wrong derivatives of tanh instead, found by our gradcheck: one entry, the last
tenth of all, everything, and one entry where the backward is once_differentiable.

Bar, at the largest size: at most 3.5 times the time of PyTorch's fast mode (3 of what has more to
compute than elementwise functions and norms) and at most 20 vectors; where a mistake is located at
most 20 vectors, and the place must be right.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import _common as common
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

SIZES = (100, 1_000, 4_096, 10_000, 100_000, 1_000_000)
QUICK_SIZES = (100, 10_000)
WARM_UP = 128
MEMORY_FROM = 100_000
# A tool that wants more is an error, not a machine that swaps.
MOST_MEMORY = 8 << 30
BAR_TIME = 3.5
BAR_OF = {"matmul": 3.0, "conv2d": 3.0, "attention": 3.0, "mlp": 3.0}
BAR_VECTORS = 20.0

Function = Callable[..., Tensor]
Made = tuple[Function, tuple[Tensor, ...]]


# What is measured --------------------------------------------------------------------------------


def _normal(*shape: int, scale: float = 1.0) -> Tensor:
    return (torch.randn(*shape, dtype=torch.float64) * scale).requires_grad_()


def make_tanh(n: int) -> Made:
    return torch.tanh, (_normal(n),)


def make_softmax(n: int) -> Made:
    return partial(torch.softmax, dim=-1), (_normal(max(1, n // 64), 64),)


def make_layer_norm(n: int) -> Made:
    def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.layer_norm(x, (64,), weight, bias)

    return layer_norm, (_normal(max(1, n // 64), 64), _normal(64), _normal(64))


def make_matmul(n: int) -> Made:
    return torch.matmul, (_normal(max(1, n // 32), 32), _normal(32, 32, scale=32**-0.5))


def make_conv2d(n: int) -> Made:
    """One image of 4 channels, about square."""
    height = max(3, round((n / 4) ** 0.5))
    width = max(3, n // (4 * height))
    image, weight = _normal(1, 4, height, width), _normal(4, 4, 3, 3, scale=1 / 6)
    return partial(F.conv2d, padding=1), (image, weight, _normal(4))


def make_attention(n: int) -> Made:
    """Heads of 64 queries, keys and values of 64 numbers; fewer of each where n is small."""
    length = 64 if n >= 3 * 64 * 64 else 8
    heads = max(1, n // (3 * length * length))
    return F.scaled_dot_product_attention, tuple(_normal(heads, length, length) for _ in range(3))


def make_mlp(n: int) -> Made:
    def mlp(x: Tensor, *layers: Tensor) -> Tensor:
        first, bias, second, last = layers
        return F.linear(F.gelu(F.linear(x, first, bias)), second, last)

    first, second = _normal(128, 64, scale=64**-0.5), _normal(64, 128, scale=128**-0.5)
    return mlp, (_normal(max(1, n // 64), 64), first, _normal(128), second, _normal(64))


FUNCTIONS: dict[str, Callable[[int], Made]] = {
    "tanh": make_tanh,
    "softmax": make_softmax,
    "layer_norm": make_layer_norm,
    "matmul": make_matmul,
    "conv2d": make_conv2d,
    "attention": make_attention,
    "mlp": make_mlp,
}


# Wrong derivatives, to be located -----------------------------------------------------------------

WRONG = 1.1  # what a wrong entry is multiplied by


def _one_entry(gradient: Tensor) -> Tensor:
    at = torch.tensor([_wrong_entry(gradient.numel())])
    return gradient.index_put((at,), gradient[at] * WRONG)


def _tail(gradient: Tensor) -> Tensor:
    right = gradient.numel() - gradient.numel() // 10
    return torch.cat([gradient[:right], gradient[right:] * WRONG])


def _everything(gradient: Tensor) -> Tensor:
    return gradient * WRONG


def _wrong_entry(n: int) -> int:
    return 2 * n // 3


def _mistaken(mistake: Function, *, once: bool = False) -> Callable[[int], Made]:
    """Makes tanh with a mistake in its backward."""

    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (output,) = ctx.saved_tensors
        return mistake(gradient * (1 - output**2))

    class Mistaken(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            output = torch.tanh(x)
            ctx.save_for_backward(output)
            return output

    Mistaken.backward = staticmethod(once_differentiable(backward) if once else backward)
    return lambda n: (Mistaken.apply, (_normal(n),))


LOCATED: dict[str, Callable[[int], Made]] = {
    "one entry": _mistaken(_one_entry),
    "tail": _mistaken(_tail),
    "everything": _mistaken(_everything),
    "one entry, once_differentiable": _mistaken(_one_entry, once=True),
}


def measure_locating(function: str, n: int, tool: str) -> dict[str, Any]:
    """Peak memory, time and calls of one run of our gradcheck that refutes a derivative."""
    import gradproof.torch

    def refuted(fn: Function, inputs: tuple[Tensor, ...]) -> Any:
        try:
            gradproof.torch.gradcheck(fn, inputs)
        except gradproof.torch.GradcheckError as error:
            return error.report
        raise AssertionError(f"{function} was not refuted")

    assert tool == "ours"
    refuted(*LOCATED[function](WARM_UP))
    fn, inputs = LOCATED[function](n)
    held, start = start_peak(), time.perf_counter()
    report = refuted(fn, inputs)
    (check,) = (result for result in report.checks if result.name == "backward")
    places = sorted({finding.input.index[0] for finding in check.findings})
    return {
        "vectors": (peak() - held) / (8 * n),
        "seconds": time.perf_counter() - start,
        "calls": {"calls": report.calls["function"], "vjps": report.calls["vjp"]},
        "summary": check.summary,
        "right": _are_wrong(function, n, places),
    }


def _are_wrong(function: str, n: int, places: Sequence[int]) -> bool:
    """Whether the entries told are wrong indeed, and the one wrong entry is told."""
    if function.startswith("one entry"):
        return list(places) == [_wrong_entry(n)]
    return bool(places) and places[0] >= (n - n // 10 if function == "tail" else 0)


def _once(fn: Function, inputs: tuple[Tensor, ...]) -> bool:
    output = fn(*inputs)
    torch.autograd.grad(output, inputs, torch.ones_like(output))
    return True


def tool_of(name: str) -> Callable[[Function, tuple[Tensor, ...]], bool]:
    """One of `ours`, `fast`, `slow`, or `once`: the function and one backward."""
    if name == "once":
        return _once
    if name != "ours":
        return partial(torch.autograd.gradcheck, fast_mode=name == "fast")
    import gradproof.torch

    found: Callable[[Function, tuple[Tensor, ...]], bool] = gradproof.torch.gradcheck
    return found


# In a fresh process ------------------------------------------------------------------------------


def measure_time(function: str, n: int, tools: Sequence[str], repetitions: int) -> dict[str, Any]:
    """CPU seconds per tool, a list with one number per turn; and what each tool called."""
    checks = {tool: tool_of(tool) for tool in tools}
    for check in checks.values():
        check(*FUNCTIONS[function](WARM_UP))
    fn, inputs = FUNCTIONS[function](n)
    seconds: dict[str, list[float]] = {tool: [] for tool in tools}
    for turn in range(repetitions):
        order = list(checks)[turn % len(tools) :] + list(checks)[: turn % len(tools)]
        for tool in order:
            start = time.process_time()
            checks[tool](fn, inputs)
            seconds[tool].append(time.process_time() - start)
    return {
        "seconds": seconds,
        "load": os.getloadavg()[0],
        "calls": {tool: count_calls(check, fn, inputs) for tool, check in checks.items()},
    }


def count_calls(
    check: Callable[[Function, tuple[Tensor, ...]], bool], fn: Function, inputs: tuple[Tensor, ...]
) -> dict[str, int]:
    """How often the tool runs the function, and a backward through its output."""
    count = {"calls": 0, "vjps": 0}

    def backward_seen(_: Tensor) -> None:
        count["vjps"] += 1

    def counted(*arguments: Tensor) -> Tensor:
        count["calls"] += 1
        output = fn(*arguments)
        if output.requires_grad:
            output.register_hook(backward_seen)
        return output

    check(counted, inputs)
    return count


def measure_memory(function: str, n: int, tool: str) -> dict[str, Any]:
    """Peak memory of one run above the memory held before it, in vectors of n doubles."""
    check = tool_of(tool)
    check(*FUNCTIONS[function](WARM_UP))
    fn, inputs = FUNCTIONS[function](n)
    held = start_peak()
    check(fn, inputs)
    return {"vectors": (peak() - held) / (8 * n)}


def start_peak() -> int:
    """Resets the peak where Linux lets us, and returns the bytes held now, else the peak so far."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
        return _status("VmRSS")
    except OSError:
        return peak()


def peak() -> int:
    """The largest resident size since `start_peak`, in bytes."""
    try:
        return _status("VmHWM")
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _status(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {key}")


def child(request: str) -> int:
    """Runs one measurement and prints its result as the last line of standard output."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    warnings.simplefilter("ignore")
    what = json.loads(request)
    kinds = {"time": measure_time, "memory": measure_memory, "locating": measure_locating}
    measure = kinds[what.pop("measure")]
    print(json.dumps(measure(**what)))
    return 0


def in_fresh_process(**request: Any) -> dict[str, Any]:
    """The result of one measurement, or {"error": text}.

    Where memory is measured, the threshold of the C allocator is fixed, so that every large vector
    is returned to the system as soon as it is freed and the peak is that of what is alive. That
    costs time, so not where time is measured.
    """
    command = [sys.executable, __file__, "--child", json.dumps(request)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if request["measure"] in ("memory", "locating"):
        environment["MALLOC_MMAP_THRESHOLD_"] = "65536"
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return {"error": lines[-1] if lines else f"exit code {done.returncode}"}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


# The run -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One function at one size; NaN and -1 where not measured."""

    function: str
    n: int
    seconds: dict[str, list[float]]
    calls: dict[str, dict[str, int]]
    vectors: dict[str, float]
    load: float = 0.0
    errors: tuple[str, ...] = ()

    def ratio(self, peer: str) -> float | None:
        """Median over the turns of our time divided by the peer's in the same turn."""
        ours, theirs = self.seconds.get("ours"), self.seconds.get(peer)
        if not ours or not theirs:
            return None
        return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def measure(function: str, n: int, options: argparse.Namespace) -> Row:
    tools = ["ours", "fast", "once", *(["slow"] if n <= options.slow_limit else [])]
    common_request = {"function": function, "n": n}
    timed = in_fresh_process(
        measure="time", tools=tools, repetitions=options.repetitions, **common_request
    )
    errors = [timed["error"]] if "error" in timed else []
    vectors = {}
    for tool in ("ours", "fast") if n >= options.memory_from else ():
        used = in_fresh_process(measure="memory", tool=tool, **common_request)
        if "error" in used:
            errors.append(used["error"])
        else:
            vectors[tool] = used["vectors"]
    return Row(
        function,
        n,
        timed.get("seconds", {}),
        timed.get("calls", {}),
        vectors,
        timed.get("load", 0.0),
        tuple(errors),
    )


COLUMNS = (
    "function",
    "n",
    "calls",
    "VJPs",
    "calls, fast",
    "VJPs, fast",
    "seconds",
    "time / fast",
    "time / slow",
    "time / once",
    "vectors",
    "vectors, fast",
)


def cells(row: Row) -> list[str]:
    calls = [
        str(row.calls.get(tool, {}).get(kind, "-"))
        for tool in ("ours", "fast")
        for kind in ("calls", "vjps")
    ]
    seconds = row.seconds.get("ours")
    vectors = [
        f"{row.vectors[tool]:.1f}" if tool in row.vectors else "-" for tool in ("ours", "fast")
    ]
    return [
        row.function,
        f"{row.n:,}",
        *calls,
        f"{statistics.median(seconds):.3g}" if seconds else "-",
        _number(row.ratio("fast")),
        _number(row.ratio("slow")),
        _number(row.ratio("once")),
        *vectors,
    ]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def misses(rows: Sequence[Row]) -> list[str]:
    """What is not within the bar at the largest size measured, in words."""
    found = []
    largest = max(row.n for row in rows)
    for row in (row for row in rows if row.n == largest):
        ratio, vectors = row.ratio("fast"), row.vectors.get("ours")
        if ratio is None or ratio > BAR_OF.get(row.function, BAR_TIME):
            found.append(f"{row.function}: {_number(ratio)} times the fast mode's time")
        if vectors is not None and vectors > BAR_VECTORS:
            found.append(f"{row.function}: {vectors:.1f} vectors of n doubles")
    return found


LOCATE_COLUMNS = ("wrong", "n", "calls", "VJPs", "seconds", "vectors", "place")


def locate(options: argparse.Namespace) -> int:
    """The rows of `--locate`."""
    rows: list[dict[str, Any]] = []
    work = [(function, n) for function in LOCATED for n in options.sizes]
    with common.progress("sizes", len(work)) as advance:
        for function, n in work:
            advance(f"{function} {n:,}")
            request = {"measure": "locating", "function": function, "n": n, "tool": "ours"}
            rows.append({"function": function, "n": n, **in_fresh_process(**request)})
    title = "Locating what is wrong in the backward of tanh"
    common.show(title, LOCATE_COLUMNS, map(_locate_cells, rows), markdown=options.markdown)
    print(f"Measured on {common.machine_line()}.")
    largest = max(options.sizes)
    over = [
        f"{row['function']}: " + row.get("error", f"{row.get('vectors', 0):.1f} vectors")
        for row in rows
        if row["n"] == largest and not (row.get("right") and row["vectors"] <= BAR_VECTORS)
    ]
    met = "not met" if over else "met"
    print(f"Bar at n = {largest:,}: the right place in at most {BAR_VECTORS:g} vectors: {met}.")
    for miss in over:
        print(f"  {miss}")
    common.record(options.json, {"rows": rows, "misses": over})
    return 1 if over else 0


def _locate_cells(row: dict[str, Any]) -> list[str]:
    if "error" in row:
        return [row["function"], f"{row['n']:,}", *["-"] * 4, "error"]
    return [
        row["function"],
        f"{row['n']:,}",
        str(row["calls"]["calls"]),
        str(row["calls"]["vjps"]),
        f"{row['seconds']:.3g}",
        f"{row['vectors']:.1f}",
        "right" if row["right"] else "WRONG",
    ]


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common.parser(__doc__)
    parser.add_argument("--child", metavar="REQUEST", help=argparse.SUPPRESS)
    parser.add_argument("--locate", action="store_true", help="locate wrong entries instead")
    parser.add_argument("--functions", default=",".join(FUNCTIONS), help="of %(default)s")
    parser.add_argument("--sizes", help="comma-separated; default: 10^2 to 10^6")
    parser.add_argument("--slow-limit", type=int, default=4_096, help="largest n for slow mode")
    parser.add_argument("--memory-from", type=int, default=MEMORY_FROM, help="smallest n")
    parser.add_argument("--repetitions", type=int, help="turns per size; default: 5, quick: 2")
    options = parser.parse_args(arguments)
    options.functions = options.functions.split(",")
    if unknown := [name for name in options.functions if name not in FUNCTIONS]:
        parser.error(f"--functions: unknown {unknown[0]!r}; choose from {', '.join(FUNCTIONS)}")
    sizes = QUICK_SIZES if options.quick else SIZES
    sizes = [n for n in sizes if n >= MEMORY_FROM] or sizes if options.locate else sizes
    options.sizes = [int(n) for n in options.sizes.split(",")] if options.sizes else list(sizes)
    if options.quick:
        options.slow_limit = min(options.slow_limit, 1_000)
    options.repetitions = options.repetitions or (2 if options.quick else 5)
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = options_of(arguments)
    if options.child is not None:
        return child(options.child)
    if options.locate:
        return locate(options)
    work = [(function, n) for function in options.functions for n in options.sizes]
    rows = []
    with common.progress("sizes", len(work)) as advance:
        for function, n in work:
            advance(f"{function} {n:,}")
            rows.append(measure(function, n, options))
    title = "gradproof.torch.gradcheck against the number of inputs n, beside PyTorch's"
    common.show(title, COLUMNS, [cells(row) for row in rows], markdown=options.markdown)
    print(f"Measured on {common.machine_line()}.")
    for error in (f"{row.function} {row.n}: {error}" for row in rows for error in row.errors):
        print(f"error: {error}")
    over = misses(rows)
    most = f"{BAR_TIME:g} times the fast mode's time ({min(BAR_OF.values()):g} of the last four)"
    bar = f"at most {most} and {BAR_VECTORS:g} vectors"
    print(f"Bar at n = {max(options.sizes):,}: {bar}: {'not met' if over else 'met'}.")
    for miss in over:
        print(f"  {miss}")
    common.record(options.json, {"rows": [asdict(row) for row in rows], "misses": over})
    return 1 if over or any(row.errors for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
