"""What a check of a function that spans ranks costs: calls and processor time, by number of ranks.

One rank judges and all ranks call, so the number of calls is that of one rank. The function is the
same everywhere: an all-reduce in the middle, a derivative by hand, right or twice too large.

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

import ranks  # noqa: E402  # of tests/

SIZES = (1, 2, 4)
SIDE = 32  # entries of the input of all ranks together
KINDS = "right", "wrong"


def measured(kind: str, repeats: int) -> dict[str, Any]:
    """Calls of this rank, processor seconds of it and wall time, of the quickest of some runs."""
    import torch.distributed as dist

    from exhibits.ranks import numbers, ruled, summed
    from gradproof.torch import distributed

    fn = ruled(summed, summed if kind == "right" else lambda g: 2 * summed(g))
    found = []
    for _ in range(repeats + 1):  # the first one imports
        x = numbers(SIDE // dist.get_world_size())
        wall, processor = time.perf_counter(), time.process_time()
        report = distributed.check(fn, (x,), seed=1)
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
    """One row for each kind and number of ranks; processor time of all ranks together."""
    found = []
    for size in SIZES:
        pool = ranks.Pool(size)
        for kind in KINDS:
            each = pool.run(measured, kind, repeats)
            total = round(sum(one["processor"] for one in each), 4)
            found.append({"kind": kind, "ranks": size, **each[0], "processor of all": total})
        pool.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    found = rows(options.repeats)
    print("kind   ranks  verdict  function  vjp  CPU of rank 0  CPU of all  wall, seconds")
    for row in found:
        print(
            f"{row['kind']:<6} {row['ranks']:>5}  {row['verdict']:<7}  {row['function']:>8}  "
            f"{row['vjp']:>3}  {row['processor']:>13.3f}  {row['processor of all']:>10.3f}  "
            f"{row['wall']:>13.3f}"
        )
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
