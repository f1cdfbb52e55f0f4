"""A rank's part of a function that spans ranks, as a function of plain tensors of this rank.

A DTensor is seen as its local tensor. Layers whose gradients come by hooks of `backward()`, as
those of DistributedDataParallel and of fully_shard do, are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, Placement, Shard
from torch.nn.parallel import DistributedDataParallel

from gradproof._data.inputs import is_selected, name_of, output_name, selected_positions
from gradproof._data.options import short_repr, unknown_name_message
from gradproof.errors import UsageError
from gradproof.torch._adapter import TorchMap
from gradproof.torch._arguments import Arguments
from gradproof.torch._call import Call
from gradproof.torch._captured import Captured
from gradproof.torch._outputs import floating_in
from gradproof.torch._tree import Tree, argument_position, differentiable_names, keystr, tensors_in
from gradproof.torch.distributed._compat import AsyncCollectiveTensor


@dataclass(frozen=True)
class Share:
    """What an array of one rank is in the whole."""

    name: str  # of the array, the same on every rank
    key: tuple[Any, ...]  # arrays of one name and one key are the same array
    weight: float = 1.0  # 0 of an output that is a copy and does not count
    argument: bool = True  # it was given by position or keyword: every rank has one
    placed: str = ""  # as people write it


class Placing:
    """How this rank holds arrays of the whole, by name or pattern; DTensors say so themselves.

    UsageError where the user's placements are no dict from names to placements.
    """

    def __init__(self, placements: Any, rank: int) -> None:
        if not isinstance(placements, Mapping) or not all(
            isinstance(name, str) and isinstance(placement, Placement)
            for name, placement in placements.items()
        ):
            raise UsageError(
                "placements: expected a dict from names of inputs or outputs to Replicate(), "
                "Shard(0) or Partial() of torch.distributed.tensor, got " + short_repr(placements)
            )
        self._placements: Mapping[str, Placement] = placements
        self._rank = rank

    def share(
        self, name: str, tensor: torch.Tensor, *, is_output: bool = False, argument: bool = True
    ) -> Share:
        """The share of an input or an output."""
        if isinstance(tensor, DTensor):
            kinds, mesh = tensor.placements, tensor.device_mesh
            members, here = mesh.mesh.flatten().tolist(), mesh.get_coordinate() or ()
        else:
            kinds, members, here = (self._first_match(name),), [], (self._rank,)
        # Copies are one array, and so are terms of an output.
        apart = [kind.is_shard() if is_output else not kind.is_replicate() for kind in kinds]
        own = [place if each else -1 for place, each in zip(here, apart, strict=True)]
        copies = [k for k, kind in zip(here, kinds, strict=True) if kind.is_replicate()]
        weight = 0.0 if is_output and any(copies) else 1.0
        placed = ", ".join(map(repr, kinds))
        return Share(name, (*members, *own), weight, argument, placed)

    def _first_match(self, name: str) -> Placement:
        """That of the first pattern which, as one of `wrt` would, names the array.

        An array without one is its rank's own, as one that is sharded.
        """
        found = (kind for one, kind in self._placements.items() if is_selected(one, name))
        return next(found, Shard(0))

    def require_arrays(self, names: Collection[str]) -> None:
        """UsageError where a placement is of none of these arrays, which are those of all ranks."""
        for one in self._placements:
            if not any(is_selected(one, name) for name in names):
                raise UsageError(f"placements: unknown {unknown_name_message(one, names)}")


class Local:
    """The function of the tensors of this rank that are differentiated.

    Attributes:
        tensors: those that are differentiated, of this rank, plain.
        inputs: what each of them is in the whole.
        outputs: likewise the floating tensors of the last result.
        placing: how this rank holds arrays of the whole.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        inputs: Sequence[Any],
        kwargs: Mapping[str, Any],
        wrt: Any,
        placing: Placing,
    ) -> None:
        self._fn, self.placing = fn, placing
        self.__name__ = name_of(fn)
        self._held = Captured(fn, tensors_in((tuple(inputs), dict(kwargs))))
        _refuse_trained_layers(self._held.modules)
        self._tree = Tree((tuple(inputs), dict(kwargs), dict(self._held.tensors)))
        self.outputs: list[Share] = []
        leaves, paths = self._tree.leaves, self._tree.paths
        names = differentiable_names(self._tree, fn)
        places = list(names)
        arguments = [argument_position(paths[place]) for place in places]
        self._names = list(names.values())
        picked = selected_positions(self._names, arguments, wrt)
        self._where = [places[k] for k in picked]
        self.originals = [leaves[place] for place in self._where]
        self.inputs = [
            placing.share(names[place], leaves[place], argument=paths[place][0].idx < 2)
            for place in self._where
        ]
        if not picked:  # an empty input, where this rank has none to differentiate
            self.originals = [torch.zeros(0, dtype=torch.float64, requires_grad=True)]
            self.inputs = [Share("nothing", (), argument=False)]
        self.tensors = [_local_tensor(leaf).detach().requires_grad_() for leaf in self.originals]

    @property
    def names(self) -> list[str]:
        """Of all arrays of this rank that may be placed, outputs of the last call included."""
        return [*self._names, *(output.name for output in self.outputs)]

    def __call__(self, *tensors: torch.Tensor) -> Any:
        """The result, each DTensor as its local one; an empty one where there is no tensor."""
        tree = Tree(self._run(tensors))
        pairs = zip(tree.paths, tree.leaves, strict=True)
        floating = [(path, leaf) for path, leaf in pairs if floating_in(leaf)]
        self.outputs = [
            self.placing.share(output_name(path, keystr), leaf, is_output=True)
            for path, leaf in floating
        ]
        if not floating:
            self.outputs = [Share("output 0", ())]
            return torch.zeros(0, dtype=torch.float64)
        return tree.rebuilt([_local_tensor(leaf) for leaf in tree.leaves])

    def _run(self, tensors: Sequence[torch.Tensor]) -> Any:
        """The user's function with these in the places of its own."""
        wider = [t.dtype != o.dtype for t, o in zip(tensors, self.originals, strict=True)]
        flat = [self._copy_of_leaf(leaf, any(wider)) for leaf in self._tree.leaves]
        for place, tensor in zip(self._where, tensors, strict=bool(self._where)):
            flat[place] = _as_dtensor(tensor, self._tree.leaves[place])
        args, kwargs, held = self._tree.rebuilt(flat)
        with self._held.exchange_tensors(held, tensors_in((args, kwargs))):
            return self._fn(*args, **kwargs)

    @staticmethod
    def _copy_of_leaf(leaf: Any, wider: bool) -> Any:
        """A leaf that is not varied: a copy, which the function may write into."""
        if not isinstance(leaf, torch.Tensor) or isinstance(leaf, DTensor):
            return leaf
        copy = leaf.detach().clone().requires_grad_(leaf.requires_grad)
        return copy.double() if wider and leaf.is_floating_point() else copy


