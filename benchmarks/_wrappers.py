"""Wrong wrappers: each makes of a right derivative one that is wrong where no dense probe looks.

`python benchmarks/planted.py --examples` asks `gradproof.check` of all of them, at five seeds; of
kernels that run in Triton's interpreter at one.

`WRAPPERS` are functions of a right function; what they return has its value, and a backward that
asks the right one and spoils what it is asked, or what it answers. `examples()` are the derivatives
of this project's folder `examples/`.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import _common as common
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

FOLDER = Path(__file__).parents[1] / "examples"
RIGHT = "no wrapper"
UNCHANGED = "a wrapper that changes nothing"

Function = Callable[..., Tensor]
Change = Callable[[Tensor], Tensor]


@dataclass
class Run:
    """One run of the right function: its leaves, its output, and which of them need a gradient."""

    leaves: list[Any]
    output: Tensor
    needed: tuple[bool, ...] = ()

    def pulled(self, v: Tensor) -> list[Tensor | None]:
        """The right gradients of a cotangent."""
        wanted = [x for x in self.leaves if isinstance(x, Tensor) and x.requires_grad]
        v = v.to(self.output.dtype)
        found = iter(torch.autograd.grad(self.output, wanted, v, retain_graph=True))
        return [next(found) if x is not None and any(x is w for w in wanted) else None
                for x in self.leaves]  # fmt: skip


Backward = Callable[[Run, Tensor], list[Tensor | None]]


def relayed(fn: Function, backward: Backward, remember: Callable[[Run], Run]) -> Function:
    """`fn` with another backward.

    Args:
        fn: the right function.
        backward: of a run and the cotangent.
        remember: which run the backward is given, of the one that was just made.
    """

    class Relay(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Tensor:
            with torch.enable_grad():
                leaves = [_leaf(x) for x in inputs]
                made = Run(leaves, fn(*leaves))
            ctx.run, ctx.needed = remember(made), tuple(ctx.needs_input_grad)
            return made.output.detach().clone()

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, v: Tensor) -> Any:
            found = backward(Run(ctx.run.leaves, ctx.run.output, ctx.needed), v)
            pairs = zip(found, ctx.needed, strict=True)
            return tuple(g if asked else None for g, asked in pairs)

    return functools.wraps(fn)(lambda *inputs: Relay.apply(*inputs))


def _leaf(x: Any) -> Any:
    """An input of the right function; those that have no derivative stay what they are."""
    if isinstance(x, Tensor) and x.is_floating_point():
        return x.detach().clone().requires_grad_()
    return x


def _as_made(made: Run) -> Run:
    return made


def of_cotangent(change: Change) -> Callable[[Function], Function]:
    """The cotangent goes through `change`."""
    return lambda fn: relayed(fn, lambda run, v: run.pulled(change(v)), _as_made)


# Cotangents -------------------------------------------------------------------------------------


def flushed(v: Tensor) -> Tensor:
    return torch.where(v.abs() < 1e-4, 0.0, v)


def clamped(v: Tensor) -> Tensor:
    return v.clamp(-1e4, 1e4)


def overflowing(v: Tensor) -> Tensor:
    return torch.where(v.abs() > 65504.0, v * torch.inf, v)


def rows_with_a_zero_skipped(v: Tensor) -> Tensor:
    rows = v.reshape(len(v), -1) if v.dim() else v.reshape(1, 1)
    return torch.where((rows == 0).any(1, keepdim=True), 0.0, rows).reshape(v.shape)


def end_skipped(v: Tensor) -> Tensor:
    """Everything from the first zero on."""
    flat = v.reshape(-1)
    return torch.where((flat == 0).cumsum(0) > 0, 0.0, flat).reshape(v.shape)


def in_steps(v: Tensor) -> Tensor:
    return (v * 1024).round() / 1024


def in_float16(v: Tensor) -> Tensor:
    return v.to(torch.float16).to(v.dtype)


def whole_numbers(v: Tensor) -> Tensor:
    return v.round()


# State ------------------------------------------------------------------------------------------


def of_last_forward(fn: Function) -> Function:
    """The backward reads what the last forward left, whichever that was."""
    last: dict[torch.dtype, Run] = {}

    def backward(run: Run, v: Tensor) -> list[Tensor | None]:
        return last[run.output.dtype].pulled(v)

    def remember(made: Run) -> Run:
        last[made.output.dtype] = made
        return made

    return relayed(fn, backward, remember)


def cached(key: Callable[[Run], Any]) -> Callable[[Function], Function]:
    """The backward reads what the first forward with this key left."""

    def wrap(fn: Function) -> Function:
        first: dict[Any, Run] = {}
        return relayed(
            fn, lambda run, v: run.pulled(v), lambda made: first.setdefault(key(made), made)
        )

    return wrap


def by_shape(run: Run) -> Any:
    return run.output.dtype, tuple(tuple(x.shape) for x in run.leaves if isinstance(x, Tensor))


def by_dtype(run: Run) -> Any:
    return run.output.dtype


# Subsets ----------------------------------------------------------------------------------------


def for_subset(wrong: Callable[[tuple[bool, ...]], bool]) -> Callable[[Function], Function]:
    """All gradients are halved where the inputs that need one are such."""

    def backward(run: Run, v: Tensor) -> list[Tensor | None]:
        factor = 0.5 if wrong(run.needed) else 1.0
        return [None if g is None else factor * g for g in run.pulled(v)]

    return lambda fn: relayed(fn, backward, _as_made)


def fifth_alone(needed: tuple[bool, ...]) -> bool:
    return len(needed) > 4 and sum(needed) == 1 and needed[4]


def fifth_left_out(needed: tuple[bool, ...]) -> bool:
    return len(needed) > 4 and sum(needed) == len(needed) - 1 and not needed[4]


@dataclass(frozen=True)
class Wrapper:
    """One way to spoil a right derivative.

    Attributes:
        name: a few words.
        wrap: of the right function.
        dimensions: of the output, from which on it is a mistake: a row of one entry may be skipped
            where that is zero.
        inputs: number of inputs, likewise.
    """

    name: str
    wrap: Callable[[Function], Function]
    dimensions: int = 0
    inputs: int = 1

    def fits(self, example: Example) -> bool:
        """Whether it spoils this derivative."""
        inputs = example.inputs()
        output = example.function(*inputs)
        return output.dim() >= self.dimensions and len(inputs) >= self.inputs


WRAPPERS = (
    Wrapper("cotangents below 1e-4 flushed", of_cotangent(flushed)),
    Wrapper("cotangents clamped at 1e4", of_cotangent(clamped)),
    Wrapper("cotangents beyond 65,504 overflow", of_cotangent(overflowing)),
    Wrapper("rows with a zero skipped", of_cotangent(rows_with_a_zero_skipped), dimensions=2),
    Wrapper("end skipped from the first zero on", of_cotangent(end_skipped), dimensions=1),
    Wrapper("cotangent rounded to 1/1024", of_cotangent(in_steps)),
    Wrapper("cotangent through float16", of_cotangent(in_float16)),
    Wrapper("cotangent rounded to whole numbers", of_cotangent(whole_numbers)),
    Wrapper("state of the last forward", of_last_forward),
    Wrapper("cache of the first input of a shape", cached(by_shape)),
    Wrapper("cache made once", cached(by_dtype)),
    Wrapper("wrong where the fifth input alone needs it", for_subset(fifth_alone), inputs=5),
    Wrapper("wrong where the fifth input is left out", for_subset(fifth_left_out), inputs=5),
)


# Examples ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Example:
    """A right derivative of the folder.

    Attributes:
        name: of the file, and what it is called with.
        function: takes the inputs.
        inputs: fresh ones, the same at every call.
        options: of `gradproof.check`.
    """

    name: str
    function: Function
    inputs: Callable[[], tuple[Any, ...]]
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def interpreted(self) -> bool:
        """Whether it runs in Triton's interpreter: seconds a check."""
        return bool(self.options)


