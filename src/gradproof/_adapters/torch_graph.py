"""What the graph of a call says: what it contains, whether a second derivative is silent.

To walk a graph by `next_functions` makes each node an object of Python, and such nodes release
their successors by recursion: 100,000 in a row end the process. So PyTorch's engine is asked.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from gradproof._adapters.torch_tree import floating_in
from gradproof._map import Unsupported
from gradproof._space import Array

if TYPE_CHECKING:
    from gradproof._adapters.torch import TorchMap

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


def reached(outputs: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor]) -> list[bool]:
    """Which of these leaf tensors, that require grad, the graph of the outputs contains."""
    after: Any = (
        torch._C._functions.UndefinedGrad()
    )  # takes every layout, and subclasses as tensors
    with torch.enable_grad():
        nodes = [after(leaf).grad_fn.next_functions[0][0] for leaf in leaves]
    return _planned(outputs, leaves, nodes)


def leading(outputs: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor]) -> list[bool]:
    """Which of these outputs have one of the leaf tensors, that require grad, in their graph."""
    there = {id(leaf) for leaf in leaves}
    made = [output for output in outputs if output.grad_fn is not None]
    found = dict(
        zip(map(id, made), _planned(made, leaves, [one.grad_fn for one in made]), strict=True)
    )
    return [found.get(id(output), id(output) in there) for output in outputs]


def _planned(
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
        found[:] = map(torch._C._will_engine_execute_node, nodes)

    with torch.enable_grad():
        root = _Planned.apply(tell, *outputs)  # type: ignore[no-untyped-call]  # PyTorch's
        with contextlib.suppress(_PlannedError):
            torch.autograd.backward(root, retain_graph=True, inputs=list(leaves))
    return found


def silent_gradients(target: TorchMap, v: Array) -> list[str]:
    """One sentence for each gradient whose second derivative would be zero without a word.

    J^T v is linear in v. A gradient that is not zero and whose graph does not lead to v was
    computed outside of the graph: differentiated again, it counts as constant. once_differentiable
    makes that an error, which is honest.
    """
    leaves, cotangents = target.fresh(), [each.requires_grad_() for each in target.cotangents(v)]
    floating = floating_in(target.run(leaves))
    outputs = [floating[output.position] for output in target.attached]
    gradients = target.grad(outputs, leaves, cotangents, create_graph=True)
    found = []
    for leaf, gradient in zip(target.leaves, gradients, strict=True):
        if gradient is None or not bool(_values(gradient).any()):
            continue
        if not _leads_to(gradient, cotangents):
            found.append(
                f"the gradient of {leaf.slot.name} has no graph under create_graph=True: "
                "differentiated again it counts as constant, without an error; compute it with "
                "differentiable operations, or mark the backward as once_differentiable"
            )
    return found


def _values(gradient: torch.Tensor) -> torch.Tensor:
    gradient = gradient.detach()
    return gradient if gradient.layout is torch.strided else gradient.to_dense()


def _leads_to(gradient: torch.Tensor, wanted: Sequence[torch.Tensor]) -> bool:
    """Whether the graph of a gradient contains one of these leaves, or a node that raises."""
    if any(gradient is each for each in wanted) or any(reached([gradient], wanted)):
        return True
    return refuses(gradient)


def refuses(gradient: torch.Tensor) -> bool:
    """Whether a node in the graph of a gradient only raises: as once_differentiable marks it.

    Unsupported where the graph is too large to look for such a node.
    """
    stack: list[Any] = [gradient.grad_fn]
    seen: set[Any] = set()
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        if _raises(node):
            return True
        seen.add(node)
        if len(seen) > _WALKED:
            raise Unsupported(
                f"the graph of a gradient has more than {_WALKED:,} nodes, too many to look for "
                "one that raises"
            )
        stack.extend(following for following, _ in node.next_functions)
    return False


def _raises(node: Any) -> bool:
    return "Error" in node.name() or "NotImplemented" in node.name()
