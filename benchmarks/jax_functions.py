"""Functions of JAX: our verdict beside that of jax.test_util.check_grads, right and wrong ones.

Right: every function of `_jax_cases.py`, in float64, float32 and bfloat16, at inputs inside its
domain. Wrong: some of them wrapped in `custom_vjp` or `custom_jvp` with a mistake of
`_jax_mistakes.py` in the rule. A mistake that changes the Jacobian by less than its nominal size
(a reversed gradient that is symmetric) is no mistake, and not counted.

Exit code 1: a right function is accused and no cause is written in EXPLAINED, or fewer mistakes
are found than the bar: all in float64, 99 % in float32.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

# Small programs, each compiled once: compiling takes most of the time.
FASTER = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
os.environ.setdefault("XLA_FLAGS", FASTER + " --xla_cpu_multi_thread_eigen=false")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import _common as common  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import jax.test_util  # noqa: E402
import numpy as np  # noqa: E402
from _jax_cases import Case, cases  # noqa: E402
from _jax_mistakes import BACKWARD, FORWARD, Bend, Mistake  # noqa: E402

import gradproof  # noqa: E402

DTYPES = ("float64", "float32", "bfloat16")
PLANTED_NAMES = """
    jnp.sin nn.silu nn.softmax jnp.multiply jnp.matmul jnp.prod jnp.cumsum jnp.linalg.inv
