"""Right derivatives in float32, bfloat16 and float16: how many pass, how many are accused.

Calibrates the one rule of `gradproof._low_precision.rounding_tests`. Functions are the first two
samples of PyTorch's own operators, a hundred operators of the database spread evenly, and kernels
that users were accused for: float32-only kernels with a reference, losses that cancel, sums of many
terms. Each is checked by `gradproof.check(checks=["backward"])` for five seeds; PyTorch's own
gradients are taken to be right. Left out are operators that fail in float64 too, and those whose
gradient is no number in few bits, such as `matrix_exp` in bfloat16.

Bars: at most 0.2 % accused; at least 97 % passed in float32, 95 % in bfloat16.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import _common as common
import _opdb
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils import _pytree as pytree

import gradproof

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
BARS = {"float32": 0.97, "bfloat16": 0.95, "float16": 0.0}
ACCUSED = 0.002
OPERATORS, SAMPLES, SEEDS = 100, 2, 5

Case = tuple[str, Callable[..., Any], tuple[Any, ...], dict[str, Any]]


class CrossEntropy(torch.autograd.Function):
    """Cross entropy that computes in float32 whatever its arrays are, as a fused kernel does."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor) -> Tensor:  # noqa: D102 (a protocol's)
        wide = logits.float()
        lse = wide.logsumexp(-1)
        ctx.save_for_backward(logits, lse, target)
        return (lse - wide.gather(-1, target[:, None])[:, 0]).to(logits.dtype)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:  # noqa: D102 (likewise)
        logits, lse, target = ctx.saved_tensors
        p = (logits.float() - lse[:, None]).exp()
        p[torch.arange(len(target)), target] -= 1.0
        return (grad_output.float()[:, None] * p).to(logits.dtype), None


