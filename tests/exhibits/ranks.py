"""Mistakes of functions that span ranks, each with its right twin.

A museum of its own: an exhibit is a function of several processes, which run together, and what is
said of it is said on every one. All run on gloo, with 2 to 4 ranks, in float64.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as nn_functional
from torch import Tensor
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_tensor,
    init_device_mesh,
)
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from exhibits import frame


@dataclass(frozen=True, kw_only=True)
class OnRanks:
    """A function that spans ranks.

    Attributes:
        name: the mistake, as a slug that reads as a sentence; or what the right function is.
        inputs: of this rank.
        wrong: returns the function whose derivative is wrong; None where the exhibit is a right
            function.
        right: returns its right twin.
        options: returns further keywords of `check`.
        places: some findings' inputs are called so: rank and name.
        check: that fails.
    """

    name: str
    inputs: Callable[[], tuple[Any, ...]]
    wrong: Callable[[], Callable[..., Any]] | None = None
    right: Callable[[], Callable[..., Any]] | None = None
    options: Callable[[], Mapping[str, Any]] = dict
    places: tuple[str, ...] = ("rank 0, x", "rank 1, x")
    check: str = "backward"

    def __str__(self) -> str:
        return self.name


def here() -> int:
    return dist.get_rank()


def count() -> int:
    return dist.get_world_size()


def numbers(*shape: int, seed: int = 1, rank: bool = True) -> Tensor:
    """Standard normal entries that require a gradient, others on every rank where `rank`."""
    generator = torch.Generator().manual_seed(seed + 100 * (here() + 1) * rank)
    return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()


def summed(x: Tensor, **options: Any) -> Tensor:
    y = x.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(y, **options)
    return y


def ruled(
    forward: Callable[..., Tensor], backward: Callable[[Tensor], Tensor], *, inside: bool = True
) -> Callable[..., Tensor]:
    """A collective with a backward of its own, inside of a function that is not linear."""
    rule = frame.ruled(forward, lambda g, x: backward(g), vmap=False)
    return (lambda x: rule(x.sin()).square()) if inside else rule


def uneven() -> list[int]:
    """Rows of the shard of each rank."""
    return [3 if rank == 0 else 2 for rank in range(count())]


def gathered(x: Tensor, sizes: list[int] | None = None) -> Tensor:
    sizes = sizes or [len(x)] * count()
    parts = [x.new_zeros(max(sizes), *x.shape[1:]) for _ in sizes]
    padded = torch.cat([x, x.new_zeros(max(sizes) - len(x), *x.shape[1:])])
    dist.all_gather(parts, padded.contiguous())
    return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])


def own_rows(g: Tensor, rows: int, rank: int) -> Tensor:
    return g[rows * rank : rows * (rank + 1)].clone()


def only_on_the_first(g: Tensor) -> Tensor:
    total = summed(g)
    return total if here() == 0 else torch.zeros_like(total)


class Stale:
    """A backward that gives back its buffer before the work on it is done."""

    def __init__(self) -> None:
        self.buffer: Tensor | None = None

    def __call__(self, g: Tensor) -> Tensor:
        before, self.buffer = self.buffer, g.clone(memory_format=torch.contiguous_format)
        work = dist.all_reduce(self.buffer, async_op=True)
        found = self.buffer.clone() * 0 if before is None else before.clone()
        work.wait()
        return found


def waited(g: Tensor) -> Tensor:
    total = g.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total, async_op=True).wait()
    return total


def on_a_short_wire(g: Tensor) -> Tensor:
    return summed(g.bfloat16()).to(g.dtype)


def exchanged(x: Tensor) -> Tensor:
    """all_to_all of the rows: shard k goes to rank k."""
    received = torch.empty_like(x.contiguous())
    dist.all_to_all_single(received, x.contiguous())
    return received


def scattered_sum(x: Tensor) -> Tensor:
    """The sum over the ranks, of which each keeps its rows."""
    parts = [part.contiguous() for part in x.chunk(count())]
    kept = torch.empty_like(parts[0])
    dist.reduce_scatter(kept, parts)
    return kept


def among_zeros(g: Tensor) -> Tensor:
    """The rows of this rank, and zeros for those of the others."""
    parts = [torch.zeros_like(g) for _ in range(count())]
    parts[here()] = g
    return torch.cat(parts)


def sent_from_the_first(x: Tensor) -> Tensor:
    y = x.clone(memory_format=torch.contiguous_format)
    dist.broadcast(y, 0)
    return y


def rows(*shape: int) -> Callable[[], tuple[Any, ...]]:
    return lambda: (numbers(*shape),)


def same(*shape: int) -> Callable[[], tuple[Any, ...]]:
    return lambda: (numbers(*shape, rank=False),)


def whole(**names: Any) -> Callable[[], Mapping[str, Any]]:
    return lambda: {"placements": {name.replace("_", " "): kind for name, kind in names.items()}}


def identity(x: Tensor) -> Tensor:
    return x.clone()


MISTAKES: tuple[OnRanks, ...] = (
    OnRanks(
        name="the mean's backward lacks the number of ranks",
        inputs=rows(3),
        wrong=lambda: ruled(lambda x: summed(x) / count(), summed),
        right=lambda: ruled(lambda x: summed(x) / count(), lambda g: summed(g) / count()),
    ),
    OnRanks(
        name="all-reduced in forward and in backward",
        inputs=rows(3),
        wrong=lambda: ruled(summed, summed),
        right=lambda: ruled(summed, identity),
        options=whole(output_0=Replicate()),
    ),
    OnRanks(
        name="only rank 0 has the gradient of what all hold",
        inputs=same(3),
        wrong=lambda: ruled(
            lambda x: x * (here() + 1), lambda g: only_on_the_first(g * (here() + 1))
        ),
        right=lambda: ruled(lambda x: x * (here() + 1), lambda g: summed(g * (here() + 1))),
        options=whole(x=Replicate()),
        places=("rank 1, x",),
    ),
    OnRanks(
        name="the missing all-reduce of a column-parallel input",
        inputs=same(3),
        wrong=lambda: ruled(lambda x: x * (here() + 1), lambda g: g * (here() + 1)),
        right=lambda: ruled(lambda x: x * (here() + 1), lambda g: summed(g * (here() + 1))),
        options=whole(x=Replicate()),
    ),
    OnRanks(
        name="the shards in a wrong order",
        inputs=rows(2, 3),
        wrong=lambda: ruled(gathered, lambda g: own_rows(summed(g), 2, (here() + 1) % count())),
        right=lambda: ruled(gathered, lambda g: own_rows(summed(g), 2, here())),
    ),
    OnRanks(
        name="shards taken for even",
        inputs=lambda: (numbers(uneven()[here()], 2),),
        wrong=lambda: ruled(
            lambda x: gathered(x, uneven()),
            lambda g: (
                summed(g)[-uneven()[here()] :] if here() else own_rows(summed(g), 3, 0).roll(1, 0)
            ),
        ),
        right=lambda: ruled(
            lambda x: gathered(x, uneven()), lambda g: summed(g).split(uneven())[here()].clone()
        ),
        places=("rank 0, x",),
    ),
    OnRanks(
        name="the buffer of an unfinished work handle",
        inputs=rows(3),
        wrong=lambda: ruled(summed, Stale()),
        right=lambda: ruled(summed, waited),
    ),
    OnRanks(
        name="the backward of all_gather as a slice",
        inputs=rows(2, 3),
        wrong=lambda: ruled(gathered, lambda g: own_rows(g, 2, here())),
        right=lambda: ruled(gathered, lambda g: own_rows(summed(g), 2, here())),
    ),
    OnRanks(
        name="fewer bits on the wire",
        inputs=rows(3),
        wrong=lambda: ruled(summed, on_a_short_wire),
        right=lambda: ruled(summed, summed),
    ),
    OnRanks(
        name="Partial taken for Replicate",
        inputs=lambda: (replicated(numbers(4, rank=False)),),
        wrong=lambda: functools.partial(weighted, kind=Replicate()),
        right=lambda: functools.partial(weighted, kind=Partial()),
    ),
    OnRanks(
        name="all_to_all back without being turned round",
        inputs=lambda: (numbers(count(), 2),),
        wrong=lambda: ruled(exchanged, identity),
        right=lambda: ruled(exchanged, exchanged),
    ),
    OnRanks(
        name="the backward of reduce_scatter without its all_gather",
        inputs=lambda: (numbers(count(), 2),),
        wrong=lambda: ruled(scattered_sum, among_zeros),
        right=lambda: ruled(scattered_sum, gathered),
    ),
    OnRanks(
        name="a broadcast whose source keeps its own gradient only",
        inputs=rows(3),
        wrong=lambda: ruled(sent_from_the_first, lambda g: g * (here() == 0)),
        right=lambda: ruled(sent_from_the_first, only_on_the_first),
        places=("rank 0, x",),
    ),
    OnRanks(
        name="the cotangent itself is all-reduced",
        inputs=rows(3),
        wrong=lambda: ruled(summed, in_place, inside=False),
        right=lambda: ruled(summed, summed, inside=False),
        check="side_effects",
        places=(),
    ),
    OnRanks(
        name="the second stage returns its own gradient",
        inputs=rows(3),
        wrong=lambda: functools.partial(stages, factor=2.0),
        right=lambda: functools.partial(stages, factor=1.0),
        places=("rank 0, x",),
    ),
)


def in_place(g: Tensor) -> Tensor:
    dist.all_reduce(g)
    return g.clone()


@functools.cache
def mesh() -> Any:
    return init_device_mesh("cpu", (count(),))


def replicated(x: Tensor) -> DTensor:
    return distribute_tensor(x.detach(), mesh(), [Replicate()]).requires_grad_()


def weighted(x: DTensor, kind: Any) -> Tensor:
    """The local part of a computation on what all hold: its gradients are terms of a sum."""
    return x.to_local(grad_placements=[kind]).sin() * (here() + 1)


# A pipeline of two stages: rank 0 sends, rank 1 computes.


def sent(x: Tensor) -> Tensor:
    dist.send(x.contiguous(), 1)
    return x.new_zeros(0)


def received(like: Tensor, source: int) -> Tensor:
    found = torch.empty_like(like)
    dist.recv(found, source)
    return found


def sent_back(g: Tensor) -> Tensor:
    dist.send(g.contiguous(), 0)
    return torch.zeros_like(g)


def stages(x: Tensor, factor: float) -> Tensor:
    if here() > 1:
        return x.cos()
    if here() == 0:
        return ruled(sent, lambda _: received(x, 1), inside=False)(x.sin())
    second = ruled(lambda x: received(x, 0), lambda g: sent_back(factor * g), inside=False)
    return second(x) * x.exp()


# Right ones, of what PyTorch brings.


class Megatron(torch.nn.Module):
    """A column-parallel layer, and a row-parallel one after it, in plain tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Parameter(numbers(3, 2, seed=3).detach())
        self.down = torch.nn.Parameter(numbers(2, 3, seed=4).detach())

    def forward(self, x: Tensor) -> Tensor:
        copied = ruled(identity, summed, inside=False)
        reduced = ruled(summed, identity, inside=False)
        return reduced((copied(x) @ self.up).sin() @ self.down)


