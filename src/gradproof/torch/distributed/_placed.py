"""A rank's part of a function that spans ranks, as a function of plain tensors of this rank.

A DTensor is seen as its local tensor; layers whose gradients come by hooks of `backward()`, as
those of DistributedDataParallel and of fully_shard do, are trained for one step in every backward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, Placement, Replicate
from torch.nn.parallel import DistributedDataParallel

from gradproof._data.inputs import output_name, parameter_names, selected_positions
from gradproof._data.options import short_repr
from gradproof._guard import restored
from gradproof.errors import UsageError
from gradproof.torch._adapter import TorchMap
from gradproof.torch._arguments import Arguments, Choice
from gradproof.torch._call import Call, function_name
from gradproof.torch._captured import Captured
from gradproof.torch._outputs import floating_in
from gradproof.torch._tree import Tree, argument_position, input_name, keystr, tensors_in
from gradproof.torch.distributed._compat import AsyncCollectiveTensor


@dataclass(frozen=True)
class Share:
    """What an array of one rank is in the whole."""

    name: str  # of the array, the same on every rank
    key: tuple[Any, ...]  # arrays of one name and one key are the same array
    # Of a gradient, what the framework has divided by; of an output, the part of it that belongs to
    # the sum over all arrays of this name and key, 0 where it is a copy.
    weight: float = 1.0
    argument: bool = True  # it was given by position or keyword: every rank has one
    placed: str = ""  # as people write it


class Placing:
    """How this rank holds arrays of the whole, by name or pattern; DTensors say so themselves.

    UsageError where the user's placements are no dict from names to placements.
    """

    def __init__(self, placements: Any, rank: int) -> None:
        fine = isinstance(placements, Mapping) and all(
            isinstance(name, str) and isinstance(placement, Placement)
            for name, placement in placements.items()
        )
        if not fine:
            raise UsageError(
                "placements: expected a dict from names of inputs or outputs to Replicate(), "
                "Shard(0) or Partial() of torch.distributed.tensor, got " + short_repr(placements)
            )
        self._placements, self._rank = dict(placements), rank

    def input(self, name: str, tensor: torch.Tensor, divided: int, *, argument: bool) -> Share:
        """The share of an input whose gradient is a mean over so many ranks, or a sum where 0."""
        if isinstance(tensor, DTensor):
            kinds, over = tensor.placements, tensor.device_mesh.size()
            key = _key(tensor, [not kind.is_replicate() for kind in kinds])
        else:
            kind = Replicate() if divided else self._first_match(name)
            kinds, over = (kind,) if kind else (), divided
            key = () if kind and kind.is_replicate() else (self._rank,)
        return Share(name, key, float(over) if divided else 1.0, argument, placements_text(kinds))

    def output(self, name: str, tensor: torch.Tensor) -> Share:
        """The share of an output."""
        if isinstance(tensor, DTensor):
            kinds, here = tensor.placements, tensor.device_mesh.get_coordinate() or ()
            key = _key(tensor, [kind.is_shard() for kind in kinds])
            copies = [k for k, kind in zip(here, kinds, strict=True) if kind.is_replicate()]
            return Share(name, key, float(not any(copies)), placed=placements_text(kinds))
        kind = self._first_match(name)
        if kind is None or kind.is_shard():
            return Share(name, (self._rank,))
        weight = 0.0 if kind.is_replicate() and self._rank else 1.0
        return Share(name, (), weight, placed=placements_text([kind]))

    def _first_match(self, name: str) -> Placement | None:
        """That of the first pattern which, as one of `wrt` would, names the array."""
        found = (kind for text, kind in self._placements.items() if _names(text, name))
        return next(found, None)


class Local:
    """The function of the tensors of this rank that are differentiated.

    Attributes:
        tensors: those that are differentiated, of this rank, plain.
        inputs: what each of them is in the whole.
        outputs: likewise the floating tensors of the last result.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        inputs: Sequence[Any],
        kwargs: Mapping[str, Any],
        wrt: Any,
        placing: Placing,
    ) -> None:
        self._fn, self._placing = fn, placing
        self.__name__ = function_name(fn)
        self._held = Captured(fn, tensors_in((tuple(inputs), dict(kwargs))))
        self._tree = Tree((tuple(inputs), dict(kwargs), dict(self._held.tensors)))
        self._divided = _mean_divisors(self._held.modules)
        self._pick(wrt)
        self.outputs: list[Share] = []

    def _pick(self, wrt: Any) -> None:
        leaves, paths = self._tree.leaves, self._tree.paths
        places = [
            place
            for place, leaf in enumerate(leaves)
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad
        ]
        parameters = parameter_names(self._fn)
        names = [input_name(paths[place], parameters) for place in places]
        picked = selected_positions(
            names, [argument_position(paths[place]) for place in places], wrt
        )
        self._where = [places[k] for k in picked]
        self.originals = [leaves[place] for place in self._where]
        self.inputs = [
            self._placing.input(
                names[k], leaf, self._divided.get(id(leaf), 0), argument=paths[place][0].idx < 2
            )
            for k, place, leaf in zip(picked, self._where, self.originals, strict=True)
        ]
        if not picked:  # an empty input, where this rank has none to differentiate
            self.originals = [torch.zeros(0, dtype=torch.float64, requires_grad=True)]
            self.inputs = [Share("nothing", (), argument=False)]
        self.tensors = [_local(leaf).detach().requires_grad_() for leaf in self.originals]

    # Calling.

    def __call__(self, *tensors: torch.Tensor) -> Any:
        """The result, each DTensor as its local one."""
        if self._divided:
            return _trained_outputs(self, tensors)
        return self.localise(self.run(tensors))

    def localise(self, result: Any) -> Any:
        """A result whose tensors are of this rank; an empty one where there is no tensor."""
        tree = Tree(result)
        pairs = zip(tree.paths, tree.leaves, strict=True)
        floating = [(path, leaf) for path, leaf in pairs if floating_in(leaf)]
        self.outputs = [
            self._placing.output(output_name(path, keystr), leaf) for path, leaf in floating
        ]
        if not floating:
            return torch.zeros(0, dtype=torch.float64)
        return tree.rebuilt([_local(leaf) for leaf in tree.leaves])

    def run(self, tensors: Sequence[torch.Tensor], parameters: bool = True) -> Any:
        """The user's function with these in the places of its own.

        Its parameters are left where they are if not `parameters`.
        """
        wider = [t.dtype != o.dtype for t, o in zip(tensors, self.originals, strict=True)]
        flat = [self._copy_of_leaf(leaf, any(wider)) for leaf in self._tree.leaves]
        for place, tensor in zip(self._where, tensors, strict=bool(self._where)):
            flat[place] = _as_dtensor(tensor, self._tree.leaves[place])
        args, kwargs, held = self._tree.rebuilt(flat)
        if not parameters:
            return self._fn(*args, **kwargs)
        with self._held.exchange_tensors(held, tensors_in((args, kwargs))):
            return self._fn(*args, **kwargs)

    @staticmethod
    def _copy_of_leaf(leaf: Any, wider: bool) -> Any:
        """A leaf that is not varied: a copy, which the function may write into."""
        if not isinstance(leaf, torch.Tensor) or isinstance(leaf, DTensor):
            return leaf
        copy = leaf.detach().clone().requires_grad_(leaf.requires_grad)
        return copy.double() if wider and leaf.is_floating_point() else copy

    # Training.

    @property
    def _parameters(self) -> list[int]:
        """Places among the tensors of what the function holds."""
        return [place for place, share in enumerate(self.inputs) if not share.argument]

    @contextmanager
    def written(self, tensors: Sequence[torch.Tensor]) -> Iterator[None]:
        """Meanwhile the user's own parameters hold these numbers, and no gradient."""
        held = [self.originals[place] for place in self._parameters]
        buffers = [each for module in self._held.modules for each in module.buffers()]
        kept = [(_local(one), _local(one).detach().clone()) for one in (*held, *buffers)]
        gradients = [one.grad for one in held]

        def restore() -> None:
            with torch.no_grad():
                for tensor, before in kept:
                    tensor.copy_(before)
            for one, gradient in zip(held, gradients, strict=True):
                one.grad = gradient
            self._shard()

        with restored(restore):
            with torch.no_grad():
                for place, one in zip(self._parameters, held, strict=True):
                    _local(one).copy_(tensors[place])
                    one.grad = None
            self._shard()
            yield

    def _shard(self) -> None:
        """Let the next run gather its parameters anew: without a backward they stay gathered."""
        for module in _inside(self._held.modules):
            if isinstance(module, FSDPModule):
                module.reshard()

    def step(
        self, tensors: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor]
    ) -> list[torch.Tensor | None]:
        """What `backward()` leaves in `.grad` after a run at these tensors."""
        with self.written(tensors), torch.enable_grad():
            leaves = [tensor.detach().requires_grad_() for tensor in tensors]
            roots = floating_in(self.localise(self.run(leaves, parameters=False)))
            pairs = [pair for pair in zip(roots, cotangents, strict=True) if pair[0].requires_grad]
            torch.autograd.backward([root for root, _ in pairs], [v for _, v in pairs])
            for place in self._parameters:
                leaves[place] = self.originals[place]
            found = [leaf.grad for leaf in leaves]
            return [None if each is None else _local(each).detach().clone() for each in found]


