"""Points with and without a derivative, and whether the slopes on both sides are told.

Corners of relu, abs, clamp, max and sort with ties, pooling, norms; jumps of floor, sign, round;
roots at zero; points at which only the first derivative exists; and smooth look-alikes: a softplus
that turns within 1e-6, a sine of frequency 1e4, a relu beside its corner. Each is a function, a
point, and a direction along which both one-sided derivatives are known.

Ours measures the slopes on both sides, with an error bar (`gradproof._numdiff.slopes`): equal ones
where F is smooth, an interval at a kink, an infinite end where a slope grows without bound. The
plain rule beside it is that of Chainer's `detect_nondifferentiable`: F at x and at x +- eps/2 and
x +- eps along a direction of length 1, eps = 1e-3; not differentiable where the residual of a
least-squares parabola is above 1 % of the range of the five values, or where some of them are
finite and others not.

Last, `gradproof.check` judges the backward of PyTorch at each point: none may fail but those that
give NaN, and the chain rule at relu(x) - relu(-x), which is x and gets derivative 0.

At a jump and at an infinite slope every finite claim is a convention: slopes are not compared
there, and jumps are mostly left open.

Bar: every other slope within its bar, no right derivative refuted, no wrong one passed, at most 10
left open elsewhere than at jumps.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import _common as common
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

import gradproof
from gradproof._data.settings import RunSettings
from gradproof._measurements import Measurements
from gradproof._numdiff.slopes import Slopes, measured_slopes, slopes_along
from gradproof.torch._adapter import build

SMOOTH, ONCE, KINK = "smooth", "once differentiable", "kink"
BOUNDARY, INFINITE, JUMP = "boundary", "infinite slope", "jump"
MOST_OPEN = 10  # right derivatives that may stay undecided
INF, NONE = math.inf, math.nan
DIFFERENTIABLE = (SMOOTH, ONCE)
EPS = 1e-3  # of the plain rule
QUICK = 6  # every sixth point


# The points --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Point:
    """One output of a function at a point, along a direction.

    Attributes:
        name: for the table.
        fn: of one tensor.
        x: the point.
        kind: what the output is there.
        left: its slope from the left, per unit of the direction.
        right: its slope from the right.
        along: the direction; the first input alone where empty.
        output: which output.
        dtype: of the point.
        passes: whether the framework's derivative is right at the point and beside it.
    """

    name: str
    fn: Callable[[Tensor], Tensor]
    x: tuple[float, ...]
    kind: str
    left: float
    right: float
    along: tuple[float, ...] = ()
    output: int = 0
    dtype: torch.dtype = torch.float64
    passes: bool = True

    @property
    def direction(self) -> np.ndarray:
        """`along`, or the first input."""
        unit = (1.0,) + (0.0,) * (len(self.x) - 1)
        return np.asarray(self.along or unit)

    def tensor(self) -> Tensor:
        """The point, anew."""
        return torch.tensor(self.x, dtype=self.dtype, requires_grad=True)


def cube_root(x: Tensor) -> Tensor:
    return x.sign() * x.abs() ** (1 / 3)


def huber(x: Tensor) -> Tensor:
    return F.huber_loss(x, torch.zeros_like(x), reduction="none")


def pooled(x: Tensor) -> Tensor:
    return F.max_pool1d(x.reshape(1, 1, -1), 2).reshape(-1)


def sort(x: Tensor) -> Tensor:
    return x.sort().values


def threshold(x: Tensor) -> Tensor:
    return torch.where(x > 1, 2 * x - 1, x)


def switch(x: Tensor) -> Tensor:
    return torch.where(x > 1, 2 * x, x)


KINKS = (
    Point("relu(0)", torch.relu, (0.0,), KINK, 0, 1),
    Point("relu(0), downwards", torch.relu, (0.0,), KINK, -1, 0, along=(-1.0,)),
    Point("relu(0) among others", torch.relu, (0.0, 1.0, -2.0), KINK, 0, 1),
    Point("abs(0)", torch.abs, (0.0,), KINK, -1, 1),
    Point("leaky relu(0)", F.leaky_relu, (0.0,), KINK, 0.01, 1),
    Point("elu(0), alpha 2", lambda x: F.elu(x, 2.0), (0.0,), KINK, 2, 1),
    Point("relu(0) + 100 x", lambda x: x.relu() + 100 * x, (0.0,), KINK, 100, 101),
    Point("relu(0) + 1e4", lambda x: x.relu() + 1e4, (0.0,), KINK, 0, 1),
    Point("1e-6 relu(0)", lambda x: 1e-6 * x.relu(), (0.0,), KINK, 0, 1e-6),
    Point("clamp at its lower bound", lambda x: x.clamp(-1, 1), (-1.0,), KINK, 0, 1),
    Point("clamp at its upper bound", lambda x: x.clamp(-1, 1), (1.0,), KINK, 1, 0),
    Point("hardtanh(1)", F.hardtanh, (1.0,), KINK, 1, 0),
    Point("hard sigmoid(3)", F.hardsigmoid, (3.0,), KINK, 1 / 6, 0),
    Point("relu6(6)", F.relu6, (6.0,), KINK, 1, 0),
    Point("softshrink(0.5)", F.softshrink, (0.5,), KINK, 0, 1),
    Point("where at its threshold", threshold, (1.0,), KINK, 1, 2),
    Point("max of two that are equal", torch.amax, (1.0, 1.0), KINK, 0, 1),
    Point("max of three that are equal", torch.amax, (2.0, 2.0, 2.0), KINK, 0, 1),
    Point("min of two that are equal", torch.amin, (1.0, 1.0), KINK, 1, 0),
    Point("maximum of x and 1", lambda x: x.maximum(torch.ones_like(x)), (1.0,), KINK, 0, 1),
    Point("sort with a tie, smaller", sort, (1.0, 1.0, 2.0), KINK, 1, 0),
    Point("sort with a tie, larger", sort, (1.0, 1.0, 2.0), KINK, 0, 1, output=1),
    Point("max pool with a tie", pooled, (1.0, 1.0, 0.0, 3.0), KINK, 0, 1),
    Point("norm(0)", torch.linalg.vector_norm, (0.0, 0.0), KINK, -5, 5, along=(3.0, 4.0)),
    Point("1-norm with a zero", lambda x: x.abs().sum(), (0.0, 2.0), KINK, -1, 1),
    Point("largest size, with a tie", lambda x: x.abs().amax(), (1.0, -1.0), KINK, 0, 1),
    Point(
        "root of a sum of squares at 0", lambda x: (x**2).sum().sqrt(), (0.0, 0.0), KINK, -1, 1,
        passes=False,
    ),
    Point("median of equals", lambda x: sort(x)[1], (1.0, 1.0, 1.0), SMOOTH, 0, 0),
    Point("relu(x) + relu(-x)", lambda x: x.relu() + (-x).relu(), (0.0,), KINK, -1, 1),
    # The function is x; the rule of the chain says 0, and is wrong.
    Point(
        "relu(x) - relu(-x)", lambda x: x.relu() - (-x).relu(), (0.0,), SMOOTH, 1, 1, passes=False,
    ),
)  # fmt: skip
JUMPS = (
    Point("floor(1)", torch.floor, (1.0,), JUMP, NONE, 0),
    Point("ceil(1)", torch.ceil, (1.0,), JUMP, 0, NONE),
    Point("trunc(-2)", torch.trunc, (-2.0,), JUMP, 0, NONE),
    Point("round(0.5)", torch.round, (0.5,), JUMP, 0, NONE),
    Point("sign(0)", torch.sign, (0.0,), JUMP, NONE, NONE),
    Point("where that jumps", switch, (1.0,), JUMP, 1, NONE),
    Point("hard threshold", lambda x: F.hardshrink(x, 0.5), (0.5,), JUMP, 0, NONE),
    Point("fraction of 3", lambda x: x.frac(), (3.0,), JUMP, NONE, 1),
)
STEEP = (
    Point("sqrt(0)", torch.sqrt, (0.0,), INFINITE, NONE, INF),
    Point("sqrt of |x| at 0", lambda x: x.abs().sqrt(), (0.0,), INFINITE, -INF, INF, passes=False),
    Point("cube root at 0", cube_root, (0.0,), INFINITE, INF, INF, passes=False),
    Point("|x|^0.9 at 0", lambda x: x.abs() ** 0.9, (0.0,), INFINITE, -INF, INF, passes=False),
    Point("arcsin(1)", torch.asin, (1.0,), INFINITE, INF, NONE),
    Point("arccosh(1)", torch.acosh, (1.0,), INFINITE, NONE, INF),
    Point("x sqrt(x) at 0", lambda x: x * x.sqrt(), (0.0,), BOUNDARY, NONE, 0, passes=False),
    Point("x^1.5 at 0", lambda x: x**1.5, (0.0,), BOUNDARY, NONE, 0),
    Point("x^2.5 at 0", lambda x: x**2.5, (0.0,), BOUNDARY, NONE, 0),
)
ONCE_ONLY = (
    Point("huber at its threshold", huber, (1.0,), ONCE, 1, 1),
    Point("|x|^1.5 at 0", lambda x: x.abs() ** 1.5, (0.0,), ONCE, 0, 0),
    Point("x |x| at 0", lambda x: x * x.abs(), (0.0,), ONCE, 0, 0),
    Point("elu(0)", F.elu, (0.0,), ONCE, 1, 1),
    Point("relu squared at 0", lambda x: x.relu() ** 2, (0.0,), ONCE, 0, 0),
    Point("softsign(0)", F.softsign, (0.0,), ONCE, 1, 1),
)
LOOK_ALIKES = (
    Point("softplus(0), beta 1e6", lambda x: F.softplus(x, 1e6), (0.0,), SMOOTH, 0.5, 0.5),
    Point(
        "sin(1e4 x)", lambda x: (1e4 * x).sin(), (0.7,), SMOOTH,
        1e4 * math.cos(7e3), 1e4 * math.cos(7e3),
    ),
    Point("relu 1e-4 above its kink", lambda x: (x - 1).relu(), (1.0001,), SMOOTH, 1, 1),
    Point("relu 1e-4 below its kink", lambda x: (x - 1).relu(), (0.9999,), SMOOTH, 0, 0),
    Point("log(1e-7)", torch.log, (1e-7,), SMOOTH, 1e7, 1e7),
    Point("sqrt(1e-12)", torch.sqrt, (1e-12,), SMOOTH, 5e5, 5e5),
    Point("cube at 0, plus 1", lambda x: x**3 + 1, (0.0,), SMOOTH, 0, 0),
    Point("a constant", lambda x: 0 * x + 3, (1.0,), SMOOTH, 0, 0),
    Point("floor(0.5)", torch.floor, (0.5,), SMOOTH, 0, 0),
    Point("tanh(20), saturated", torch.tanh, (20.0,), SMOOTH, 0, 0),
    Point("hypot(x, 1e-3) at 0", lambda x: (x**2 + 1e-6).sqrt(), (0.0,), SMOOTH, 0, 0),
    Point("max, apart by 1e-3", torch.amax, (1.0, 0.999), SMOOTH, 1, 1),
)  # fmt: skip
SINGLE = tuple(
    Point(f"{p.name}, float32", p.fn, p.x, p.kind, p.left, p.right, p.along, p.output,
          torch.float32, p.passes)
    for p in (*KINKS, *JUMPS, *STEEP, *ONCE_ONLY, *LOOK_ALIKES)
    if p.name in {
        "relu(0)", "abs(0)", "clamp at its upper bound", "max of two that are equal", "floor(1)",
        "sign(0)", "sqrt(0)", "sqrt of |x| at 0", "huber at its threshold", "where that jumps",
        "norm(0)", "relu(0) + 100 x", "cube at 0, plus 1", "log(1e-7)", "tanh(20), saturated",
    }
)  # fmt: skip
POINTS = (*KINKS, *JUMPS, *STEEP, *ONCE_ONLY, *LOOK_ALIKES, *SINGLE)


# The two rules -----------------------------------------------------------------------------------


def ours(point: Point) -> Slopes:
    """The slopes along the direction, (m,), by differences from the usual and the fine table."""
    scale = scale_of(point)
    measurements = Measurements(build(point.fn, (point.tensor(),)), RunSettings(seed=0))
    function, u, steps = measurements.function, scale * point.direction, measurements.steps
    slopes = slopes_along(function, u, steps)
    if (slopes.bar > 1e-3 * slopes.size).any() or np.isinf(slopes.width).any():
        slopes = slopes.merge(measured_slopes(function.table(u, steps.fine)))
    scaled = {name: getattr(slopes, name) / scale for name in ("low", "high", "bar", "steepness")}
    return replace(slopes, **scaled)


def scale_of(point: Point) -> float:
    """A power of two near the size of the point."""
    return 2.0 ** math.floor(math.log2(max(map(abs, point.x)) or 1.0))


def plain_rule(point: Point) -> bool:
    """Whether the plain rule calls the output differentiable."""
    offsets = EPS * np.asarray([-1.0, -0.5, 0.0, 0.5, 1.0])
    unit = point.direction / np.linalg.norm(point.direction)
    values = []
    for offset in offsets:
        x = torch.tensor(np.asarray(point.x) + offset * unit, dtype=point.dtype)
        values.append(float(point.fn(x).reshape(-1)[point.output]))
    y = np.asarray(values)
    if not np.all(np.isfinite(y)):
        return not np.any(np.isfinite(y))
    parabola = np.stack([np.ones(5), offsets / EPS, (offsets / EPS) ** 2], axis=1)
    left_over = y - parabola @ np.linalg.lstsq(parabola, y, rcond=None)[0]
    return bool(np.sqrt(np.mean(left_over**2)) <= 1e-2 * (y.max() - y.min()))


# The run -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """What was found at one point."""

    name: str
    kind: str
    low: float
    high: float
    error: float
    slopes_right: bool
    plain_right: bool
    verdict: str
    passes: bool

    @property
    def verdict_right(self) -> bool:
        """Whether a right derivative was not refuted, and a wrong one not passed."""
        return self.verdict != ("failed" if self.passes else "passed")

    @property
    def is_open(self) -> bool:
        """Whether a right derivative was left undecided elsewhere than at a jump."""
        return self.passes and self.kind != JUMP and self.verdict == "inconclusive"


def row_of(point: Point) -> Row:
    with np.errstate(all="ignore"):
        found = ours(point)
        plain = plain_rule(point)
    i = point.output
    low, high, error = (float(part[i]) for part in (found.low, found.high, found.bar))
    report = gradproof.check(point.fn, (point.tensor(),), checks=["backward"], seed=0)
    return Row(
        point.name,
        point.kind,
        low,
        high,
        error,
        slopes_are_right(point, low, high, error),
        plain == (point.kind in DIFFERENTIABLE),
        str(report.verdict),
        point.passes,
    )


def slopes_are_right(point: Point, low: float, high: float, error: float) -> bool:
    """Whether every slope that is known lies at an end of the interval, to its error bar."""
    if point.kind in (JUMP, INFINITE):
        return True
    known = sorted(slope for slope in (point.left, point.right) if not math.isnan(slope))
    return _near(low, known[0], error) and _near(high, known[-1], error)


def _near(found: float, known: float, error: float) -> bool:
    if not math.isfinite(error):  # a bar that is infinite says that nothing was measured
        return True
    # A slope that is the difference of numbers near x is known to their rounding only.
    return abs(found - known) <= error + 1e-12 * abs(known)


COLUMNS = ("point", "is", "low", "high", "+-", "slopes", "plain rule", "verdict")


def cells(row: Row) -> list[str]:
    return [
        row.name,
        row.kind,
        f"{row.low:.6g}",
        f"{row.high:.6g}",
        f"{row.error:.0e}" if row.error else "0",
        "right" if row.slopes_right else "WRONG",
        "right" if row.plain_right else "wrong",
        row.verdict + ("" if row.verdict_right else " (wrong)"),
    ]


# What is counted: the name of an attribute of a row that says whether it is right.
COUNTED = {
    "slopes": "slopes_right",
    "plain rule": "plain_right",
    "verdicts": "verdict_right",
    "open": "is_open",
}


def by_kind(rows: Sequence[Row]) -> dict[str, dict[str, int]]:
    """For the record: of each kind of point, how many are right."""
    found: dict[str, dict[str, int]] = {}
    for row in rows:
        counts = found.setdefault(row.kind, dict.fromkeys(("points", *COUNTED), 0))
        counts["points"] += 1
        for what, attribute in COUNTED.items():
            counts[what] += getattr(row, attribute)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    options = common.parser(__doc__).parse_args(arguments)
    torch.set_num_threads(1)
    points = POINTS[::QUICK] if options.quick else POINTS
    rows = []
    with common.progress("points", len(points)) as advance:
        for point in points:
            advance(point.name)
            rows.append(row_of(point))
    title = "Points with and without a derivative, and what is told of them"
    common.show(title, COLUMNS, [cells(row) for row in rows], markdown=options.markdown)
    print(f"Measured on {common.machine_line()}.")
    total = {"points": len(rows)}
    for what, attribute in COUNTED.items():
        total[what] = sum(getattr(row, attribute) for row in rows)
        share = common.percent(total[what], len(rows))
        print(f"{what}: {total[what]} of {len(rows)}, {share}")
    met = total["slopes"] == total["verdicts"] == len(rows) and total["open"] <= MOST_OPEN
    print(f"Bar: {'' if met else 'not '}met.")
    common.record(options.json, {**total, "bar_met": met, "kinds": by_kind(rows)})
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
