"""Verdicts at every scale of inputs and outputs, right and wrong, beside four other rules.

Functions of some 24 numbers (`_scaled_functions.py`), at inputs from 1e-6 to 1e6 and at inputs
spread over eight powers of ten, with outputs multiplied by 1e-8, 1 and 1e8, in float64 and
float32. Each is judged as it is, as a custom Function with its right backward, and with four
mistakes planted in that backward: everything times 1.01, one column of the Jacobian zero, one
column with the wrong sign, one row dropped. Half of the custom Functions have a backward that can
be differentiated, half have not.

* gradproof: `gradproof.check`, defaults.
* slow, fast: PyTorch's gradcheck, defaults.
* JAX rule: one random direction, central difference of step 1e-4, tolerances 1e-5 (float64) and
  2e-3 (float32) times the number of outputs for the tangent, and as they are for the projection.
* fixed step: every entry, step eps^(1/3) max(1, |x|), atol 1e-5 and rtol 1e-4.

Left out are points where an output or its derivative is not finite or has left the normal range
of the dtype. Where x by all of itself changes no output by more than rounding does, there is
nothing to test: only a failure counts there. A row is spoilt, however small it is beside the
others, if x changes its output by at least a million roundings (a thousand in float32); a column,
if in such a row its entry, times the size of x there (at least a 16th of the median), is at least
a millionth (a thousandth) of the row's largest. What is less is no mistake that differences can
see. A right float32 gradient that is itself off by more than 1e-3 beside float64's is not right:
it is listed, and not counted.

Bars: float64: nothing false, at most 1 % inconclusive; float32: at most 0.5 % false.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import _common as common
import _scaled_functions as points
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

import gradproof

OUTPUTS = (1e-8, 1.0, 1e8)
DTYPES = {"float64": torch.float64, "float32": torch.float32}
PEERS = ("slow", "fast", "JAX rule", "fixed step")
TOOLS = ("gradproof", *PEERS)
QUICK = ("exp", "log", "softmax", "matrix product")
RIGHT = ("right", "right kernel")
MISTAKES = ("times 1.01", "column zero", "column sign", "row dropped")
# Change of an output under x, in parts of its rounding, from which its row can be spoilt.
VISIBLE = {torch.float64: 1e6, torch.float32: 1e3}
SMALLEST = {torch.float64: 1e-6, torch.float32: 1e-3}  # of a row, entry of a spoilt column
INACCURATE = 1e-3  # of the largest entry of a row, for a gradient that is not right
BAR_INCONCLUSIVE = 0.01
BAR_FALSE = {"float64": 0.0, "float32": 0.005}

Function = Callable[..., Tensor]


# The functions under test -------------------------------------------------------------------------


def jacobian(function: Function, inputs: Sequence[Tensor]) -> Tensor:
    """The Jacobian that the backward claims, all inputs side by side, (m, n)."""
    with torch.enable_grad():
        leaves = [x.detach().requires_grad_() for x in inputs]
        output = function(*leaves)
        rows = []
        for v in torch.eye(output.numel(), dtype=output.dtype):
            grads = torch.autograd.grad(
                output, leaves, v.reshape(output.shape), retain_graph=True, allow_unused=True
            )
            rows.append(
                torch.cat(
                    [
                        torch.zeros_like(x).reshape(-1) if g is None else g.reshape(-1)
                        for g, x in zip(grads, leaves, strict=True)
                    ]
                )
            )
    return torch.stack(rows).detach()


def kernel(function: Function, spoil: Callable[[Tensor], Tensor], *, twice: bool) -> Function:
    """The function with a backward of its own: the spoilt Jacobian times the cotangent.

    The Jacobian is that of the inputs at hand, in their dtype; `twice`: the backward can be
    differentiated in its cotangent.
    """
    known: dict[tuple[Any, ...], Tensor] = {}

    def spoilt(inputs: Sequence[Tensor]) -> Tensor:
        key = tuple((x.dtype, x.detach().numpy().tobytes()) for x in inputs)
        if key not in known:
            known[key] = spoil(jacobian(function, inputs))
        return known[key]

    def pull(ctx: Any, v: Tensor) -> Any:
        inputs = ctx.saved_tensors
        flat = v.reshape(-1) @ spoilt(inputs)
        pieces = flat.split([x.numel() for x in inputs])
        return tuple(p.reshape(x.shape) for p, x in zip(pieces, inputs, strict=True))

    class Kernel(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Tensor) -> Tensor:
            ctx.save_for_backward(*inputs)
            return function(*inputs).clone()

        backward = staticmethod(pull if twice else once_differentiable(pull))

    return lambda *inputs: Kernel.apply(*inputs)


def spoilers(
    function: Function, J: Tensor, inputs: Sequence[Tensor], seed: int
) -> dict[str, Callable[..., Tensor]]:
    """The mistakes that are mistakes at this Jacobian, by name."""
    entries = J.double().abs() * sizes(inputs, least=1 / 16)
    rows = entries.sum(1) > VISIBLE[J.dtype] * rounding(function, J, inputs)
    least = SMALLEST[J.dtype] * entries.amax(1, keepdim=True)
    columns = ((entries > 0) & (entries >= least) & rows[:, None]).any(0)
    if not bool(columns.any()):
        return {}
    generator = torch.Generator().manual_seed(seed)
    column, row = _pick(columns, generator), _pick(rows, generator)
    return {
        "times 1.01": lambda J: 1.01 * J,
        "column zero": partial(_times, at=(slice(None), column), factor=0.0),
        "column sign": partial(_times, at=(slice(None), column), factor=-1.0),
        "row dropped": partial(_times, at=(row, slice(None)), factor=0.0),
    }


def rounding(function: Function, J: Tensor, inputs: Sequence[Tensor]) -> Tensor:
    """Of every output: a unit in its last place, or more where moving x a little shows more.

    A symmetric change of 2^-18 of x is linear in x but for its cube; what else remains is rounding
    inside, unless it is so large a part of the output that the function oscillates.
    """
    value = function(*inputs).detach().reshape(-1).double()
    eps = torch.finfo(J.dtype).eps
    found = eps * value.abs()
    generator = torch.Generator().manual_seed(0)
    for step in (2 * eps, *([2.0**-18] * 4 if J.dtype == torch.float64 else [])):
        moves = [step * torch.randn(x.shape, dtype=x.dtype, generator=generator) for x in inputs]
        try:
            sides = [
                function(*(x.detach() * (1 + way * d) for x, d in zip(inputs, moves, strict=True)))
                for way in (1, -1)
            ]
        except RuntimeError:  # outside of its domain
            continue
        half = ((sides[0] - sides[1]) / 2).detach().reshape(-1).double()
        change = torch.cat(
            [(x.detach() * d).reshape(-1) for x, d in zip(inputs, moves, strict=True)]
        )
        left = (half - J.double() @ change.double()).abs().nan_to_num(0.0)
        found = torch.maximum(found, torch.where(left < 0.01 * value.abs(), left, 0.0))
    return found


def sizes(inputs: Sequence[Tensor], least: float = 0.0) -> Tensor:
    """Size of every coordinate; at least that part of the median of its input."""
    parts = [x.detach().double().abs().reshape(-1) for x in inputs]
    return torch.cat([torch.clamp(part, min=least * float(part.median())) for part in parts])


def _pick(allowed: Tensor, generator: torch.Generator) -> int:
    places = allowed.nonzero().reshape(-1)
    return int(places[torch.randint(len(places), (), generator=generator)])


def _times(J: Tensor, *, at: Any, factor: float) -> Tensor:
    J = J.clone()
    J[at] *= factor
    return J


# The tools ----------------------------------------------------------------------------------------


def ask_gradproof(function: Function, inputs: tuple[Tensor, ...]) -> tuple[str, str]:
    report = gradproof.check(function, inputs, seed=0)
    said = [f"{c.name}: {c.summary}" for c in report.checks if c.verdict is report.verdict]
    return str(report.verdict), said[0] if said else ""


def ask_gradcheck(function: Function, inputs: tuple[Tensor, ...], *, fast: bool) -> tuple[str, str]:
    try:
        torch.autograd.gradcheck(function, inputs, fast_mode=fast)
    except Exception as error:
        return "failed", common.first_line(str(error))
    return "passed", ""


def ask_jax_rule(function: Function, inputs: tuple[Tensor, ...]) -> tuple[str, str]:
    generator = torch.Generator().manual_seed(0)
    J = jacobian(function, inputs)
    u = [torch.randn(x.shape, dtype=x.dtype, generator=generator) for x in inputs]
    v = torch.randn(J.shape[0], dtype=J.dtype, generator=generator)
    claimed = J @ torch.cat([part.reshape(-1) for part in u])
    sides = [
        function(*(x.detach() + way * 1e-4 * d for x, d in zip(inputs, u, strict=True)))
        for way in (1, -1)
    ]
    measured = ((sides[0] - sides[1]) / 2e-4).detach().reshape(-1)
    tolerance = 1e-5 if J.dtype == torch.float64 else 2e-3
    m = J.shape[0]
    tangent = torch.allclose(claimed, measured, rtol=m * tolerance, atol=m * tolerance)
    projected = torch.allclose(v @ claimed, v @ measured, rtol=tolerance, atol=tolerance)
    return ("passed" if tangent and projected else "failed"), ""


def ask_fixed_step(function: Function, inputs: tuple[Tensor, ...]) -> tuple[str, str]:
    J = jacobian(function, inputs)
    step = torch.finfo(J.dtype).eps ** (1 / 3)
    columns = []
    for k, x in enumerate(inputs):
        for j in range(x.numel()):
            h = step * max(1.0, float(x.detach().reshape(-1)[j].abs()))
            sides = []
            for way in (h, -h):
                moved = [each.detach().clone() for each in inputs]
                moved[k].reshape(-1)[j] += way
                sides.append(function(*moved).detach().reshape(-1))
            columns.append((sides[0] - sides[1]) / (2 * h))
    agree = torch.allclose(J, torch.stack(columns, 1), rtol=1e-4, atol=1e-5)
    return ("passed" if agree else "failed"), ""


ASK: dict[str, Callable[[Function, tuple[Tensor, ...]], tuple[str, str]]] = {
    "gradproof": ask_gradproof,
    "slow": partial(ask_gradcheck, fast=False),
    "fast": partial(ask_gradcheck, fast=True),
    "JAX rule": ask_jax_rule,
    "fixed step": ask_fixed_step,
}


def ask(tool: str, function: Function, inputs: Sequence[Tensor]) -> tuple[str, str]:
    """A tool's verdict and its words; one that leaves the domain and is told so has failed.

    Each gets inputs of its own: PyTorch's gradcheck leaves them moved where the function raises.
    """
    try:
        return ASK[tool](function, tuple(x.detach().clone().requires_grad_() for x in inputs))
    except RuntimeError as error:
        return "failed", common.first_line(str(error))


# The run ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trial:
    """One function at one point, right or with one mistake.

    Attributes:
        nothing: there is nothing to test.
        inaccurate: a right gradient that is not right, being rounded too coarsely.
        said: per tool, its verdict.
        why: what gradproof said.
    """

    function: str
    dtype: str
    scale: str
    output: float
    kind: str
    nothing: bool
    inaccurate: bool
    said: dict[str, str] = field(default_factory=dict)
    why: str = ""

    def outcome(self, tool: str) -> str:
        """One of "right", "false failure", "false pass", "inconclusive", "not counted"."""
        verdict = self.said[tool]
        right = self.kind in RIGHT
        if self.nothing:
            return "false failure" if right and verdict == "failed" else "not counted"
        if self.inaccurate:
            return "not counted"
        if verdict not in ("passed", "failed"):
            return "inconclusive"
        if right:
            return "right" if verdict == "passed" else "false failure"
        return "right" if verdict == "failed" else "false pass"


def scaled(function: Function, factor: float) -> Function:
    return function if factor == 1.0 else lambda *inputs: factor * function(*inputs)


def is_normal(function: Function, inputs: Sequence[Tensor], J: Tensor) -> bool:
    """Whether outputs and derivative are finite and, unless zero, in the dtype's normal range."""
    tiny = torch.finfo(J.dtype).tiny
    values = [function(*inputs).detach().reshape(-1), J.reshape(-1)]
    return all(
        bool(x.isfinite().all()) and not bool(((x != 0) & (x.abs() < tiny)).any()) for x in values
    )


