"""Coverage of the error bars: how often the true derivative lies outside, beside other packages.

Functions with derivatives in closed form (`_exact`), inputs of 64 numbers at scales from 1e-6 to
1e6, in float64, float32, bfloat16 and float16: the functions run on tensors of that dtype, the
points are numbers of it, and the truth is the derivative of the exact function there, along a
random direction. An output counts where the function's value and the truth are finite; a bar that
is infinite, or NaN, says that nothing was measured and is never wrong. Sums v.F of all outputs,
which a check of a backward alone is made of, are counted beside the single outputs.

numdifftools, jacobi and scipy.differentiate, with default arguments, differentiate t -> F(x + t u)
at t = 0: the same points and directions, scaled for them by our u. Of them only scipy can be told
that the function is single precision. Their error estimates are not meant as bounds; ours are.

Bar: at most 2e-3 of the outputs outside in float64. Below it claims are held against references
(`_low_precision`), and bars decide only where there are none: these rows are shown, not judged.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import _common as common
import numpy as np
import torch
from _exact import FUNCTIONS, Exact, point

from gradproof._data.formats import Grain
from gradproof._data.settings import RunSettings
from gradproof._data.space import Slot, Space
from gradproof._maps.contract import DifferentiableMap
from gradproof._measurements import Measurements
from gradproof._numdiff.slopes import Slopes, measured_slopes
from gradproof._numdiff.values import DifferenceTable

SIZE = 64
SCALES = tuple(range(-6, 7))  # powers of ten
QUICK_SCALES = (-3, 0, 3)
FIRST_SEED = 1000  # below it are the points with which the numerics were tuned
SUMS = 4  # random sums of outputs per table
DTYPES = {name: getattr(torch, name) for name in ("float64", "float32", "bfloat16", "float16")}
BARS = {"float64": 2e-3}
OURS, OF_SUMS = "gradproof", "gradproof, sums"

Vector = np.ndarray[Any, np.dtype[Any]]
Measured = tuple[Vector, Vector]  # derivatives and error bars


class Function(DifferentiableMap):
    """A function in one precision at a point; it counts its calls and claims nothing."""

    def __init__(self, exact: Exact, at: Vector, dtype: torch.dtype) -> None:
        limits = torch.finfo(dtype)
        self._value, self.dtype, self.calls = exact.value, dtype, 0
        self.point = torch.from_numpy(at).to(dtype).double().numpy()
        self.resolution = limits.eps / 2
        grain = Grain(limits.eps / 2, limits.smallest_normal * limits.eps)
        self.domain = Space((Slot("x", at.shape, grain=grain),))
        self.codomain = Space((Slot("y", self.value(self.point).shape, grain=grain),))

    def value(self, x: Vector) -> Vector:
        """F(x), x rounded to the dtype."""
        self.calls += 1
        return self._value(torch.from_numpy(x).to(self.dtype)).double().numpy()

    def vjp(self, v: Vector) -> Vector:
        """Never asked for: nothing is claimed."""
        raise NotImplementedError


# Tools: each the derivative of t -> F(x + t u) at 0 and its error -------------------------------


def of_numdifftools(fn: Function, u: Vector) -> Measured:
    import numdifftools  # only where the other packages are asked

    found = numdifftools.Derivative(lambda t: fn.value(fn.point + t * u), full_output=True)(0.0)
    return found.estimate, found.error_estimate


def of_jacobi(fn: Function, u: Vector) -> Measured:
    import jacobi

    found: Measured = jacobi.jacobi(lambda t: fn.value(fn.point + t * u), 0.0)
    return found


def of_scipy(fn: Function, u: Vector) -> Measured:
    from scipy import differentiate

    precision = np.float32 if fn.dtype == torch.float32 else np.float64

    def along(t: Vector) -> Vector:
        columns = [fn.value(fn.point + float(step) * u) for step in t.reshape(-1)]
        return np.stack(columns, axis=-1).reshape(-1, *t.shape[1:]).astype(precision)

    found = differentiate.jacobian(along, np.zeros(1, precision))
    return found.df, found.error


PEERS: dict[str, Callable[[Function, Vector], Measured]] = {
    "numdifftools": of_numdifftools,
    "jacobi": of_jacobi,
    "scipy.differentiate": of_scipy,
}
PEER_DTYPES = ("float64", "float32")


def measured_as_in_checks(measurements: Measurements) -> tuple[Slopes, DifferenceTable]:
    """Along the first tangent, as the checks do: with the fine table where a bar is wide."""
    function, u, steps = measurements.function, measurements.tangent, measurements.steps
    slopes = measurements.slopes
    if (slopes.bar > 1e-3 * np.maximum(slopes.size, slopes.steepness)).any():
        slopes = slopes.merge(measured_slopes(function.table(u, steps.fine)))
    table = function.table(u, steps.quick or steps.usual)
    if not np.isfinite(measured_slopes(table).bar).all():
        table = function.table(u, steps.usual)
    return slopes, table


# Counting ----------------------------------------------------------------------------------------


@dataclass
class Tally:
    """What one tool did in one precision."""

    tool: str
    dtype: str
    outputs: int = 0
    outside: int = 0
    unmeasured: int = 0
    worst: float = 0.0
    calls: list[int] = field(default_factory=list)
    bars: list[Vector] = field(default_factory=list)
    where: Counter[str] = field(default_factory=Counter)

    def add(self, cell: str, measured: Measured, true: Vector, counted: Vector, calls: int) -> None:
        """Count the outputs of one point."""
        value, bar = (np.ravel(part).astype(np.longdouble) for part in measured)
        gap = np.abs(value - true)
        known = counted & np.isfinite(bar) & np.isfinite(value)
        outside = known & ~(gap <= bar)
        self.outputs += int(counted.sum())
        self.outside += int(outside.sum())
        self.unmeasured += int((counted & ~known).sum())
        self.calls.append(calls)
        if outside.any():
            self.where[cell] += int(outside.sum())
            self.worst = max(self.worst, float((gap / bar)[outside].max()))
        sized = counted & (true != 0)
        parts = np.where(known, bar, np.inf)[sized] / np.abs(true[sized])
        self.bars.append(parts.astype(float))

    @property
    def share(self) -> float:
        """Of the outputs counted, the part that lies outside."""
        return self.outside / self.outputs if self.outputs else 0.0

    def summary(self) -> dict[str, Any]:
        """For the record: numbers, and the ten functions most often outside."""
        kept = {key: value for key, value in asdict(self).items() if key not in ("bars", "calls")}
        kept["where"] = dict(self.where.most_common(10))
        return {**kept, "share": self.share, "median_bar": self.median, "mean_calls": self.mean}

    @property
    def median(self) -> float:
        """Median bar in parts of the derivative, infinite bars included."""
        bars = np.concatenate(self.bars)
        return float(np.median(bars)) if bars.size else float("nan")

    @property
    def mean(self) -> float:
        """Mean number of calls of the function per direction."""
        return float(np.mean(self.calls)) if self.calls else float("nan")


def measure(name: str, power: int, seed: int, tallies: dict[tuple[str, str], Tally]) -> None:
    """One function at one scale, in every precision and by every tool that `tallies` names."""
    exact = FUNCTIONS[name]
    at = point(exact.domain, SIZE, 10.0**power, seed)
    if at is None:
        return
    cell = f"{name} at 1e{power}"
    for dtype in {dtype: None for _, dtype in tallies}:
        fn = Function(exact, at, DTYPES[dtype])
        if not np.all(np.isfinite(fn.point)):
            continue
        measurements = Measurements(fn, RunSettings(seed=seed))
        u = measurements.tangent
        true = exact.along(fn.point.astype(np.longdouble), u.astype(np.longdouble))
        counted = np.isfinite(true) & np.isfinite(fn.value(fn.point))
        fn.calls = 0
        found, table = measured_as_in_checks(measurements)
        bars = found.middle, found.bar + found.width / 2
        tallies[OURS, dtype].add(cell, bars, true, counted, fn.calls)
        if counted.all():
            rows = np.random.default_rng(seed).choice([-1.0, 1.0], (SUMS, true.shape[0]))
            sums = measured_slopes(table.project(rows))
            every = np.ones(SUMS, bool)
            measured = sums.middle, sums.bar + sums.width / 2
            tallies[OF_SUMS, dtype].add(cell, measured, rows @ true, every, fn.calls)
        for tool in (tool for tool in PEERS if (tool, dtype) in tallies):
            fn.calls = 0
            tallies[tool, dtype].add(cell, by_peer(tool, fn, u), true, counted, fn.calls)


def by_peer(tool: str, fn: Function, u: Vector) -> Measured:
    """What the tool finds; NaN where it raises."""
    try:
        return PEERS[tool](fn, u)
    except Exception:  # a package that gives up has measured nothing
        nothing = np.full(fn.value(fn.point).shape, np.nan)
        return nothing, nothing


# The run -----------------------------------------------------------------------------------------

COLUMNS = (
    "tool",
    "dtype",
    "outputs",
    "outside the bar",
    "share",
    "largest gap / bar",
    "no bar",
    "median bar",
    "calls",
)


def cells(tally: Tally) -> list[str]:
    return [
        tally.tool,
        tally.dtype,
        f"{tally.outputs:,}",
        f"{tally.outside:,}",
        f"{tally.share:.1e}",
        f"{tally.worst:.2g}",
        common.percent(tally.unmeasured, tally.outputs),
        f"{tally.median:.1e}",
        f"{tally.mean:.1f}",
    ]


def misses(tallies: Sequence[Tally]) -> list[str]:
    """Precisions in which our bars are wrong more often than they may be, in words."""
    return [
        f"{tally.dtype}: {tally.share:.1e} of the outputs outside, at most {BARS[tally.dtype]:g}"
        for tally in tallies
        if tally.tool == OURS and tally.share > BARS.get(tally.dtype, 1.0)
    ]


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common.parser(__doc__)
    parser.add_argument("--functions", default=",".join(FUNCTIONS), help="comma-separated names")
    parser.add_argument("--dtypes", default=",".join(DTYPES), help="of %(default)s")
    parser.add_argument("--seeds", type=int, help="points per function and scale; default: 4")
    parser.add_argument("--no-peers", action="store_true", help="the other packages are left out")
    options = parser.parse_args(arguments)
    options.functions, options.dtypes = options.functions.split(","), options.dtypes.split(",")
    for asked, known in ((options.functions, FUNCTIONS), (options.dtypes, DTYPES)):
        if unknown := [name for name in asked if name not in known]:
            parser.error(f"unknown {unknown[0]!r}; choose from {', '.join(known)}")
    options.seeds = options.seeds or (1 if options.quick else 4)
    options.scales = QUICK_SCALES if options.quick else SCALES
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = options_of(arguments)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    peers = () if options.no_peers else tuple(PEERS)
    tallies = {
        (tool, dtype): Tally(tool, dtype)
        for dtype in options.dtypes
        for tool in (OURS, OF_SUMS, *(peers if dtype in PEER_DTYPES else ()))
    }
    with common.progress("functions", len(options.functions)) as advance, np.errstate(all="ignore"):
        for name in options.functions:
            advance(name)
            for power in options.scales:
                for seed in range(FIRST_SEED, FIRST_SEED + options.seeds):
                    measure(name, power, seed, tallies)
    found = list(tallies.values())
    title = f"{len(options.functions)} functions x {len(options.scales)} scales of the inputs"
    common.show(title, COLUMNS, [cells(tally) for tally in found], markdown=options.markdown)
    print(f"Measured on {common.machine_line()}.")
    over = misses(found)
    print(f"Bar: {'not met' if over else 'met'}.")
    for miss in over:
        print(f"  {miss}")
    rows = [tally.summary() for tally in found]
    common.record(options.json, {"functions": options.functions, "rows": rows, "misses": over})
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