def examples() -> Iterator[Example]:
    """Every one that runs here: the kernels need triton."""
    import gradproof

    norm = _layer_norm()
    yield Example("wrong_layer_norm, put right", norm, lambda: _normal((8, 16), (16,), (16,)))
    shapes = (6, 4), (4,), (4,), (5, 4), (5, 3)
    yield Example(
        "wrong_layer_norm, put right, before an attention",
        functools.partial(_attended, norm),
        lambda: _normal(*shapes),
    )
    if importlib.util.find_spec("triton") is None:
        return
    for name, keywords, smaller in (
        ("layer_norm", {}, {"rows": 3, "n": 20}),
        ("attention", {"causal": False}, {"queries": 5, "keys": 6}),
        ("cross_entropy", {"reduction": "none"}, {}),
        ("cross_entropy", {"reduction": "mean"}, {}),
    ):
        module = _module(name, FOLDER / "triton_kernels")
        told = ", ".join(f"{key}={value}" for key, value in keywords.items())
        yield Example(
            f"triton/{name}({told})",
            functools.partial(getattr(module, name), **keywords),
            functools.partial(module.example_inputs, **smaller),
            {
                "reference": functools.partial(module.reference, **keywords),
                "settings": gradproof.Settings(references=("reference",)),
            },
        )


