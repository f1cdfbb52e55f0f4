"""What the graph of a gradient says: whether a second derivative exists, raises, or is silent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from gradproof._adapters.torch_tree import floating_in
from gradproof._space import Array

if TYPE_CHECKING:
    from gradproof._adapters.torch import TorchMap


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
    wanted = {id(each) for each in cotangents}
    found = []
    for leaf, gradient in zip(target.leaves, gradients, strict=True):
        if gradient is None or not bool(_values(gradient).any()):
            continue
        if not _leads_to(gradient, wanted):
            found.append(
                f"the gradient of {leaf.slot.name} has no graph under create_graph=True: "
                "differentiated again it counts as constant, without an error; compute it with "
                "differentiable operations, or mark the backward as once_differentiable"
            )
    return found


def _values(gradient: torch.Tensor) -> torch.Tensor:
    gradient = gradient.detach()
    return gradient if gradient.layout is torch.strided else gradient.to_dense()


def _leads_to(gradient: torch.Tensor, wanted: set[int]) -> bool:
    """Whether the graph of a gradient contains one of these tensors, or a node that raises."""
    if id(gradient) in wanted:
        return True
    stack: list[Any] = [gradient.grad_fn]
    seen: set[Any] = set()
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if id(getattr(node, "variable", None)) in wanted or _raises(node):
            return True
        stack.extend(following for following, _ in node.next_functions)
    return False


def _raises(node: Any) -> bool:
    return "Error" in node.name() or "NotImplemented" in node.name()
