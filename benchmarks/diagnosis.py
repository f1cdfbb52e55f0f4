"""Is the cause of a wrong derivative named right? A confusion matrix over planted mistakes.

The mistakes of `_mistakes.py`, and those of `_more_mistakes.py`, are planted in the backward of
PyTorch's operators; `gradproof.check` is asked, and the first cause of its first failing check is
compared with what was planted. A mistake counts where it changes what `gradproof.check` refutes;
where it leaves the derivative as it is (a transposed gradient that is symmetric) it is none. Of a
mistake that passes nothing is said: `planted.py` is about those.

`--formulas` asks of mistakes in formulas instead, as people make them: edits of the text of
backwards written by hand (`_formulas.py`). Few of them are one change of the gradient that has a
name; silence is then the best answer. `--held-out` asks of functions whose names were settled
before anything was asked: the `first` to the `fifth` set, each made after what the one
before it showed was mended; the names of the first three were set again for the present causes.

Columns: named right; named by another name of the very same numbers (the planted name fits them
as well, and is told second); named wrong; no idea. Right backwards must be given no cause.

Exit code 1: a share below its bar, or a right backward with a cause.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import _common as common
import _opdb
import torch
from _formulas import (
    FORMULAS,
    HELD_OUT,
    HELD_OUT_FIFTH,
    HELD_OUT_FOURTH,
    HELD_OUT_SECOND,
    HELD_OUT_THIRD,
)
from _mistakes import Mistake, Site, mistakes
from _more_mistakes import EXPECTED, FUNCTIONS, Planted, more_mistakes
from _planting import (
    COMPLEX_OPERATORS,
    FALSE_ALARM,
    OPERATORS,
    QUICK_EVERY,
    backward_of,
    picked,
    run_all,
    wrapped,
)
from planted import site_of

import gradproof

DELTA = 1e-2
HELD_OUTS = {
    "first": HELD_OUT,
    "second": HELD_OUT_SECOND,
    "third": HELD_OUT_THIRD,
    "fourth": HELD_OUT_FOURTH,
    "fifth": HELD_OUT_FIFTH,
}
RIGHT, OTHER, WRONG, SILENT = "right", "another name", "wrong", "no idea"
MIN_RIGHT, MAX_WRONG = 0.75, 0.01  # one kind in seven has no name: silence is no idea, not right
MIN_RIGHT_OF_FORMULAS = 0.60
FULL = 0.999  # score of a cause that explains every number


@dataclass(frozen=True)
class Trial:
    """What was said of one mistake.

    Attributes:
        case: operator, dtype and sample.
        kind: of the mistake; `FALSE_ALARM` for a right backward.
        counted: it was refuted.
        answer: one of the four; "" for a right backward without a cause.
        named: the first cause, "" where there is none.
    """

    case: str
    kind: str
    counted: bool
    answer: str = ""
    named: str = ""


def asked(fn: _opdb.Function, inputs: Sequence[Any], **options: Any) -> gradproof.Report:
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _opdb.seed_everything(0)
        return gradproof.check(fn, inputs, seed=0, **options)


def judged(
    case: str, kind: str, report: gradproof.Report, names: Sequence[str] | None = None
) -> Trial:
    """What the report says of the cause, held against what was planted, or against these names."""
    expected = EXPECTED.get(kind, ()) if names is None else names
    failed = [result for result in report.checks if result.verdict == "failed"]
    if kind == FALSE_ALARM:
        causes = [cause for result in report.checks for cause in result.causes]
        return Trial(case, kind, True, "", causes[0].name if causes else "")
    if not failed:
        return Trial(case, kind, False)
    causes = next((result.causes for result in failed if result.causes), ())
    for result in failed if not causes else ():
        if result.name in expected:  # the check says what is wrong
            return Trial(case, kind, True, RIGHT, result.name)
    if not causes:
        return Trial(case, kind, True, SILENT)
    first = causes[0].name
    if first in expected:
        return Trial(case, kind, True, RIGHT, first)
    same = any(c.name in expected and c.score >= FULL for c in causes)
    return Trial(case, kind, True, OTHER if same else WRONG, first)


def run_case(case: str, options: argparse.Namespace) -> list[Trial]:
    """Every mistake that fits, in one sample of one operator; or one function of our own."""
    torch.set_num_threads(1)
    own = {planted.name: planted for planted in FUNCTIONS}
    if case in own:
        return _own(own[case])
    trials = []
    for sample in picked(case, 1):
        full = f"{case}#{sample.index}"
        site = site_of(sample, seed=options.seed)
        right = wrapped(sample, backward_of(sample, None, None))
        trials.append(judged(full, FALSE_ALARM, asked(right, sample.inputs)))
        for mistake in (*mistakes(), *more_mistakes()):
            if options.kind in (None, mistake.name) and mistake.fits(site):
                trials.append(_planted(full, sample, mistake, site))
    return trials


def _planted(case: str, sample: _opdb.Sample, mistake: Mistake, site: Site) -> Trial:
    at = replace(site, delta=DELTA, memory={}, generator=torch.Generator().manual_seed(0))
    wrong = wrapped(sample, backward_of(sample, mistake, at))
    return judged(case, mistake.name, asked(wrong, sample.inputs))


def _own(planted: Planted) -> list[Trial]:
    wrong = asked(planted.wrong, planted.inputs(), **planted.options)
    right = asked(planted.right, planted.inputs(), **planted.options)
    return [
        judged(planted.name, planted.kind, wrong),
        judged(planted.name, FALSE_ALARM, right),
    ]


def run_formula(name: str, options: argparse.Namespace) -> list[Trial]:
    """Every edit of the backward of one function, and the function as it should be."""
    torch.set_num_threads(1)
    every = (*FORMULAS, *itertools.chain.from_iterable(HELD_OUTS.values()))
    [formula] = [formula for formula in every if formula.name == name]
    right = asked(formula.function(), formula.inputs())
    trials = [judged(name, FALSE_ALARM, right)]
    for old, new, names in formula.edits:
        report = asked(formula.function((old, new)), formula.inputs())
        trials.append(replace(judged(name, name, report, names), case=f"{name}: {old} -> {new}"))
    return trials


# What it means -----------------------------------------------------------------------------------


def rows_of(trials: Sequence[Trial]) -> list[list[str]]:
    """Per kind: how many count, the four answers, and the names given where not the right one."""
    table = []
    kinds = dict.fromkeys(trial.kind for trial in trials if trial.kind != FALSE_ALARM)
    for kind in kinds:
        mine = [trial for trial in trials if trial.kind == kind and trial.counted]
        answers = Counter(trial.answer for trial in mine)
        others = Counter(t.named for t in mine if t.answer in (OTHER, WRONG))
        told = ", ".join(f"{name} {number}" for name, number in others.most_common(3))
        cells = [str(answers[answer]) for answer in (RIGHT, OTHER, WRONG, SILENT)]
        table.append([kind, str(len(mine)), *cells, told])
    return table


def shares(trials: Sequence[Trial]) -> dict[str, float]:
    counted = [trial for trial in trials if trial.kind != FALSE_ALARM and trial.counted]
    number = max(1, len(counted))
    return {
        answer: sum(trial.answer == answer for trial in counted) / number
        for answer in (RIGHT, OTHER, WRONG, SILENT)
    }


def accused(trials: Sequence[Trial]) -> list[Trial]:
    """Right backwards that were given a cause."""
    return [trial for trial in trials if trial.kind == FALSE_ALARM and trial.named]


def content_of(trials: Sequence[Trial]) -> dict[str, Any]:
    """The record: counts, the confusion matrix, and the trials that were not named right."""
    counted = [trial for trial in trials if trial.kind != FALSE_ALARM and trial.counted]
    matrix: dict[str, Counter[str]] = defaultdict(Counter)
    for trial in counted:
        matrix[trial.kind][trial.named or SILENT] += 1
    return {
        "mistakes": len(counted),
        "not refuted": sum(not trial.counted for trial in trials),
        "cases": len({trial.case for trial in trials}),
        "kinds": len(matrix),
        "right backwards": sum(trial.kind == FALSE_ALARM for trial in trials),
        "right backwards with a cause": [trial.case for trial in accused(trials)],
        "shares": {name: round(share, 4) for name, share in shares(trials).items()},
        "named": {kind: dict(names.most_common()) for kind, names in matrix.items()},
        "answers": {
            kind: dict(Counter(t.answer for t in counted if t.kind == kind)) for kind in matrix
        },
        "wrong or silent": [
            f"{trial.case}: {trial.kind}: {trial.named or SILENT}"
            for trial in counted
            if trial.answer in (WRONG, SILENT)
        ],
    }


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    made = common.parser(__doc__)
    made.add_argument("--formulas", action="store_true", help="mistakes in formulas")
    sets = {"const": "first", "nargs": "?", "choices": tuple(HELD_OUTS)}
    made.add_argument("--held-out", **sets, help="of functions held out, likewise: which set")
    made.add_argument("--case", help="one case, as the table of failures names it")
    made.add_argument("--kind", help="one kind of mistake")
    common.spreading(made)
    made.add_argument("--seed", type=int, default=0)
    return made.parse_args(arguments)


def case_names(options: argparse.Namespace) -> list[str]:
    names = [f"{name} float64" for name in OPERATORS.split()]
    names += [f"{name} complex128" for name in COMPLEX_OPERATORS.split()]
    if options.case:
        return [options.case]
    if options.held_out:
        return [formula.name for formula in HELD_OUTS[options.held_out]]
    if options.formulas:
        return [formula.name for formula in FORMULAS][:: 4 if options.quick else 1]
    own = [planted.name for planted in FUNCTIONS]
    return [*names[::QUICK_EVERY], *own[::4]] if options.quick else [*names, *own]


def main(arguments: Sequence[str] | None = None) -> int:
    options = options_of(arguments)
    run = run_formula if options.formulas or options.held_out else run_case
    trials = run_all(case_names(options), options, partial(run))
    columns = ["planted", "refuted", RIGHT, "same numbers", WRONG, SILENT, "named instead"]
    common.show("Named causes", columns, rows_of(trials), markdown=options.markdown)
    found = shares(trials)
    total = sum(trial.kind != FALSE_ALARM and trial.counted for trial in trials)
    print(f"{total} mistakes: " + ", ".join(f"{name} {s:.1%}" for name, s in found.items()))
    content = content_of(trials)
    for line in content["wrong or silent"]:
        print(f"  {line}")
    for trial in accused(trials):
        print(f"  a right backward is accused: {trial.case}: {trial.named}")
    print(common.machine_line())
    common.record(options.json, content)
    least = MIN_RIGHT_OF_FORMULAS if options.formulas or options.held_out else MIN_RIGHT
    good = found[RIGHT] >= least and found[WRONG] <= MAX_WRONG
    return 0 if (good or not total) and not accused(trials) else 1


if __name__ == "__main__":
    sys.exit(main())
