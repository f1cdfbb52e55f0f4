"""A column-parallel linear layer whose backward lacks its all-reduce, found.

torchrun --nproc-per-node 2 examples/column_parallel.py
"""

import torch
import torch.distributed as dist
from torch.distributed.tensor import Replicate

from gradproof.torch import distributed


class ColumnParallel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):  # every rank holds all of x, and its own columns of the weight
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        return g @ weight.T, x.T @ g  # g @ weight.T is one term of the sum over the ranks


def layer(x, weight):
    return ColumnParallel.apply(x, weight)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    x = torch.linspace(1, 2, 4, dtype=torch.float64).reshape(2, 2).requires_grad_()
    weight = torch.full((2, 1), 1.0 + dist.get_rank(), dtype=torch.float64, requires_grad=True)
    report = distributed.check(layer, (x, weight), placements={"x": Replicate()}, seed=1)
    if dist.get_rank() == 0:
        print(report)
    dist.destroy_process_group()
