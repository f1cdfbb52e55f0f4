"""Mistakes planted in the backward of right operators: which tool finds how many.

Operators of PyTorch's operator database are wrapped in a `torch.autograd.Function` whose backward
computes the true gradients and then makes one of the mistakes of `_mistakes.py`. Tools: PyTorch's
gradcheck in slow and in fast mode, `gradproof.torch.gradcheck` in its place, and
`gradproof.check`, all with default arguments.

A planted mistake counts only where it changes an entry of the Jacobian by the size that it
claims: relative to the entry, or to the largest entry where the entry is below a thousandth of
that. Elsewhere (a transposed gradient that is symmetric) it is no mistake and is
counted as vacuous. How the cotangent is read shows only on cotangents that are not contiguous, a
cotangent changed in place only to its owner; for these the size is that of the change they make.

Exit code 1: `gradproof.check` misses a mistake of a thousandth of an entry or more, or refutes a
right backward.

With `--dtype float32,bfloat16,float16,complex64`, or some of them: `gradproof.check` alone, and
the mistakes that kernels of low precision make. `--where low` plants them only in the run in that
precision, so that the formula is right in float64; `--where both` in every run. `--oracle native`
forbids the run in float64. `--large` takes inputs of thousands of entries instead of the
database's of a few dozen. A mistake that moves no entry by a unit in the last place is vacuous.
Exit code 1, for `--where low` with the float64 oracle: a share found below its bar, or more false
alarms than allowed.
"""

from __future__ import annotations

import argparse
import inspect
import math
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import _common as common
import _opdb
import torch
from _mistakes import Gradients, Mistake, Site, low_mistakes, mistakes
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.autograd.gradcheck import GradcheckError

# Smooth at their samples, and each with one output.
OPERATORS = (
    "tanh sin exp sigmoid log atan erf cosh nn.functional.gelu nn.functional.softplus "
    "nn.functional.silu add mul div.no_rounding_mode sub atan2 hypot lerp addcmul sum mean var "
    "prod logsumexp linalg.vector_norm matmul bmm addmm outer baddbmm mv nn.functional.linear "
    "nn.functional.bilinear softmax log_softmax nn.functional.layer_norm nn.functional.group_norm "
    "nn.functional.conv1d nn.functional.conv2d nn.functional.conv_transpose1d cumsum cumprod "
    "logcumsumexp linalg.inv linalg.solve linalg.cholesky linalg.det linalg.matrix_power kron "
    "nn.functional.mse_loss nn.functional.cross_entropy nn.functional.kl_div "
    "nn.functional.binary_cross_entropy_with_logits gather index_select roll "
    "nn.functional.interpolate.bilinear nn.functional.avg_pool2d nn.functional.cosine_similarity "
    "nn.functional.scaled_dot_product_attention tensordot cdist"
)
COMPLEX_OPERATORS = "sin exp mul matmul linalg.inv cumprod nn.functional.conv1d tanh outer"
QUICK_EVERY = 12

# Operators all of whose samples are too large or too small: inputs of our own, normal, and the
# arguments that follow them.
OWN_INPUTS: dict[str, tuple[list[tuple[int, ...]], tuple[int, ...]]] = {
    **dict.fromkeys(("tanh", "sin", "atan", "erf"), ([(4, 5)], ())),
    **dict.fromkeys(("cumsum", "cumprod", "logcumsumexp"), ([(4, 5)], (1,))),
    "bmm": ([(2, 3, 4), (2, 4, 3)], ()),
    "baddbmm": ([(2, 3, 3), (2, 3, 4), (2, 4, 3)], ()),
    "kron": ([(2, 3), (3, 2)], ()),
    "nn.functional.conv2d": ([(1, 2, 5, 5), (3, 2, 3, 3), (3,)], ()),
    "nn.functional.scaled_dot_product_attention": ([(2, 3, 4), (2, 3, 4), (2, 3, 4)], ()),
    "roll": ([(4, 5)], (2, 1)),
}

