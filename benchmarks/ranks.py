"""What a check of a function that spans ranks costs: calls and processor time, by number of ranks.

One rank judges and all ranks call, so the number of calls is that of one rank. Each function of
several ranks stands beside the same function in one process: a sine, the sum over so many parts of
the input, a square; the derivative by hand, right or twice too large.

    python benchmarks/ranks.py --json benchmarks/results/ranks.json
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "src")]

import rank_pool  # noqa: E402  # of tests/

SIZES = (1, 2, 4)
SIDE = 32  # entries of the input of all ranks together
KINDS = "right", "wrong"


def measured(kind: str, parts: int, repeats: int) -> dict[str, Any]:
    """Calls of this rank, processor seconds of it and wall time, of the quickest of some runs."""
    from exhibits.ranks import summed_between
    from gradproof.torch import distributed

    found = []
    for _ in range(repeats + 1):  # the first one imports
        fn, x = summed_between(parts, 1.0 if kind == "right" else 2.0, SIDE)
        wall, processor = time.perf_counter(), time.process_time()
        report = distributed.check(fn, x, seed=1)
        times = time.process_time() - processor, time.perf_counter() - wall
        found.append((*times, report))
    processor, wall, report = min(found[1:], key=lambda each: each[0])
    return {
        "verdict": str(report.verdict),
        "function": report.calls["function"],
        "vjp": report.calls["vjp"],
        "processor": round(processor, 4),
        "wall": round(wall, 4),
    }


def rows(repeats: int) -> list[dict[str, Any]]:
    """One row for each kind, number of parts and of ranks; processor time of all ranks together."""
    found = []
    for size in SIZES:
        with rank_pool.Pool(size) as pool:
            for parts in SIZES if size == 1 else (size,):
                for kind in KINDS:
                    each = pool.run(measured, kind, parts, repeats)
                    total = round(sum(one["processor"] for one in each), 4)
                    row = {"kind": kind, "parts": parts, "ranks": size, **each[0]}
                    found.append({**row, "processor of all": total})
    return sorted(found, key=lambda row: (row["parts"], row["ranks"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    found = rows(options.repeats)
    print("kind   parts  ranks  verdict  function  vjp  CPU of rank 0  CPU of all  wall, seconds")
    for row in found:
        what = f"{row['kind']:<6} {row['parts']:>5}  {row['ranks']:>5}  {row['verdict']:<7}"
        calls = f"{row['function']:>8}  {row['vjp']:>3}"
        times = f"{row['processor']:>13.3f}  {row['processor of all']:>10.3f}  {row['wall']:>13.3f}"
        print(what, calls, times, sep="  ")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