"""
PLANTED_IN = PLANTED_NAMES.split()
DELTAS = (1e-2, 1e-3)
# What judges a Jacobian, and that the backward is linear: the others are about other contracts.
CHECKS = ("backward", "forward", "forward_vs_backward", "linearity")
BARS = {"float64": 1.0, "float32": 0.99}
QUICK_EVERY = 25
# Case and dtype of a right function that is accused, and why.
_SPENCE = "JAX's gradient is NaN between 1 and 2: docs/jax.md"
EXPLAINED: dict[str, str] = {
    f"special.spence {dtype}": _SPENCE for dtype in ("float64", "float32", "bfloat16")
}


def precision(dtype: str) -> Any:
    return jax.enable_x64(True) if dtype == "float64" else nullcontext()


def ours(fn: Any, arrays: Any, seed: int = 0) -> tuple[str, str]:
    """Our verdict, and the summary of the first check that is not passed."""
    try:
        report = gradproof.check(fn, arrays, seed=seed, checks=CHECKS)
    except Exception as error:  # a function that lacks the dtype
        return "unsupported", common.first_line(f"{type(error).__name__}: {error}")
    told = [
        f"{c.name}: {c.summary}" for c in report.checks if str(c.verdict) == str(report.verdict)
    ]
    return str(report.verdict), "" if report.verdict == "passed" else common.first_line(told[0])


def theirs(fn: Any, arrays: Any, modes: tuple[str, ...]) -> str:
    try:
        jax.test_util.check_grads(fn, arrays, order=1, modes=modes)
    except AssertionError:
        return "failed"
    except Exception as error:  # integer outputs, missing rules
        return f"raised {type(error).__name__}"
    return "passed"


def right(task: tuple[Case, str]) -> dict[str, str]:
    case, dtype = task
    with precision(dtype):
        arrays = case.arrays(dtype)
        verdict, told = ours(case.fn, arrays)
        jaxs = "unsupported" if verdict == "unsupported" else theirs(
            case.fn, arrays, ("fwd", "rev")
        )  # fmt: skip
    return {"case": case.name, "dtype": dtype, "ours": verdict, "jax": jaxs, "told": told}


# Mistakes ----------------------------------------------------------------------------------------


def with_backward(fn: Any, mistake: Mistake, delta: float) -> Any:
    @jax.custom_vjp
    def wrong(*arrays: Any) -> Any:
        return fn(*arrays)

    def backward(kept: Any, v: Any) -> Any:
        gradients = mistake.plant(v, jax.vjp(fn, *kept)[1], delta)
        return tuple(g.astype(x.dtype) for g, x in zip(gradients, kept, strict=True))

    wrong.defvjp(lambda *arrays: (fn(*arrays), arrays), backward)
    return wrong


def with_tangent(fn: Any, bend: Bend, delta: float) -> Any:
    @jax.custom_jvp
    def wrong(*arrays: Any) -> Any:
        return fn(*arrays)

    @wrong.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        out, tangent = jax.jvp(fn, primals, tangents)
        return out, bend.plant(tangent, delta).astype(out.dtype)

    return wrong


def changes(fn: Any, wrong: Any, arrays: Any) -> float:
    """The largest change of an entry of a gradient, as a part of the largest, over cotangents."""
    out, pull = jax.vjp(fn, *arrays)
    bad = jax.vjp(wrong, *arrays)[1]
    rng, largest = np.random.default_rng(1), 0.0
    for _ in range(3):
        v = jnp.asarray(rng.normal(size=out.shape), out.dtype)
        for g, h in zip(pull(v), bad(v), strict=True):
            largest = max(largest, float(jnp.abs(g - h).max() / jnp.abs(g).max()))
    return largest


def planted(task: tuple[Case, str]) -> list[dict[str, Any]]:
    """Every mistake in one function: found by whom."""
    case, dtype = task
    rows = []
    with precision(dtype):
        arrays = case.arrays(dtype)
        for kind in ("custom_vjp", "custom_jvp"):
            for mistake in BACKWARD if kind == "custom_vjp" else FORWARD:
                for delta in DELTAS if mistake.sized else (1.0,):
                    make: Any = with_backward if kind == "custom_vjp" else with_tangent
                    wrong = make(case.fn, mistake, delta)
                    if changes(case.fn, wrong, arrays) < 0.05 * delta:
                        continue
                    modes = ("rev",) if kind == "custom_vjp" else ("fwd", "rev")
                    rows.append({
                        "case": case.name, "dtype": dtype, "rule": kind, "kind": mistake.name,
                        "delta": delta, "ours": ours(wrong, arrays)[0],
                        "jax": theirs(wrong, arrays, modes),
                    })  # fmt: skip
    return rows


# Running and telling -----------------------------------------------------------------------------


Task = tuple[str, str, str]  # right or planted, name of a case, dtype


def work(task: Task) -> list[Any]:
    what, name, dtype = task
    warnings.simplefilter("ignore")
    [case] = [case for case in cases() if case.name == name]
    return [right((case, dtype))] if what == "right" else planted((case, dtype))


def tasks(options: argparse.Namespace) -> Iterator[Task]:
    """The right functions in the first two dtypes, the wrong ones, the right ones in the others."""
    chosen = [case.name for case in cases()[:: QUICK_EVERY if options.quick else 1]]
    wrong = PLANTED_IN[: 1 if options.quick else None]
    if options.case:
        chosen = [options.case]
        wrong = [options.case] if options.planted else []
    dtypes = [] if options.planted else options.dtype.split(",")
    yield from (("right", name, dtype) for dtype in dtypes[:2] for name in chosen)
    yield from (("planted", name, dtype) for dtype in BARS for name in wrong)
    yield from (("right", name, dtype) for dtype in dtypes[2:] for name in chosen)


def main() -> int:
    parser = common.parser(__doc__)
    parser.add_argument("--case", help="one function only")
    parser.add_argument("--planted", action="store_true", help="mistakes only")
    parser.add_argument("--dtype", default=",".join(DTYPES))
    common.spreading(parser)
    parser.add_argument(
        "--log", type=Path, help="keeps what is found; a further run goes on from it"
    )
    parser.add_argument(
        "--recorded", action="store_true", help="run nothing, tell what --log holds"
    )
    options = parser.parse_args()
    done = _read(options.log)
    found: dict[str, list[Any]] = {"right": [], "planted": []}
    wanted = list(tasks(options))
    if options.recorded:
        wanted = [task for task in wanted if task in done]
    todo = [task for task in wanted if task not in done]
    with common.progress("functions", len(todo)) as step:
        for task, rows in common.spread(work, todo, options):
            if isinstance(rows, Exception):
                common.refused(task, str(rows))
            done[task] = rows
            step(" ".join(task))
            if options.log:
                with options.log.open("a") as log:
                    log.write(json.dumps([task, rows]) + "\n")
    for task in wanted:
        found[task[0]] += done[task]
    return report(found["right"], found["planted"], options)


def _read(log: Path | None) -> dict[Task, list[Any]]:
    """What an interrupted run has found: each task and its rows."""
    if log is None or not log.exists():
        return {}
    return {tuple(task): rows for task, rows in map(json.loads, log.read_text().splitlines())}


def report(rights: list[Any], wrongs: list[Any], options: argparse.Namespace) -> int:
    verdicts = {
        dtype: {who: dict(collections.Counter(row[who] for row in rights if row["dtype"] == dtype))
                for who in ("ours", "jax")}
        for dtype in options.dtype.split(",")
    }  # fmt: skip
    accused = [row for row in rights if row["ours"] == "failed"]
    unexplained = [row for row in accused if f"{row['case']} {row['dtype']}" not in EXPLAINED]
    detected = {
        dtype: {who: (sum(row[who] == "failed" for row in wrongs if row["dtype"] == dtype),
                      sum(row["dtype"] == dtype for row in wrongs))
                for who in ("ours", "jax")}
        for dtype in BARS
    }  # fmt: skip
    show(verdicts, detected, accused, options)
    missed = [row for row in wrongs if row["ours"] != "failed"]
    for row in missed:
        print("missed:", row)
    below = [
        dtype for dtype, (part, whole) in ((d, detected[d]["ours"]) for d in BARS)
        if whole and part < BARS[dtype] * whole
    ]  # fmt: skip
    common.record(options.json, {
        "functions": len({row["case"] for row in rights}),
        "listed": len(cases()),
        "right": verdicts,
        "differ": dict(collections.Counter(
            f"{row['dtype']}: ours {row['ours']}, jax {row['jax']}"
            for row in rights if row["ours"] != row["jax"])),
        "explained": EXPLAINED,
        "planted": {dtype: {who: list(pair) for who, pair in by.items()}
                    for dtype, by in detected.items()},
        "missed": missed,
        "missed_by_jax": dict(collections.Counter(
            f"{row['dtype']} {row['kind']}" for row in wrongs if row["jax"] != "failed")),
    })  # fmt: skip
    return 1 if unexplained or below else 0


def show(verdicts: Any, detected: Any, accused: list[Any], options: argparse.Namespace) -> None:
    columns = ("right functions", "passed", "failed", "inconclusive", "skipped", "not there")
    names = ("passed", "failed", "inconclusive", "skipped", "unsupported")
    rows = []
    for dtype, by in verdicts.items():
        for who, label in (("ours", "gradproof.check"), ("jax", "check_grads")):
            counts = by[who]
            other = sum(n for name, n in counts.items() if name.startswith("raised"))
            cells = [str(counts.get(name, 0)) for name in names]
            rows.append((f"{dtype}, {label}" + (f" (raised: {other})" if other else ""), *cells))
    common.show("Right functions", columns, rows, markdown=options.markdown)
    rows = [
        (f"{dtype}, {label}", f"{by[who][0]} of {by[who][1]}", common.percent(*by[who]))
        for dtype, by in detected.items()
        for who, label in (("ours", "gradproof.check"), ("jax", "check_grads"))
    ]
    common.show("Planted", ("planted mistakes", "found", "share"), rows, markdown=options.markdown)
    for row in accused:
        print(f"{row['case']} {row['dtype']}: {row['told']}")


if __name__ == "__main__":
    sys.exit(main())
