"""Arguments of a PyTorch function, and the tensors among them that are differentiated.

Captured tensors count as arguments here. The differentiable tensors are exchanged in every call;
all others are handed over as private copies, so that no call changes the user's.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from gradproof._adapters.arrays import chosen_names
from gradproof._data.inputs import selected_positions
from gradproof.errors import UsageError
from gradproof.torch._captured import Captured
from gradproof.torch._leaves import DenseLeaf, Leaf
from gradproof.torch._memory import private_copy
from gradproof.torch._sparse import EveryLeaf, SpecifiedLeaf
from gradproof.torch._state import sources_in
from gradproof.torch._tensors import SPARSE, unsupported_kind
from gradproof.torch._tree import (
    Tree,
    argument_position,
    differentiable_names,
    input_name,
    refuse_hidden_tensors,
    tensors_in,
)

ARGUMENTS = object()  # for `wrt`: all of them, and nothing else


class Arguments:
    """Positional and keyword arguments, and captured tensors, with exchangeable ones among them.

    Other tensors are handed over as private copies, made anew whenever the function changed one,
    and arrays of NumPy as copies, made anew for every call.

    Args:
        fn, inputs, kwargs: the function and its arguments.
        names: of the differentiable arguments; those found where None.
        wrt: which of the differentiable tensors are exchangeable; all where None.
        masked: whether sparse inputs stand for their specified entries only.
        derived: whether the function is made by gradproof: it reads nothing but its arguments, and
            no output need depend on any of them. The gradient of a linear function depends on none
            of its inputs.

    Attributes:
        leaves: one per exchangeable tensor, in the order of the arguments, captured ones last.
        optional: positions among `leaves` of those on which no output need depend: captured ones.
        generators: of random numbers, among the arguments and what is captured.
        writes: a call has written into a tensor that is not exchanged, such as a buffer.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        inputs: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        names: Sequence[str] | None = None,
        wrt: Any = None,
        masked: bool = False,
        derived: bool = False,
    ) -> None:
        self.masked, self.writes, self._keeps_written = masked, False, False
        given: tuple[Any, ...] = (tuple(inputs), dict(kwargs))
        self.captured = Captured(None if derived else fn, tensors_in(given))
        self._tree = Tree((*given, dict(self.captured.tensors)))
        refuse_hidden_tensors(self._tree, fn)
        self._flat, paths = self._tree.leaves, self._tree.paths
        are_leaves = len(paths) == len(inputs) and all(len(path) == 2 for path in paths)
        self._is_flat = are_leaves and not (kwargs or self.captured.tensors)
        self.generators = sources_in([*self._flat, *self.captured.generators])
        self._where, chosen = self._chosen_places(fn, names, wrt)
        paths = [self._tree.paths[place] for place in self._where]
        self.optional = [k for k, path in enumerate(paths) if derived or path[0].idx == 2]
        self._make_leaves(chosen)
        self._arrays = [k for k, leaf in enumerate(self._flat) if isinstance(leaf, np.ndarray)]
        self._parameters = [
            k for k, leaf in enumerate(self.leaves) if type(leaf.original) is torch.nn.Parameter
        ]
        self._make_private_copies()

    def _chosen_places(
        self, fn: Callable[..., Any], given: Sequence[str] | None, wrt: Any
    ) -> tuple[list[int], Sequence[str]]:
        """Places among all leaves of the tensors that are exchanged, and their names."""
        found = differentiable_names(self._tree, fn)
        places, paths = list(found), [self._tree.paths[place] for place in found]
        count, names = sum(path[0].idx < 2 for path in paths), list(found.values())
        names = [*chosen_names(names[:count], given), *names[count:]]
        picked: Sequence[int] = range(len(names))
        if wrt is ARGUMENTS:
            picked = range(count)
        elif wrt is not None and names:
            picked = selected_positions(names, list(map(argument_position, paths)), wrt)
        if not picked:
            raise UsageError(
                "inputs: nothing to check, for none of them have requires_grad=True; call "
                ".requires_grad_() on the floating-point or complex tensors that are meant"
            )
        return [places[k] for k in picked], [names[k] for k in picked]

    def _make_leaves(self, names: Sequence[str]) -> None:
        """Make a leaf of each tensor. UsageError where the entries of one cannot be perturbed."""
        self.leaves: list[Leaf] = []
        for place, name in zip(self._where, names, strict=True):
            tensor = self._flat[place]
            if reason := unsupported_kind(tensor):
                raise UsageError(f"{name} is {reason}")
            sparse = SpecifiedLeaf if self.masked else EveryLeaf
            kind = sparse if tensor.layout in SPARSE else DenseLeaf
            self.leaves.append(kind(tensor, name))

    def _make_private_copies(self) -> None:
        self._given = {
            position: value
            for position, value in enumerate(self._flat)
            if isinstance(value, torch.Tensor) and position not in self._where
        }
        self._flat = self._flat.copy()
        self._versions: dict[int, int] = {}
        self.renew_copies()

    def renew_copies(self) -> None:
        """Make the private copies anew, also those that were written into unseen, as by `.data`."""
        for position in self._given:
            self._renew_copy(position)

    def call(self, fn: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> Any:
        """Run `fn` at these exchangeable tensors. Raises what fn raises."""
        for place in self._parameters:
            if tensors[place].is_leaf:  # as a Parameter is, which a layer may register
                tensors[place].__class__ = torch.nn.Parameter
        return self.run_exchanged(tensors, lambda args, kwargs: fn(*args, **kwargs))

    def run_exchanged(self, tensors: Sequence[torch.Tensor], run: Callable[[Any, Any], Any]) -> Any:
        """What `run` returns of positional and keyword arguments with these tensors.

        Captured ones are exchanged too, also while the backward of a run goes on: gradient
        checkpointing runs the function again in the backward, and reads them once more.
        """
        flat = self._flat.copy()
        for position, tensor in zip(self._where, tensors, strict=True):
            flat[position] = tensor
        for position in self._arrays:
            flat[position] = flat[position].copy()
        args, kwargs, held = (flat, {}, {}) if self._is_flat else self._tree.rebuilt(flat)
        try:
            if self.captured.is_empty:
                return run(args, kwargs)
            given = [leaf for leaf in flat if isinstance(leaf, torch.Tensor)]  # captured ones last
            with self.captured.exchange_tensors(held, given):
                return run(args, kwargs)
        finally:
            self._renew_written_copies()

    @contextmanager
    def keep_written_copies(self) -> Iterator[None]:
        """Meanwhile private copies of tensors that are not exchanged keep what calls write."""
        self._keeps_written = True
        try:
            yield
        finally:
            self._keeps_written = False
            self._renew_written_copies()

    def _renew_written_copies(self) -> None:
        for position in [] if self._keeps_written else self._written_places():
            self._renew_copy(position)
            self.writes = True

    def _written_places(self) -> list[int]:
        """Positions of the private copies that calls wrote into and that are not renewed yet."""
        versions = self._versions.items()
        return [place for place, before in versions if self._flat[place]._version != before]

    def written_names(self) -> tuple[str, ...]:
        """Names of the tensors whose private copies were written into."""
        return tuple(input_name(self._tree.paths[place], []) for place in self._written_places())

    def changed_arguments(
        self,
        fn: Callable[..., Any],
        tensors: Sequence[torch.Tensor],
        change: Callable[[Any], Any],
        twin: Callable[..., Any] | None = None,
    ) -> Arguments:
        """The same arguments for `fn`, with other exchangeable tensors and the rest changed.

        `twin` is `fn` before it was changed itself, where it was. UsageError where `fn` does not
        read what is captured here.
        """
        flat = [change(value) for value in self._flat]
        for position, tensor in zip(self._where, tensors, strict=True):
            flat[position] = tensor
        captured = self.captured
        if not captured.is_empty and fn is not captured.fn:
            captured = captured.counterparts_in(fn, twin or fn)
        made = copy.copy(self)
        made._flat, made.captured = flat, captured
        made._make_leaves([leaf.slot.name for leaf in self.leaves])
        made._make_private_copies()
        return made

    def _renew_copy(self, position: int) -> None:
        # A new tensor, not a write into the old one: the kept graph may have saved that.
        given = self._given[position]
        private = private_copy(given)
        if given.requires_grad:  # not asked for by `wrt`, but as the user's program has it
            private.requires_grad_()
        self._flat[position] = private
        self._versions[position] = private._version
