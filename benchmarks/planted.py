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

"Verified to" is a bound: of the mistakes that pass none is larger than what the report states, by
more than a twentieth (`stated`). What a mistake is held to there is its size in the unit of that
number: in parts of the largest entry of its row.

Exit code 1: `gradproof.check` misses a mistake of a thousandth of an entry or more, refutes a right
backward, or states less than what was planted.

With `--examples`: derivatives of this project's folder `examples/` in the wrappers of
`_wrappers.py`, which are wrong where no dense probe looks. Exit code 1: one passes, or a right one
does not.

With `--dtype float32,bfloat16,float16,complex64`, or some of them: `gradproof.check` alone, and
the mistakes that kernels of low precision make. `--where low` plants them only in the run in that
precision, so that the formula is right in float64; `--where both` in every run. `--reference
native`
forbids the run in float64. `--large` takes inputs of thousands of entries instead of the
database's of a few dozen. A mistake that moves no entry by a unit in the last place is vacuous.
Exit code 1, for `--where low` with the float64 function: a share found below its bar, or more false
alarms than allowed.
"""

from __future__ import annotations

import argparse
import inspect
import math
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import _common as common
import _opdb
import _planted_low
import _wrappers
import torch
from _mistakes import Mistake, Site, mistakes
from _planting import (
    COMPLEX_OPERATORS,
    FALSE_ALARM,
    OPERATORS,
    QUICK_EVERY,
    Backward,
    backward_of,
    basis,
    dense,
    picked,
    pullback,
    run_all,
    wrapped,
)
from torch import Tensor
from torch.autograd.gradcheck import GradcheckError

DELTAS = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-8, 1e-10)
BAR = 1e-3
BAR_STATED = 1.05  # times what a report states, of a mistake that passed
# Rounding when the size of a mistake is measured.
SLACK = 0.99

TOOLS = ("slow", "fast", "dropin", "check")
LABELS = {
    "slow": "PyTorch slow",
    "fast": "PyTorch fast",
    "dropin": "gradproof.torch.gradcheck",
    "check": "gradproof.check",
}


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
        stated: to what `gradproof.check` says that the backward is verified; NaN where it failed.
        in_row: size of the mistake beside the largest entry of its row, where it passed.
    """

    case: str
    kind: str
    delta: float | None
    size: float
    found: dict[str, bool | None] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    stated: float = math.nan
    in_row: float = 0.0

    @property
    def beyond(self) -> float:
        """How many times what is stated was planted, and passed; 0 where it did not pass."""
        passed = self.found.get("check") is False and not self.vacuous
        if not passed or self.kind == FALSE_ALARM or not self.in_row:
            return 0.0
        return self.in_row / self.stated if self.stated else math.inf

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


def site_of(sample: _opdb.Sample, *, seed: int) -> Site:
    """An entry of the Jacobian to spoil, drawn among those that are not small."""
    with torch.no_grad():
        output = sample.function(*sample.inputs).detach()
    generator = torch.Generator().manual_seed(seed)
    rows = [pullback(sample, sample.inputs, v) for v in basis(output)]
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


def size_of(sample: _opdb.Sample, mistake: Mistake, site: Site) -> float:
    """The largest change that the mistake makes, as a part of what it changes.

    Measured on the Jacobian, by coordinate cotangents; where those show nothing, on dense ones.
    """
    for cotangents in (basis, dense):
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


def in_row(sample: _opdb.Sample, mistake: Mistake, site: Site) -> float:
    """The largest change to an entry of the Jacobian, in parts of the largest entry of its row."""
    planted, largest = backward_of(sample, mistake, replace(site, memory={})), 0.0
    for v in basis(site.output):
        truth = pullback(sample, sample.inputs, v)
        claimed = planted(sample.inputs, v.clone())
        size = max(float(true.abs().max()) for true in truth)
        for true, wrong in zip(truth, claimed, strict=True):
            gradient = torch.zeros_like(true) if wrong is None else wrong
            gap = float((gradient - true).abs().max())
            largest = max(largest, gap / (size or site.scale))
    return largest


def _part(true: Tensor, wrong: Tensor, scale: float) -> float:
    """The largest gap relative to the entry, or to `scale` where the entry is small beside it."""
    reference = torch.where(true.abs() >= 1e-3 * scale, true.abs(), scale)
    return float(((wrong - true).abs() / reference).max())


# The tools ---------------------------------------------------------------------------------------