# In low precision with --large: sizes that kernels are tested at. What is told from rounding there
# is finer, for rounding averages out over the entries.
LARGE_INPUTS: dict[str, tuple[list[tuple[int, ...]], tuple[Any, ...]]] = {
    **dict.fromkeys(
        (
            "tanh",
            "sin",
            "exp",
            "sigmoid",
            "atan",
            "erf",
            "nn.functional.gelu",
            "nn.functional.silu",
        ),
        ([(32, 48)], ()),
    ),
    **dict.fromkeys(("mul", "add", "atan2", "hypot"), ([(32, 48), (32, 48)], ())),
    **dict.fromkeys(("softmax", "log_softmax", "logsumexp", "cumsum"), ([(32, 48)], (-1,))),
    "matmul": ([(24, 32), (32, 40)], ()),
    "outer": ([(48,), (40,)], ()),
    "bmm": ([(4, 16, 24), (4, 24, 16)], ()),
    "nn.functional.linear": ([(24, 32), (40, 32), (40,)], ()),
    "nn.functional.conv2d": ([(2, 4, 12, 12), (8, 4, 3, 3), (8,)], ()),
    "nn.functional.scaled_dot_product_attention": ([(2, 24, 16)] * 3, ()),
    "nn.functional.mse_loss": ([(32, 48), (32, 48)], ()),
}

# Entries of a sample's inputs, and of its output.
LARGEST = 100

DELTAS = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
BAR = 1e-3
# Rounding when the size of a mistake is measured.
SLACK = 0.99

TOOLS = ("slow", "fast", "dropin", "check")
LABELS = {
    "slow": "PyTorch slow",
    "fast": "PyTorch fast",
    "dropin": "gradproof.torch.gradcheck",
    "check": "gradproof.check",
}
FALSE_ALARM = "no mistake"

# In low precision: sizes of the kinds that have one, and of them those that the bar counts. One
# row of a few entries that is wrong by a few units in the last place is within honest rounding.
LOW_DELTAS = {
    "everything scaled": (1e-2,),
    "one row scaled": (1e-1, 1e-2),
    "shift": (1e-1, 3e-2, 1e-2),
}
OUTSIDE_BAR = ("one row scaled",)
# Per cent found at least; per cent of false alarms at most.
LOW_BARS = {"float32": 99.0, "complex64": 99.0, "bfloat16": 95.0, "float16": 95.0}
MOST_FALSE_ALARMS = 0.5
RIGHT_SEEDS = 3


@dataclass(frozen=True)
class Trial:
    """What the tools said about one planted mistake, or about the right backward.

    Attributes:
        case: operator, dtype and sample.
        kind: name of the mistake; `FALSE_ALARM` for the right backward.
        delta: its nominal size; None where it has none.
        size: measured, see the head of this file.
        found: per tool, whether it refuted the backward; None where it raised something else.
        notes: per tool, what it raised.
    """

    case: str
    kind: str
    delta: float | None
    size: float
    found: dict[str, bool | None] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    @property
    def vacuous(self) -> bool:
        """Whether there is no mistake of the nominal size after all."""
        return self.kind != FALSE_ALARM and not self.size >= SLACK * (self.delta or 1e-12)

    @property
    def in_bar(self) -> bool:
        """Whether `gradproof.check` has to find it."""
        return self.kind != FALSE_ALARM and self.size >= SLACK * BAR and not self.vacuous

    @property
    def reproduction(self) -> str:
        """The command that runs this trial alone."""
        delta = "" if self.delta is None else f" --delta {self.delta:g}"
        return f"python benchmarks/planted.py --case '{self.case}' --kind '{self.kind}'{delta}"


Backward = Callable[[Sequence[Tensor], Tensor], Gradients]

# The wrong functions -----------------------------------------------------------------------------


def pullback(sample: _opdb.Sample, inputs: Sequence[Tensor], v: Tensor) -> tuple[Tensor, ...]:
    """The true gradients, by automatic differentiation of the operator itself."""
    wanted = sample.differentiable
    with torch.enable_grad():
        arguments = [x.detach().requires_grad_() if i in wanted else x
                     for i, x in enumerate(inputs)]  # fmt: skip
        leaves = [arguments[i] for i in wanted]
        output = sample.function(*arguments)
        grads = torch.autograd.grad(output, leaves, v, allow_unused=True)
    return tuple(
        torch.zeros_like(x) if g is None else g for g, x in zip(grads, leaves, strict=True)
    )


def backward_of(sample: _opdb.Sample, mistake: Mistake | None, site: Site | None) -> Backward:
    """The backward with the mistake in it, as a function of the inputs and the cotangent."""

    def backward(inputs: Sequence[Tensor], v: Tensor) -> Gradients:
        pull = partial(pullback, sample, inputs)
        if mistake is None or site is None:
            return pull(v)
        return mistake.plant(site, v, pull)

    return backward


