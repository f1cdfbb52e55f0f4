"""What every check says of a fixed list of cases, to see which verdicts a change changes.

The cases: every exhibit of tests/museum.py, the wrong derivative and its right twin, at its own
order; the first sample of each operator of PyTorch's op_db in float64, of every tenth in float32
and in bfloat16; and kinks, ties, flat points and functions in few bits that are written here. One
seed, one thread, no limit on time: the same code says the same each time.

    python benchmarks/verdicts.py --json before.json
    python benchmarks/verdicts.py --against before.json

The second prints a line for each verdict that differs: case, check, before, after. Exit code 1
where there is one. `--only PART` asks only cases with that part in their name, `--quick` every
twelfth.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import _common as common
import _opdb
import torch
from torch import Tensor

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))
SEED = 0
QUICK_EVERY = 12
FEW_BITS_EVERY = 10  # operators, in float32 and in bfloat16
MOST_ENTRIES = 20_000  # of the Jacobian of a sample: the list is to take minutes

Verdicts = dict[str, dict[str, str]]


@dataclass(frozen=True)
class Case:
    """A function at a point, and how `check` is asked; both are made afresh for every run."""

    name: str
    function: Callable[..., Any]
    inputs: Callable[[], tuple[Any, ...]]
    options: Mapping[str, Any] = field(default_factory=dict)


def exhibits() -> Iterator[Case]:
    from museum import EXHIBITS

    for exhibit in EXHIBITS:
        options = {"order": exhibit.order, **exhibit.options}
        for word, function in (("wrong", exhibit.wrong), ("right", exhibit.right)):
            if function is not None:
                name = f"museum {exhibit.name} {word}"
                yield Case(name, function, exhibit.make_inputs, options)


def operators(dtype: str, every: int, part: str) -> Iterator[Case]:
    """Samples take their time to be made: only those with `part` in their name are."""
    wanted = _opdb.DTYPES[dtype]
    for op in _opdb.differentiable_operators(wanted)[::every]:
        name = f"{dtype} {op.full_name}"
        if part not in name:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sample = _first(op, wanted)
        if sample is not None:
            fixed = sample
            yield Case(name, fixed.function, lambda made=fixed: made.inputs)


def _first(op: Any, dtype: torch.dtype) -> _opdb.Sample | None:
    """The first sample that has an output and is no larger than wanted."""
    try:
        for sample in _opdb.samples(op, dtype):
            size = _opdb.output_size(sample)
            inputs = sum(sample.inputs[i].numel() for i in sample.differentiable)
            if 0 < size * inputs <= MOST_ENTRIES:
                return sample
    except Exception:  # a sample maker that needs what is not here: there is no such case
        return None
    return None


def _ruled(value: Callable[..., Any], backward: Callable[..., Any]) -> Callable[..., Any]:
    from exhibits.frame import ruled

    return ruled(value, backward)


def _leaf(*values: Any, dtype: torch.dtype = torch.float64) -> Callable[[], tuple[Tensor]]:
    return lambda: (torch.tensor(values, dtype=dtype, requires_grad=True),)


def _normal(*shape: int, dtype: torch.dtype) -> Callable[[], tuple[Tensor]]:
    from exhibits.frame import normal

    return lambda: (normal(*shape, dtype=dtype),)


def _all_of_them(g: Tensor, x: Tensor) -> Tensor:
    """One for each of the largest, where a subgradient shares one among them."""
    return g * (x == x.amax()).to(x.dtype)


def _zero(g: Tensor, x: Tensor) -> Tensor:
    return 0 * g * x


def points() -> Iterator[Case]:
    """Points that are kinks, ties, jumps, borders or flat, and arithmetic in few bits."""
    functional = torch.nn.functional
    smooth = (0.3, -0.7, 1.1)
    at_kinks: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Tensor]]]] = {
        "relu at 0": (torch.relu, _leaf(0.0, 1.0, -1.0)),
        "abs at 0": (torch.abs, _leaf(0.0)),
        "leaky_relu at 0": (functional.leaky_relu, _leaf(0.0, 2.0)),
        "hardtanh at its ends": (functional.hardtanh, _leaf(-1.0, 1.0, 0.5)),
        "clamp at its end": (lambda x: x.clamp(min=0.5), _leaf(0.5, 0.7)),
        "norm at 0": (torch.linalg.vector_norm, _leaf(0.0, 0.0, 0.0)),
        "sqrt at 0": (torch.sqrt, _leaf(0.0, 1.0)),
        "sqrt near 0": (torch.sqrt, _leaf(1e-12, 1.0)),
        "log near 0": (torch.log, _leaf(1e-12, 1.0, 2.0)),
        "x log x at 0": (lambda x: torch.xlogy(x, x), _leaf(0.0, 0.5)),
        "floor": (torch.floor, _leaf(*smooth)),
        "floor at 1": (torch.floor, _leaf(1.0, 0.3)),
        "sign at 0": (torch.sign, _leaf(0.0, 0.3)),
        "round times x": (lambda x: x * x.round(), _leaf(*smooth)),
        "amax of a tie": (torch.amax, _leaf(1.0, 1.0, 0.0)),
        "max_pool of ties": (
            lambda x: functional.max_pool1d(x[None, None], 2),
            _leaf(1.0, 1.0, 2.0, 2.0, 3.0, 1.0),
        ),
        "sort of ties": (lambda x: x.sort().values, _leaf(1.0, 1.0, 0.0, 1.0)),
        "median of ties": (torch.median, _leaf(1.0, 1.0, 1.0)),
        "amax of a tie, one for each": (_ruled(torch.amax, _all_of_them), _leaf(1.0, 1.0, 0.0)),
        "relu flat": (torch.relu, _leaf(-1.0, -2.0)),
        "clamp flat": (lambda x: x.clamp(0, 1), _leaf(2.0, -3.0)),
        "square at 0": (torch.square, _leaf(0.0, 0.0)),
        "cube at 0": (lambda x: x**3, _leaf(0.0, 0.0)),
        "difference of equal numbers": (torch.diff, _leaf(1.0, 1.0, 1.0, 1.0)),
        "constant": (lambda x: 0 * x + 1, _leaf(*smooth)),
        "linear": (lambda x: 3 * x, _leaf(*smooth)),
        "sine, zero claimed": (_ruled(torch.sin, _zero), _leaf(*smooth)),
        "floor of sine": (lambda x: torch.sin(x) + torch.floor(x), _leaf(*smooth)),
        "float32 inside": (lambda x: x.float().sin().double(), _leaf(*smooth)),
        "bfloat16 inside": (lambda x: x.bfloat16().sin().double(), _leaf(*smooth)),
    }
    for name, (function, inputs) in at_kinks.items():
        yield Case(f"point {name}", function, inputs)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for name, function in (
            ("softmax", lambda x: x.softmax(-1)),
            ("layer_norm", lambda x: functional.layer_norm(x, x.shape[-1:])),
            ("gelu", functional.gelu),
            ("sum of squares", lambda x: x.square().sum()),
        ):
            yield from _few_bits(f"few bits {name} {dtype}", function, dtype)


def _few_bits(name: str, function: Callable[..., Any], dtype: torch.dtype) -> Iterator[Case]:
    inputs = _normal(4, 8, dtype=dtype)

    def twin(x: Tensor) -> Tensor:  # a reference may not be the very function under test
        made: Tensor = function(x)
        return made

    yield Case(name, function, inputs)
    yield Case(f"{name} native", function, inputs, {"oracles": ("native",)})
    yield Case(f"{name} with a reference", function, inputs, {"reference": twin})


def cases(part: str = "") -> list[Case]:
    """Those with `part` in their name."""
    every = (
        *points(),
        *exhibits(),
        *operators("float64", 1, part),
        *operators("float32", FEW_BITS_EVERY, part),
        *operators("bfloat16", FEW_BITS_EVERY, part),
    )
    return [case for case in every if part in case.name]


def said(case: Case) -> dict[str, str]:
    """The verdict of each check, or under "raised" the class of what `check` raises."""
    import gradproof

    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _opdb.seed_everything(SEED)
        try:
            report = gradproof.check(case.function, case.inputs(), seed=SEED, **case.options)
        except Exception as error:
            return {"raised": type(error).__name__}
    return {result.name: str(result.verdict) for result in report.checks}


def changes(before: Verdicts, after: Verdicts) -> list[tuple[str, str, str, str]]:
    """Case, check, before, after: where both know the case and differ."""
    found = []
    for name, now in after.items():
        was = before.get(name)
        for check in dict.fromkeys((*(was or {}), *now)) if was is not None else ():
            told = was.get(check, "-"), now.get(check, "-")
            if told[0] != told[1]:
                found.append((name, check, *told))
    return found


def main() -> int:
    made = common.parser(__doc__)
    made.add_argument("--against", type=Path, metavar="FILE", help="a record to compare with")
    made.add_argument("--only", default="", metavar="PART", help="cases with this in their name")
    args: argparse.Namespace = made.parse_args()
    torch.set_num_threads(1)
    chosen = cases(args.only)[:: QUICK_EVERY if args.quick else 1]
    verdicts: Verdicts = {}
    with common.progress("verdicts", len(chosen)) as done:
        for case in chosen:
            verdicts[case.name] = said(case)
            done(case.name)
    common.record(args.json, {"seed": SEED, "verdicts": verdicts})
    count = Counter(word for told in verdicts.values() for word in told.values())
    print(f"{len(verdicts)} cases: {', '.join(f'{n} {word}' for word, n in sorted(count.items()))}")
    if args.against is None:
        return 0
    before: Verdicts = json.loads(args.against.read_text())["verdicts"]
    changed = changes(before, verdicts)
    common.show(
        f"Verdicts that changed: {len(changed)}",
        ("case", "check", "before", "after"),
        changed,
        markdown=args.markdown,
    )
    print(f"new: {len(verdicts.keys() - before.keys())}")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
