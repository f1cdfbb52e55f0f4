"""More mistakes to name, and what each is to be called.

`more_mistakes` are planted in any operator, like those of `_mistakes.py`; `FUNCTIONS` are mistakes
of one formula, each with its right twin.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from _mistakes import Gradients, Mistake, Pullback, Site
from torch import Tensor
from torch.autograd.function import once_differentiable

Change = Callable[[Tensor], Tensor]

# What may be said of each kind: the name of a cause, or of the check that fails where that says it.
# Several names where they are the same mistake at some shapes: of a single wrong entry nothing but
# its factor can be told.
EXPECTED: dict[str, frozenset[str]] = {
    kind: frozenset(names.split(", "))
    for kind, names in {
        "everything scaled": "factor",
        "one argument scaled": "factor",
        "one row scaled": "factor",
        "one column scaled": "factor",
        "one entry scaled": "factor",
        "tail block scaled": "factor",
        "noise added": "determinism",
        "constant added": "missing term",
        "neighbour leaks in": "factor",
        "phase rotated": "",
        "sign flipped": "sign",
        "sign of one entry": "sign",
        "zero": "zero",
        "one column zero": "zero",
        "tail block dropped": "zero",
        "one argument forgotten": "zero",
        "arguments swapped": "misplaced",
        "transposed": "transposed",
        "factor 2": "factor",
        "factor 1/2": "factor",
        "divided by the batch": "factor",
        "reversed": "misplaced",
        "rolled by one": "misplaced",
        "absolute value": "sign, linearity",
        "conjugated": "conjugate",
        "real part only": "zero",
        "broadcast sum dropped": "missing reduction",
        "rounded to float32": "lower precision, linearity",
        "stale buffer": "cotangent ignored",
        "grad_output ignored": "cotangent ignored",
        "first grad_output for all": "misplaced",
        "grad_output squared": "linearity",
        "grad_output conjugated": "conjugate",
        "grad_output read as contiguous": "memory_layout",
        "grad_output stride 0 read once": "memory_layout",
        "grad_output changed in place": "side_effects",
        "rounded to bfloat16": "lower precision",
        "first row for all": "misplaced",
        "stored in row 0": "misplaced",
        "entries permuted": "misplaced",
        "transposed in memory": "transposed",
        "axes permuted": "misplaced",
        "summed over an axis": "",
        "averaged over an axis": "",
        "off by a block": "misplaced",
        "a block too late": "",
        "reversed along an axis": "misplaced",
        "factor N": "factor",
        "factor 1/sqrt(N)": "factor",
        "grad_output reversed": "misplaced",
        "grad_output rolled": "misplaced",
        "grad_output transposed": "transposed, misplaced",
        "grad_output clamped": "linearity",
        "accumulated over calls": "determinism",
        "imaginary part only": "zero",
        "another function": "factor, missing term",
        "wrong argument": "factor",
        "missing term": "missing term",
        "missing factor": "factor",
        "output detached": "zero",
        "saved intermediate": "zero",
        "not differentiable": "",
        "undefined cotangent": "missing_grad_output",
    }.items()
}


def _each(change: Change, fits: Change | None = None) -> Callable[..., Gradients]:
    """A mistake that changes each gradient by itself, where it has the shape for it."""

    def plant(site: Site, v: Tensor, pull: Pullback) -> Gradients:
        return [change(g).contiguous() if fits is None or fits(g) else g for g in pull(v)]

    return plant


def _rows(g: Tensor) -> Any:
    return g.ndim > 0 and g.shape[0] > 1


def _any(fits: Callable[[Tensor], Any]) -> Callable[[Site], bool]:
    return lambda site: any(fits(x) for x in site.inputs)


def _into_first(g: Tensor) -> Tensor:
    return torch.cat([g.sum(0, keepdim=True), torch.zeros_like(g[1:])])


def _permuted(g: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    return g.reshape(-1)[torch.randperm(g.numel(), generator=generator)].reshape(g.shape)


def _late(g: Tensor) -> Tensor:
    return torch.cat([torch.zeros_like(g[:1]), g[:-1]])


def accumulated(site: Site, v: Tensor, pull: Pullback) -> Gradients:
    """A buffer that every backward adds to."""
    kept = site.memory.get("sum", tuple(torch.zeros_like(x) for x in site.inputs))
    site.memory["sum"] = tuple(a.detach() + g for a, g in zip(kept, pull(v), strict=True))
    return [g.clone() for g in site.memory["sum"]]


def _of_cotangent(change: Change) -> Callable[..., Gradients]:
    return lambda site, v, pull: pull(change(v).contiguous())


def more_mistakes() -> list[Mistake]:
    """Kinds that `planted.py` does not plant."""
    many = _any(lambda x: x.numel() > 4)
    flat = _any(lambda x: x.ndim >= 2 and min(x.shape[-2:]) > 1 and x.shape[-1] != x.shape[-2])
    deep = _any(lambda x: x.ndim == 3 and min(x.shape) > 1)
    out = lambda site: site.output.numel() > 2  # noqa: E731  # three lines of their own say no more
    square = lambda s: s.output.ndim == 2 and s.output.shape[0] == s.output.shape[1] > 1  # noqa: E731  # likewise
    return [
        Mistake("rounded to bfloat16", _each(lambda g: g.to(torch.bfloat16).to(g.dtype)),
                fits=lambda site: not any(x.is_complex() for x in site.inputs)),
        Mistake("first row for all", _each(lambda g: g[:1].expand(g.shape), _rows),
                fits=_any(_rows)),
        Mistake("stored in row 0", _each(_into_first, _rows), fits=_any(_rows)),
        Mistake("entries permuted", _each(_permuted, lambda g: g.numel() > 4), fits=many),
        Mistake("transposed in memory", _each(lambda g: g.mT.reshape(g.shape),
                lambda g: g.ndim >= 2), fits=flat),
        Mistake("axes permuted", _each(lambda g: g.permute(1, 2, 0).reshape(g.shape),
                lambda g: g.ndim == 3), fits=deep),
        Mistake("summed over an axis", _each(lambda g: g.sum(0, keepdim=True).expand(g.shape),
                _rows), fits=_any(_rows)),
        Mistake("averaged over an axis", _each(lambda g: g.mean(0, keepdim=True).expand(g.shape),
                _rows), fits=_any(_rows)),
        Mistake("off by a block", _each(lambda g: g.roll(1, 0), _rows), fits=_any(_rows)),
        Mistake("a block too late", _each(_late, _rows), fits=_any(_rows)),
        Mistake("reversed along an axis", _each(lambda g: g.flip(0), _rows), fits=_any(_rows)),
        Mistake("factor N", _each(lambda g: g * g.shape[0], _rows), fits=_any(_rows)),
        Mistake("factor 1/sqrt(N)", _each(lambda g: g * g.shape[-1] ** -0.5, _rows),
                fits=_any(_rows)),
        Mistake("grad_output reversed",
                _of_cotangent(lambda v: v.reshape(-1).flip(0).reshape(v.shape)), fits=out),
        Mistake("grad_output rolled",
                _of_cotangent(lambda v: v.reshape(-1).roll(1).reshape(v.shape)), fits=out),
        Mistake("grad_output transposed", _of_cotangent(lambda v: v.mT), fits=square),
        Mistake("grad_output clamped",
                _of_cotangent(lambda v: v if v.is_complex() else v.clamp(min=0)),
                fits=lambda site: not site.output.is_complex()),
        Mistake("accumulated over calls", accumulated),
        Mistake("imaginary part only",
                _each(lambda g: torch.complex(torch.zeros_like(g.real), g.imag), torch.is_complex),
                fits=lambda site: any(x.is_complex() for x in site.inputs)),
    ]  # fmt: skip


# Of one formula ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Planted:
    """A function with a wrong derivative and its right twin.

    Attributes:
        name: of the case.
        kind: of the mistake.
        wrong: the function with the mistake.
        right: without.
        inputs: fresh ones.
        options: of `gradproof.check`.
    """

    name: str
    kind: str
    wrong: Callable[..., Any]
    right: Callable[..., Any]
    inputs: Callable[[], tuple[Tensor, ...]]
    options: Mapping[str, Any] = field(default_factory=dict)


def _normal(*shape: int, positive: bool = False) -> Callable[[], tuple[Tensor, ...]]:
    def made() -> tuple[Tensor, ...]:
        generator = torch.Generator().manual_seed(1)
        x = torch.randn(shape, dtype=torch.float64, generator=generator)
        return ((x.abs() + 0.2 if positive else x).requires_grad_(),)

    return made


def ruled(value: Callable[..., Any], backward: Callable[..., Any]) -> Callable[..., Any]:
    """`value` of one input, with `backward` of the cotangent, the input and the output."""

    class Ruled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Any:
            y = value(x)
            ctx.save_for_backward(x, y)
            return y

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, g: Tensor) -> Tensor:
            found: Tensor = backward(g, *ctx.saved_tensors)
            return found

    return lambda x: Ruled.apply(x)


def _norm(x: Tensor) -> Tensor:
    return (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True, unbiased=False)


def _unit(x: Tensor) -> Tensor:
    return x / x.norm(dim=-1, keepdim=True)


def _softmax(x: Tensor) -> Tensor:
    return x.softmax(-1)


def _functions() -> list[Planted]:
    plane, line = _normal(4, 5), _normal(12)
    formulas: list[tuple[str, str, Any, Any, Any]] = [
        ("softmax without projection", "missing term", _softmax, lambda g, x, y: g * y, plane),
        ("log_softmax without normaliser", "missing term", lambda x: x.log_softmax(-1),
         lambda g, x, y: g, plane),
        ("layer norm without projection", "missing term", _norm,
         lambda g, x, y: (g - g.mean(-1, keepdim=True)) / x.std(-1, keepdim=True, unbiased=False),
         plane),
        ("layer norm without mean", "missing term", _norm,
         lambda g, x, y: (g - y * (g * y).mean(-1, keepdim=True))
         / x.std(-1, keepdim=True, unbiased=False), plane),
        ("normalize without projection", "missing term", _unit,
         lambda g, x, y: g / x.norm(dim=-1, keepdim=True), plane),
        ("centring without mean", "missing term", lambda x: x - x.mean(-1, keepdim=True),
         lambda g, x, y: g, plane),
        ("silu with one term", "missing factor", lambda x: x.exp() * x,
         lambda g, x, y: g * x * x.exp() * (1 + x), line),
        ("square times x", "missing factor", lambda x: x**3, lambda g, x, y: 3 * g * x, line),
        ("tanh for sigmoid", "another function", torch.sigmoid,
         lambda g, x, y: g * (1 - torch.tanh(x) ** 2), line),
        ("sigmoid for tanh", "another function", torch.tanh,
         lambda g, x, y: g * torch.sigmoid(x) * (1 - torch.sigmoid(x)), line),
        ("log for log1p", "another function", torch.log1p, lambda g, x, y: g / x,
         _normal(12, positive=True)),
        ("sin for cos", "another function", torch.cos, lambda g, x, y: g * x.cos(), line),
        ("tanh of the input", "wrong argument", torch.tanh, lambda g, x, y: g * (1 - x * x), line),
        ("sigmoid of the input", "wrong argument", torch.sigmoid,
         lambda g, x, y: g * x * (1 - x), line),
        ("cos of the output", "wrong argument", torch.sin, lambda g, x, y: g * y.cos(), line),
        ("abs at 0", "not differentiable", torch.abs, lambda g, x, y: 3 * g,
         lambda: (torch.zeros(3, dtype=torch.float64, requires_grad=True),)),
    ]  # fmt: skip
    made = [
        Planted(name, kind, ruled(value, backward), value, inputs)
        for name, kind, value, backward, inputs in formulas
    ]
    return [*made, *_graphs(line)]


class _SavedResult(torch.autograd.Function):
    """exp(x)^2 whose backward uses a saved exp(x) as if it did not depend on x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        with torch.no_grad():
            ctx.twice = 2 * (2 * x).exp()
        return (2 * x).exp()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        found: Tensor = g * ctx.twice
        return found


class _NoneRaises(torch.autograd.Function):
    """Two outputs; a cotangent that is not there is not expected."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x)
        return x.sin(), x.cos()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor, h: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        found: Tensor = g * x.cos() - h * x.sin()
        return found


def _graphs(line: Callable[[], tuple[Tensor, ...]]) -> list[Planted]:
    """Mistakes of the graph, not of a formula."""
    return [
        Planted("one output detached", "output detached",
                lambda x: (x.sin(), x.detach().exp()), lambda x: (x.sin(), x.exp()), line),
        Planted("a saved result", "saved intermediate",
                _SavedResult.apply, lambda x: (2 * x).exp(), line, {"order": 2}),
        Planted("cotangents never None", "undefined cotangent",
                _NoneRaises.apply, lambda x: (x.sin(), x.cos()), line),
    ]  # fmt: skip


FUNCTIONS = _functions()
