"""Calling a PyTorch function: its arguments, the names of inputs and outputs, random state."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from gradproof._adapters.torch_leaves import (
    MKLDNN,
    SPARSE,
    DenseLeaf,
    Leaf,
    MkldnnLeaf,
    is_differentiable,
    private_copy,
)
from gradproof._adapters.torch_sparse import sparse_leaf
from gradproof.errors import UsageError

LONGEST_REASON = 160  # characters

Projection = Callable[[torch.Tensor], torch.Tensor]


class RandomState:
    """The global random state of PyTorch at one moment, on the CPU and on devices in use."""

    def __init__(self) -> None:
        self._cpu = torch.get_rng_state()
        self._cuda: list[torch.Tensor] | None = None
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            self._cuda = torch.cuda.get_rng_state_all()

    def restore(self) -> None:
        """Make this the global random state again."""
        torch.set_rng_state(self._cpu)
        if self._cuda is not None:
            torch.cuda.set_rng_state_all(self._cuda)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RandomState) or not torch.equal(self._cpu, other._cpu):
            return False
        if self._cuda is None or other._cuda is None:
            return True
        return all(torch.equal(a, b) for a, b in zip(self._cuda, other._cuda, strict=True))

    __hash__ = None  # type: ignore[assignment]


class Arguments:
    """Positional and keyword arguments with exchangeable differentiable tensors.

    Other tensors are handed over as private copies, made anew whenever the function changed one.

    Attributes:
        leaves: one per differentiable tensor, in the order of the arguments.
        masked: sparse inputs stand for their specified entries only.
        project: name of an input -> function that it goes through before the user's function
            sees it.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        inputs: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        masked: bool = False,
        names: Sequence[str] | None = None,
        project: Mapping[str, Projection] | None = None,
    ) -> None:
        self.masked, self.project = masked, project or {}
        paths, self._tree = pytree.tree_flatten_with_path((tuple(inputs), dict(kwargs)))
        self._flat = [value for _, value in paths]
        self._where = [
            position
            for position, value in enumerate(self._flat)
            if is_differentiable(value) and value.requires_grad
        ]
        if not self._where:
            raise UsageError(
                "gradcheck expects at least one input tensor to require gradient, but none of "
                "them have requires_grad=True; call .requires_grad_() on the ones to check"
            )
        parameters = parameter_names(fn)
        found = [input_name(paths[position][0], parameters) for position in self._where]
        self.leaves = [
            make_leaf(self._flat[position], name, masked)
            for position, name in zip(self._where, _named(found, names), strict=True)
        ]
        self._nested = bool(kwargs) or not is_flat(inputs, self._flat)
        self._only_leaves = len(self._where) == len(self._flat) and not self._nested
        self._keep_private()

    def _keep_private(self) -> None:
        self._given = {
            position: value
            for position, value in enumerate(self._flat)
            if isinstance(value, torch.Tensor) and position not in self._where
        }
        self._versions: dict[int, int] = {}
        for position in self._given:
            self._renew(position)

    def call(self, fn: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> Any:
        """Run `fn` at these differentiable tensors. Raises what fn raises."""
        if self.project:
            tensors = [
                self.project[leaf.slot.name](tensor) if leaf.slot.name in self.project else tensor
                for leaf, tensor in zip(self.leaves, tensors, strict=True)
            ]
        if self._only_leaves:
            return fn(*tensors)
        flat = self._flat.copy()
        for position, tensor in zip(self._where, tensors, strict=True):
            flat[position] = tensor
        try:
            if not self._nested:
                return fn(*flat)
            args, kwargs = pytree.tree_unflatten(flat, self._tree)
            return fn(*args, **kwargs)
        finally:
            for position, version in self._versions.items():
                if self._flat[position]._version != version:
                    self._renew(position)

    def changed(
        self, fn: Callable[..., Any], tensors: Sequence[torch.Tensor], change: Callable[[Any], Any]
    ) -> Arguments:
        """The same arguments for `fn`, with other differentiable tensors and the rest changed."""
        flat = [change(value) for value in self._flat]
        for position, tensor in zip(self._where, tensors, strict=True):
            flat[position] = tensor
        inputs, kwargs = pytree.tree_unflatten(flat, self._tree)
        names = [leaf.slot.name for leaf in self.leaves]
        return Arguments(fn, inputs, kwargs, masked=self.masked, names=names, project=self.project)

    def _renew(self, position: int) -> None:
        # A new tensor, not a write into the old one: the kept graph may have saved that.
        private = private_copy(self._given[position])
        self._flat[position] = private
        self._versions[position] = private._version


def is_flat(inputs: Sequence[Any], leaves: Sequence[Any]) -> bool:
    """Whether no argument is a container: the leaves are the arguments themselves."""
    return len(leaves) == len(inputs) and all(
        leaf is given for leaf, given in zip(leaves, inputs, strict=True)
    )


def make_leaf(tensor: torch.Tensor, name: str, masked: bool) -> Leaf:
    """The leaf for a tensor's layout. UsageError where its entries cannot be perturbed."""
    if tensor.layout in SPARSE:
        return sparse_leaf(tensor, name, masked)
    if tensor.layout is MKLDNN:
        return MkldnnLeaf(tensor, name)
    return DenseLeaf(tensor, name)


def _named(found: list[str], names: Sequence[str] | None) -> list[str]:
    if names is None:
        return found
    if len(names) != len(found):
        raise UsageError(
            f"names: expected {len(found)}, one per differentiable input, got {len(names)}"
        )
    return list(names)


def parameter_names(fn: Callable[..., Any]) -> list[str]:
    """Names of the parameters that take one positional argument each; [] where unknown."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return []
    single = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [parameter.name for parameter in parameters if parameter.kind in single]


def input_name(path: Sequence[Any], parameters: list[str]) -> str:
    """How a user would write the argument at a path of `(args, kwargs)`."""
    kind, which, *rest = path
    if kind.idx == 1:
        name = str(which.key)
    elif which.idx < len(parameters):
        name = parameters[which.idx]
    else:
        name = f"input {which.idx}"
    return name + pytree.keystr(tuple(rest))


def tensors_in(result: Any) -> list[torch.Tensor]:
    """Every tensor of a result, in order."""
    if isinstance(result, torch.Tensor):
        return [result]
    leaves = (
        result
        if type(result) is tuple and all(isinstance(part, torch.Tensor) for part in result)
        else pytree.tree_leaves(result)
    )
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def floating_in(result: Any) -> list[torch.Tensor]:
    """Every floating or complex tensor of a result, in order."""
    return [
        tensor for tensor in tensors_in(result) if tensor.is_floating_point() or tensor.is_complex()
    ]


def named_outputs(result: Any, function: str) -> list[tuple[str, torch.Tensor]]:
    """Name and tensor of every floating or complex output.

    UsageError where there is no tensor at all, or one whose layout cannot be compared.
    """
    paths = pytree.tree_flatten_with_path(result)[0]
    outputs = [(path, leaf) for path, leaf in paths if isinstance(leaf, torch.Tensor)]
    if not outputs:
        raise UsageError(
            f"{function} returned {type(result).__name__} without any tensor; return a tensor or "
            "a container of tensors"
        )
    for _, tensor in outputs:
        kind = "Sparse" if tensor.layout in SPARSE else "MKLDNN" if tensor.layout is MKLDNN else ""
        if kind:
            raise UsageError(
                f"{kind} output is not supported at gradcheck yet. Please call "
                f"to_dense(masked_grad=...) on the output of {function}."
            )
    return [(output_name(path), tensor) for path, tensor in outputs if is_differentiable(tensor)]


def output_name(path: Sequence[Any]) -> str:
    """How a user would write the output at a path of the result."""
    if not path:
        return "output 0"
    if len(path) == 1 and hasattr(path[0], "idx"):
        return f"output {path[0].idx}"
    return f"output{pytree.keystr(tuple(path))}"


def function_name(fn: Callable[..., Any]) -> str:
    """A name for messages."""
    return str(getattr(fn, "__name__", type(fn).__name__))


def first_line(error: BaseException) -> str:
    """The first line of an exception's message, shortened, or its type."""
    lines = str(error).strip().splitlines()
    line = lines[0] if lines else type(error).__name__
    return line if len(line) <= LONGEST_REASON else f"{line[: LONGEST_REASON - 3]}..."
