"""What a check of a JAX function costs beside jax.test_util.check_grads, once both are warm.

Both are called on small functions in float64 and float32, in one process and in turns; the least of
`--repeats` times counts, in processor time. Told beside it: calls of functions of Python and of C
that Python calls, the same however busy the machine is; what the first check cost, which compiles;
and how often a check compiled anything once warm. `check` asks for its default checks; check_grads
is asked for both modes at order 1, with tolerances that let it go to its end.

Exit code 1: a ratio of times is over its bar in `BARS`.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import _common as common
import jax
import jax.numpy as jnp
import numpy as np
from jax.test_util import check_grads

import gradproof

BARS = {"float64": 2.0, "float32": 6.0}


def normalised(x: Any, w: Any, b: Any) -> Any:
    """A layer norm and a gelu."""
    gap = x - x.mean(-1, keepdims=True)
    return jax.nn.gelu(gap / jnp.sqrt((gap**2).mean(-1, keepdims=True) + 1e-5) * w + b)


def solved(a: Any, b: Any) -> Any:
    """A system of which the matrix is far from singular."""
    return jnp.linalg.solve(a + 4 * jnp.eye(a.shape[0], dtype=a.dtype), b)


CASES: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "sin": (jnp.sin, [(5, 5)]),
    "softmax": (jax.nn.softmax, [(8, 16)]),
    "solve": (solved, [(4, 4), (4,)]),
    "mlp": (lambda x, w, v: jnp.tanh(x @ w) @ v, [(8, 16), (16, 16), (16, 4)]),
    "layer_norm, gelu": (normalised, [(8, 16), (16,), (16,)]),
}


@dataclass(frozen=True)
class Timed:
    """One function in one precision: seconds, and calls, of ours and theirs."""

    case: str
    dtype: str
    first: tuple[float, float]
    warm: tuple[float, float]
    calls: tuple[int, int]
    compiled_again: int

    @property
    def ratio(self) -> float:
        """Ours over theirs, once warm."""
        return self.warm[0] / self.warm[1]


class Compilations:
    """Counts what JAX compiles."""

    def __init__(self) -> None:
        self.count = 0
        jax.monitoring.register_event_duration_secs_listener(self._heard)

    def _heard(self, event: str, duration: float, **_: Any) -> None:
        self.count += event.endswith("backend_compile_duration")


def seconds(run: Callable[[], object]) -> float:
    """Of the processor."""
    started = time.process_time()
    run()
    return time.process_time() - started


def timed(case: str, dtype: str, repeats: int, compilations: Compilations) -> Timed:
    """Ours and theirs of one function."""
    fn, shapes = CASES[case]
    draws = np.random.default_rng(0)
    with jax.enable_x64(dtype == "float64"):
        inputs = tuple(jnp.asarray(draws.normal(size=shape).astype(dtype)) for shape in shapes)
        tools: tuple[Callable[[], object], ...] = (
            lambda: gradproof.check(fn, inputs, seed=1),
            lambda: check_grads(fn, inputs, order=1, atol=1e9, rtol=1e9),
        )
        first = [seconds(tool) for tool in tools]
        before = compilations.count
        tools[0]()
        again = compilations.count - before
        least = [min(seconds(tool) for _ in range(repeats)) for tool in tools]
        calls = [common.counted(tool) for tool in tools]
    return Timed(
        case, dtype, (first[0], first[1]), (least[0], least[1]), (calls[0], calls[1]), again
    )


def row(one: Timed) -> list[str]:
    """What a table says of it."""
    numbers = (
        *(1e3 * each for each in one.warm), one.ratio, one.calls[0] / one.calls[1], one.first[0],
    )  # fmt: skip
    return [one.case, one.dtype, *(f"{each:.3g}" for each in numbers), f"{one.compiled_again}"]


def main() -> int:
    made = common.parser(__doc__)
    made.add_argument("--repeats", type=int, default=5, help="of which the least counts")
    options = made.parse_args()
    warnings.simplefilter("ignore")
    names = list(CASES)[:1] if options.quick else list(CASES)
    compilations, found = Compilations(), []
    with common.progress("functions", len(names) * len(BARS)) as advance:
        for name in names:
            for dtype in BARS:
                advance(name)
                found.append(timed(name, dtype, options.repeats, compilations))
    columns = ("function", "dtype", "ms", "check_grads", "ratio", "ratio of calls", "first, s",
               "compiled again")  # fmt: skip
    common.show("Warm checks", columns, map(row, found), markdown=options.markdown)
    print(f"Measured on {common.machine_line()}.")
    common.record(options.json, {"bars": BARS, "rows": [asdict(one) for one in found]})
    return int(any(one.ratio > BARS[one.dtype] for one in found))


if __name__ == "__main__":
    sys.exit(main())