def has_nothing(function: Function, inputs: Sequence[Tensor], J: Tensor) -> bool:
    """Whether all of x changes every output by no more than rounding does."""
    change = (J.double().abs() * sizes(inputs)).sum(1)
    return bool((change <= rounding(function, J, inputs)).all())


def is_inaccurate(function: Function, inputs: Sequence[Tensor], J: Tensor) -> bool:
    truth = jacobian(function, [x.detach().double() for x in inputs])
    gap, whole = ((K.abs() * sizes(inputs)) for K in (J.double() - truth, truth))
    return bool((gap > INACCURATE * whole.amax(1, keepdim=True)).any())


def trials(
    case: points.Case, scale: str, dtype: str, tools: Sequence[str], *, in_turn: bool = False
) -> Iterator[Trial]:
    """Every trial of a function at one point; `in_turn`: with one scale of outputs."""
    position = points.CASES.index(case)
    inputs = case.inputs(scale, DTYPES[dtype], seed=position)
    turn = (position + points.SCALES.index(scale)) % len(OUTPUTS)
    for place, factor in enumerate(OUTPUTS):
        if in_turn and place != turn:
            continue
        function = scaled(case.function, factor)
        J = jacobian(function, inputs)
        if not is_normal(function, inputs, J):
            continue
        nothing = has_nothing(function, inputs, J)
        inaccurate = not nothing and dtype != "float64" and is_inaccurate(function, inputs, J)
        twice = (position + place) % 2 == 0
        under_test = {
            "right": function,
            "right kernel": kernel(function, lambda J: J, twice=twice),
        }
        if not nothing:
            for kind, spoil in spoilers(function, J, inputs, seed=position).items():
                under_test[kind] = kernel(function, spoil, twice=twice)
        for kind, fn in under_test.items():
            answers = {tool: ask(tool, fn, inputs) for tool in tools}
            yield Trial(
                case.name,
                dtype,
                scale,
                factor,
                kind,
                nothing,
                inaccurate and kind in RIGHT,
                {tool: answer[0] for tool, answer in answers.items()},
                answers["gradproof"][1] if "gradproof" in answers else "",
            )


