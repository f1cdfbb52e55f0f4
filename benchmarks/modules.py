"""Our verdict beside PyTorch's gradcheck, on PyTorch's own modules, parameters included.

Every module of `torch.testing._internal.common_modules.module_db` that is differentiable on the
CPU, its inputs in float64 with at most 300 differentiable numbers, parameters counted, and 200
outputs, of more than `--inputs` of them so many evenly spread, in training mode and, where that
differs, in evaluation mode; of a module whose inputs are all larger, the smallest. Lazy modules are
called once before. `gradproof.check(module, inputs)` with all checks, with `order=2` where the
module supports a second derivative, beside gradcheck (slow) and gradgradcheck (fast) of the module
as a function of its parameters and inputs.

What failed and what is inconclusive is looked up in module_causes.json. Exit code 1: a failure
without a cause.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import _common as common
import torch
from _cases import alarm
from torch.autograd.gradcheck import GradcheckError, gradcheck, gradgradcheck
from torch.testing._internal.common_modules import module_db
from torch.utils import _pytree as pytree

CAUSES = Path(__file__).parent / "module_causes.json"
MOST_INPUTS, MOST_OUTPUTS = 300, 200
QUICK_EVERY = 10


@dataclass(frozen=True)
class Case:
    """One module with one input, in one mode."""

    name: str
    index: int
    training: bool
    module: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    second: bool

    def function(self) -> tuple[Callable[..., Any], tuple[torch.Tensor, ...]]:
        """The module as a function of its parameters and its differentiable inputs."""
        parameters = dict(self.module.named_parameters())
        buffers = {name: buffer.clone() for name, buffer in self.module.named_buffers()}
        leaves, tree = pytree.tree_flatten((self.args, self.kwargs))
        places = [k for k, leaf in enumerate(leaves) if _differentiable(leaf)]

        def function(*tensors: torch.Tensor) -> Any:
            state = dict(zip(parameters, tensors, strict=False))
            state |= {name: buffer.clone() for name, buffer in buffers.items()}
            filled = list(leaves)
            for place, tensor in zip(places, tensors[len(parameters) :], strict=True):
                filled[place] = tensor
            args, kwargs = pytree.tree_unflatten(filled, tree)
            with torch.random.fork_rng():
                torch.manual_seed(0)
                outputs = torch.func.functional_call(self.module, state, args, kwargs)
            # gradcheck takes no tuples inside tuples.
            leaves_out = [leaf for leaf in pytree.tree_leaves(outputs) if _differentiable(leaf)]
            return tuple(leaves_out)

        return function, (*parameters.values(), *(leaves[place] for place in places))


@dataclass(frozen=True)
class Said:
    """What was said of one case, in one order."""

    module: str
    index: int
    training: bool
    order: int
    ours: str
    pytorch: str
    message: str = ""


def chosen(every: Sequence[Case], most: int) -> list[Case]:
    """Of each module, and mode, at most so many cases, evenly spread."""
    groups: dict[tuple[str, bool], list[Case]] = {}
    for case in every:
        groups.setdefault((case.name, case.training), []).append(case)
    return [
        group[k * len(group) // min(most, len(group))]
        for group in groups.values()
        for k in range(min(most, len(group)))
    ]


def _differentiable(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.requires_grad


def cases(names: str = ".*") -> Iterator[Case]:
    """Every case that is small enough, or the smallest, of the modules whose names match."""
    for info in module_db:
        if not re.fullmatch(names, info.name):
            continue
        if torch.float64 not in info.dtypes:
            continue
        modes = (True, False) if info.train_and_eval_differ else (True,)
        for training in modes:
            torch.manual_seed(0)
            made = info.module_inputs_func(
                info, device="cpu", dtype=torch.float64, requires_grad=True, training=training
            )
            found = list(_of_inputs(info, made, training))
            small = [case for case, (inputs, outputs) in found
                     if inputs <= MOST_INPUTS and outputs <= MOST_OUTPUTS]  # fmt: skip
            smallest = min(found, key=lambda each: math.prod(each[1]), default=None)
            yield from small or ([smallest[0]] if smallest else [])


def _of_inputs(
    info: Any, made: Sequence[Any], training: bool
) -> Iterator[tuple[Case, tuple[int, int]]]:
    """The cases that run and are differentiable, with the size of their inputs and outputs."""
    for index, given in enumerate(made):
        if given.forward_input is None:
            continue
        args, kwargs = given.forward_input.args, given.forward_input.kwargs
        try:
            arguments = given.constructor_input
            module = info.module_cls(*arguments.args, **arguments.kwargs)
            module = module.to(torch.float64).train(training)
            if "Lazy" in info.name:
                module(*args, **kwargs)
        except Exception:
            continue
        case = Case(info.name, index, training, module, args, kwargs, info.supports_gradgrad)
        inputs, outputs = _sizes(case)
        if inputs and outputs:
            yield case, (inputs, outputs)


def _sizes(case: Case) -> tuple[int, int]:
    """How many differentiable numbers go in and come out; (0, 0) where the call raises."""
    function, tensors = case.function()
    try:
        outputs = function(*tensors) if tensors else ()
    except Exception:
        return 0, 0
    return sum(t.numel() for t in tensors), sum(t.numel() for t in outputs)


def judged(case: Case, timeout: float) -> Iterator[Said]:
    """The verdicts on one case, in each order that it supports."""
    for order in (1, 2) if case.second else (1,):
        ours, message = _ours(case, order, timeout)
        said = case.name, case.index, case.training, order
        yield Said(*said, ours, _pytorch(case, order, timeout), message)


def _ours(case: Case, order: int, timeout: float) -> tuple[str, str]:
    import gradproof

    checks = ["second_order", "forward_over_reverse", "pairs"] if order == 2 else None
    try:
        with torch.random.fork_rng(), alarm(timeout):
            torch.manual_seed(0)
            report = gradproof.check(
                case.module, case.args, case.kwargs or None, order=order, checks=checks, seed=0
            )
    except Exception as error:
        return "refused", f"{type(error).__name__}: {common.first_line(str(error))}"
    verdict = str(report.verdict)
    if verdict == "passed":
        return verdict, ""
    texts = [f"{finding.check}: {finding.message}" for finding in report.findings]
    texts += [f"{r.name}: {r.summary}" for r in report.checks if r.verdict is report.verdict]
    return verdict, texts[0][:240]


def _pytorch(case: Case, order: int, timeout: float) -> str:
    function, tensors = case.function()
    try:
        with alarm(timeout):
            if order == 1:
                gradcheck(function, tensors, check_undefined_grad=False)
            else:
                gradgradcheck(function, tensors, fast_mode=True)
    except GradcheckError:
        return "failed"
    except Exception as error:
        return f"error: {type(error).__name__}"
    return "passed"


def cause(row: dict[str, Any], causes: Sequence[dict[str, Any]]) -> str | None:
    """The cause of a verdict that is not a pass, from the first entry of the list that fits."""
    for entry in causes:
        if (
            re.fullmatch(entry.get("module", ".*"), row["module"])
            and entry.get("order", row["order"]) == row["order"]
            and entry["verdict"] == row["ours"]
            and re.search(entry.get("says", ""), row["says"])
        ):
            return str(entry["cause"])
    return None


def summary(found: Sequence[Said]) -> dict[str, Any]:
    """Counts of pairs of verdicts, and what did not pass, by module and check."""
    pairs = Counter((said.order, said.ours, said.pytorch) for said in found)
    groups: dict[tuple[Any, ...], list[Said]] = {}
    for said in found:
        if said.ours != "passed":
            check = said.message.partition(":")[0]
            key = said.module, said.order, said.ours, said.pytorch, check
            groups.setdefault(key, []).append(said)
    return {
        "modules": len({said.module for said in found}),
        "cases": len({(said.module, said.index, said.training) for said in found}),
        "verdicts": [
            {"order": order, "ours": ours, "pytorch": theirs, "cases": count}
            for (order, ours, theirs), count in sorted(pairs.items())
        ],
        "not_passed": explained([_group(*key[:4], group) for key, group in groups.items()]),
    }


def _group(module: str, order: int, ours: str, theirs: str, group: list[Said]) -> dict[str, Any]:
    return {
        "module": module,
        "order": order,
        "ours": ours,
        "pytorch": theirs,
        "inputs": [f"{said.index}{'' if said.training else ' eval'}" for said in group],
        "says": group[0].message,
    }


def explained(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows, each with its cause from module_causes.json."""
    causes = json.loads(CAUSES.read_text())
    return [{**row, "cause": cause(row, causes)} for row in rows]


