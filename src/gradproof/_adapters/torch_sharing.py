"""Long vectors that a map need not hold twice: the point, and F at the point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from gradproof._adapters.torch_leaves import LONG, Leaf, to_vector
from gradproof._adapters.torch_vectors import home_of, joined
from gradproof._held import Held, finite_point
from gradproof._space import Array

if TYPE_CHECKING:
    from gradproof._adapters.torch import TorchMap


def housed(leaves: Sequence[Leaf]) -> torch.device | None:
    """The device on which the vectors of these inputs live, which they are told; None: the host."""
    home = home_of([leaf.original for leaf in leaves])
    for leaf in leaves:
        leaf.home = home
    return home


def point_of(target: TorchMap) -> tuple[Array, Held | None]:
    """The values of the inputs, as one vector, and what is held. UsageError where one is NaN."""
    return finite_point(
        target.domain, joined([leaf.point() for leaf in target.leaves], target.home)
    )


def leaves_of_graph(target: TorchMap) -> list[torch.Tensor]:
    """Leaves for the kept call; long ones share the memory of a point on the host."""
    apart = _is_apart(target, target.domain.size) or target.held is not None
    if apart or not all(leaf.direct for leaf in target.leaves):
        return target.fresh()
    pairs = zip(target.leaves, target.parts, strict=True)
    return [leaf.tensor(target.point[part]).requires_grad_() for leaf, part in pairs]


def point_kept(target: TorchMap) -> Array:
    """The point after the kept call; in memory of its own if the function wrote into it."""
    if _is_apart(target, target.domain.size) or target.held is not None:
        return target.point
    values = [leaf.point() for leaf in target.leaves]
    pairs = zip(target.parts, values, strict=True)
    if all(np.array_equal(target.point[part], value) for part, value in pairs):
        return target.point
    return np.concatenate(values)


def _is_apart(target: TorchMap, size: int) -> bool:
    """Whether vectors of this size share no memory with tensors: short ones, and on a device."""
    return target.home is not None or size <= LONG


def value_kept(target: TorchMap, found: Array) -> Array:
    """F(x); where it is long and what the kept call returned, that memory and no other."""
    if _is_apart(target, found.shape[0]) or len(target.outputs) != 1 or not target.attached:
        return found
    kept = to_vector(target.graph[0][0], target.outputs[0].dtype).view()
    kept.flags.writeable = False
    return kept if np.array_equal(kept, found) else found
