"""What the report says of a PyTorch function beside its derivatives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from gradproof._adapters.torch_overlap import sharing
from gradproof._adapters.torch_reverse import unreachable

if TYPE_CHECKING:
    from gradproof._adapters.torch import TorchMap

_NAMED = 3  # names that a sentence lists


def notes(target: TorchMap) -> list[str]:
    """Sentences on batch statistics, random numbers, and inputs and outputs of a special kind."""
    kinds = (_held, _batch_statistics, _random, _idle, _left_out, _dependent, _sharing)
    return [note for kind in kinds for note in kind(target)]


def _held(target: TorchMap) -> Iterator[str]:
    if target.held is not None:
        yield target.held.note


def _batch_statistics(target: TorchMap) -> Iterator[str]:
    held = target.arguments.captured
    modules = () if held is None else held.modules
    if any(
        isinstance(module, torch.nn.modules.batchnorm._NormBase)
        and module.training
        and module.running_mean is not None
        for root in modules
        for module in root.modules()
    ):
        yield (
            "normalisation in training mode: the derivative is that of the batch's own "
            "statistics; running statistics are put back after every run"
        )


def _random(target: TorchMap) -> Iterator[str]:
    if target.fixed_random:
        yield (
            "the function draws random numbers: every run starts from the same random state, so "
            "that one draw (one dropout mask) is what was checked"
        )


def _idle(target: TorchMap) -> Iterator[str]:
    idle = [place for place in unreachable(*target.graph) if place in target.arguments.beside]
    if idle:
        names = ", ".join(target.leaves[place].slot.name for place in idle[:_NAMED])
        more = f" and {len(idle) - _NAMED} more" if len(idle) > _NAMED else ""
        yield f"no gradient reaches {names}{more}, which the function holds"


def _left_out(target: TorchMap) -> Iterator[str]:
    if names := target.produced.left_out:
        are = "is" if len(names) == 1 else "are"
        yield f"{', '.join(names)} {are} marked as non-differentiable: not checked"


def _sharing(target: TorchMap) -> Iterator[str]:
    """Inputs whose numbers lie in the same memory; each is varied by itself all the same."""
    names = [leaf.slot.name for leaf in target.leaves]
    for first, second in sharing([leaf.original for leaf in target.leaves]):
        yield (
            f"{names[first]} and {names[second]} share memory: each is varied by itself, and its "
            "derivative is the partial one"
        )


def _dependent(target: TorchMap) -> Iterator[str]:
    """Inputs that were computed from other inputs; each is varied by itself all the same."""
    originals = [leaf.original for leaf in target.leaves]
    for place, tensor in enumerate(originals):
        if tensor.grad_fn is None or place in target.arguments.beside:
            continue
        others = [k for k in range(len(originals)) if k != place]
        unused = unreachable([tensor], [originals[k] for k in others])
        used = [target.leaves[k].slot.name for j, k in enumerate(others) if j not in unused]
        if used:
            yield (
                f"{target.leaves[place].slot.name} was computed from {', '.join(used)}: each is "
                "varied by itself, and its derivative is the partial one"
            )