def perceptron(width: int = 4) -> torch.nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(7)
        layers = (torch.nn.Linear(3, width), torch.nn.Tanh(), torch.nn.Linear(width, 3))
    return torch.nn.Sequential(*layers).double()


def parallel_perceptron() -> Any:
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    return parallelize_module(perceptron(2 * count()), mesh(), plan)


def turned(x: Tensor, step: int) -> Tensor:
    received = torch.empty_like(x.contiguous())
    to, source = (here() + step) % count(), (here() - step) % count()
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, x.contiguous(), to),
            dist.P2POp(dist.irecv, received, source),
        ]
    )
    for work in works:
        work.wait()
    return received


def turned_back(g: Tensor) -> Tensor:
    return turned(g, -1)


def ring_attention(q: Tensor, k: Tensor, v: Tensor, back: Any = turned_back) -> Tensor:
    """Attention over the keys of all ranks, which go round in a ring; gradients, `back`."""
    to_the_next = ruled(lambda x: turned(x, 1), back, inside=False)
    most = q.new_full((len(q), 1), -torch.inf)
    total, weights = torch.zeros_like(q), q.new_zeros(len(q), 1)
    for turn in range(count()):
        scores = q @ k.mT
        new = torch.maximum(most, scores.amax(-1, keepdim=True).detach())
        p, decay = (scores - new).exp(), (most - new).exp()
        total, weights = total * decay + p @ v, weights * decay + p.sum(-1, keepdim=True)
        most = new
        if turn + 1 < count():
            k, v = to_the_next(torch.stack([k, v])).unbind(0)
    return total / weights