class LayerNorm(torch.autograd.Function):
    """A layer norm that keeps its statistics in float32 whatever its arrays are."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:  # noqa: D102 (likewise)
        wide = x.float()
        mean = wide.mean(-1, keepdim=True)
        rstd = torch.rsqrt(wide.var(-1, unbiased=False, keepdim=True) + 1e-5)
        ctx.save_for_backward(x, weight, mean, rstd)
        return ((wide - mean) * rstd * weight.float()).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:  # noqa: D102 (likewise)
        x, weight, mean, rstd = ctx.saved_tensors
        normed, g = (x.float() - mean) * rstd, grad_output.float()
        gw = g * weight.float()
        gx = gw - gw.mean(-1, keepdim=True) - normed * (gw * normed).mean(-1, keepdim=True)
        return (rstd * gx).to(x.dtype), (g * normed).sum(0).to(x.dtype)


def kernels(dtype: torch.dtype, seed: int) -> Iterator[Case]:
    """Functions that were accused by users, at inputs drawn by the seed."""

    def drawn(*shape: int, scale: float = 1.0, mean: float = 0.0) -> Tensor:
        values = mean + scale * torch.randn(shape, generator=generator, dtype=torch.float64)
        return values.to(dtype).requires_grad_()

    generator = torch.Generator().manual_seed(seed)
    target = torch.randint(0, 19, (9,), generator=generator)
    plain = {"reference": lambda x, t: F.cross_entropy(x, t, reduction="none")}
    for scale in (1.0, 2.0**-20, 8.0):
        x = drawn(9, 19, scale=scale)
        yield f"cross entropy, logits of {scale:g}", CrossEntropy.apply, (x, target), plain
    eager = {"reference": lambda x, w: F.layer_norm(x, w.shape, w)}
    for mean, scale in ((0.0, 1.0), (10.0, 0.1)):
        inputs = drawn(12, 24, scale=scale, mean=mean), drawn(24)
        yield f"layer norm at {mean:g} +- {scale:g}", LayerNorm.apply, inputs, eager
    q, k, v = (drawn(16, 8) for _ in range(3))
    attention = F.scaled_dot_product_attention
    for scale in (1.0, 8.0):
        scaled = (lambda s: lambda q, k, v: attention(s * q, k, v))(scale)
        yield f"attention, scores times {scale:g}", scaled, (q, k, v), {}
    yield "softmax cross entropy", lambda x: F.cross_entropy(x, target), (drawn(9, 19),), {}
    yield "mean of squares", lambda x: x.square().mean(), (drawn(40, 40),), {}
    yield "linear", lambda x, w: x @ w.T, (drawn(16, 32), drawn(24, 32)), {}
    yield "convolution", F.conv2d, (drawn(2, 3, 8, 8), drawn(4, 3, 3, 3)), {}
    yield "gelu", F.gelu, (drawn(64, scale=2.0),), {}


def operators(dtype: torch.dtype, every: int) -> Iterator[Case]:
    """Samples of operators spread evenly over the database; those that fail in float64 are out."""
    known = _opdb.differentiable_operators(dtype)
    for op in known[:: max(1, len(known) // OPERATORS) * every]:
        try:
            made = list(itertools.islice(_opdb.samples(op, dtype), SAMPLES))
        except Exception as error:  # a sample maker of PyTorch's may fail in few bits
            print(f"{op.full_name}: no samples ({type(error).__name__})", file=sys.stderr)
            continue
        for sample in made:
            wide = sample.in_double()
            right = verdict_of(wide.function, wide.inputs, 0, {}) == "passed"
            if right and has_gradient(sample):
                yield f"{sample.op} {sample.index}", sample.function, sample.inputs, {}


def has_gradient(sample: _opdb.Sample) -> bool:
    """Whether every entry of the gradient of the sum of the outputs is a finite number."""
    inputs = [sample.inputs[i].detach().requires_grad_() for i in sample.differentiable]
    filled = list(sample.inputs)
    for place, each in zip(sample.differentiable, inputs, strict=True):
        filled[place] = each
    outputs = pytree.tree_leaves(sample.function(*filled))
    total = sum(y.abs().sum() for y in outputs if isinstance(y, Tensor) and y.requires_grad)
    if not isinstance(total, Tensor):
        return True
    gradients = torch.autograd.grad(total, inputs, allow_unused=True)
    return all(bool(each.isfinite().all()) for each in gradients if each is not None)


def verdict_of(fn: Callable[..., Any], inputs: Any, seed: int, options: dict[str, Any]) -> str:
    """The verdict of `check` on the backward, or the type of what it raises."""
    try:
        report = gradproof.check(fn, inputs, checks=["backward"], seed=seed, **options)
    except Exception as error:  # of a function that cannot be checked: no verdict
        return type(error).__name__
    return str(report.verdict)


def measured(dtype: torch.dtype, quick: bool) -> tuple[Counter[str], list[str]]:
    """Verdicts of all cases and seeds, and the names of the accused."""
    found: Counter[str] = Counter()
    accused = []
    seeds = range(1 if quick else SEEDS)
    cases = [(seed, case) for case in operators(dtype, 8 if quick else 1) for seed in seeds]
    cases += [(seed, case) for seed in seeds for case in kernels(dtype, seed)]
    for seed, (name, fn, inputs, options) in cases:
        verdict = verdict_of(fn, inputs, seed, options)
        found[verdict] += 1
        if verdict == "failed":
            accused.append(f"{name}, seed {seed}")
    return found, accused


def main() -> int:
    options = common.parser(__doc__).parse_args()
    torch.set_num_threads(1)
    rows, record, good = [], {}, True
    for name, dtype in DTYPES.items():
        found, accused = measured(dtype, options.quick)
        total = sum(found[verdict] for verdict in ("passed", "failed", "inconclusive"))
        passed, wrong = found["passed"] / total, found["failed"] / total
        good &= wrong <= ACCUSED and passed >= BARS[name]
        rows.append([name, str(total), f"{passed:.1%}", f"{found['inconclusive'] / total:.1%}",
                     f"{wrong:.2%}"])  # fmt: skip
        record[name] = {"cases": total, **{k: found[k] for k in sorted(found)}, "accused": accused}
        for each in accused:
            print(f"accused in {name}: {each}")
    header = ("dtype", "cases", "passed", "inconclusive", "accused")
    common.show("Right derivatives in few bits", header, rows, markdown=options.markdown)
    common.record(options.json, record)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