def _module(name: str, folder: Path) -> Any:
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(folder))


def _layer_norm() -> Function:
    """The layer norm of the folder, with the term that it lacks."""
    wrong = _module("wrong_layer_norm", FOLDER).LayerNorm

    class Right(wrong):  # type: ignore[misc, valid-type]  # made by a module that is imported late
        @staticmethod
        def backward(ctx: Any, v: Tensor) -> Any:
            y, sigma, weight = ctx.saved_tensors
            g = v * weight
            lacking = y * (g * y).mean(-1, keepdim=True) / sigma
            grad_x, *others = wrong.backward(ctx, v)
            return (grad_x - lacking, *others)

    return lambda x, weight, bias: Right.apply(x, weight, bias)


def _attended(norm: Function, x: Tensor, weight: Tensor, bias: Tensor, k: Tensor, v: Tensor) -> Any:
    """A function of five inputs."""
    return torch.softmax(norm(x, weight, bias) @ k.T, -1) @ v


def _normal(*shapes: tuple[int, ...]) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    return tuple(
        torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
        for shape in shapes
    )


# The run ----------------------------------------------------------------------------------------

NONE = (
    Wrapper(RIGHT, lambda fn: fn),
    Wrapper(UNCHANGED, of_cotangent(lambda v: v)),
)
SEEDS = 5


def seeds_of(example: Example, quick: bool) -> range:
    return range(1 if quick or example.interpreted else SEEDS)


def asked(example: Example, wrapper: Wrapper, seed: int) -> Any:
    """The report of `gradproof.check` on an example in a wrapper."""
    import gradproof

    return gradproof.check(
        wrapper.wrap(example.function), example.inputs(), seed=seed, **example.options
    )


def run(options: argparse.Namespace) -> int:
    """Ask of every example in every wrapper; 1 where one passes, or a right one does not."""
    if not torch.cuda.is_available() and "TRITON_INTERPRET" not in os.environ:
        # Triton reads it where it is first imported, which the other benchmarks have done by now.
        interpreted = {**os.environ, "TRITON_INTERPRET": "1"}
        return subprocess.run([sys.executable, *sys.argv], env=interpreted, check=False).returncode
    torch.set_num_threads(1)
    chosen = [one for one in examples() if not (options.quick and one.interpreted)]
    counts: dict[str, dict[str, int]] = {}
    failures: list[str] = []
    with common.progress("examples", len(chosen)) as advance:
        for example in chosen:
            for wrapper in (*NONE, *WRAPPERS):
                if options.kind not in (None, wrapper.name) or not wrapper.fits(example):
                    continue
                count = counts.setdefault(wrapper.name, {"asked": 0, "failed": 0})
                for seed in seeds_of(example, options.quick):
                    verdict = str(asked(example, wrapper, seed).verdict)
                    count["asked"] += 1
                    count["failed"] += verdict == "failed"
                    if verdict != ("passed" if wrapper in NONE else "failed"):
                        failures.append(f"{wrapper.name}, {example.name}, seed {seed}: {verdict}")
            advance(example.name)
    rows = [
        [name, str(count["asked"]), common.percent(count["failed"], count["asked"])]
        for name, count in counts.items()
    ]
    title = f"{len(chosen)} derivatives of examples/ in wrong wrappers"
    common.show(title, ("wrapper", "checks", "failed"), rows, markdown=options.markdown)
    for failure in failures:
        print(failure)
    common.record(options.json, {"examples": len(chosen), "counts": counts, "missed": failures})
    return int(bool(failures))
