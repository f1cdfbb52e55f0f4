"""Long vectors that a map need not hold twice: the point, and F at the point."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from gradproof._adapters.torch_leaves import LONG, to_vector
from gradproof._space import Array
from gradproof.errors import UsageError

if TYPE_CHECKING:
    from gradproof._adapters.torch import TorchMap


def point_of(target: TorchMap) -> Array:
    """The values of the inputs, as one vector. UsageError where one is not finite."""
    point = np.concatenate([leaf.point() for leaf in target.leaves])
    bad = np.flatnonzero(~np.isfinite(point))
    if bad.size:
        place = target.domain.locate(int(bad[0]))
        raise UsageError(
            f"{place} is {point[bad[0]]}: a derivative is checked at finite inputs; "
            "replace the value"
        )
    return point


def leaves_of_graph(target: TorchMap) -> list[torch.Tensor]:
    """Leaves for the kept call; long ones share the memory of the point."""
    if target.domain.size <= LONG or not all(leaf.direct for leaf in target.leaves):
        return target.fresh()
    pairs = zip(target.leaves, target.parts, strict=True)
    return [leaf.tensor(target.point[part]).requires_grad_() for leaf, part in pairs]


def point_kept(target: TorchMap) -> Array:
    """The point after the kept call; in memory of its own if the function wrote into it."""
    if target.domain.size <= LONG:
        return target.point
    values = [leaf.point() for leaf in target.leaves]
    pairs = zip(target.parts, values, strict=True)
    if all(np.array_equal(target.point[part], value) for part, value in pairs):
        return target.point
    return np.concatenate(values)


def value_kept(target: TorchMap, found: Array) -> Array:
    """F(x); where it is long and what the kept call returned, that memory and no other."""
    if found.size <= LONG or len(target.outputs) != 1 or len(target.attached) != 1:
        return found
    kept = to_vector(target.graph[0][0], target.outputs[0].dtype).view()
    kept.flags.writeable = False
    return kept if np.array_equal(kept, found) else found
