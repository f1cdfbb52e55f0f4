"""Calling a PyTorch function: its arguments, the names of inputs and outputs, random state."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.nn.parameter import is_lazy

from gradproof._adapters._arrays import first_line
from gradproof._adapters._foreign import Lift, Told, in_double
from gradproof._adapters._project import Input, Projection, projections
from gradproof._adapters.torch_captured import Captured
from gradproof._adapters.torch_leaves import (
    MKLDNN,
    SPARSE,
    DenseLeaf,
    Leaf,
    MkldnnLeaf,
    OverlapError,
    in_kind,
    is_differentiable,
    private_copy,
    unit_roundoff,
)
from gradproof._adapters.torch_overlap import SharedLeaf
from gradproof._adapters.torch_sparse import sparse_leaf
from gradproof._adapters.torch_state import sources_in
from gradproof._adapters.torch_tree import (
    Path,
    Tree,
    argument_of,
    input_name,
    is_flat,
    leaves_of,
    unsupported_kind,
)
from gradproof._inputs import chosen, parameters_of
from gradproof._map import Unsupported
from gradproof.errors import UsageError

OVERLAPPING = 1_000_000  # entries up to which shared memory is taken apart
ARGUMENTS = object()  # for `wrt`: all of them, and nothing else


class Arguments:
    """Positional and keyword arguments, and captured tensors, with exchangeable ones among them.

    Other tensors are handed over as private copies, made anew whenever the function changed one.

    Args:
        fn: the function, for the names of its parameters.
        inputs: positional arguments; tensors may be inside containers.
        kwargs: keyword arguments, likewise.
        captured: what the function reads from elsewhere.
        masked: sparse inputs stand for their specified entries only.
        names: of the differentiable arguments, or of these and the captured tensors.
        project: name of an input -> function that it goes through before the user's function
            sees it.
        wrt: which of the differentiable tensors are exchangeable; all where None.

    Attributes:
        leaves: one per exchangeable tensor, in the order of the arguments, captured ones last.
        beside: positions among `leaves` of the captured ones.
        generators: of random numbers, among the arguments and what is captured.
        writes: a call has written into a tensor that is not exchanged, such as a buffer.
    """

    writes = False
    _left = False

    def __init__(
        self,
        fn: Callable[..., Any],
        inputs: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        captured: Captured | None = None,
        masked: bool = False,
        names: Sequence[str] | None = None,
        project: Mapping[str, Projection] | None = None,
        wrt: Any = None,
    ) -> None:
        self.masked, self.project, self.captured = masked, project or {}, captured or None
        self._tree = Tree((tuple(inputs), dict(kwargs), dict(captured.tensors if captured else {})))
        self._flat = _initialised(self._tree, fn)
        places = [
            position
            for position, value in enumerate(self._flat)
            if is_differentiable(value) and value.requires_grad
        ]
        paths = [self._tree.paths[position] for position in places]
        found = _named([input_name(path, parameter_names(fn)) for path in paths], paths, names)
        picked = [k for k, path in enumerate(paths) if path[0].idx < 2]
        if wrt is not ARGUMENTS:
            picked = chosen(found, [argument_of(path) for path in paths], wrt if found else None)
        if not picked:
            raise UsageError(
                "gradcheck expects at least one input tensor to require gradient, but none of "
                "them have requires_grad=True; call .requires_grad_() on the ones to check"
            )
        self._where = [places[k] for k in picked]
        self.leaves = [make_leaf(self._flat[places[k]], found[k], masked) for k in picked]
        self.beside = [place for place, k in enumerate(picked) if paths[k][0].idx == 2]
        beside = [] if captured is None else captured.generators
        self.generators = sources_in([*self._flat, *beside])
        self._nested = bool(kwargs) or not is_flat(inputs, self._flat)
        tensors = enumerate(leaf.original for leaf in self.leaves)
        self._kinds = [(place, each) for place, each in tensors if _is_of_a_kind(each)]
        self._only_leaves = len(self._where) == len(self._flat) and not self._nested
        self._keep_private()

    def _keep_private(self) -> None:
        self._given = {
            position: value
            for position, value in enumerate(self._flat)
            if isinstance(value, torch.Tensor) and position not in self._where
        }
        self._flat = self._flat.copy()
        self._versions: dict[int, int] = {}
        for position in self._given:
            self._renew(position)

    def call(self, fn: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> Any:
        """Run `fn` at these exchangeable tensors. Raises what fn raises."""
        if self.project:
            tensors = [
                self.project[leaf.slot.name](tensor) if leaf.slot.name in self.project else tensor
                for leaf, tensor in zip(self.leaves, tensors, strict=True)
            ]
        if self._in_kind(tensors):
            return self._called(fn, tensors)
        try:
            return self._called(fn, tensors)
        except (TypeError, ValueError) as error:
            reason = f"a Parameter would be no leaf here, and was refused: {first_line(error)}"
            raise Unsupported(reason) from error

    def _in_kind(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Give tensors the classes of the user's; whether all may have theirs.

        A parameter is a leaf: what is computed, as on roads with a graph outside, stays a tensor.
        """
        whole = True
        for place, original in self._kinds:
            if isinstance(original, torch.nn.Parameter) and tensors[place].grad_fn is not None:
                whole = False
            else:
                in_kind(tensors[place], original)
        return whole

    def _called(self, fn: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> Any:
        if self._only_leaves:
            return fn(*tensors)
        flat = self._flat.copy()
        for position, tensor in zip(self._where, tensors, strict=True):
            flat[position] = tensor
        try:
            if not self._nested:
                return fn(*flat)
            args, kwargs, held = self._tree.rebuilt(flat)
            return self.captured.call(held, args, kwargs) if self.captured else fn(*args, **kwargs)
        finally:
            if not self._left:
                self._renew_written()

    @contextmanager
    def left_as_written(self) -> Iterator[None]:
        """What calls write into private copies of other tensors stays there meanwhile."""
        self._left = True
        try:
            yield
        finally:
            self._left = False
            self._renew_written()

    def _renew_written(self) -> None:
        for position, version in self._versions.items():
            if self._flat[position]._version != version:
                self._renew(position)
                self.writes = True

    def changed(
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
        made = copy.copy(self)
        made._flat = [change(value) for value in self._flat]
        for position, tensor in zip(self._where, tensors, strict=True):
            made._flat[position] = tensor
        pairs = zip(self._where, self.leaves, strict=True)
        made.leaves = [make_leaf(made._flat[p], leaf.slot.name, self.masked) for p, leaf in pairs]
        if self.captured and fn is not self.captured.fn:
            made.captured = self.captured.of(fn, twin or fn)
        made._keep_private()
        return made

    def go_through(self, project: Any) -> None:
        """Let the inputs go through projections first. UsageError where these are none."""

        def given(leaf: Leaf) -> Input:
            unit = unit_roundoff(leaf.original.dtype)
            return Input(leaf.slot.name, leaf.copy, (torch.Tensor,), unit, as_numpy)

        self.project = projections(project, list(map(given, self.leaves)))

    def told(self) -> Told:
        """The call, for a reference of another framework."""
        if self.project:
            raise Unsupported("project= is written for arrays of another framework")
        paths = [self._tree.paths[position] for position in self._where]
        if self.beside:
            raise Unsupported("it does not take what the function under test brings along")

        def filled(arrays: Sequence[Any], lift: Lift) -> tuple[Sequence[Any], Mapping[str, Any]]:
            flat = [
                lift(in_double(as_numpy(value))) if isinstance(value, torch.Tensor) else value
                for value in self._flat
            ]
            for position, array in zip(self._where, arrays, strict=True):
                flat[position] = array
            inputs, kwargs, _ = self._tree.rebuilt(flat)
            return inputs, kwargs

        alone = all(path[0].idx == 0 and len(path) == 2 for path in paths)
        places = [path[1].idx for path in paths] if alone else None
        return Told([leaf.slot.name for leaf in self.leaves], filled, leaves_of, places)

    def for_form(self, fn: Callable[..., Any]) -> Arguments:
        """The same arguments for another form of the function, which reads the same places."""
        made = copy.copy(self)
        if self.captured:
            made.captured = copy.copy(self.captured)
            made.captured.fn = fn
        return made

    def _renew(self, position: int) -> None:
        # A new tensor, not a write into the old one: the kept graph may have saved that.
        given = self._given[position]
        private = private_copy(given)
        if given.requires_grad:  # not asked for by `wrt`, but as the user's program has it
            private.requires_grad_()
        self._flat[position] = in_kind(private, given)
        self._versions[position] = private._version


def _is_of_a_kind(tensor: torch.Tensor) -> bool:
    """Whether a tensor is more than numbers: a parameter, of a subclass, or with attributes."""
    return type(tensor) is not torch.Tensor or bool(vars(tensor))


def _initialised(tree: Tree, fn: Callable[..., Any]) -> list[Any]:
    """Its leaves. UsageError where a tensor, differentiated or not, cannot even be copied."""
    for position, value in enumerate(tree.leaves):
        if is_lazy(value):
            name = input_name(tree.paths[position], parameter_names(fn))
            raise UsageError(f"{name} is {unsupported_kind(value)}")
    return tree.leaves


def as_numpy(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """The same numbers in an array of NumPy, which knows fewer dtypes."""
    tensor = tensor.detach().cpu().to_dense()
    if tensor.is_floating_point():
        tensor = tensor.double()
    return tensor.numpy(force=True)


def make_leaf(tensor: torch.Tensor, name: str, masked: bool) -> Leaf:
    """The leaf for a tensor's layout. UsageError where its entries cannot be perturbed."""
    if reason := unsupported_kind(tensor):
        raise UsageError(f"{name} is {reason}")
    if tensor.layout in SPARSE:
        return sparse_leaf(tensor, name, masked)
    if tensor.layout is MKLDNN:
        return MkldnnLeaf(tensor, name)
    try:
        return DenseLeaf(tensor, name)
    except OverlapError:
        if tensor.numel() > OVERLAPPING or type(tensor) is not torch.Tensor:
            raise
        return SharedLeaf(tensor, name)


def _named(found: list[str], paths: Sequence[Path], names: Sequence[str] | None) -> list[str]:
    """The names that the user gave, of the arguments or of all; those found where none."""
    if names is None:
        return found
    arguments = sum(path[0].idx < 2 for path in paths)
    if len(names) not in (len(found), arguments):
        raise UsageError(
            f"names: expected {arguments}, one per differentiable input, got {len(names)}"
        )
    return [*names, *found[len(names) :]]


def parameter_names(fn: Callable[..., Any]) -> list[str]:
    """Names of the parameters that take one positional argument each; [] where unknown."""
    parameters = parameters_of(fn)
    single = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [parameter.name for parameter in parameters if parameter.kind in single]


def function_name(fn: Callable[..., Any]) -> str:
    """A name for messages."""
    return str(getattr(fn, "__name__", type(fn).__name__))
