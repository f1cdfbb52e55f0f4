# ruff: noqa: E501  # an edit stands on one line beside what it replaces
"""Functions that people write backwards for, and the mistakes that they make in the formulas.

A function is its forward and its backward in lines of PyTorch. Each mistake is an edit of the text
of the backward: a term, a factor, an operand, an axis, an index, an exponent, a reduction, a saved
value for a current one. Beside it stand the names of causes that say what was done, or the same in
other words; none, where no name of gradproof's does. `diagnosis.py` asks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

TERM, FACTOR = ("missing term",), ("factor",)


@dataclass(frozen=True)
class Formula:
    """A function with its backward.

    Attributes:
        name: of the function.
        shapes: of its inputs; "+" before one: positive values.
        forward: lines that make y of the inputs, which are a, b, c, ...
        backward: lines that make da, db, ... of g and of all that the forward made.
        edits: old text, new text, and the names that are right.
    """

    name: str
    shapes: str
    forward: str
    backward: str
    edits: tuple[tuple[str, str, tuple[str, ...]], ...]

    def inputs(self) -> tuple[torch.Tensor, ...]:
        generator = torch.Generator().manual_seed(7)
        made = []
        for shape in self.shapes.split():
            sizes = [int(size) for size in shape.strip("+").split("x")]
            drawn = torch.randn(*sizes, dtype=torch.float64, generator=generator)
            drawn = drawn.abs() + 0.5 if shape.startswith("+") else drawn
            made.append(drawn.requires_grad_())
        return tuple(made)

    def function(self, edit: tuple[str, str] | None = None) -> Callable[..., Any]:
        """The function, right, or with the first occurrence of a text in its backward replaced."""
        backward = self.backward
        if edit is not None:
            assert edit[0] in backward, f"{self.name}: {edit[0]}"
            backward = backward.replace(*edit, 1)
        names = "abcdef"[: len(self.shapes.split())]
        given = ", ".join(names)
        gradients = ", ".join(f"d{name}" for name in names)
        return _made(self.name, given, self.forward, backward, gradients)


def _made(name: str, given: str, forward: str, backward: str, gradients: str) -> Callable[..., Any]:
    ahead = compile(forward, f"<{name}, forward>", "exec")
    back = compile(backward, f"<{name}, backward>", "exec")
    order = [part.strip() for part in given.split(",")]

    class Written(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: torch.Tensor) -> torch.Tensor:
            kept: dict[str, Any] = {"torch": torch, **dict(zip(order, inputs, strict=True))}
            exec(ahead, kept)
            ctx.kept = kept
            return kept["y"].clone()  # type: ignore[no-any-return]  # what the lines made

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, g: torch.Tensor) -> Any:
            kept = {**ctx.kept, "g": g}
            exec(back, kept)
            return tuple(kept[each.strip()] for each in gradients.split(","))

    Written.__name__ = name
    return Written.apply  # type: ignore[no-any-return]  # of a class that PyTorch does not type


FORMULAS = (
    Formula(
        "layer_norm", "4x6 6 6",
        "m = a.mean(-1, keepdim=True); r = (a.var(-1, unbiased=False, keepdim=True) + 1e-5).rsqrt()\n"
        "n = (a - m) * r; y = n * b + c",
        "w = g * b\nda = r * (w - w.mean(-1, keepdim=True) - n * (w * n).mean(-1, keepdim=True))\n"
        "db = (g * n).sum(0)\ndc = g.sum(0)",
        (
            (" - n * (w * n).mean(-1, keepdim=True)", "", TERM),
            (" - w.mean(-1, keepdim=True)", "", TERM),
            ("w = g * b", "w = g", FACTOR),
            ("da = r * (", "da = (", FACTOR),
            ("(g * n).sum(0)", "(g * a).sum(0)", ()),
            ("dc = g.sum(0)", "dc = g.mean(0)", FACTOR),
            ("(w * n).mean(-1", "(w * n).sum(-1", TERM),
        ),
    ),
    Formula(
        "rms_norm", "4x6 6", "r = (a.square().mean(-1, keepdim=True) + 1e-6).rsqrt(); y = a * r * b",
        "w = g * b\nda = r * w - a * r**3 * (w * a).mean(-1, keepdim=True)\ndb = (g * a * r).sum(0)",
        (
            (" - a * r**3 * (w * a).mean(-1, keepdim=True)", "", TERM),
            ("r**3", "r**2", TERM),
            ("r**3", "r", TERM),
            ("(w * a).mean(", "(w * a).sum(", TERM),
            ("(w * a)", "(g * a)", TERM),
            ("(g * a * r)", "(g * a)", ("factor",)),
            ("r * w -", "r * w +", TERM),
        ),
    ),
    Formula(
        "softmax", "3x5", "y = a.softmax(-1)", "da = y * (g - (g * y).sum(-1, keepdim=True))",
        (
            (" - (g * y).sum(-1, keepdim=True)", "", TERM),
            ("(g * y).sum(-1, keepdim=True)", "g.sum(-1, keepdim=True)", TERM),
            ("(g * y).sum(-1, keepdim=True)", "(g * y).mean(-1, keepdim=True)", TERM),
            ("(g * y).sum(-1", "(g * y).sum(0", ()),
            ("da = y *", "da = a *", ("factor",)),
            ("da = y *", "da =", FACTOR),
        ),
    ),
    Formula(
        "log_softmax", "3x5", "y = a.log_softmax(-1)", "da = g - y.exp() * g.sum(-1, keepdim=True)",
        (
            (" - y.exp() * g.sum(-1, keepdim=True)", "", TERM),
            ("y.exp()", "y", TERM),
            ("g.sum(-1, keepdim=True)", "g", TERM),
            ("g.sum(-1", "g.mean(-1", TERM),
            ("g - y", "g + y", TERM),
        ),
    ),
    Formula(
        "l2_normalize", "4x5", "s = a.norm(dim=-1, keepdim=True); y = a / s",
        "da = g / s - a * (a * g).sum(-1, keepdim=True) / s**3",
        (
            (" - a * (a * g).sum(-1, keepdim=True) / s**3", "", TERM),
            ("s**3", "s**2", TERM),
            ("(a * g).sum(-1", "(a * g).mean(-1", TERM),
            ("(a * g)", "(y * g)", TERM),
            ("da = g / s -", "da = g -", ()),
        ),
    ),
    Formula(
        "sigmoid", "9", "y = a.sigmoid()", "da = g * y * (1 - y)",
        (
            (" * (1 - y)", "", ("factor",)),
            ("(1 - y)", "(1 - y * y)", ("factor",)),
            ("(1 - y)", "(1 + y)", ("factor", "missing term")),  # the gap is 2 g y**2
            ("y * (1 - y)", "a * (1 - a)", ()),
            ("g * y", "g", FACTOR),
        ),
    ),
    Formula(
        "tanh", "9", "y = a.tanh()", "da = g * (1 - y**2)",
        (
            ("y**2", "y", ("missing term", "factor")),
            ("(1 - y**2)", "(1 - a**2)", ("factor",)),
            ("1 - y**2", "1 + y**2", ("missing term", "factor")),
            ("1 - y**2", "1 - y.tanh()**2", ("factor",)),
            (" * (1 - y**2)", "", ("factor",)),
        ),
    ),
    Formula(
        "silu", "9", "s = a.sigmoid(); y = a * s", "da = g * (s + a * s * (1 - s))",
        (
            ("a * s * (1 - s)", "s * (1 - s)", ()),
            ("s + a * s * (1 - s)", "s * (1 - s)", ()),
            (" + a * s * (1 - s)", "", ()),
            ("s + a * s * (1 - s)", "1 - y**2", ()),
        ),
    ),
    Formula(
        "gelu_tanh", "9",
        "k = 0.7978845608; t = (k * (a + 0.044715 * a**3)).tanh(); y = 0.5 * a * (1 + t)",
        "da = g * (0.5 * (1 + t) + 0.5 * a * (1 - t**2) * k * (1 + 3 * 0.044715 * a**2))",
        (
            ("3 * 0.044715", "0.044715", ()),
            (" * k *", " *", ()),
            ("0.5 * a * (1 - t**2)", "a * (1 - t**2)", ()),
            ("da = g * (", "da = 2 * g * (", FACTOR),
        ),
    ),
    Formula(
        "swiglu", "4x3 4x3", "s = a.sigmoid(); y = a * s * b",
        "da = g * b * (s + a * s * (1 - s))\ndb = g * a * s",
        (
            ("g * b *", "g *", FACTOR),
            ("db = g * a * s", "db = g * s", FACTOR),
            ("da = g * b", "da = g * a", ("factor",)),
            ("db = g * a * s", "db = g * a", ("factor",)),
        ),
    ),
    Formula(
        "linear", "4x3 5x3 5", "y = a @ b.T + c", "da = g @ b\ndb = g.T @ a\ndc = g.sum(0)",
        (
            ("dc = g.sum(0)", "dc = g[0]", ("missing reduction", "zero")),
            ("dc = g.sum(0)", "dc = g.mean(0)", FACTOR),
            ("db = g.T @ a", "db = g.T @ a / len(a)", FACTOR),
            ("da = g @ b", "da = -(g @ b)", ("sign",)),
            ("db = g.T @ a", "db = 0 * (g.T @ a)", ("zero",)),
            ("db = g.T @ a", "db = g.T.flip(0) @ a", ("misplaced",)),
        ),
    ),
    Formula(
        "matmul", "3x3 3x3", "y = a @ b", "da = g @ b.T\ndb = a.T @ g",
        (
            ("g @ b.T", "g @ b", ("transposed",)),
            ("a.T @ g", "a @ g", ("transposed",)),
            ("da = g @ b.T", "da = (g @ b.T).T", ("transposed",)),
            ("db = a.T @ g", "db = g @ a.T", ()),
        ),
    ),
    Formula(
        "attention", "4x3 4x3 4x3", "p = (a @ b.T / 3**0.5).softmax(-1); y = p @ c",
        "e = g @ c.T\ns = p * (e - (e * p).sum(-1, keepdim=True))\nda = s @ b / 3**0.5\n"
        "db = s.T @ a / 3**0.5\ndc = p.T @ g",
        (
            ("s @ b / 3**0.5", "s @ b", FACTOR),
            ("s.T @ a / 3**0.5", "s.T @ a", FACTOR),
            (" - (e * p).sum(-1, keepdim=True)", "", ()),
            ("s @ b / 3**0.5", "s @ b / 3", FACTOR),
            ("dc = p.T @ g", "dc = p @ g", ("transposed",)),
            ("(e * p).sum(-1", "(e * p).mean(-1", ()),
            ("db = s.T @ a", "db = s @ a", ()),
        ),
    ),
    Formula(
        "rope", "4x6", "t = torch.arange(4.0, dtype=a.dtype)[:, None] * torch.tensor([1.0, 0.3, 0.1])\n"
        "u, v = a[:, :3], a[:, 3:]; y = torch.cat([u * t.cos() - v * t.sin(), u * t.sin() + v * t.cos()], 1)",
        "p, q = g[:, :3], g[:, 3:]\n"
        "da = torch.cat([p * t.cos() + q * t.sin(), q * t.cos() - p * t.sin()], 1)",
        (
            ("+ q * t.sin(), q * t.cos() -", "- q * t.sin(), q * t.cos() +", ("sign",)),
            ("p * t.cos() + q * t.sin()", "p * t.cos() - q * t.sin()", ("sign",)),
            ("p * t.cos() + q * t.sin()", "p * t.cos()", ("zero",)),
            ("q * t.cos() - p * t.sin()", "p * t.cos() - q * t.sin()", ("misplaced",)),
        ),
    ),
    Formula(
        "cumsum", "7", "y = a.cumsum(0)", "da = g.flip(0).cumsum(0).flip(0)",
        (
            (".flip(0).cumsum(0).flip(0)", ".cumsum(0)", ("transposed", "misplaced")),
            (".flip(0).cumsum(0).flip(0)", ".flip(0).cumsum(0)", ("misplaced",)),
            ("da = g.flip(0).cumsum(0).flip(0)", "da = g.flip(0).cumsum(0).flip(0) - g", ("zero",)),
            ("da = g.flip(0).cumsum(0).flip(0)", "da = g.sum().expand(7)", ()),
        ),
    ),
    Formula(
        "recurrence", "6 6",
        "h = [b[0]]\nfor t in range(1, 6): h.append(a[t] * h[-1] + b[t])\ny = torch.stack(h)",
        "d = g.clone(); da = torch.zeros_like(a)\nfor t in range(5, 0, -1):\n"
        "    da[t] = d[t] * y[t - 1]; d[t - 1] += a[t] * d[t]\ndb = d",
        (
            ("y[t - 1]", "y[t]", ()),
            ("d[t - 1] += a[t] * d[t]", "d[t - 1] += a[t] * g[t]", ("zero",)),
            ("a[t] * d[t]\n", "a[t - 1] * d[t]\n", ("factor",)),
            ("range(5, 0, -1)", "range(5, 1, -1)", ("zero",)),
            ("d[t - 1] += a[t] * d[t]", "d[t - 1] += d[t]", ()),
        ),
    ),
    Formula(
        "mse", "5x2 5x2", "y = (a - b).square().mean()",
        "da = g * 2 * (a - b) / a.numel()\ndb = -g * 2 * (a - b) / a.numel()",
        (
            ("g * 2 * (a - b)", "g * (a - b)", FACTOR),
            (" / a.numel()", "", FACTOR),
            (" / a.numel()", " / len(a)", FACTOR),
            ("db = -g", "db = g", ("sign",)),
            ("(a - b)", "(a + b)", ("missing term",)),
        ),
    ),
    Formula(
        "cross_entropy", "4x5",
        "k = torch.tensor([0, 3, 1, 4]); y = -a.log_softmax(-1)[torch.arange(4), k].mean()",
        "p = a.softmax(-1); p[torch.arange(4), k] -= 1\nda = g * p / 4",
        (
            (" / 4", "", FACTOR),
            (" / 4", " / 20", FACTOR),
            ("p[torch.arange(4), k] -= 1", "p[torch.arange(4), k] += 1", ("sign",)),
            ("p[torch.arange(4), k] -= 1", "pass", ()),
            ("a.softmax(-1)", "a.softmax(0)", ()),
        ),
    ),
    Formula(
        "bce_with_logits", "6 +6", "y = (a.clamp(min=0) - a * b + (-a.abs()).exp().log1p())",
        "da = g * (a.sigmoid() - b)\ndb = -g * a",
        (
            (" - b)", ")", TERM),
            ("a.sigmoid() - b", "a.sigmoid()**2 - b", ("missing term",)),
            ("db = -g * a", "db = g * a", ("sign",)),
            ("a.sigmoid() - b", "b - a.sigmoid()", ("sign",)),
            ("db = -g * a", "db = -g", FACTOR),
        ),
    ),
    Formula(
        "kl_div", "+5 +5", "y = (a * (a / b).log()).sum()", "da = g * ((a / b).log() + 1)\ndb = -g * a / b",
        (
            (" + 1)", ")", TERM),
            ("-g * a / b", "-g / b", FACTOR),
            ("-g * a / b", "g * a / b", ("sign",)),
            ("-g * a / b", "-g * a", FACTOR),
            ("-g * a / b", "-g * a / b**2", FACTOR),
        ),
    ),
    Formula(
        "huber", "9", "y = torch.where(a.abs() <= 1, 0.5 * a**2, a.abs() - 0.5)", "da = g * a.clamp(-1, 1)",
        (
            ("a.clamp(-1, 1)", "a", FACTOR),
            ("a.clamp(-1, 1)", "a.sign()", ()),
            ("a.clamp(-1, 1)", "a.clamp(0, 1)", ("zero",)),
            ("a.clamp(-1, 1)", "2 * a.clamp(-1, 1)", FACTOR),
        ),
    ),
    Formula(
        "solve", "3x3 3x2", "k = a + 4 * torch.eye(3, dtype=a.dtype); y = torch.linalg.solve(k, b)",
        "db = torch.linalg.solve(k.T, g)\nda = -db @ y.T",
        (
            ("solve(k.T, g)", "solve(k, g)", ("transposed",)),
            ("-db @ y.T", "db @ y.T", ("sign",)),
            ("-db @ y.T", "-(y @ db.T)", ("transposed",)),
            ("-db @ y.T", "-db @ b.T", ()),
        ),
    ),
    Formula(
        "inverse", "3x3", "k = a + 4 * torch.eye(3, dtype=a.dtype); y = torch.linalg.inv(k)",
        "da = -y.T @ g @ y.T",
        (
            ("-y.T @ g @ y.T", "y.T @ g @ y.T", ("sign",)),
            ("-y.T @ g @ y.T", "-y @ g @ y", ("transposed",)),
            ("-y.T @ g @ y.T", "-y.T @ g.T @ y.T", ("transposed", "misplaced")),
            ("-y.T @ g @ y.T", "-(y.T @ g @ y.T).T", ("transposed",)),
        ),
    ),
    Formula(
        "logdet", "3x3", "k = a @ a.T + torch.eye(3, dtype=a.dtype); y = torch.linalg.slogdet(k)[1]",
        "da = 2 * g * torch.linalg.solve(k, a)",
        (
            ("2 * g", "g", FACTOR),
            ("solve(k, a)", "solve(k, a).T", ("transposed",)),
            ("2 * g", "-2 * g", ("sign",)),
        ),
    ),
    Formula(
        "power", "+6 +6", "y = a**b", "da = g * b * a ** (b - 1)\ndb = g * y * a.log()",
        (
            ("g * b *", "g *", FACTOR),
            ("(b - 1)", "b", FACTOR),
            ("g * y * a.log()", "g * y", ("factor",)),
            ("g * y * a.log()", "g * a.log()", FACTOR),
        ),
    ),
    Formula(
        "division", "+6 +6", "y = a / b", "da = g / b\ndb = -g * a / b**2",
        (
            ("da = g / b", "da = g", FACTOR),
            ("b**2", "b", FACTOR),
            ("-g * a / b**2", "g * a / b**2", ("sign",)),
            ("-g * a / b**2", "-g / b**2", FACTOR),
        ),
    ),
    Formula(
        "batch_norm", "6x3",
        "m = a.mean(0); r = (a.var(0, unbiased=False) + 1e-5).rsqrt(); n = (a - m) * r; y = n * 1.0",
        "da = r * (g - g.mean(0) - n * (g * n).mean(0))",
        (
            (" - n * (g * n).mean(0)", "", TERM),
            (" - g.mean(0)", "", TERM),
            ("da = r * (", "da = (", ("factor",)),
            ("(g * n).mean(0)", "(g * n).mean(1, keepdim=True)", ()),
        ),
    ),
    Formula(
        "gather", "6", "k = torch.tensor([1, 4, 4, 0]); y = a[k]", "da = torch.zeros(6, dtype=g.dtype).index_add(0, k, g)",
        (
            (".index_add(0, k, g)", ".index_copy(0, k, g)", ("zero", "overwritten")),
            ("index_add(0, k, g)", "index_add(0, (k + 1) % 6, g)", ("misplaced",)),
            ("index_add(0, k, g)", "index_add(0, k.flip(0), g)", ("misplaced",)),
        ),
    ),
    Formula(
        "conv1d", "9 3", "y = sum(b[i] * a[i : i + 7] for i in range(3))",
        "da = torch.zeros_like(a)\nfor i in range(3): da[i : i + 7] += b[i] * g\n"
        "db = torch.stack([(a[i : i + 7] * g).sum() for i in range(3)])",
        (
            ("b[i] * g", "b[2 - i] * g", ("misplaced",)),
            ("(a[i : i + 7] * g).sum()", "(a[2 - i : 9 - i] * g).sum()", ("misplaced",)),
            ("range(3): da[i", "range(2): da[i", ("zero",)),
            ("(a[i : i + 7] * g).sum()", "(a[i : i + 7] * g).mean()", FACTOR),
        ),
    ),
    Formula(
        "logsumexp", "3x5", "y = a.logsumexp(-1)", "da = g[:, None] * (a - y[:, None]).exp()",
        (
            (" - y[:, None]", "", ("factor",)),
            (".exp()", "", ()),
            ("(a - y[:, None]).exp()", "a.softmax(0)", ()),
            ("da = g[:, None]", "da = 2 * g[:, None]", FACTOR),
        ),
    ),
    Formula(
        "variance", "4x6", "m = a.mean(-1, keepdim=True); y = a.var(-1)", "da = g[:, None] * 2 * (a - m) / 5",
        (
            ("2 * ", "", FACTOR),
            ("/ 5", "/ 6", FACTOR),
            ("(a - m)", "a", TERM),
            (" / 5", "", FACTOR),
        ),
    ),
)  # fmt: skip


# Functions that no recogniser was written beside: their names were settled before anything was asked.
HELD_OUT = (
    Formula(
        "softplus of 2x", "7", "y = (1 + (2 * a).exp()).log() / 2", "da = g * (2 * a).sigmoid()",
        (
            ("(2 * a)", "a", ()),
            ("g * (2", "2 * g * (2", FACTOR),
            ("g * (2", "-g * (2", ("sign",)),
            ("da = g * ", "da = ", ("cotangent ignored",)),
        ),
    ),
    Formula(
        "distance", "4x3 4x3", "d = a - b; s = d.norm(dim=1, keepdim=True); y = s[:, 0]",
        "da = g[:, None] * d / s\ndb = -g[:, None] * d / s",
        (
            ("db = -g", "db = g", ("sign",)),
            ("* d / s\n", "* d\n", FACTOR),
            ("* d / s\n", "* d / s**2\n", FACTOR),
            ("db = -g", "db = 0 * g", ("zero",)),
        ),
    ),
    Formula(
        "outer", "4 3", "y = a[:, None] * b", "da = (g * b).sum(1)\ndb = (g * a[:, None]).sum(0)",
        (
            ("(g * b).sum(1)", "(g * b).mean(1)", FACTOR),
            ("(g * a[:, None])", "g", FACTOR),
            ("(g * b).sum(1)", "(g * b)[:, 0]", ("zero",)),
            ("(g * b).sum(1)", "(g * b).sum(1).flip(0)", ("misplaced",)),
        ),
    ),
    Formula(
        "bilinear", "3 3x3 3", "y = a @ b @ c",
        "da = g * (b @ c)\ndb = g * torch.outer(a, c)\ndc = g * (a @ b)",
        (
            ("outer(a, c)", "outer(c, a)", ("transposed",)),
            ("(a @ b)", "(b @ a)", ()),
            ("g * (b @ c)", "g * (b @ c) / 3", FACTOR),
            ("g * torch", "-g * torch", ("sign",)),
        ),
    ),
    Formula(
        "moving average", "7",
        "h = [0.1 * a[0]]\nfor t in range(1, 7): h.append(0.9 * h[-1] + 0.1 * a[t])\ny = torch.stack(h)",
        "d = g.clone()\nfor t in range(6, 0, -1): d[t - 1] += 0.9 * d[t]\nda = 0.1 * d",
        (
            ("0.1 * d", "d", FACTOR),
            ("0.9 * d[t]", "0.9 * g[t]", ("zero",)),
            ("range(6, 0, -1)", "range(6, 1, -1)", ("zero",)),
            ("0.9 * d[t]", "0.1 * d[t]", ()),
        ),
    ),
    Formula(
        "gate", "8 8", "s = b.sigmoid(); y = a * s", "da = g * s\ndb = g * a * s * (1 - s)",
        (
            ("db = g * a", "db = g", FACTOR),
            (" * (1 - s)", "", ("factor",)),
            ("da = g * s", "da = g * (1 - s)", ("factor",)),
            ("da = g * s", "da = g * b", ("factor",)),
        ),
    ),
    Formula(
        "share", "+3x5", "s = a.sum(-1, keepdim=True); y = a / s",
        "da = g / s - (g * a).sum(-1, keepdim=True) / s**2",
        (
            (" - (g * a).sum(-1, keepdim=True) / s**2", "", TERM),
            ("s**2", "s", TERM),
            ("(g * a).sum(", "(g * a).mean(", TERM),
            ("(g * a)", "g", TERM),
        ),
    ),
    Formula(
        "max pool", "8", "y = a.reshape(4, 2).max(1).values",
        "k = a.reshape(4, 2).argmax(1)\n"
        "da = torch.zeros(4, 2, dtype=g.dtype).scatter(1, k[:, None], g[:, None]).reshape(8)",
        (
            ("argmax", "argmin", ("misplaced",)),
            (", g[:, None])", ", 2 * g[:, None])", FACTOR),
            (".reshape(8)", ".T.reshape(8)", ("transposed", "misplaced")),
            ("k = a", "k = 0 * a", ()),
        ),
    ),
    Formula(
        "upsample", "5", "y = a.repeat_interleave(2)", "da = g.reshape(5, 2).sum(1)",
        (
            (".sum(1)", ".mean(1)", FACTOR),
            (".sum(1)", "[:, 0]", ("zero",)),
            ("g.reshape(5, 2).sum(1)", "g.reshape(2, 5).sum(0)", ("misplaced",)),
            (".sum(1)", ".sum(1).roll(1)", ("misplaced",)),
        ),
    ),
    Formula(
        "polynomial", "9", "y = a**3 - 2 * a", "da = g * (3 * a**2 - 2)",
        (
            (" - 2", "", TERM),
            ("3 * a**2", "a**2", ("missing term",)),
            ("3 * a**2", "3 * a", ("missing term",)),
            ("- 2", "+ 2", TERM),
        ),
    ),
    Formula(
        "logaddexp", "6 6", "y = torch.logaddexp(a, b)",
        "da = g * (a - y).exp()\ndb = g * (b - y).exp()",
        (
            ("(a - y)", "(b - y)", ("factor",)),
            ("(a - y)", "(y - a)", ()),
            ("db = g", "db = -g", ("sign",)),
            ("db = g * (b - y).exp()", "da, db = g * (b - y).exp(), da", ("misplaced",)),
        ),
    ),
    Formula(
        "cosine similarity", "4x6 4x6",
        "s, t = a.norm(dim=1, keepdim=True), b.norm(dim=1, keepdim=True); y = (a * b / (s * t)).sum(1)",
        "p, q, h = a / s, b / t, g[:, None]\nda = h * (q - y[:, None] * p) / s\ndb = h * (p - y[:, None] * q) / t",
        (
            (" - y[:, None] * p", "", TERM),
            (" / s\n", "\n", ("factor",)),
            ("db = h", "db = -h", ("sign",)),
            ("(p - y", "(p + y", TERM),
        ),
    ),
)  # fmt: skip


# A second set, made after the first was seen; their names, too, were settled before anything was asked.
HELD_OUT_SECOND = (
    Formula(
        "group norm", "2x4x3 4",
        "u = a.reshape(2, 2, 6); m = u.mean(-1, keepdim=True)\n"
        "r = (u.var(-1, unbiased=False, keepdim=True) + 1e-5).rsqrt()\n"
        "n = ((u - m) * r).reshape(2, 4, 3); y = n * b[:, None]",
        "w = (g * b[:, None]).reshape(2, 2, 6); q = n.reshape(2, 2, 6)\n"
        "da = (r * (w - w.mean(-1, keepdim=True) - q * (w * q).mean(-1, keepdim=True))).reshape(2, 4, 3)\n"
        "db = (g * n).sum((0, 2))",
        (
            (" - q * (w * q).mean(-1, keepdim=True)", "", TERM),
            (" - w.mean(-1, keepdim=True)", "", TERM),
            ("(g * n).sum((0, 2))", "(g * n).mean((0, 2))", FACTOR),
            ("w = (g * b[:, None])", "w = g", FACTOR),
            ("da = (r * (", "da = ((", ("factor",)),
        ),
    ),
    Formula(
        "focal loss", "8", "p = a.sigmoid(); y = -((1 - p) ** 2) * p.log()",
        "da = g * (2 * p * (1 - p)**2 * p.log() - (1 - p)**3)",
        (
            (" - (1 - p)**3", "", TERM),
            ("2 * p *", "p *", ("missing term",)),
            ("da = g", "da = -g", ("sign",)),
            (" * p.log()", "", ()),
            ("(1 - p)**2", "(1 - p)", ()),
        ),
    ),
    Formula(
        "linear interpolation", "6 +5",
        "k = b.floor().long().clamp(max=4); t = b - k; y = (1 - t) * a[k] + t * a[k + 1]",
        "da = torch.zeros_like(a).index_add(0, k, g * (1 - t)).index_add(0, k + 1, g * t)\n"
        "db = g * (a[k + 1] - a[k])",
        (
            ("g * (1 - t)", "g * t", ()),
            (".index_add(0, k + 1, g * t)", "", ("zero",)),
            ("(a[k + 1] - a[k])", "(a[k] - a[k + 1])", ("sign",)),
            ("(0, k + 1, g * t)", "(0, k, g * t)", ()),
            ("db = g", "db = 6 * g", FACTOR),
        ),
    ),
    Formula(
        "cumprod", "6", "y = a.cumprod(0)", "da = (g * y).flip(0).cumsum(0).flip(0) / a",
        (
            (" / a", "", FACTOR),
            ("(g * y)", "g", FACTOR),
            (".flip(0).cumsum(0).flip(0)", ".cumsum(0)", ()),
            (".cumsum(0).flip(0)", ".cumsum(0)", ()),
            (".flip(0).cumsum(0).flip(0)", "", ("zero", "missing term")),
        ),
    ),
    Formula(
        "pairwise distance", "4x3 5x3", "d = a[:, None] - b; y = d.norm(dim=-1)",
        "e = g[..., None] * d / y[..., None]\nda = e.sum(1)\ndb = -e.sum(0)",
        (
            (" / y[..., None]", "", FACTOR),
            ("y[..., None]", "y[..., None]**2", FACTOR),
            ("-e.sum(0)", "e.sum(0)", ("sign",)),
            ("da = e.sum(1)", "da = e.mean(1)", FACTOR),
            ("da = e.sum(1)", "da = e[:, 0]", ("zero", "missing reduction")),
        ),
    ),
    Formula(
        "embedding bag", "7x3 6",
        "k = torch.tensor([1, 4, 2, 4, 0, 6]); h = torch.tensor([0, 0, 0, 1, 1, 2])\n"
        "y = torch.zeros(3, 3, dtype=a.dtype).index_add(0, h, a[k] * b[:, None])",
        "e = g[h]\nda = torch.zeros_like(a).index_add(0, k, e * b[:, None])\ndb = (e * a[k]).sum(1)",
        (
            ("index_add(0, k", "index_copy(0, k", ("zero",)),
            ("e * b[:, None])", "e)", FACTOR),
            ("(e * a[k]).sum(1)", "(e * a[k]).mean(1)", FACTOR),
            ("g[h]", "g[h.flip(0)]", ("misplaced",)),
            ("(0, k,", "(0, k.sort().values,", ()),
        ),
    ),
    Formula(
        "instance norm", "2x3x5 3",
        "m = a.mean(-1, keepdim=True); r = (a.var(-1, unbiased=False, keepdim=True) + 1e-5).rsqrt()\n"
        "n = (a - m) * r; y = n * b[:, None]",
        "w = g * b[:, None]\n"
        "da = r * (w - w.mean(-1, keepdim=True) - n * (w * n).mean(-1, keepdim=True))\n"
        "db = (g * n).sum((0, 2))",
        (
            ("(w * n).mean(", "(w * n).sum(", TERM),
            ("w.mean(-1,", "w.mean((1, 2),", ()),
            ("(g * n).sum((0, 2))", "(g * n).sum(2)[0]", ("zero", "missing reduction")),
            ("(g * n)", "(g * a)", ()),
            ("w = g * b[:, None]", "w = g", FACTOR),
            (" - n * (w", " + n * (w", TERM),
        ),
    ),
    Formula(
        "circular convolution", "7 7",
        "y = torch.fft.irfft(torch.fft.rfft(a) * torch.fft.rfft(b), n=7)",
        "h = torch.fft.rfft(g)\nda = torch.fft.irfft(h * torch.fft.rfft(b).conj(), n=7)\n"
        "db = torch.fft.irfft(h * torch.fft.rfft(a).conj(), n=7)",
        (
            ("rfft(b).conj()", "rfft(b)", ("transposed",)),
            ("rfft(a).conj()", "rfft(a).conj() / 7", FACTOR),
            ("da = torch", "da = -torch", ("sign",)),
            ("rfft(b).conj(), n=7)", "rfft(b).conj(), n=7).roll(1)", ("misplaced",)),
            ("rfft(b).conj()", "rfft(a).conj()", ()),
        ),
    ),
    Formula(
        "triplet loss", "4x3 4x3 4x3",
        "p = (a - b).square().sum(1); q = (a - c).square().sum(1)\n"
        "k = (p - q + 1 > 0).to(a.dtype)[:, None]; y = (p - q + 1).relu().mean()",
        "h = 2 * g * k / 4\nda = h * (c - b)\ndb = -h * (a - b)\ndc = h * (a - c)",
        (
            (" / 4", "", FACTOR),
            ("2 * g", "g", FACTOR),
            (" * k", "", ("missing mask",)),
            ("db = -h", "db = h", ("sign",)),
            ("(c - b)", "(a - b)", ()),
        ),
    ),
    Formula(
        "chamfer distance", "5x2 4x2",
        "d = (a[:, None] - b).square().sum(-1); y = d.min(1).values.mean() + d.min(0).values.mean()",
        "i, j = d.argmin(1), d.argmin(0)\np = 2 * g * (a - b[i]) / 5\nq = 2 * g * (b - a[j]) / 4\n"
        "da = p.index_add(0, j, -q)\ndb = q.index_add(0, i, -p)",
        (
            ("q.index_add(0, i, -p)", "q", TERM),
            ("2 * g * (a", "g * (a", ()),
            (" / 4", " / 5", ()),
            ("(0, i, -p)", "(0, i, p)", ()),
            ("p = 2", "p = -2", ()),
        ),
    ),
    Formula(
        "weight norm", "4x5 4", "s = a.norm(dim=1, keepdim=True); y = b[:, None] * a / s",
        "u = a / s; t = (g * u).sum(1, keepdim=True)\nda = b[:, None] / s * (g - u * t)\ndb = t[:, 0]",
        (
            (" - u * t", "", TERM),
            ("- u * t", "- a * t", TERM),
            (" / s * (g", " * (g", ("factor",)),
            ("da = b[:, None]", "da = 1", FACTOR),
            ("db = t[:, 0]", "db = -t[:, 0]", ("sign",)),
        ),
    ),
    Formula(
        "lstm cell", "6 6 6 6",
        "p, q, t = b.sigmoid(), c.sigmoid(), d.tanh(); y = a * p + q * t",
        "da = g * p\ndb = g * a * p * (1 - p)\ndc = g * t * q * (1 - q)\ndd = g * q * (1 - t**2)",
        (
            ("db = g * a", "db = g", FACTOR),
            ("dc = g * t", "dc = g", FACTOR),
            ("(1 - t**2)", "(1 - d**2)", ("factor",)),
            ("dc = g", "dc = -g", ("sign",)),
            ("da = g * p", "da = g * q", ("factor",)),
        ),
    ),
    Formula(
        "dice loss", "8 +8", "p = a.sigmoid(); n, m = (p * b).sum(), p.sum() + b.sum(); y = 1 - 2 * n / m",
        "da = -2 * g * (b / m - n / m**2) * p * (1 - p)\ndb = -2 * g * (p / m - n / m**2)",
        (
            ("(b / m - n / m**2)", "(b / m)", TERM),
            ("(p / m - n / m**2)", "(p / m)", TERM),
            ("-2 * g * (b", "-g * (b", FACTOR),
            (" * p * (1 - p)", "", ()),
            ("db = -2", "db = 2", ("sign",)),
        ),
    ),
    Formula(
        "gaussian nll", "6 6 6", "e = (-b).exp(); y = 0.5 * (b + (a - c) ** 2 * e)",
        "da = g * (a - c) * e\ndb = g * 0.5 * (1 - (a - c)**2 * e)\ndc = -g * (a - c) * e",
        (
            ("da = g * (a - c) * e", "da = g * (a - c)", FACTOR),
            ("0.5 * (1", "(1", FACTOR),
            ("dc = -g", "dc = g", ("sign",)),
            ("(1 - (a - c)**2 * e)", "(-(a - c)**2 * e)", TERM),
            ("(a - c)**2", "(a - c)", ()),
        ),
    ),
    Formula(
        "mish", "9", "t = torch.nn.functional.softplus(a).tanh(); y = a * t",
        "da = g * (t + a * (1 - t**2) * a.sigmoid())",
        (
            ("t + a", "a", TERM),
            (" * a.sigmoid()", "", ()),
            ("a * (1", "(1", ()),
            ("da = g * (", "da = (", ("cotangent ignored",)),
            ("(1 - t**2)", "(1 + t**2)", ()),
        ),
    ),
    Formula(
        "sort", "7", "y = a.sort().values", "k = a.argsort()\nda = torch.empty_like(a).scatter(0, k, g)",
        (
            ("(0, k, g)", "(0, k.argsort(), g)", ("misplaced", "transposed")),
            ("(0, k, g)", "(0, k, g.flip(0))", ("misplaced",)),
            ("(0, k, g)", "(0, k, g).abs()", ("sign", "linearity")),
            ("torch.empty_like(a).scatter(0, k, g)", "g", ("misplaced",)),
        ),
    ),
    Formula(
        "top k", "8", "y = a.topk(3).values",
        "k = a.topk(3).indices\nda = torch.zeros_like(a).scatter(0, k, g)",
        (
            ("topk(3)", "topk(3, largest=False)", ()),
            ("k, g)", "k, -g)", ("sign",)),
            ("(0, k,", "(0, k.flip(0),", ("misplaced",)),
            ("k, g)", "k, g / 3)", FACTOR),
            ("(0, k,", "(0, torch.arange(3),", ()),
        ),
    ),
    Formula(
        "pixel shuffle", "4x6", "y = a.reshape(2, 2, 6).permute(1, 2, 0).reshape(2, 12)",
        "da = g.reshape(2, 6, 2).permute(2, 0, 1).reshape(4, 6)",
        (
            (".permute(2, 0, 1)", ".permute(2, 1, 0)", ("misplaced", "transposed")),
            (".permute(2, 0, 1)", "", ("misplaced", "transposed")),
            ("da = ", "da = 2 * ", FACTOR),
            ("da = ", "da = -", ("sign",)),
        ),
    ),
    Formula(
        "average pool", "6x4", "y = a.reshape(3, 2, 2, 2).mean((1, 3))",
        "da = (g[:, None, :, None] / 4).expand(3, 2, 2, 2).reshape(6, 4)",
        (
            (" / 4", "", FACTOR),
            (" / 4", " / 2", FACTOR),
            ("[:, None, :, None]", "[:, :, None, None]", ("misplaced",)),
            (" / 4)", " / 4 * torch.eye(2, dtype=g.dtype)[:, None])", ("zero",)),
        ),
    ),
    Formula(
        "hinge loss", "7", "t = torch.tensor([1.0, -1, -1, 1, 1, -1, 1]); y = (1 - a * t).relu()",
        "da = -g * t * (a * t < 1)",
        (
            ("-g * t", "-g", ("sign",)),
            ("-g * t", "g * t", ("sign",)),
            ("(a * t < 1)", "(a < 1)", ()),
            (" * (a * t < 1)", "", ("missing mask",)),
        ),
    ),
)  # fmt: skip


# A third set, made after what the second one showed was mended.
HELD_OUT_THIRD = (
    Formula(
        "prelu", "9 1", "y = torch.where(a > 0, a, b * a)",
        "da = g * torch.where(a > 0, torch.ones_like(a), b)\ndb = (g * a * (a <= 0)).sum().reshape(1)",
        (
            ("torch.ones_like(a), b)", "torch.ones_like(a), 0 * b)", ("zero",)),
            (".sum()", ".mean()", FACTOR),
            (" * (a <= 0)", "", ("missing mask",)),
            ("a > 0,", "a <= 0,", ()),
        ),
    ),
    Formula(
        "softmax with a temperature", "3x5 +1", "y = (a / b).softmax(-1)",
        "s = y * (g - (g * y).sum(-1, keepdim=True))\nda = s / b\ndb = -(s * a).sum().reshape(1) / b**2",
        (
            (" - (g * y).sum(-1, keepdim=True)", "", TERM),
            ("da = s / b", "da = s", ("factor", "factor")),
            ("b**2", "b", ("factor", "factor")),
            ("db = -", "db = ", ("sign",)),
        ),
    ),
    Formula(
        "cross product", "4x3 4x3", "y = torch.linalg.cross(a, b)",
        "da = torch.linalg.cross(b, g)\ndb = torch.linalg.cross(g, a)",
        (
            ("cross(b, g)", "cross(g, b)", ("sign",)),
            ("cross(g, a)", "cross(a, g)", ("sign",)),
            ("cross(b, g)", "cross(a, g)", ()),
            ("cross(g, a)", "cross(g, b)", ()),
        ),
    ),
    Formula(
        "quadratic form", "5 5x5", "y = a @ b @ a", "da = g * (b + b.T) @ a\ndb = g * torch.outer(a, a)",
        (
            ("(b + b.T)", "2 * b", ()),
            ("(b + b.T)", "b", ()),
            ("g * torch", "2 * g * torch", FACTOR),
            ("b + b.T", "b - b.T", ()),
        ),
    ),
    Formula(
        "scatter mean", "8x2",
        "k = torch.tensor([0, 1, 1, 2, 0, 2, 2, 1]); n = k.bincount()[:, None]\n"
        "y = torch.zeros(3, 2, dtype=a.dtype).index_add(0, k, a) / n",
        "da = (g / n)[k]",
        (
            ("g / n", "g", ("factor",)),
            ("[k]", "[k.flip(0)]", ("misplaced",)),
            ("g / n", "g / 3", ("factor",)),
            ("da = ", "da = 8 * ", FACTOR),
        ),
    ),
    Formula(
        "poisson nll", "6 +6", "y = a.exp() - b * a", "da = g * (a.exp() - b)\ndb = -g * a",
        (
            (" - b", "", TERM),
            ("a.exp()", "a", ()),
            ("db = -g", "db = g", ("sign",)),
            ("-g * a", "-g", FACTOR),
        ),
    ),
    Formula(
        "swish with beta", "8 8", "s = (b * a).sigmoid(); y = a * s",
        "da = g * (s + a * b * s * (1 - s))\ndb = g * a * a * s * (1 - s)",
        (
            ("a * b * s", "a * s", ()),
            ("a * a * s", "a * s", FACTOR),
            (" + a * b * s * (1 - s)", "", TERM),
            ("db = g", "db = -g", ("sign",)),
        ),
    ),
    Formula(
        "l2 pool", "4x6", "y = a.square().mean(-1).sqrt()", "da = g[:, None] * a / (6 * y[:, None])",
        (
            ("6 * ", "", FACTOR),
            (" * y[:, None]", "", FACTOR),
            ("y[:, None]", "y[:, None]**2", FACTOR),
            ("* a /", "* a.abs() /", ("sign",)),
        ),
    ),
    Formula(
        "label smoothing", "4x5",
        "q = torch.full_like(a, 0.02); q[torch.arange(4), torch.tensor([0, 3, 1, 4])] += 0.9\n"
        "y = -(q * a.log_softmax(-1)).sum(-1)",
        "da = g[:, None] * (a.softmax(-1) - q)",
        (
            (" - q", "", TERM),
            ("softmax(-1)", "softmax(0)", ()),
            ("da = g[:, None]", "da = g[:, None] / 4", FACTOR),
            ("(a.softmax(-1) - q)", "(q - a.softmax(-1))", ("sign",)),
        ),
    ),
    Formula(
        "log cosh", "9", "y = a.cosh().log()", "da = g * a.tanh()",
        (
            ("a.tanh()", "a", ("factor",)),
            ("a.tanh()", "a.tanh()**2", ("factor",)),
            ("a.tanh()", "(1 - a.tanh()**2)", ("factor",)),
            ("da = g", "da = 0.5 * g", FACTOR),
        ),
    ),
    Formula(
        "causal convolution", "7x2 3x2",
        "z = torch.cat([torch.zeros(2, 2, dtype=a.dtype), a]); y = sum(b[i] * z[i : i + 7] for i in range(3))",
        "dz = torch.zeros_like(z)\nfor i in range(3): dz[i : i + 7] += b[i] * g\nda = dz[2:]\n"
        "db = torch.stack([(z[i : i + 7] * g).sum(0) for i in range(3)])",
        (
            ("dz[2:]", "dz[:7]", ()),
            ("b[i] * g", "b[2 - i] * g", ()),
            (".sum(0)", ".mean(0)", FACTOR),
            ("range(3): dz", "range(2): dz", ("zero",)),
        ),
    ),
    Formula(
        "polar coordinates", "6 6", "y = torch.stack([a * b.cos(), a * b.sin()])",
        "da = g[0] * b.cos() + g[1] * b.sin()\ndb = a * (g[1] * b.cos() - g[0] * b.sin())",
        (
            ("a * (g[1]", "(g[1]", FACTOR),
            ("- g[0] * b.sin()", "+ g[0] * b.sin()", ("sign",)),
            (" + g[1] * b.sin()", "", ("zero",)),
            ("g[0] * b.cos() + g[1] * b.sin()", "g[0] * b.sin() + g[1] * b.cos()", ("misplaced",)),
        ),
    ),
)  # fmt: skip

# Written after the rules of 17 causes were fixed, the names before anything was asked.
HELD_OUT_FOURTH = (
    Formula(
        "elu", "9", "y = torch.where(a > 0, a, a.exp() - 1)",
        "da = g * torch.where(a > 0, torch.ones_like(a), a.exp())",
        (
            ("a.exp()", "y", ()),
            ("a > 0", "a < 0", ()),
            ("da = g", "da = 2 * g", FACTOR),
            ("torch.where(a > 0, torch.ones_like(a), a.exp())", "(a > 0)", ("zero",)),
        ),
    ),
    Formula(
        "feature modulation", "4x6 6 6", "y = a * (1 + b) + c",
        "da = g * (1 + b)\ndb = (g * a).sum(0)\ndc = g.sum(0)",
        (
            ("(1 + b)", "b", ("missing term", "factor")),
            ("(g * a)", "g", FACTOR),
            ("dc = g.sum(0)", "dc = g[0]", ("missing reduction",)),
            ("dc = g.sum(0)", "dc = g.mean(0)", FACTOR),
        ),
    ),
    Formula(
        "dense layer with tanh", "4x3 3x3", "y = (a @ b).tanh()",
        "h = g * (1 - y**2)\nda = h @ b.T\ndb = a.T @ h",
        (
            (" * (1 - y**2)", "", FACTOR),
            ("(1 - y**2)", "(1 - y)", FACTOR),
            ("h @ b.T", "h @ b", ()),
            ("da = h", "da = g", FACTOR),
            ("db = a.T @ h", "db = (a.T @ h).T", ("transposed",)),
        ),
    ),
    Formula(
        "charbonnier loss", "9", "y = (a.square() + 1).sqrt()", "da = g * a / y",
        (
            (" / y", "", FACTOR),
            (" / y", " / y**2", FACTOR),
            ("a / y", "1 / y", FACTOR),
            ("da = g", "da = -g", ("sign",)),
        ),
    ),
    Formula(
        "geometric mean", "+6", "y = a.log().mean().exp()", "da = g * y / (6 * a)",
        (
            ("6 * ", "", FACTOR),
            (" / (6 * a)", " / 6", FACTOR),
            ("y / ", "1 / ", FACTOR),
        ),
    ),
    Formula(
        "divergence from a normal", "6 6", "y = 0.5 * (a**2 + b.exp() - b - 1)",
        "da = g * a\ndb = 0.5 * g * (b.exp() - 1)",
        (
            (" - 1)", ")", TERM),
            ("0.5 * ", "", FACTOR),
            ("da = g * a", "da = 2 * g * a", FACTOR),
            ("b.exp()", "b", ()),
        ),
    ),
    Formula(
        "window sums", "9", "y = a.unfold(0, 3, 1).sum(-1)",
        "da = torch.zeros_like(a)\nfor i in range(7): da[i : i + 3] += g[i]",
        (
            ("+= g[i]", "= g[i]", ("overwritten", "zero")),
            ("range(7)", "range(6)", ("zero",)),
            ("i : i + 3", "i : i + 2", ("zero",)),
            ("+= g[i]", "+= g[6 - i]", ("misplaced",)),
        ),
    ),
    Formula(
        "rows by index", "5x3", "k = torch.tensor([0, 2, 2, 4]); y = a[k]",
        "da = torch.zeros_like(a).index_add(0, k, g)",
        (
            ("index_add(0, k, g)", "index_copy(0, k, g)", ("overwritten",)),
            ("(0, k, g)", "(0, (k + 1) % 5, g)", ("misplaced",)),
            ("(0, k, g)", "(0, k, g / 2)", FACTOR),
        ),
    ),
    Formula(
        "trace of a product", "4x4 4x4", "y = (a * b.T).sum()", "da = g * b.T\ndb = g * a.T",
        (
            ("g * b.T", "g * b", ("transposed",)),
            ("da = g * b.T", "da = -g * b.T", ("sign",)),
            ("db = g * a.T", "db = g * b.T", FACTOR),
        ),
    ),
    Formula(
        "third moment", "4x6", "m = a.mean(-1, keepdim=True); y = (a - m).pow(3).mean(-1)",
        "v = (a - m).pow(2)\nda = g[:, None] * 3 * (v - v.mean(-1, keepdim=True)) / 6",
        (
            (" - v.mean(-1, keepdim=True)", "", TERM),
            (" * 3", "", FACTOR),
            (" / 6", "", FACTOR),
            ("(a - m).pow(2)", "(a - m)", ()),
        ),
    ),
    Formula(
        "soft threshold", "+9", "y = a.sign() * (a.abs() - 0.8).clamp(min=0)", "da = g * (a.abs() > 0.8)",
        (
            (" * (a.abs() > 0.8)", "", ("missing mask",)),
            (" > 0.8", " < 0.8", ()),
            ("da = g", "da = 0.8 * g", FACTOR),
        ),
    ),
    Formula(
        "sine over x", "+9", "y = a.sin() / a", "da = g * (a.cos() / a - a.sin() / a**2)",
        (
            (" - a.sin() / a**2", "", TERM),
            ("a.cos()", "a.sin()", ()),
            ("a.sin() / a**2", "a.sin() / a", ()),
        ),
    ),
    Formula(
        "angle", "7 7", "y = torch.atan2(a, b)", "r = a**2 + b**2\nda = g * b / r\ndb = -g * a / r",
        (
            ("db = -g", "db = g", ("sign",)),
            ("da = g * b / r", "da = g * b", FACTOR),
            ("da = g * b", "da = g * a", FACTOR),
            ("da = g * b / r", "da = g * b / r.sqrt()", FACTOR),
        ),
    ),
    Formula(
        "dropout", "4x4", "k = torch.arange(16).view(4, 4) % 3 > 0; y = a * k / 0.7", "da = g * k / 0.7",
        (
            (" * k", "", ("missing mask",)),
            (" / 0.7", "", FACTOR),
            (" * k", " * k.T", ()),
        ),
    ),
    Formula(
        "larger of two", "8 8", "y = torch.maximum(a, b)", "da = g * (a > b)\ndb = g * (a <= b)",
        (
            (" * (a > b)", "", ("missing mask",)),
            ("(a > b)", "(a < b)", ()),
            ("(a <= b)", "(a > b)", ()),
            ("db = g * (a <= b)", "db = 0 * g", ("zero",)),
        ),
    ),
    Formula(
        "outer products", "3x2 3x4", "y = a[:, :, None] * b[:, None, :]",
        "da = (g * b[:, None, :]).sum(2)\ndb = (g * a[:, :, None]).sum(1)",
        (
            (".sum(2)", ".mean(2)", FACTOR),
            ("(g * a[:, :, None])", "g", FACTOR),
            (".sum(1)", "[:, 0]", ("zero", "missing reduction")),
        ),
    ),
)  # fmt: skip

# Likewise, after what the planted mistakes of operators showed was mended.
HELD_OUT_FIFTH = (
    Formula(
        "sums of cubes", "3x4", "y = a.pow(3).sum(1)", "da = g[:, None] * 3 * a**2",
        (
            (" * 3", "", FACTOR),
            ("a**2", "a", FACTOR),
            ("a**2", "a**3", FACTOR),
        ),
    ),
    Formula(
        "differences", "8", "y = a[1:] - a[:-1]",
        "da = torch.zeros_like(a)\nda[1:] += g\nda[:-1] -= g",
        (
            ("-= g", "+= g", ("sign",)),
            ("da[:-1] -= g", "pass", ("zero",)),
            ("da[:-1] -= g", "da[:-1] = -g", ("overwritten", "zero")),
        ),
    ),
    Formula(
        "arcsinh", "9", "y = a.asinh()", "da = g / (a**2 + 1).sqrt()",
        (
            (" / (a**2 + 1).sqrt()", "", FACTOR),
            (".sqrt()", "", FACTOR),
            ("a**2", "a", ()),
        ),
    ),
    Formula(
        "tiles", "3x2", "y = a.repeat(2, 1)", "da = g.view(2, 3, 2).sum(0)",
        (
            (".sum(0)", "[0]", ("missing reduction", "zero")),
            (".sum(0)", ".mean(0)", FACTOR),
            ("view(2, 3, 2).sum(0)", "view(3, 2, 2).sum(1)", ("misplaced",)),
        ),
    ),
    Formula(
        "distances to a centre", "5x3 3", "y = (a - b).square().sum(1)",
        "da = 2 * g[:, None] * (a - b)\ndb = -2 * (g[:, None] * (a - b)).sum(0)",
        (
            ("db = -2", "db = 2", ("sign",)),
            ("da = 2 *", "da =", FACTOR),
            ("(a - b)", "a", TERM),
            (".sum(0)", "[0]", ("zero", "missing reduction")),
        ),
    ),
    Formula(
        "rectified product", "6x3 3", "y = (a @ b).clamp(min=0)",
        "h = g * (y > 0)\nda = h[:, None] * b\ndb = a.T @ h",
        (
            (" * (y > 0)", "", ("missing mask",)),
            (" * b", "", FACTOR),
            ("a.T @ h", "a.T @ g", ("missing mask",)),
        ),
    ),
    Formula(
        "entropy", "+7", "y = -(a * a.log()).sum()", "da = -g * (a.log() + 1)",
        (
            (" + 1)", ")", TERM),
            ("-g", "g", ("sign",)),
            ("a.log()", "1 / a", ()),
        ),
    ),
    Formula(
        "halves exchanged", "8", "y = torch.cat([a[4:], a[:4]])", "da = torch.cat([g[4:], g[:4]])",
        (
            ("torch.cat([g[4:], g[:4]])", "g", ("misplaced",)),
            ("g[4:]", "2 * g[4:]", FACTOR),
        ),
    ),
)  # fmt: skip