def wrapped(sample: _opdb.Sample, backward: Backward) -> _opdb.Function:
    """The operator with this backward."""
    wanted = sample.differentiable

    class Planted(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Tensor:
            ctx.save_for_backward(*(inputs[i] for i in wanted))
            ctx.others = [None if i in wanted else x for i, x in enumerate(inputs)]
            output: Tensor = sample.function(*inputs)
            # A view, or the input itself, may not leave a custom Function.
            return output.clone()

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, v: Tensor) -> Any:
            inputs = list(ctx.others)
            for i, x in zip(wanted, ctx.saved_tensors, strict=True):
                inputs[i] = x
            grads = dict(zip(wanted, backward(inputs, v), strict=True))
            return tuple(grads.get(i) for i in range(len(inputs)))

    return lambda *inputs: Planted.apply(*inputs)


def site_of(sample: _opdb.Sample, *, seed: int) -> Site:
    """An entry of the Jacobian to spoil, drawn among those that are not small."""
    with torch.no_grad():
        output = sample.function(*sample.inputs).detach()
    generator = torch.Generator().manual_seed(seed)
    rows = [pullback(sample, sample.inputs, v) for v in _basis(output)]
    inputs = tuple(sample.inputs[i] for i in sample.differentiable)
    sizes = [torch.stack([row[k].abs().reshape(-1) for row in rows])
             for k in range(len(inputs))]  # fmt: skip
    scale = max(float(size.max()) for size in sizes)
    places = [
        (k, *place) for k, size in enumerate(sizes)
        for place in (size >= 1e-3 * scale).nonzero().tolist()
    ]  # fmt: skip
    chosen = int(torch.randint(len(places), (), generator=generator))
    slot, row, column = places[chosen]
    return Site(inputs, output, row % output.numel(), slot, column, scale, 0.0, generator)


def _basis(output: Tensor) -> Iterator[Tensor]:
    """Each coordinate cotangent, the imaginary ones after the real ones."""
    for unit in (1, 1j) if output.is_complex() else (1,):
        for i in range(output.numel()):
            v = torch.zeros_like(output, memory_format=torch.contiguous_format)
            v.view(-1)[i] = unit
            yield v


def _dense(output: Tensor) -> Iterator[Tensor]:
    """Random cotangents: contiguous, transposed in memory, one dimension expanded, all expanded."""
    generator = torch.Generator().manual_seed(1)
    random = partial(torch.randn, dtype=output.dtype, generator=generator)
    yield random(output.shape)
    if output.ndim:
        yield random(output.shape[::-1]).permute(*reversed(range(output.ndim)))
        yield random((*output.shape[:-1], 1)).expand(output.shape)
        yield random(()).expand(output.shape)


def size_of(sample: _opdb.Sample, mistake: Mistake, site: Site) -> float:
    """The largest change that the mistake makes, as a part of what it changes.

    Measured on the Jacobian, by coordinate cotangents; where those show nothing, on dense ones.
    """
    for cotangents in (_basis, _dense):
        planted = backward_of(sample, mistake, replace(site, memory={}))
        gaps = [_gap(sample, planted, site, v) for v in cotangents(site.output)]
        if max(gaps) > 1e-12:
            break
    return max(gaps)


def _gap(sample: _opdb.Sample, planted: Backward, site: Site, v: Tensor) -> float:
    """The largest relative change to the gradients of one cotangent, or to the cotangent."""
    before = v.clone()
    truth = pullback(sample, sample.inputs, before)
    claimed = planted(sample.inputs, v)
    largest = _part(before, v, float(before.abs().max()))
    for true, wrong in zip(truth, claimed, strict=True):
        gradient = torch.zeros_like(true) if wrong is None else wrong
        largest = max(largest, _part(true, gradient, site.scale))
    return largest


def _part(true: Tensor, wrong: Tensor, scale: float) -> float:
    """The largest gap relative to the entry, or to `scale` where the entry is small beside it."""
    reference = torch.where(true.abs() >= 1e-3 * scale, true.abs(), scale)
    return float(((wrong - true).abs() / reference).max())


# The tools ---------------------------------------------------------------------------------------


