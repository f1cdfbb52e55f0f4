"""Second derivatives of PyTorch's own operators in all four pairs of modes.

Every differentiable operator of `torch.testing._internal.common_methods_invocations.op_db`, its
first samples with at most 60 differentiable numbers going in and 100 coming out, in float64,
through `gradproof.check` with `order=2` and the rows that order has alone.

What failed and what is inconclusive is looked up in pair_causes.json, where a sentence gives the
cause. Exit code 1: a failure without one.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import _common as common
import _opdb
import torch
from _cases import _attached, alarm

CAUSES = Path(__file__).parent / "pair_causes.json"
PAIRS = ("second_order", "forward_over_reverse", "reverse_over_forward", "forward_over_forward")
ROWS = (*PAIRS, "symmetry", "second_linearity", "pairs")
MOST_INPUTS, MOST_OUTPUTS = 60, 100
QUICK_EVERY = 25


@dataclass(frozen=True)
class Row:
    """One check of one sample: its verdict, and what it says if it did not pass."""

    op: str
    sample: int
    check: str
    verdict: str
    message: str


@dataclass
class Harvest:
    """What came back from one operator."""

    rows: list[Row] = field(default_factory=list)
    samples: int = 0
    troubles: list[str] = field(default_factory=list)


def run_operator(name: str, limit: int, timeout: float) -> Harvest:
    """The rows of the first samples of one operator; what goes wrong is noted, never raised."""
    torch.set_num_threads(1)
    harvest = Harvest()
    try:
        (op,) = (op for op in _operators() if op.full_name == name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for sample in _small(op, limit):
                harvest.samples += 1
                harvest.rows += _rows(sample, timeout)
    except Exception as error:
        message = common.first_line(str(error))
        harvest.troubles.append(f"{name}: {type(error).__name__}: {message}")
    return harvest


def _operators() -> list[Any]:
    return _opdb.differentiable_operators(torch.float64)


def _small(op: Any, limit: int) -> Iterator[_opdb.Sample]:
    taken = 0
    for sample in _opdb.samples(op, torch.float64):
        size = sum(sample.inputs[i].numel() for i in sample.differentiable)
        if size > MOST_INPUTS or not size or _opdb.output_size(sample) > MOST_OUTPUTS:
            continue
        yield sample
        taken += 1
        if taken == limit:
            return


def _rows(sample: _opdb.Sample, timeout: float) -> list[Row]:
    import gradproof

    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _opdb.seed_everything(0)
        with alarm(timeout):
            report = gradproof.check(
                _attached(sample.function), sample.inputs, checks=ROWS, order=2, seed=0
            )
    return [
        Row(sample.op, sample.index, result.name, str(result.verdict), _message(result))
        for result in report.checks
    ]


def _message(result: Any) -> str:
    if str(result.verdict) == "passed":
        return ""
    finding = f": {result.findings[0].message}" if result.findings else ""
    return f"{result.summary}{finding}"[:300]


def run_all(names: Sequence[str], options: argparse.Namespace) -> list[Harvest]:
    """One harvest per operator, in order."""
    run = partial(run_operator, limit=options.samples, timeout=options.timeout)
    return common.in_order(run, names, options, _trouble)


def _trouble(name: str, how: str) -> Harvest:
    return Harvest(troubles=[f"{name}: {how}"])


def cause(row: Row, causes: Sequence[dict[str, Any]]) -> str | None:
    """The cause of a row that did not pass, from the first entry of the list that fits it."""
    for entry in causes:
        if (
            re.fullmatch(entry.get("op", ".*"), row.op)
            and re.fullmatch(entry.get("check", ".*"), row.check)
            and row.verdict == entry["verdict"]
            and re.search(entry.get("says", ""), row.message)
        ):
            return str(entry["cause"])
    return None


def groups_of(rows: Sequence[Row], verdict: str) -> list[dict[str, Any]]:
    """Rows of one verdict by operator and cause, smallest text that says what they share."""
    causes = json.loads(CAUSES.read_text())
    groups: dict[tuple[str, str | None], list[Row]] = defaultdict(list)
    for row in rows:
        if row.verdict == verdict:
            groups[row.op, cause(row, causes)].append(row)
    return [
        {
            "op": op,
            "checks": sorted({row.check for row in group}),
            "samples": sorted({row.sample for row in group}),
            "says": group[0].message[:160],
            "cause": why,
        }
        for (op, why), group in groups.items()
    ]


def summary(harvests: Sequence[Harvest]) -> dict[str, Any]:
    """Counts by row and verdict, and what did not pass, with its cause."""
    rows = [row for harvest in harvests for row in harvest.rows]
    counts = {name: Counter(row.verdict for row in rows if row.check == name) for name in ROWS}
    inconclusive = groups_of(rows, "inconclusive")
    by_cause = Counter(group["cause"] or "no cause known" for group in inconclusive)
    return {
        "operators": sum(bool(harvest.samples) for harvest in harvests),
        "samples": sum(harvest.samples for harvest in harvests),
        "verdicts": {name: dict(sorted(count.items())) for name, count in counts.items()},
        "failures": groups_of(rows, "failed"),
        "inconclusive": dict(by_cause.most_common()),
        "inconclusive_without_cause": [group for group in inconclusive if not group["cause"]],
        "troubles": [trouble for harvest in harvests for trouble in harvest.troubles],
    }


def show(found: dict[str, Any]) -> None:
    """The table, the failures with their causes, and the causes of what is inconclusive."""
    print(f"\n{found['operators']} operators, {found['samples']:,} samples, float64")
    verdicts = ("passed", "failed", "inconclusive", "skipped")
    print("".join(f"{word:>14}" for word in ("", *verdicts)))
    for name, count in found["verdicts"].items():
        print(f"{name:>22}" + "".join(f"{count.get(word, 0):>13}" for word in verdicts))
    print("\nfailures")
    for group in found["failures"]:
        print(f"  {group['op']} ({', '.join(group['checks'])}), samples {group['samples']}")
        print(f"    {group['says']}\n    cause: {group['cause']}")
    print("\ninconclusive")
    for why, count in found["inconclusive"].items():
        print(f"  {count:>4}  {why}")
    for group in found["inconclusive_without_cause"]:
        print(f"    {group['op']} ({', '.join(group['checks'])}): {group['says']}")
    for trouble in found["troubles"]:
        print(f"trouble: {trouble}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ops", help="regular expression of operators' names")
    parser.add_argument("--samples", type=int, default=2, help="of each operator (2)")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds a sample may take")
    common.spreading(parser)
    parser.add_argument("--quick", action="store_true", help="every 25th operator, one sample")
    parser.add_argument("--json", type=Path, help="write the record to this file")
    options = parser.parse_args(arguments)
    names = [op.full_name for op in _operators()]
    if options.quick:
        names, options.samples = names[::QUICK_EVERY], 1
    if options.ops:
        names = [name for name in names if re.fullmatch(options.ops, name)]
    if not names:
        print("no operator matches", file=sys.stderr)
        return 2
    found = summary(run_all(names, options))
    show(found)
    common.record(options.json, found)
    return int(any(group["cause"] is None for group in found["failures"]))


if __name__ == "__main__":
    sys.exit(main())