def _trained_outputs(local: Local, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """The floating outputs, whose backward is another run with its own `backward()`."""

    class Trained(torch.autograd.Function):
        @staticmethod
        def forward(_: Any, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            with local.written(tensors):
                result = local.localise(local.run(tensors, parameters=False))
                return tuple(tensor.detach().clone() for tensor in floating_in(result))

        @staticmethod
        def backward(_: Any, *cotangents: torch.Tensor) -> Any:
            return tuple(local.step(tensors, cotangents))

    found: tuple[torch.Tensor, ...] = Trained.apply(*tensors)  # type: ignore[no-untyped-call]
    return found


def _inside(modules: Sequence[torch.nn.Module]) -> list[torch.nn.Module]:
    return [inner for outer in modules for inner in outer.modules()]


def _mean_divisors(modules: Sequence[torch.nn.Module]) -> dict[int, int]:
    """Parameters whose gradients are means -> over how many ranks; 1 where they lie as shards."""
    found = {}
    for module in _inside(modules):
        if isinstance(module, (DistributedDataParallel, FSDPModule)):
            ddp = isinstance(module, DistributedDataParallel)
            size = module.process_group.size() if ddp else 1
            found.update({id(each): size for each in module.parameters()})
    return found


def _local(value: Any) -> Any:
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
        return _local(gradient)


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


def _key(tensor: DTensor, counts: Sequence[bool]) -> tuple[Any, ...]:
    """Which part of its mesh a rank is in, along the dimensions that count."""
    mesh = tensor.device_mesh
    here = mesh.get_coordinate() or ()
    kept = [k if count else -1 for k, count in zip(here, counts, strict=True)]
    return (*mesh.mesh.flatten().tolist(), "at", *kept)


def placements_text(placements: Sequence[Placement]) -> str:
    """Placements as people write them."""
    return ", ".join(map(repr, placements)) or "each rank's own"


def _names(pattern: str, name: str) -> bool:
    """Whether a pattern, as of `wrt`, names an array."""
    try:
        return bool(selected_positions([name], [None], [pattern]))
    except UsageError:
        return False


def local_map(local: Local) -> TorchMap:
    """Its map."""
    # Optional, and nothing left out: what is decided from the run of one rank alone would run the
    # function again there, where no other rank does.
    choice = Choice([share.name for share in local.inputs], optional=True)
    return TorchMap(Call(local, Arguments(local, local.tensors, {}, choice)), without=frozenset())