def tools_of(names: Sequence[str], seed: int) -> dict[str, Callable[[Any, Any], bool]]:
    """The tools by name: functions of (function, inputs), True where nothing is refuted."""
    found: dict[str, Callable[[Any, Any], bool]] = {
        "slow": partial(torch.autograd.gradcheck, fast_mode=False),
        "fast": partial(torch.autograd.gradcheck, fast_mode=True),
    }
    if "dropin" in names:
        import gradproof.torch

        found["dropin"] = gradproof.torch.gradcheck
    if "check" in names:
        import gradproof

        seeded = "seed" in inspect.signature(gradproof.check).parameters
        options = {"seed": seed} if seeded else {}
        found["check"] = lambda fn, inputs: bool(gradproof.check(fn, inputs, **options))
    return {name: found[name] for name in names}


def ask(tool: Callable[[Any, Any], bool], sample: _opdb.Sample, fn: _opdb.Function) -> Any:
    """Whether the tool refutes the function, and what it said: (True, False or None, text)."""
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _opdb.seed_everything(0)
        try:
            return not tool(fn, sample.inputs), ""
        except GradcheckError as error:
            return True, common.first_line(str(error))
        except Exception as error:
            return None, f"{type(error).__name__}: {common.first_line(str(error))}"


def trial(
    case: str,
    sample: _opdb.Sample,
    mistake: Mistake | None,
    site: Site,
    options: argparse.Namespace,
) -> Trial:
    """Plants one mistake and asks every tool; a vacuous one is not asked about."""
    kind = mistake.name if mistake else FALSE_ALARM
    delta = site.delta if mistake and mistake.scalable else None
    made = Trial(case, kind, delta, size_of(sample, mistake, site) if mistake else 0.0)
    if made.vacuous:
        return made
    for name, tool in tools_of(options.tools, options.seed).items():
        backward = backward_of(sample, mistake, replace(site, memory={}))
        made.found[name], made.notes[name] = ask(tool, sample, wrapped(sample, backward))
    return made


# The run -----------------------------------------------------------------------------------------


def case_names() -> list[str]:
    """`operator dtype`, the names by which a case is run again."""
    return [f"{name} float64" for name in OPERATORS.split()] + [
        f"{name} complex128" for name in COMPLEX_OPERATORS.split()
    ]


def picked(case: str, count: int, *, large: bool = False) -> list[_opdb.Sample]:
    """The operator's first samples of two shapes that can carry a mistake."""
    name, dtype = case.split()
    (op,) = (op for op in _opdb.differentiable_operators(_opdb.DTYPES[dtype])
             if op.full_name == name)  # fmt: skip
    if large:
        return [own_sample(op, _opdb.DTYPES[dtype], LARGE_INPUTS)] if name in LARGE_INPUTS else []
    if name in OWN_INPUTS:
        return [own_sample(op, _opdb.DTYPES[dtype], OWN_INPUTS)]
    taken: dict[tuple[Any, ...], _opdb.Sample] = {}
    for sample in _opdb.samples(op, _opdb.DTYPES[dtype]):
        shapes = tuple(tuple(sample.inputs[i].shape) for i in sample.differentiable)
        if shapes not in taken and _suitable(sample):
            taken[shapes] = sample
    # Largest first: a matrix shows more kinds of mistake than a scalar.
    by_size = sorted(taken.values(), key=lambda s: -_entries(s))
    return by_size[:count]


def own_sample(op: Any, dtype: torch.dtype, table: dict[str, Any]) -> _opdb.Sample:
    """The operator at the inputs that the table describes."""
    shapes, rest = table[op.full_name]
    generator = torch.Generator().manual_seed(0)
    made = (torch.randn(*shape, dtype=dtype, generator=generator) for shape in shapes)
    inputs = tuple(x.requires_grad_() for x in made)
    return _opdb.Sample(op.full_name, 0, lambda *xs: op.get_op()(*xs, *rest), inputs, 0.0)


def _entries(sample: _opdb.Sample) -> int:
    return sum(sample.inputs[i].numel() for i in sample.differentiable)


def _suitable(sample: _opdb.Sample) -> bool:
    """One small floating output, at least 4 small inputs, a Jacobian that is not zero."""
    with torch.no_grad():
        output = sample.function(*sample.inputs)
    if not isinstance(output, Tensor) or not (output.is_floating_point() or output.is_complex()):
        return False
    if not 1 <= output.numel() <= LARGEST:
        return False
    sizes = [sample.inputs[i].numel() for i in sample.differentiable]
    if min(sizes) == 0 or not 4 <= sum(sizes) <= LARGEST:
        return False
    if not bool(torch.isfinite(output).all()):
        return False
    grads = pullback(sample, sample.inputs, torch.ones_like(output))
    finite = all(bool(torch.isfinite(g).all()) for g in grads)
    return finite and any(bool(g.any()) for g in grads)


