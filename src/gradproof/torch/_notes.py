"""Remarks on a PyTorch function for the report: random numbers, idle inputs, other ranks."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from gradproof._data.visible import short_list
from gradproof.torch._graph import Graph

_DISTRIBUTED = torch.distributed.is_available()


def notes_on_function(
    graph: Graph, idle: Sequence[str], unsearched: Sequence[torch.Tensor]
) -> list[str]:
    """Sentences on random numbers, and on inputs and outputs of a special kind."""
    call, found = graph.call, list[str]()
    if graph.inputs.held is not None:
        found.append(graph.inputs.held.note)
    if call.fixed_random:
        found.append(_DRAWN)
    if idle:
        found.append(
            f"no gradient reaches {short_list(idle)}, which the function holds: not checked; name "
            "it in wrt= to have it checked"
        )
    if unsearched:
        shapes = ", ".join(dict.fromkeys([str(list(tensor.shape)) for tensor in unsearched]))
        found.append(
            f"not checked: tensors of shape {shapes} that require grad, which the function "
            "reads from where they are not looked for; pass them as arguments"
        )
    if left_out := graph.outputs.left_out:
        are = "is" if len(left_out) == 1 else "are"
        found.append(f"{', '.join(left_out)} {are} marked as non-differentiable: not checked")
    return [*found, ALONE] if among_ranks() else found


def among_ranks() -> bool:
    """Whether this process is one of several that talk to each other."""
    there = _DISTRIBUTED and torch.distributed.is_initialized()
    return there and torch.distributed.get_world_size() > 1


ALONE = (
    "a process group is at hand: judged is the derivative of this rank's outputs in this rank's "
    "inputs; gradproof.torch.distributed.check judges that of all ranks together"
)
_DRAWN = (
    "the function draws random numbers: every run starts from the same random state, so that one "
    "draw (one dropout mask) is what was checked"
)