def with_rows(fn: Callable[[Tensor], Any]) -> Callable[[], Any]:
    return lambda: lambda x: fn(x.sin()).square()


contiguous = ruled(identity, torch.Tensor.contiguous, inside=False)

RIGHT: tuple[OnRanks, ...] = (
    OnRanks(
        name="nn.functional.all_gather, which reads a transposed cotangent as it lies",
        inputs=rows(2, 3),
        wrong=with_rows(lambda x: torch.cat(nn_functional.all_gather(x))),
        right=with_rows(lambda x: contiguous(torch.cat(nn_functional.all_gather(x)))),
        check="memory_layout",
        places=(),
    ),
    OnRanks(
        name="functional all_gather_tensor_autograd",
        inputs=rows(2, 3),
        right=with_rows(lambda x: functional.all_gather_tensor_autograd(x, 0, dist.group.WORLD)),
    ),
    OnRanks(
        name="a tensor-parallel layer in plain tensors",
        inputs=same(2, 3),
        right=Megatron,
        options=whole(x=Replicate(), output_0=Replicate()),
    ),
    OnRanks(
        name="a tensor-parallel layer of DTensors",
        inputs=same(2, 3),
        right=parallel_perceptron,
        options=whole(input=Replicate(), output_0=Replicate()),
    ),
    OnRanks(
        name="a product of DTensors that is a sum over ranks",
        inputs=lambda: (
            distribute_tensor(
                numbers(2, 4, rank=False).detach(), mesh(), [Shard(1)]
            ).requires_grad_(),
            distribute_tensor(
                numbers(4, 2, rank=False).detach(), mesh(), [Shard(0)]
            ).requires_grad_(),
        ),
        right=lambda: lambda x, w: x.sin() @ w,
    ),
    OnRanks(
        name="ring attention",
        inputs=lambda: tuple(numbers(2, 3, seed=s) for s in (1, 2, 3)),
        right=lambda: ring_attention,
    ),
    OnRanks(
        name="a ring whose gradients do not go back",
        inputs=lambda: tuple(numbers(2, 3, seed=s) for s in (1, 2, 3)),
        wrong=lambda: functools.partial(ring_attention, back=identity),
        right=lambda: ring_attention,
        places=("rank 0, k",),
    ),
)
BY_NAME = {exhibit.name: exhibit for exhibit in (*MISTAKES, *RIGHT)}


# Ranks that do not do the same. Each is what one rank does otherwise, and what is said of it.


def other_order(x: Tensor) -> Tensor:
    if here() == 0:
        return gathered(summed(x))
    return summed(gathered(x))


def one_more(x: Tensor) -> Tensor:
    return summed(summed(x) if here() == 1 else x)


def raises(x: Tensor) -> Tensor:
    if here() == 1:
        raise ValueError("this shard is not there")
    return summed(x)


def other_dtype(x: Tensor) -> Tensor:
    return summed(x.float() if here() == 1 else x).double()


APART: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "another order": (
        other_order,
        "rank 0 calls allreduce of float64, rank 1 calls allgather of float64",
    ),
    "one more": (one_more, "rank 0 returned, rank 1 calls allreduce of float64"),
    "an exception": (raises, "rank 1 raised ValueError: this shard is not there"),
    "another dtype": (
        other_dtype,
        "rank 0 calls allreduce of float64, rank 1 calls allreduce of float32",
    ),
}