def run_case(case: str, options: argparse.Namespace) -> list[Trial]:
    """Every mistake that fits, at every size, for each of the case's samples."""
    torch.set_num_threads(1)
    trials = []
    name, _, index = case.partition("#")
    for sample in picked(name, options.samples):
        if index and sample.index != int(index):
            continue
        full = f"{name}#{sample.index}"
        site = site_of(sample, seed=options.seed)
        if options.kind in (None, FALSE_ALARM):
            trials.append(trial(full, sample, None, site, options))
        for mistake in mistakes():
            if options.kind not in (None, mistake.name) or not mistake.fits(site):
                continue
            for delta in options.deltas if mistake.scalable else (1.0,):
                at = replace(site, delta=delta, generator=torch.Generator().manual_seed(0))
                trials.append(trial(full, sample, mistake, at, options))
    return trials


def run_all(
    cases: Sequence[str],
    options: argparse.Namespace,
    run: Callable[[str, argparse.Namespace], list[Any]] = run_case,
) -> list[Any]:
    trials: list[Any] = []
    with common.progress("cases", len(cases)) as advance:
        if options.jobs == 1:
            for case in cases:
                advance(case)
                trials += run(case, options)
            return trials
        with ProcessPoolExecutor(options.jobs) as pool:
            for case, part in zip(cases, pool.map(partial(run, options=options), cases),
                                  strict=True):  # fmt: skip
                advance(case)
                trials += part
    return trials


# What it means -----------------------------------------------------------------------------------


def kind_rows(trials: Sequence[Trial], tools: Sequence[str]) -> list[list[str]]:
    """Per kind: planted and vacuous, sizes, share found per tool, at the sizes of the bar."""
    rows = []
    for kind in (mistake.name for mistake in mistakes()):
        ours = [t for t in trials if t.kind == kind and (t.delta is None or t.delta >= BAR)]
        if not ours:
            continue
        real = [t for t in ours if not t.vacuous]
        smallest = f"{min(t.size for t in real):.1e}" if real else "-"
        shares = [_share(real, tool) for tool in tools]
        rows.append([kind, str(len(real)), str(len(ours) - len(real)), smallest, *shares])
    bar = [t for t in trials if t.in_bar]
    rows.append(["all of 1e-3 or more", str(len(bar)), "", "", *(_share(bar, t) for t in tools)])
    return rows


def delta_rows(trials: Sequence[Trial], tools: Sequence[str]) -> list[list[str]]:
    """Per size of the scalable kinds: share found per tool."""
    by_delta: dict[float, list[Trial]] = defaultdict(list)
    for t in trials:
        if t.delta is not None and not t.vacuous:
            by_delta[t.delta].append(t)
    return [
        [f"{delta:g}", str(len(part)), *(_share(part, tool) for tool in tools)]
        for delta, part in sorted(by_delta.items(), reverse=True)
    ]


def _share(trials: Sequence[Trial], tool: str) -> str:
    return common.percent(sum(t.found.get(tool) is True for t in trials), len(trials))


def print_tables(trials: Sequence[Trial], options: argparse.Namespace) -> None:
    labels = [LABELS[tool] for tool in options.tools]
    cases = len({t.case for t in trials})
    common.show(
        f"Planted mistakes found, sizes 1e-2 and 1e-3 where a size can be chosen; {cases} cases",
        ("mistake", "planted", "vacuous", "smallest", *labels),
        kind_rows(trials, options.tools),
        markdown=options.markdown,
    )
    common.show(
        "Kinds whose size can be chosen: share found by size",
        ("size", "planted", *labels),
        delta_rows(trials, options.tools),
        markdown=options.markdown,
    )
    right = [t for t in trials if t.kind == FALSE_ALARM]
    alarms = [str(sum(t.found[tool] is True for t in right)) for tool in options.tools]
    title = "False alarms on the same wrappers with the right backward"
    rows = [["false alarms", str(len(right)), *alarms]]
    common.show(title, ("", "right", *labels), rows, markdown=options.markdown)
    print(f"Measured on {common.machine_line()}.")


