"""What the graph behind some outputs contains: leaves, nodes that only raise, precision inside.

To walk a graph by `next_functions` makes each node an object of Python, and such nodes release
their successors by recursion: 100,000 in a row end the process. So PyTorch's engine is asked.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from gradproof._maps.contract import Unsupported
from gradproof.torch._compat import AccumulateGrad, UndefinedGrad, will_run_node
from gradproof.torch._tensors import is_floating, unit_roundoff

_LOOKED_AT = 32  # nodes that are looked at before the engine is asked, which takes as long
_WALKED = 1_000  # nodes of a graph that become objects of Python; far from what overflows a stack


class _PlannedError(Exception):
    """Ends a backward that is planned, before a node of the user's runs."""


class _Planned(torch.autograd.Function):
    """A number that depends on the outputs of a graph; its backward tells what would be run."""

    @staticmethod
    def forward(ctx: Any, tell: Callable[[], None], *outputs: torch.Tensor) -> torch.Tensor:  # noqa: ARG004  # the graph
        ctx.tell = tell
        return torch.zeros(())

    @staticmethod
    def backward(ctx: Any, _: torch.Tensor) -> Any:
        ctx.tell()
        raise _PlannedError


def leaves_are_in_graph(
    outputs: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor]
) -> list[bool]:
    """Which of these leaf tensors, that require grad, the graph of the outputs contains."""
    # UndefinedGrad takes every layout, and subclasses as tensors.
    after: Any = UndefinedGrad()
    with torch.enable_grad():
        nodes = [after(leaf).grad_fn.next_functions[0][0] for leaf in leaves]
    return _would_run(outputs, leaves, nodes)


def outputs_have_leaves(
    outputs: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor]
) -> list[bool]:
    """Which of these outputs have one of the leaf tensors, that require grad, in their graph."""
    there = {id(leaf) for leaf in leaves}
    made = [output for output in outputs if output.grad_fn is not None]
    found = dict(
        zip(map(id, made), _would_run(made, leaves, [one.grad_fn for one in made]), strict=True)
    )
    return [found.get(id(output), id(output) in there) for output in outputs]


def _would_run(
    outputs: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor], nodes: Sequence[Any]
) -> list[bool]:
    """Which of these nodes a backward from the outputs to the leaves would run.

    It is begun, for which the engine finds what it has to run, and given up before any of that
    runs.
    """
    found = [False] * len(nodes)
    outputs = [output for output in outputs if output.requires_grad]
    if not leaves or not outputs:
        return found

    def tell() -> None:
        found[:] = map(will_run_node, nodes)

    with torch.enable_grad():
        root = _Planned.apply(tell, *outputs)  # type: ignore[no-untyped-call]  # PyTorch's
        with contextlib.suppress(_PlannedError):
            torch.autograd.backward(root, retain_graph=True, inputs=list(leaves))
    return found


def positions_outside_graph(
    outputs: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor]
) -> list[int]:
    """Positions of the leaf tensors that the graph of the outputs does not contain."""
    missing = set(map(id, tensors))
    for node in itertools.islice(_nodes(outputs), _LOOKED_AT):
        if type(node) is AccumulateGrad:
            missing.discard(id(node.variable))
            if not missing:
                return []
    there = {id(output) for output in outputs}
    asked = [k for k, tensor in enumerate(tensors) if tensor.is_leaf and tensor.requires_grad]
    found = leaves_are_in_graph(outputs, [tensors[k] for k in asked])
    there |= {id(tensors[k]) for k, here in zip(asked, found, strict=True) if here}
    return [position for position, tensor in enumerate(tensors) if id(tensor) not in there]


def has_raising_node(gradient: torch.Tensor) -> bool:
    """Whether a node in the graph of a gradient only raises: as once_differentiable marks it.

    Unsupported where the graph is too large to look for such a node.
    """
    for number, node in enumerate(_nodes([gradient])):
        if "Error" in node.name() or "NotImplemented" in node.name():
            return True
        if number == _WALKED:
            raise Unsupported(
                f"the graph of a gradient has more than {_WALKED:,} nodes, too many to look for "
                "one that raises"
            )
    return False


def coarsest_unit(outputs: Sequence[torch.Tensor]) -> float:
    """Unit round-off of the coarsest numbers handed on in a graph, if large, near its outputs.

    It is that of autocast, whatever the dtypes of inputs and outputs.
    """
    near = itertools.islice(_nodes(outputs), _WALKED)
    kinds = {made.dtype for node in near for made in node._input_metadata}
    return max((unit_roundoff(kind) for kind in kinds if is_floating(kind)), default=0.0)


def _nodes(outputs: Sequence[torch.Tensor]) -> Iterator[Any]:
    """Every node of a graph once, those next to its outputs first."""
    left: list[Any] = [output.grad_fn for output in outputs]
    seen: set[Any] = {None}
    for node in left:
        if node not in seen:
            seen.add(node)
            yield node
            left += [following for following, _ in node.next_functions]
