"""Projections of PyTorch tensors to valid ones: symmetric, triangular, of positive entries, ..."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from gradproof._adapters.torch_call import Projection, first_line
from gradproof._adapters.torch_leaves import Leaf, unit_roundoff
from gradproof.errors import UsageError

_UNITS = 16.0  # by which a projection may move a valid input: its own rounding


def projections(project: Any, leaves: Sequence[Leaf]) -> dict[str, Projection]:
    """Name of an input -> its projection; none where `project` is None.

    Raises:
        UsageError: `project` is neither a function nor a mapping from names of inputs to
            functions, or one moves its input, raises, or returns another kind of tensor.
    """
    names = [leaf.slot.name for leaf in leaves]
    if project is None:
        return {}
    given = project if isinstance(project, Mapping) else dict.fromkeys(names, project)
    if unknown := [name for name in given if name not in names]:
        raise UsageError(
            f"project: no differentiable input is called {unknown[0]!r}; there are "
            + ", ".join(names)
        )
    for name, function in given.items():
        if not callable(function):
            raise UsageError(
                f"project: expected a function, or a dict from names of inputs to functions, got "
                f"{type(function).__name__} for {name}"
            )
    for leaf in leaves:
        if leaf.slot.name in given:
            _require_valid(given[leaf.slot.name], leaf)
    return dict(given)


def _require_valid(function: Projection, leaf: Leaf) -> None:
    name, tensor = leaf.slot.name, leaf.copy()
    try:
        made: Any = function(leaf.copy())
    except Exception as error:  # the user's function may raise anything
        raise UsageError(
            f"project: of {name} it raised {type(error).__name__}: {first_line(error)}"
        ) from error
    if not isinstance(made, torch.Tensor) or made.shape != tensor.shape:
        got = tuple(made.shape) if isinstance(made, torch.Tensor) else type(made).__name__
        raise UsageError(
            f"project: expected a tensor of shape {tuple(tensor.shape)} for {name}, got {got}"
        )
    if not tensor.numel():
        return
    gap = (made - tensor).detach()
    far, size = (float(x.to_dense().abs().max()) for x in (gap, tensor.detach()))
    if not far <= _UNITS * unit_roundoff(tensor.dtype) * size:
        raise UsageError(
            f"project: it moves {name} by up to {far:.2g}; choose a valid point, one that it "
            "leaves where it is"
        )