def failures_of(trials: Sequence[Trial], tools: Sequence[str]) -> list[tuple[str, str, Trial]]:
    """(tool, what, trial) for what our tools got wrong.

    `gradproof.check` is held to the bar; the drop-in, which keeps PyTorch's tolerances, to what
    PyTorch's slow mode finds; both to no false alarm.
    """
    wrong = []
    for tool in (tool for tool in ("check", "dropin") if tool in tools):
        for t in trials:
            if t.kind == FALSE_ALARM and t.found[tool] is not False:
                wrong.append((tool, "false alarm" if t.found[tool] else "error", t))
            owed = t.in_bar if tool == "check" else t.found.get("slow") is True
            if t.kind != FALSE_ALARM and owed and t.found[tool] is not True:
                wrong.append((tool, "missed" if t.found[tool] is False else "error", t))
    return wrong


def print_failures(failures: Sequence[tuple[str, str, Trial]]) -> None:
    for tool, what, t in failures:
        print(f"{LABELS[tool]}: {what}, size {t.size:.1e} {t.notes[tool]}")
        print(f"    {t.reproduction}")


# In low precision --------------------------------------------------------------------------------


@dataclass(frozen=True)
class LowTrial:
    """What `gradproof.check` said about one mistake in low precision, or about a right backward.

    Attributes:
        case: operator, dtype and sample.
        kind: name of the mistake; `FALSE_ALARM` for the right backward.
        delta: its size, None where it has none.
        entries: how many the gradients have.
        ulps: largest change of an entry of the gradient, in units in the last place.
        verdict: of the report; "vacuous" where no entry changes by one unit; or "error".
        resolution: what the backward check says it resolved.
        message: the first finding, or why nothing was decided.
    """

    case: str
    kind: str
    delta: float | None
    entries: int
    ulps: float
    verdict: str = "vacuous"
    resolution: float = math.nan
    message: str = ""

    @property
    def in_bar(self) -> bool:
        """Whether it counts towards the share found."""
        return self.verdict != "vacuous" and self.kind not in (FALSE_ALARM, *OUTSIDE_BAR)


def low_site(sample: _opdb.Sample, *, seed: int) -> Site:
    """A row of the output and an entry of an input, drawn at random."""
    with torch.no_grad():
        output = sample.function(*sample.inputs).detach()
    inputs = tuple(sample.inputs[i] for i in sample.differentiable)
    generator = torch.Generator().manual_seed(seed)
    slot, row, column = (int(torch.randint(2**31, (), generator=generator)) for _ in range(3))
    slot %= len(inputs)
    place = row % output.numel(), slot, column % inputs[slot].numel()
    return Site(inputs, output, *place, 0.0, 0.0, generator)


def low_backward(
    sample: _opdb.Sample, mistake: Mistake | None, site: Site, *, everywhere: bool
) -> Backward:
    """The backward with the mistake in it; only in the output's own precision, or everywhere."""
    right, wrong = (backward_of(sample, kind, site) for kind in (None, mistake))
    low = site.output.dtype
    return lambda inputs, v: (wrong if everywhere or v.dtype == low else right)(inputs, v)


def ulps_of(sample: _opdb.Sample, backward: Backward, site: Site) -> float:
    """The largest change of an entry of the gradients, in units in its last place."""
    largest = 0.0
    for v in _dense(site.output):
        for true, wrong in zip(
            pullback(sample, sample.inputs, v), backward(sample.inputs, v), strict=True
        ):
            gap = (torch.zeros_like(true) if wrong is None else wrong) - true
            parts = [torch.view_as_real(t) if t.is_complex() else t for t in (true, gap)]
            size = parts[0].double().abs()
            size = torch.maximum(size, 1e-3 * size.max())
            _, exponent = torch.frexp(size)
            ulp = torch.ldexp(torch.full_like(size, torch.finfo(true.dtype).eps / 2), exponent)
            ratio = torch.where(parts[1] == 0, 0.0, parts[1].double().abs() / ulp)
            largest = max(largest, float(ratio.max()))
    return largest


def low_trial(
    case: str, sample: _opdb.Sample, mistake: Mistake | None, site: Site, options: Any
) -> LowTrial:
    """Plants one mistake and asks `gradproof.check`; a vacuous one is not asked about."""
    backward = low_backward(sample, mistake, site, everywhere=options.where == "both")
    ulps = ulps_of(sample, backward, site)
    kind = mistake.name if mistake else FALSE_ALARM
    delta = site.delta if mistake and mistake.scalable else None
    made = LowTrial(case, kind, delta, _entries(sample), ulps)
    if mistake and not ulps >= 1:
        return made
    import gradproof

    chosen = {"oracles": ("native",)} if options.oracle == "native" else {}
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _opdb.seed_everything(0)
        try:
            report = gradproof.check(
                wrapped(sample, backward), sample.inputs, seed=options.seed + site.row, **chosen
            )
        except Exception as error:
            text = f"{type(error).__name__}: {common.first_line(str(error))}"
            return replace(made, verdict="error", message=text)
    texts = [finding.message for finding in report.findings]
    texts += [result.summary for result in report.checks if result.verdict is report.verdict]
    return replace(
        made,
        verdict=str(report.verdict),
        resolution=report["backward"].resolution,
        message=common.first_line(texts[0]) if texts else "",
    )