def tools_of(names: Sequence[str], seed: int) -> dict[str, Callable[[Any, Any], Any]]:
    """The tools by name: functions of (function, inputs), true where nothing is refuted."""
    found: dict[str, Callable[[Any, Any], Any]] = {
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
        found["check"] = lambda fn, inputs: gradproof.check(fn, inputs, **options)
    return {name: found[name] for name in names}


def ask(tool: Callable[[Any, Any], bool], sample: _opdb.Sample, fn: _opdb.Function) -> Any:
    """Whether the tool refutes the function, what it raised, and to what it says it is verified.

    True, False or None, a text, and a number.
    """
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _opdb.seed_everything(0)
        try:
            said = tool(fn, sample.inputs)
            stated = math.nan if isinstance(said, bool) else said["backward"].resolution
            return not said, "", stated
        except GradcheckError as error:
            return True, common.first_line(str(error)), math.nan
        except Exception as error:
            return None, f"{type(error).__name__}: {common.first_line(str(error))}", math.nan


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
        found, note, stated = ask(tool, sample, wrapped(sample, backward))
        made.found[name], made.notes[name] = found, note
        if name == "check" and found is False and mistake:
            made = replace(made, stated=stated, in_row=in_row(sample, mistake, site))
    return made


# The run -----------------------------------------------------------------------------------------


def case_names() -> list[str]:
    """`operator dtype`, the names by which a case is run again."""
    return [f"{name} float64" for name in OPERATORS.split()] + [
        f"{name} complex128" for name in COMPLEX_OPERATORS.split()
    ]


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


def counts(trials: Sequence[Trial], tools: Sequence[str]) -> list[dict[str, Any]]:
    """For the record, per kind and size: how many were planted, and found by each tool."""
    groups: dict[tuple[str, float | None], list[Trial]] = defaultdict(list)
    for t in trials:
        groups[t.kind, t.delta].append(t)
    return [
        {
            "kind": kind,
            "delta": delta,
            "planted": sum(not t.vacuous for t in part),
            "vacuous": sum(t.vacuous for t in part),
            **{tool: sum(t.found.get(tool) is True for t in part if not t.vacuous)
               for tool in tools},
        }
        for (kind, delta), part in groups.items()
    ]  # fmt: skip


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
    if "check" in options.tools:
        found = stated(trials)
        print(
            f"Planted mistakes that passed: {found['passed']}; larger than what the report states: "
            f"{found['beyond']}, at most {found['most']:.3g} times."
        )
    print(f"Measured on {common.machine_line()}.")


def stated(trials: Sequence[Trial]) -> dict[str, Any]:
    """Of the mistakes that passed: how many, and how many are more than what is stated."""
    beyond = [t.beyond for t in trials if t.beyond]
    return {
        "passed": len(beyond),
        "beyond": sum(times > BAR_STATED for times in beyond),
        "most": max(beyond, default=0.0),
    }


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
            elif tool == "check" and t.beyond > BAR_STATED:
                wrong.append((tool, f"{t.beyond:.3g} times what it is verified to", t))
    return wrong


def print_failures(failures: Sequence[tuple[str, str, Trial]]) -> None:
    for tool, what, t in failures:
        print(f"{LABELS[tool]}: {what}, size {t.size:.1e} {t.notes[tool]}")
        print(f"    {t.reproduction}")


# The command line --------------------------------------------------------------------------------


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common.parser(__doc__)
    parser.add_argument("--dtype", metavar="NAMES",
                        help=f"comma-separated, of {', '.join(_opdb.LOW)}")  # fmt: skip
    parser.add_argument("--where", choices=["low", "both"], default="low",
                        help="in low precision: which runs the mistake is in")  # fmt: skip
    parser.add_argument("--large", action="store_true",
                        help="in low precision: tensors of thousands of entries")  # fmt: skip
    parser.add_argument("--reference", choices=["double", "native"], default="double",
                        help="in low precision: whether float64 may be asked")  # fmt: skip
    parser.add_argument("--examples", action="store_true",
                        help="of the derivatives of examples/, in wrong wrappers")  # fmt: skip
    parser.add_argument("--case", metavar="NAME", help="'tanh float64' or 'tanh float64#1'")
    parser.add_argument("--kind", metavar="NAME", help=f"one mistake, or {FALSE_ALARM!r}")
    parser.add_argument("--delta", type=float, help="one size for the kinds that have one")
    parser.add_argument("--samples", type=int, default=2, help="per operator")
    parser.add_argument("--seed", type=int, default=0, help="where mistakes lie, and our probes")
    parser.add_argument("--tools", default=",".join(TOOLS), help="comma-separated, of %(default)s")
    common.spreading(parser)
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
    if options.examples:
        return _wrappers.run(options)
    if options.dtypes:
        return _planted_low.run(options)
    cases = case_names()
    if options.case is not None:
        cases = [options.case]
        if options.case.partition("#")[0] not in case_names():
            print(f"--case: unknown {options.case!r}", file=sys.stderr)
            return 2
    elif options.quick:
        cases = cases[::QUICK_EVERY]
        options.samples = 1
    trials = run_all(cases, options, run_case)
    if not trials:
        print("nothing planted: no such sample or kind", file=sys.stderr)
        return 2
    print_tables(trials, options)
    failures = failures_of(trials, options.tools)
    print_failures(failures)
    content = {
        "bar_met": not any(tool == "check" for tool, _, _ in failures),
        "failures": [f"{LABELS[tool]}: {what}: {t.reproduction}" for tool, what, t in failures],
        "cases": len({t.case for t in trials}),
        "kinds": counts(trials, options.tools),
        "stated": stated(trials),
    }
    common.record(options.json, content)
    return 0 if content["bar_met"] else 1


if __name__ == "__main__":
    sys.exit(main())