OUTCOMES = ("false failure", "false pass", "inconclusive")
COLUMNS = ("dtype, tool", "right", "wrong", *(f"{o}s" for o in OUTCOMES[:1]), "false passes",
           "inconclusive")  # fmt: skip


def counts(found: Sequence[Trial], tool: str) -> Counter[str]:
    return Counter(trial.outcome(tool) for trial in found)


def table(found: Sequence[Trial], tools: Sequence[str]) -> list[list[str]]:
    rows = []
    for dtype in DTYPES:
        here = [trial for trial in found if trial.dtype == dtype]
        for tool in tools if here else ():
            seen = counts(here, tool)
            right = sum(
                trial.kind in RIGHT and trial.outcome(tool) != "not counted" for trial in here
            )
            wrong = sum(trial.kind not in RIGHT for trial in here)
            told = [f"{right:,}", f"{wrong:,}", *(f"{seen[outcome]:,}" for outcome in OUTCOMES)]
            rows.append([f"{dtype}, {tool}", *told])
    return rows


def misses(found: Sequence[Trial]) -> list[str]:
    """What is not within the bars, in words."""
    told = []
    for dtype, most in BAR_FALSE.items():
        seen = counts([trial for trial in found if trial.dtype == dtype], "gradproof")
        whole = sum(seen.values()) - seen["not counted"]
        if not whole:
            continue
        false = seen["false failure"] + seen["false pass"]
        if false > most * whole:
            told.append(f"{dtype}: {false:,} of {whole:,} verdicts are false")
        if dtype == "float64" and seen["inconclusive"] > BAR_INCONCLUSIVE * whole:
            told.append(f"{dtype}: {seen['inconclusive']:,} of {whole:,} verdicts are open")
    return told