def run_low_case(case: str, options: argparse.Namespace) -> list[LowTrial]:
    """Every mistake that fits, at every size, and the right backward with several seeds."""
    torch.set_num_threads(1)
    trials = []
    name, _, index = case.partition("#")
    for sample in picked(name, options.samples, large=options.large):
        if index and sample.index != int(index):
            continue
        full = f"{name}#{sample.index}"
        for seed in range(RIGHT_SEEDS):
            if options.kind in (None, FALSE_ALARM):
                site = replace(low_site(sample, seed=options.seed), row=seed)
                trials.append(low_trial(full, sample, None, site, options))
        site = low_site(sample, seed=options.seed)
        for mistake in low_mistakes():
            if options.kind not in (None, mistake.name) or not mistake.fits(site):
                continue
            for delta in LOW_DELTAS.get(mistake.name, (1.0,)):
                if options.delta in (None, delta):
                    at = replace(site, delta=delta)
                    trials.append(low_trial(full, sample, mistake, at, options))
    return trials


def low_case_names(dtype: str) -> list[str]:
    """The operators that have a backward in this precision."""
    wanted = COMPLEX_OPERATORS if dtype == "complex64" else OPERATORS
    known = {op.full_name for op in _opdb.differentiable_operators(_opdb.DTYPES[dtype])}
    return [f"{name} {dtype}" for name in wanted.split() if name in known]


LOW_VERDICTS = ("failed", "inconclusive", "passed", "error")


def low_kind_rows(trials: Sequence[LowTrial]) -> list[list[str]]:
    """Per kind and size: planted, vacuous, share of each verdict, resolution where it passed."""
    groups: dict[tuple[str, float | None], list[LowTrial]] = defaultdict(list)
    for t in trials:
        groups[t.kind, t.delta].append(t)
    rows = []
    for (kind, delta), part in groups.items():
        real = [t for t in part if t.verdict != "vacuous"]
        label = kind if delta is None else f"{kind}, {delta:g}"
        rows.append([label, str(len(real)), str(len(part) - len(real)), *_low_cells(real)])
    bar = [t for t in trials if t.in_bar]
    rows.append(["all that the bar counts", str(len(bar)), "", *_low_cells(bar)])
    return rows


def _low_cells(part: Sequence[LowTrial]) -> list[str]:
    shares = [common.percent(sum(t.verdict == verdict for t in part), len(part))
              for verdict in LOW_VERDICTS]  # fmt: skip
    stated = [f"{_median([t.resolution for t in part if t.verdict == verdict]):.1e}"
              for verdict in ("passed", "inconclusive")]  # fmt: skip
    return [*shares, *stated]


