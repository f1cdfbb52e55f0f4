"""Modules of large models, with a mistake of the kind that custom backwards of them have."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from exhibits.frame import Exhibit, gradients_of, normal, ruled


def experts(
    x: Tensor, router: Tensor, up: Tensor, down: Tensor, *, detached: bool = False
) -> Tensor:
    """Each row goes to the two experts that are chosen for it, weighted by their gates."""
    gates, chosen = (x @ router).softmax(-1).topk(2, -1)
    gates = gates / gates.sum(-1, keepdim=True)
    gates = gates.detach() if detached else gates
    y = torch.zeros(len(x), down.shape[-1], dtype=x.dtype)
    for expert in range(len(up)):
        row, rank = (chosen == expert).nonzero(as_tuple=True)
        through = functional.gelu(x[row] @ up[expert]) @ down[expert]
        y = y.index_add(0, row, through * gates[row, rank][:, None])
    return y


def near_a_change_of_experts() -> tuple[Tensor, ...]:
    """Ten rows, in one of which another expert is chosen within the longest step."""
    with torch.random.fork_rng():
        torch.manual_seed(2)
        x, router = torch.randn(10, 12), torch.randn(12, 4)
        up, down = 0.3 * torch.randn(4, 12, 16), 0.3 * torch.randn(4, 16, 12)
    return tuple(each.double().requires_grad_() for each in (x, router, up, down))


class Recomputed(torch.nn.Module):
    """A layer that is run again by its backward, from the weights that it then finds."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor
        self.weight = torch.nn.Parameter(normal(6, 4, seed=2).detach())

    def layer(self, x: Tensor) -> Tensor:
        scaled = ruled(torch.clone, lambda g, x: self.factor * g)
        return scaled((x @ self.weight).tanh())

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.layer, x, use_reentrant=False)


EXHIBITS = (
    Exhibit(
        name="factor_in_a_layer_that_its_backward_runs_again",
        make_inputs=lambda: (normal(5, 6),),
        wrong=Recomputed(1.05),
        right=Recomputed(1.0),
        words=("claimed",),
    ),
    Exhibit(
        name="gates_detached_beside_a_change_of_experts",
        make_inputs=near_a_change_of_experts,
        wrong=ruled(experts, partial(gradients_of, partial(experts, detached=True)), vmap=False),
        right=experts,
        words=("claimed",),
    ),
)
