"""Mistakes planted in low precision: which of them `gradproof.check` finds."""

from __future__ import annotations

import argparse
import math
import warnings
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import _common as common
import _opdb
import torch
from _mistakes import Mistake, Site, low_mistakes
from _planting import (
    COMPLEX_OPERATORS,
    FALSE_ALARM,
    OPERATORS,
    QUICK_EVERY,
    Backward,
    backward_of,
    dense,
    entries,
    picked,
    pullback,
    run_all,
    wrapped,
)

# Sizes of the kinds that have one, and of them those that the bar counts. One row of a few entries
# that is wrong by a few units in the last place is within honest rounding.
DELTAS = {
    "everything scaled": (1e-2,),
    "one row scaled": (1e-1, 1e-2),
    "shift": (1e-1, 3e-2, 1e-2),
}
OUTSIDE_BAR = ("one row scaled",)
# Per cent found at least; per cent of false alarms at most.
BARS = {"float32": 99.0, "complex64": 99.0, "bfloat16": 95.0, "float16": 95.0}
MOST_FALSE_ALARMS = 0.5
RIGHT_SEEDS = 3


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
    for v in dense(site.output):
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
    made = LowTrial(case, kind, delta, entries(sample), ulps)
    if mistake and not ulps >= 1:
        return made
    import gradproof

    native = gradproof.Settings(references=("native",)) if options.reference == "native" else None
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _opdb.seed_everything(0)
        try:
            fn, seed = wrapped(sample, backward), options.seed + site.row
            report = gradproof.check(fn, sample.inputs, seed=seed, settings=native)
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


def run_case(case: str, options: argparse.Namespace) -> list[LowTrial]:
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
            for delta in DELTAS.get(mistake.name, (1.0,)):
                if options.delta in (None, delta):
                    at = replace(site, delta=delta)
                    trials.append(low_trial(full, sample, mistake, at, options))
    return trials


def case_names(dtype: str) -> list[str]:
    """The operators that have a backward in this precision."""
    wanted = COMPLEX_OPERATORS if dtype == "complex64" else OPERATORS
    known = {op.full_name for op in _opdb.differentiable_operators(_opdb.DTYPES[dtype])}
    return [f"{name} {dtype}" for name in wanted.split() if name in known]


VERDICTS = ("failed", "inconclusive", "passed", "error")


def kind_rows(trials: Sequence[LowTrial]) -> list[list[str]]:
    """Per kind and size: planted, vacuous, share of each verdict, resolution where it passed."""
    groups: dict[tuple[str, float | None], list[LowTrial]] = defaultdict(list)
    for t in trials:
        groups[t.kind, t.delta].append(t)
    rows = []
    for (kind, delta), part in groups.items():
        real = [t for t in part if t.verdict != "vacuous"]
        label = kind if delta is None else f"{kind}, {delta:g}"
        rows.append([label, str(len(real)), str(len(part) - len(real)), *_cells(real)])
    bar = [t for t in trials if t.in_bar]
    rows.append(["all that the bar counts", str(len(bar)), "", *_cells(bar)])
    return rows


def _cells(part: Sequence[LowTrial]) -> list[str]:
    shares = [common.percent(sum(t.verdict == verdict for t in part), len(part))
              for verdict in VERDICTS]  # fmt: skip
    stated = [f"{_median([t.resolution for t in part if t.verdict == verdict]):.1e}"
              for verdict in ("passed", "inconclusive")]  # fmt: skip
    return [*shares, *stated]


def _median(numbers: Sequence[float]) -> float:
    known = sorted(number for number in numbers if not math.isnan(number))
    return known[len(known) // 2] if known else math.nan


def misses(trials: Sequence[LowTrial], dtype: str) -> list[str]:
    """One sentence per bar that is missed."""
    bar = [t for t in trials if t.in_bar]
    right = [t for t in trials if t.kind == FALSE_ALARM]
    found = sum(t.verdict == "failed" for t in bar)
    alarms = sum(t.verdict in ("failed", "error") for t in right)
    missed = []
    if 100 * found < BARS[dtype] * len(bar):
        missed.append(f"{dtype}: {common.percent(found, len(bar))} found, not {BARS[dtype]:g} %")
    if 100 * alarms > MOST_FALSE_ALARMS * len(right):
        missed.append(f"{dtype}: {alarms} false alarms among {len(right)}")
    return missed


def run(options: argparse.Namespace) -> int:
    trials: list[LowTrial] = []
    missed: list[str] = []
    columns = ("mistake", "planted", "vacuous", *VERDICTS,
               "resolution, passed", "resolution, inconclusive")  # fmt: skip
    for dtype in options.dtypes:
        cases = [options.case] if options.case else case_names(dtype)
        cases = cases[::QUICK_EVERY] if options.quick and not options.case else cases
        part = run_all(cases, options, run_case)
        title = (
            f"{dtype}, planted {options.where}, against {options.reference}; {len(cases)} operators"
        )
        common.show(title, columns, kind_rows(part), markdown=options.markdown)
        trials += part
        missed += misses(part, dtype)
        print_wrong(part)
    print(f"Measured on {common.machine_line()}.")
    held = options.where == "low" and options.reference == "double"
    for line in missed:
        print(f"bar missed: {line}" if held else f"below the bar of the float64 function: {line}")
    content = {"where": options.where, "reference": options.reference, "bars_missed": missed}
    common.record(options.json, {**content, **summary(trials)})
    return 1 if missed and held else 0


def summary(trials: Sequence[LowTrial]) -> dict[str, Any]:
    """The record: verdicts by dtype, kind and size, and every right one that did not pass."""
    counts: dict[str, dict[str, Counter[str]]] = {}
    for t in trials:
        label = t.kind if t.delta is None else f"{t.kind}, {t.delta:g}"
        dtype = t.case.partition("#")[0].split()[-1]
        counts.setdefault(dtype, {}).setdefault(label, Counter())[t.verdict] += 1
    return {
        "trials": len(trials),
        "counts": counts,
        "in_bar": Counter(t.case.partition("#")[0].split()[-1] for t in trials if t.in_bar),
        "right_not_passed": [f"{t.case}: {t.verdict}" for t in trials if t.kind == FALSE_ALARM
                             and t.verdict != "passed"],
    }  # fmt: skip


def print_wrong(trials: Sequence[LowTrial]) -> None:
    """False alarms, and mistakes that were not found."""
    for t in trials:
        wrong = t.verdict != "failed" if t.in_bar else t.kind == FALSE_ALARM
        if wrong and not (t.kind == FALSE_ALARM and t.verdict == "passed"):
            size = "" if t.delta is None else f" {t.delta:g}"
            print(f"{t.case} {t.kind}{size}, {t.entries} entries, {t.ulps:.3g} ulps: {t.verdict}, "
                  f"resolution {t.resolution:.1e}: {t.message}")  # fmt: skip