def _refuse_trained_layers(modules: Sequence[torch.nn.Module]) -> None:
    """UsageError where gradients come by hooks of `backward()` only."""
    for layer in (inner for outer in modules for inner in outer.modules()):
        if isinstance(layer, (DistributedDataParallel, FSDPModule)):
            raise UsageError(
                f"fn: the gradients of {type(layer).__name__} come by hooks of backward(), which "
                "cannot be asked for gradients of tensors; check the layer before it is wrapped"
            )


def _local_tensor(value: Any) -> Any:
    """A DTensor's tensor of this rank, once it is there; anything else as it is."""
    found = value.to_local() if isinstance(value, DTensor) else value
    return found.clone() if isinstance(found, AsyncCollectiveTensor) else found


class _Waited(torch.autograd.Function):
    """The same tensor, whose gradient is there when it is read."""

    @staticmethod
    def forward(_: Any, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.view_as(tensor)

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> Any:
        return _local_tensor(gradient)


def _as_dtensor(tensor: torch.Tensor, original: torch.Tensor) -> torch.Tensor:
    """The tensor, as a DTensor where the original is one."""
    if not isinstance(original, DTensor):
        return tensor
    return DTensor.from_local(
        _Waited.apply(tensor),  # type: ignore[no-untyped-call]  # PyTorch's
        original.device_mesh,
        original.placements,
        run_check=False,
        shape=original.shape,
        stride=original.stride(),
    )


def local_map(local: Local) -> TorchMap:
    """The map of this rank's part."""
    # Nothing is left out: what is decided from the run of one rank alone would run the function
    # again there, where no other rank does.
    names = [share.name for share in local.inputs]
    arguments = Arguments(local, local.tensors, {}, names=names, derived=True)
    return TorchMap(Call(local, arguments), without=frozenset())