def show(record: dict[str, Any]) -> None:
    """The counts, then everything that did not pass."""
    print(f"\n{record['modules']} modules, {record['cases']} cases, float64")
    for row in record["verdicts"]:
        print("  order {order}: ours {ours:<13} PyTorch {pytorch:<22} {cases:>4}".format(**row))
    for row in record["not_passed"]:
        print(f"\n  {row['module']}, inputs {', '.join(row['inputs'])}, order {row['order']}: "
              f"{row['ours']} (PyTorch {row['pytorch']})")  # fmt: skip
        print(f"    {row['says']}\n    cause: {row['cause']}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--modules", help="regular expression of modules' names")
    parser.add_argument("--inputs", type=int, default=4, help="of a module, in each mode (4)")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds a check may take")
    parser.add_argument("--quick", action="store_true", help="every 10th case")
    parser.add_argument("--json", type=Path, help="write the record to this file")
    parser.add_argument("--again", action="store_true", help="only look up the causes in --json")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    record = json.loads(options.json.read_text()) if options.again else _run(options)
    if options.again:
        record["not_passed"] = explained(record["not_passed"])
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    show(record)
    return int(any(r["cause"] is None for r in record["not_passed"] if r["ours"] == "failed"))


def _run(options: argparse.Namespace) -> dict[str, Any]:
    found: list[Said] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        every = list(cases(options.modules or ".*"))
        picked = chosen(every, options.inputs)
        picked = picked[::QUICK_EVERY] if options.quick else picked
        with common.progress("modules", len(picked)) as advance:
            for case in picked:
                found += judged(case, options.timeout)
                common.record(options.json, summary(found))  # should it be interrupted
                advance(case.name)
    return summary(found)


if __name__ == "__main__":
    sys.exit(main())