def listed(found: Sequence[Trial], most: int) -> list[str]:
    """Trials that gradproof did not judge rightly, and gradients that are not right."""
    lines = []
    for trial in found:
        outcome = trial.outcome("gradproof")
        if trial.inaccurate and trial.said["gradproof"] == "failed":
            outcome = "inaccurate"
        if outcome in ("right", "not counted"):
            continue
        where = f"{trial.function} {trial.dtype} x~{trial.scale} y~{trial.output:g}"
        lines.append(f"{outcome}: {where}, {trial.kind}: {trial.why}")
    lines.sort()
    more = [f"... and {len(lines) - most:,} more"] if len(lines) > most else []
    return lines[:most] + more


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common.parser(__doc__)
    parser.add_argument("--functions", help="comma-separated names; default: all")
    parser.add_argument("--dtypes", default=",".join(DTYPES), help="default: %(default)s")
    parser.add_argument("--scales", help=f"comma-separated, of {', '.join(points.SCALES)}")
    parser.add_argument("--alone", action="store_true", help="without the other tools")
    parser.add_argument(
        "--in-turn", action="store_true", help="one scale of outputs at each point, in turn"
    )
    parser.add_argument("--most", type=int, default=40, help="trials listed, default: %(default)s")
    options = parser.parse_args(arguments)
    options.functions = options.functions.split(",") if options.functions else []
    if options.quick and not options.functions:
        options.functions = list(QUICK)
    known = [case.name for case in points.CASES]
    if unknown := [name for name in options.functions if name not in known]:
        parser.error(f"--functions: unknown {unknown[0]!r}; choose from {', '.join(known)}")
    options.scales = options.scales.split(",") if options.scales else list(points.SCALES)
    options.dtypes = options.dtypes.split(",")
    options.tools = TOOLS[:1] if options.alone else TOOLS
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = options_of(arguments)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    work = [
        (case, scale, dtype)
        for dtype in options.dtypes
        for case in points.named(options.functions)
        for scale in case.scales()
        if scale in options.scales
    ]
    found: list[Trial] = []
    started = time.perf_counter()
    with common.progress("points", len(work)) as advance:
        for case, scale, dtype in work:
            advance(f"{case.name} {scale} {dtype}")
            found += trials(case, scale, dtype, options.tools, in_turn=options.in_turn)
    title = f"Verdicts of {len({t.function for t in found})} functions at every scale"
    common.show(title, COLUMNS, table(found, options.tools), markdown=options.markdown)
    print(f"Measured on {common.machine_line()}, in {time.perf_counter() - started:.0f} s.")
    for line in listed(found, options.most):
        print(f"  {line}")
    over = misses(found)
    print(f"Bars: {'not met' if over else 'met'}.")
    for miss in over:
        print(f"  {miss}")
    common.record(options.json, summary(found, options.tools, over))
    return 1 if over else 0


def summary(found: Sequence[Trial], tools: Sequence[str], over: Sequence[str]) -> dict[str, Any]:
    """What is recorded: counts by dtype, scale and tool, and by function what is not right."""
    cells = []
    for dtype, scale in sorted({(t.dtype, t.scale) for t in found}):
        here = [t for t in found if (t.dtype, t.scale) == (dtype, scale)]
        seen = {tool: dict(counts(here, tool)) for tool in tools}
        cells.append({"dtype": dtype, "scale": scale, "counts": seen})
    told = ((t, t.outcome("gradproof")) for t in found)
    odd = Counter(
        f"{t.function}, {t.dtype}: {outcome}"
        for t, outcome in told
        if outcome not in ("right", "not counted")
    )
    return {
        "functions": len({t.function for t in found}),
        "trials": len(found),
        "table": table(found, tools),
        "cells": cells,
        "not_right": dict(odd),
        "inaccurate": sum(t.inaccurate for t in found),
        "misses": list(over),
    }


if __name__ == "__main__":
    sys.exit(main())
