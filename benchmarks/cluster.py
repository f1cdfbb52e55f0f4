"""What checks cost in core-seconds, what spreading them costs, and what a cluster makes of both.

Measured, in processor time of this machine, in which other work on it does not show: a case, its
sweep, its second order; every so many operators of PyTorch's database in each dtype, some samples
of each, for all of their samples; what a task costs the process that hands it out, and what a
process costs before its first result, here (`gradproof run -j`) and on a cluster of Dask. And the
wall time of the same cases with one and with two workers, the best of some turns.

Computed from that, for 64 cores: the work divided by them, or what the one scheduler needs to hand
out the tasks, or the longest task, whichever is longest; and the start on top.

`--page` writes the tables of the record into docs/cluster.md.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import statistics
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import _common as common
import _opdb
import torch
from _cases import checkers, judge

import gradproof
from gradproof import Case
from gradproof._survey.cluster import Cluster, connected
from gradproof._survey.pieces import Job, elsewhere
from gradproof._survey.pool import Pool

CORES = 64
CALLS = 18_000  # of gradcheck and gradgradcheck in a run of PyTorch's tests
RECORD = common.RESULTS / "cluster.json"
PAGE = Path(__file__).parents[1] / "docs" / "cluster.md"
BEGIN, END = "<!-- begin of what benchmarks/cluster.py wrote -->\n", "<!-- end of it -->\n"

# What checks cost --------------------------------------------------------------------------------

KINDS: dict[str, dict[str, Any]] = {
    "a case": {},
    "a case in float32": {"dtype": torch.float32},
    "a case at second order": {"order": 2},
    "a case with its sweep": {"sweep": True},
}


def layer_norm(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.layer_norm(x, (16,))


def case_seconds(repetitions: int) -> dict[str, float]:
    """Core-seconds of `gradproof.check` of a layer norm of 8 by 16, the median."""
    found = {}
    for name, kind in KINDS.items():
        options = dict(kind)
        dtype = options.pop("dtype", torch.float64)
        x = torch.linspace(-1, 1, 128, dtype=dtype).reshape(8, 16).sin().requires_grad_()
        seconds = []
        for seed in range(repetitions + 1):
            start = time.process_time()
            gradproof.check(layer_norm, (x,), seed=seed, **options)
            seconds.append(time.process_time() - start)
        found[name] = statistics.median(seconds[1:])
    return found


def operator_rows(every: int, most: int) -> list[dict[str, Any]]:
    """Of every so many operators in each dtype: samples, and core-seconds of all of them."""
    rows = []
    for dtype, kind in _opdb.DTYPES.items():
        operators = _opdb.differentiable_operators(kind)[every // 2 :: every]
        with common.progress(dtype, len(operators)) as advance:
            for op in operators:
                rows.append(_operator_row(op, dtype, most))
                advance(op.full_name)
    return rows


def _operator_row(op: Any, dtype: str, most: int) -> dict[str, Any]:
    """What the drop-in costs in double precision, at both orders; below it `gradproof.check`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = list(_opdb.samples(op, _opdb.DTYPES[dtype]))
    tools = [checkers(("check",), 1)["check"]]
    if dtype in _opdb.DOUBLE:
        tools = [checkers(("ours",), order)["ours"] for order in (1, 2)[: 1 + op.supports_gradgrad]]
    chosen = samples[:: max(1, len(samples) // most)][:most]
    spent = [judge(tool, sample, 120.0).seconds for tool in tools for sample in chosen]
    calls = len(samples) * len(tools)
    mean = sum(spent) / len(spent) if spent else 0.0
    return {"op": op.full_name, "dtype": dtype, "calls": calls, "seconds": mean * calls}


# What spreading them costs -----------------------------------------------------------------------


def do(job: int | Job) -> Any:
    """A case; 0 is to import PyTorch and use it, any other number is nothing."""
    if isinstance(job, Job):
        return elsewhere(job)
    return float(torch.ones(1).sum()) if job == 0 else job


@contextlib.contextmanager
def spread(kind: str, workers: int) -> Iterator[Any]:
    """Processes of this machine, or a cluster of Dask of as many."""
    if kind == "processes":
        hands = Pool(do, workers)
        try:
            yield hands
        finally:
            hands.close()
        return
    with connected("local", workers) as client:
        yield Cluster(do, client)


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)  # of those that have ended
    return used.ru_utime + used.ru_stime


def spreading_row(kind: str, workers: int, tasks: int, cases: int) -> dict[str, Any]:
    """What it takes to begin, to hand out tasks with nothing to do, and to check the same cases.

    To begin is to the first result of every worker, which imports PyTorch for it. Core-seconds are
    of all processes for the start, and of the process that hands out for a task. Wall time of the
    cases is the best of three turns.
    """
    case = Case(layer_norm, "float64[8,16]")
    jobs = [Job(f"case {k}", case, k, {}, "torch") for k in range(cases)]
    before, own, started = _children(), time.process_time(), time.perf_counter()
    with spread(kind, workers) as hands:

        def timed(some: Sequence[int | Job]) -> tuple[float, float]:
            processor, wall = time.process_time(), time.perf_counter()
            assert len(list(hands.results(some, lambda job: None))) == len(some)
            return time.process_time() - processor, time.perf_counter() - wall

        timed([0] * workers)
        begun = time.perf_counter() - started
        handed, _ = timed(range(1, tasks + 1))
        timed(jobs[: 4 * workers])
        wall = min(timed(jobs)[1] for _ in range(3))
    spent = time.process_time() - own + _children() - before
    return {
        "kind": kind,
        "workers": workers,
        "start_wall": begun,
        "task_core_seconds": handed / tasks,
        "cases_wall": wall,
        "cases": cases,
        "all_core_seconds": spent,
    }


# What a cluster makes of it ----------------------------------------------------------------------


def on_cluster(found: dict[str, Any], work: float, tasks: int, longest: float) -> float:
    """Seconds on `CORES` cores, from nothing."""
    rows = [row for row in found["spreading"] if row["kind"] == "cluster"]
    hand = max(row["task_core_seconds"] for row in rows)
    begin = max(row["all_core_seconds"] / row["workers"] for row in rows)  # at most
    return begin + max(work / CORES, tasks * hand, longest)


def sizes(found: dict[str, Any]) -> list[tuple[str, float, int, float]]:
    """(what, core-seconds, tasks, the longest) of each survey of the page."""
    case, sweep = found["cases"]["a case"], found["cases"]["a case with its sweep"]
    rows, every = found["operators"], found["every"]
    whole = every * sum(row["seconds"] for row in rows)
    double = [row for row in rows if row["dtype"] in _opdb.DOUBLE]
    call = sum(row["seconds"] for row in double) / sum(row["calls"] for row in double)
    longest = max(row["seconds"] for row in rows)
    tasks = every * len(rows)
    return [
        ("200 cases", 200 * case, 200, case),
        ("200 cases with their sweeps", 200 * sweep, 200, sweep),
        ("the operator database, all dtypes, an operator and dtype a task", whole, tasks, longest),
        (f"PyTorch's {CALLS:,} gradchecks, a call a task", CALLS * call, CALLS, call),
        (f"the same, {CALLS // 550} calls a task", CALLS * call, 550, CALLS // 550 * call),
    ]


def page(found: dict[str, Any]) -> str:
    """The tables of the record, in Markdown."""
    machine = found["machine"]
    cases = [[name, f"{seconds:.3f}"] for name, seconds in found["cases"].items()]
    names = {"processes": "`-j N`: processes", "cluster": "`--dask local`"}
    costs = []
    for kind, name in names.items():
        rows = {row["workers"]: row for row in found["spreading"] if row["kind"] == kind}
        costs.append([
            name,
            *(f"{rows[n]['start_wall']:.1f}" for n in (1, 2)),
            *(f"{1e3 * rows[n]['task_core_seconds']:.2f}" for n in (1, 2)),
            *(f"{rows[n]['cases_wall']:.1f}" for n in (1, 2)),
            *(f"{rows[n]['all_core_seconds']:.1f}" for n in (1, 2)),
        ])  # fmt: skip
    surveys = [
        [what, f"{work:,.0f}", f"{tasks:,}", f"{on_cluster(found, work, tasks, longest):,.0f}"]
        for what, work, tasks, longest in sizes(found)
    ]
    count = found["spreading"][0]["cases"]
    columns = (
        "workers",
        *("start, wall s: 1", "2"),
        *("a task, core-ms: 1", "2"),
        *(f"{count} cases, wall s: 1", "2"),
        *("all of it, core-seconds: 1", "2"),
    )
    tables = [
        common.markdown_table(("layer_norm of 8 by 16", "core-seconds"), cases),
        common.markdown_table(columns, costs),
        common.markdown_table(
            ("survey", "core-seconds", "tasks", f"seconds on {CORES} cores"), surveys
        ),
    ]
    told = (
        f"Measured on {machine['date']}, {machine['cpu']}, {machine['cores']} cores, PyTorch "
        f"{machine['torch']}, load {found['load']:.0f} by others' work: times are of the "
        "processor but where wall is said."
    )
    return "\n\n".join([told, *tables]) + "\n"


def write_page(found: dict[str, Any]) -> None:
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + page(found) + END + rest.partition(END)[2])


# The command line --------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    parser = common.parser(__doc__)
    parser.add_argument("--every", type=int, default=24, help="of the operators, one in so many")
    parser.add_argument("--most", type=int, default=2, help="samples of an operator that are run")
    parser.add_argument("--kept", type=Path, metavar="FILE",
                        help="takes what checks cost from an earlier record")  # fmt: skip
    parser.add_argument("--page", action="store_true", help="write the record into docs/cluster.md")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    every, most, times = options.every, options.most, 50
    if options.quick:
        every, most, times = 200, 1, 10
    kinds = ("processes", "cluster")
    if options.kept is None:
        checks = {
            "every": every,
            "cases": case_seconds(5),
            "operators": operator_rows(every, most),
        }
    else:
        kept = json.loads(options.kept.read_text())
        checks = {name: kept[name] for name in ("every", "cases", "operators")}
    found = {
        **checks,
        "spreading": [spreading_row(kind, n, 2 * times, times) for n in (1, 2) for kind in kinds],
        "load": os.getloadavg()[1],
    }
    shown = {"machine": common.machine(), **found}
    print(page(shown))
    common.record(options.json, found)
    if options.page:
        write_page(shown)
    return 0


def recorded() -> dict[str, Any]:
    record: dict[str, Any] = json.loads(RECORD.read_text())
    return record


if __name__ == "__main__":
    sys.exit(main())
