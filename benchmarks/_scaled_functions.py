"""Functions for the scales benchmark, and points of a chosen size to check them at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

Function = Callable[..., Tensor]

# Sizes of the inputs; "mixed" spreads the entries of one tensor over eight powers of ten.
SCALES = ("1e-06", "1e-04", "0.01", "1", "100", "1e+04", "1e+06", "mixed")
MIXED = (-6.0, 2.0)


@dataclass(frozen=True)
class Case:
    """A function and where it is defined.

    Attributes:
        name: of the function.
        function: of tensors of the shapes.
        shapes: of the inputs, all differentiated.
        signs: "any", "positive", or "unit": between 0 and 1, as close to either as the scale says.
    """

    name: str
    function: Function
    shapes: tuple[tuple[int, ...], ...] = ((4, 6),)
    signs: str = "any"

    def inputs(self, scale: str, dtype: torch.dtype, seed: int) -> tuple[Tensor, ...]:
        """The point: the same numbers in every dtype, rounded to it."""
        generator = torch.Generator().manual_seed(seed)
        made = (_entries(shape, self.signs, scale, generator) for shape in self.shapes)
        return tuple(x.to(dtype).requires_grad_() for x in made)

    def scales(self) -> tuple[str, ...]:
        """Those at which the domain has points."""
        if self.signs != "unit":
            return SCALES
        return tuple(scale for scale in SCALES if scale != "mixed" and float(scale) < 1)


def _entries(shape: tuple[int, ...], signs: str, scale: str, generator: torch.Generator) -> Tensor:
    uniform = torch.rand(shape, dtype=torch.float64, generator=generator)
    if scale == "mixed":
        low, high = MIXED
        size = 10.0 ** (low + (high - low) * uniform)
        uniform = torch.rand(shape, dtype=torch.float64, generator=generator)
        return size if signs == "positive" else size * (1 - 2 * (uniform < 0.5).double())
    if signs == "any":
        return float(scale) * torch.randn(shape, dtype=torch.float64, generator=generator)
    near_zero = float(scale) * (0.5 + 1.5 * uniform)
    if signs == "positive":
        return near_zero
    upper = torch.rand(shape, dtype=torch.float64, generator=generator) < 0.5
    return torch.where(upper, 1 - near_zero, near_zero)


# Functions of more than one line ----------------------------------------------------------------


def rms_norm(x: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1) @ v


def cross_entropy(x: Tensor) -> Tensor:
    return F.cross_entropy(x, torch.arange(x.shape[0]), reduction="none")


def quadratic_form(x: Tensor, a: Tensor) -> Tensor:
    return (x @ a * x).sum(-1)


def entropy(p: Tensor) -> Tensor:
    return -(p * p.log() + (1 - p) * (1 - p).log())


def log_cumulated(x: Tensor) -> Tensor:
    """By hand: the JVP of torch.logcumsumexp is wrong (pytorch issue 196705)."""
    largest = x.detach().amax(-1, keepdim=True)
    return (x - largest).exp().cumsum(-1).log() + largest


def determinant(a: Tensor) -> Tensor:
    return torch.linalg.det(a).reshape(1)


def pairwise_distances(x: Tensor, y: Tensor) -> Tensor:
    """By hand: the batched backward of torch.cdist is wrong."""
    return (x[:, None] - y[None]).norm(dim=-1)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x, (6,), weight, bias)


def cosine(x: Tensor, y: Tensor) -> Tensor:
    return F.cosine_similarity(x, y, dim=-1, eps=0.0)


def harmonic_mean(x: Tensor) -> Tensor:
    return 1 / (1 / x).mean(-1)


def exponential_of_gap(x: Tensor, y: Tensor) -> Tensor:
    return (-((x - y) / (x + y)).square()).exp()


def binary_cross_entropy(p: Tensor) -> Tensor:
    target = (torch.arange(p.numel()) % 2).reshape(p.shape).to(p.dtype)
    return F.binary_cross_entropy(p, target, reduction="none")


TWO = ((4, 6), (4, 6))
ALONG = {"dim": -1}

CASES: tuple[Case, ...] = (
    Case("exp", torch.exp),
    Case("expm1", torch.expm1),
    Case("log", torch.log, signs="positive"),
    Case("log1p", torch.log1p, signs="positive"),
    Case("sqrt", torch.sqrt, signs="positive"),
    Case("rsqrt", torch.rsqrt, signs="positive"),
    Case("reciprocal", torch.reciprocal),
    Case("square", torch.square),
    Case("cube", lambda x: x**3),
    Case("power 1.5", lambda x: x**1.5, signs="positive"),
    Case("cube root", lambda x: x ** (1 / 3), signs="positive"),
    Case("sin", torch.sin),
    Case("cos", torch.cos),
    Case("sinh", torch.sinh),
    Case("tanh", torch.tanh),
    Case("atan", torch.atan),
    Case("asinh", torch.asinh),
    Case("sigmoid", torch.sigmoid),
    Case("log sigmoid", F.logsigmoid),
    Case("softplus", F.softplus),
    Case("silu", F.silu),
    Case("gelu", F.gelu),
    Case("elu", F.elu),
    Case("relu", torch.relu),
    Case("abs", torch.abs),
    Case("huber", lambda x: F.huber_loss(x, torch.zeros_like(x), reduction="none")),
    Case("erf", torch.erf),
    Case("erfc", torch.erfc),
    Case("lgamma", torch.lgamma, signs="positive"),
    Case("digamma", torch.digamma, signs="positive"),
    Case("x log x", lambda x: torch.xlogy(x, x), signs="positive"),
    Case("rational", lambda x: x / (1 + x * x)),
    Case("logit", torch.logit, signs="unit"),
    Case("entropy", entropy, signs="unit"),
    Case("arcsine", torch.asin, signs="unit"),
    Case("binary cross entropy", binary_cross_entropy, signs="unit"),
    Case("softmax", partial(torch.softmax, **ALONG)),
    Case("log softmax", partial(torch.log_softmax, **ALONG)),
    Case("logsumexp", partial(torch.logsumexp, **ALONG)),
    Case("log of cumsum of exp", log_cumulated),
    Case("cross entropy", cross_entropy),
    Case("layer norm", layer_norm, ((4, 6), (6,), (6,))),
    Case("rms norm", rms_norm),
    Case("normalise", lambda x: F.normalize(x, dim=-1, eps=0.0)),
    Case("norm", lambda x: x.norm(dim=-1)),
    Case("norm of all", lambda x: x.norm()),
    Case("variance", lambda x: x.var(-1)),
    Case("standard deviation", lambda x: x.std(-1)),
    Case("sum", lambda x: x.sum(-1)),
    Case("product", lambda x: x.prod(-1)),
    Case("cumsum", partial(torch.cumsum, **ALONG)),
    Case("cumprod", partial(torch.cumprod, **ALONG)),
    Case("maximum", lambda x: x.amax(-1)),
    Case("sort", lambda x: x.sort(-1).values),
    Case("harmonic mean", harmonic_mean, signs="positive"),
    Case("multiplication", torch.mul, TWO),
    Case("division", torch.div, TWO),
    Case("hypotenuse", torch.hypot, TWO),
    Case("angle", torch.atan2, TWO),
    Case("log of sum of exp", torch.logaddexp, TWO),
    Case("power", torch.pow, ((4, 6), (4, 6)), "positive"),
    Case("gap", exponential_of_gap, TWO, "positive"),
    Case("cosine similarity", cosine, TWO),
    Case("pairwise distances", pairwise_distances, ((3, 4), (5, 4))),
    Case("matrix product", torch.matmul, ((4, 5), (5, 3))),
    Case("linear", F.linear, ((4, 5), (3, 5), (3,))),
    Case("quadratic form", quadratic_form, ((3, 4), (4, 4))),
    Case("attention", attention, ((3, 4), (5, 4), (5, 2))),
    Case("convolution", F.conv1d, ((1, 2, 8), (2, 2, 3))),
    Case("average pooling", lambda x: F.avg_pool1d(x, 2), ((2, 8),)),
    Case("solve", torch.linalg.solve, ((4, 4), (4, 2))),
    Case("determinant", determinant, ((3, 3),)),
)


def named(names: Sequence[str]) -> list[Case]:
    """The cases with these names, all where there are none."""
    return [case for case in CASES if not names or case.name in names]