def _median(numbers: Sequence[float]) -> float:
    known = sorted(number for number in numbers if not math.isnan(number))
    return known[len(known) // 2] if known else math.nan


def low_misses(trials: Sequence[LowTrial], dtype: str) -> list[str]:
    """One sentence per bar that is missed."""
    bar = [t for t in trials if t.in_bar]
    right = [t for t in trials if t.kind == FALSE_ALARM]
    found = sum(t.verdict == "failed" for t in bar)
    alarms = sum(t.verdict in ("failed", "error") for t in right)
    missed = []
    if 100 * found < LOW_BARS[dtype] * len(bar):
        missed.append(
            f"{dtype}: {common.percent(found, len(bar))} found, not {LOW_BARS[dtype]:g} %"
        )
    if 100 * alarms > MOST_FALSE_ALARMS * len(right):
        missed.append(f"{dtype}: {alarms} false alarms among {len(right)}")
    return missed


def main_low(options: argparse.Namespace) -> int:
    trials: list[LowTrial] = []
    missed: list[str] = []
    columns = ("mistake", "planted", "vacuous", *LOW_VERDICTS,
               "resolution, passed", "resolution, inconclusive")  # fmt: skip
    for dtype in options.dtypes:
        cases = [options.case] if options.case else low_case_names(dtype)
        cases = cases[::QUICK_EVERY] if options.quick and not options.case else cases
        part = run_all(cases, options, run_low_case)
        title = f"{dtype}, planted {options.where}, oracle {options.oracle}; {len(cases)} operators"
        common.show(title, columns, low_kind_rows(part), markdown=options.markdown)
        trials += part
        missed += low_misses(part, dtype)
        print_low(part)
    print(f"Measured on {common.machine_line()}.")
    held = options.where == "low" and options.oracle == "double"
    for line in missed:
        print(f"bar missed: {line}" if held else f"below the bar of the float64 oracle: {line}")
    content = {"where": options.where, "oracle": options.oracle, "bars_missed": missed,
               "trials": [asdict(t) for t in trials]}  # fmt: skip
    common.record(options.json, content)
    return 1 if missed and held else 0


def print_low(trials: Sequence[LowTrial]) -> None:
    """False alarms, and mistakes that were not found."""
    for t in trials:
        wrong = t.verdict != "failed" if t.in_bar else t.kind == FALSE_ALARM
        if wrong and not (t.kind == FALSE_ALARM and t.verdict == "passed"):
            size = "" if t.delta is None else f" {t.delta:g}"
            print(f"{t.case} {t.kind}{size}, {t.entries} entries, {t.ulps:.3g} ulps: {t.verdict}, "
                  f"resolution {t.resolution:.1e}: {t.message}")  # fmt: skip


# The command line --------------------------------------------------------------------------------


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common.parser(__doc__)
    parser.add_argument("--dtype", metavar="NAMES",
                        help=f"comma-separated, of {', '.join(_opdb.LOW)}")  # fmt: skip
    parser.add_argument("--where", choices=["low", "both"], default="low",
                        help="in low precision: which runs the mistake is in")  # fmt: skip
    parser.add_argument("--large", action="store_true",
                        help="in low precision: tensors of thousands of entries")  # fmt: skip
    parser.add_argument("--oracle", choices=["double", "native"], default="double",
                        help="in low precision: whether float64 may be asked")  # fmt: skip
    parser.add_argument("--case", metavar="NAME", help="'tanh float64' or 'tanh float64#1'")
    parser.add_argument("--kind", metavar="NAME", help=f"one mistake, or {FALSE_ALARM!r}")
    parser.add_argument("--delta", type=float, help="one size for the kinds that have one")
    parser.add_argument("--samples", type=int, default=2, help="per operator")
    parser.add_argument("--seed", type=int, default=0, help="where mistakes lie, and our probes")
    parser.add_argument("--tools", default=",".join(TOOLS), help="comma-separated, of %(default)s")
    parser.add_argument("--jobs", type=int, default=1, help="worker processes")
    options = parser.parse_args(arguments)
    wanted = options.tools.split(",")
    if unknown := [tool for tool in wanted if tool not in TOOLS]:
        parser.error(f"--tools: unknown {unknown[0]!r}; choose from {', '.join(TOOLS)}")
    options.tools = tuple(tool for tool in TOOLS if tool in wanted)
    options.dtypes = options.dtype.split(",") if options.dtype else []
    if unknown := [dtype for dtype in options.dtypes if dtype not in _opdb.LOW]:
        parser.error(f"--dtype: unknown {unknown[0]!r}; choose from {', '.join(_opdb.LOW)}")
    options.deltas = DELTAS if options.delta is None else (options.delta,)
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = options_of(arguments)
    if options.dtypes:
        return main_low(options)
    cases = case_names()
    if options.case is not None:
        cases = [options.case]
        if options.case.partition("#")[0] not in case_names():
            print(f"--case: unknown {options.case!r}", file=sys.stderr)
            return 2
    elif options.quick:
        cases = cases[::QUICK_EVERY]
        options.samples = 1
    trials = run_all(cases, options)
    if not trials:
        print("nothing planted: no such sample or kind", file=sys.stderr)
        return 2
    print_tables(trials, options)
    failures = failures_of(trials, options.tools)
    print_failures(failures)
    content = {
        "bar_met": not any(tool == "check" for tool, _, _ in failures),
        "failures": [f"{LABELS[tool]}: {what}: {t.reproduction}" for tool, what, t in failures],
        "trials": [asdict(t) for t in trials],
    }
    common.record(options.json, content)
    return 0 if content["bar_met"] else 1


if __name__ == "__main__":
    sys.exit(main())
