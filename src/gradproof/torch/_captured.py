"""Tensors that a PyTorch function reads from outside of its arguments, found and exchanged.

Parameters and buffers of modules; tensors that require grad in closures, partial applications,
attributes of callable objects and globals. For the time of one call others stand in their places,
so that they are inputs like any other, and nothing of the user's changes.
"""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from gradproof._data.inputs import name_of, parameters_of
from gradproof._guard import restored
from gradproof.errors import UsageError
from gradproof.torch._state import GENERATORS
from gradproof.torch._tensors import is_differentiable, unsupported_kind
from gradproof.torch._tree import Tree, keystr

# Modules of these hold nobody's weights among their globals. Closures of transforms, and of
# backwards, hold the user's.
_WITHOUT_WEIGHTS = ("torch.", "gradproof.")

CONSTANTS = frozenset((int, float, complex, bool, str, type(None), torch.dtype))

Name = str | int  # of a captured tensor; of one that is an argument as well its place among those


@dataclass(frozen=True)
class _Spot:
    """A place outside of the arguments that holds tensors, and how to write to it."""

    tree: Tree  # what it holds
    names: Mapping[int, Name]  # of the leaves that are exchanged, by their place in `tree`
    whole: Any  # what it holds, untouched
    write: Callable[[Any], None]  # puts something else there


class Captured:
    """What a function reads from outside of its arguments.

    Args:
        fn: the function; None for one that reads nothing from there.
        given: the tensors among its arguments. Where it reads one of them from outside as well, it
            meets there what stands in the argument's place.

    Attributes:
        tensors: by name, as the user would write it: `weight`, `encoder.layers.0.bias`.
        modules: every layer among what is captured, those inside a layer left out.
        generators: of random numbers, PyTorch's and others.
    """

    def __init__(self, fn: Callable[..., Any] | None, given: Sequence[torch.Tensor] = ()) -> None:
        self.fn: Any = fn
        self.tensors: dict[str, torch.Tensor] = {}
        self.modules: list[torch.nn.Module] = []
        self.generators: list[object] = []
        self._seen: set[int] = set()
        self._names: dict[int, Name] = {id(tensor): k for k, tensor in enumerate(given)}
        self._spots: list[_Spot] = []
        self._search(fn, "")

    # Finding.

    def _search(self, value: Any, name: str) -> None:
        """Look into a function, a layer, or an object that can be called."""
        if id(value) in self._seen:
            return
        self._seen.add(id(value))
        if isinstance(value, types.FunctionType):
            self._search_function(value)
        elif isinstance(value, GENERATORS):
            self.generators.append(value)
        elif not callable(value) or isinstance(value, (type, types.BuiltinFunctionType)):
            return
        elif isinstance(value, torch.nn.Module):
            self._search_layer(value, name)
        elif isinstance(value, functools.partial):
            self._search_partial(value)
        elif isinstance(value, types.MethodType):
            self._search(value.__self__, "")
            self._search(value.__func__, "")
        elif isinstance(inside := getattr(value, "__dict__", None), dict):
            self._search(inside.get("__wrapped__"), name)
            for key in list(inside):
                if not key.startswith("__"):  # annotations and the like hold nothing to exchange
                    self._search_place(inside[key], key, functools.partial(inside.__setitem__, key))

    def _search_layer(self, layer: torch.nn.Module, name: str) -> None:
        """Parameters, buffers, and other leaves that require grad.

        A shared one has its first name, as in `named_parameters`.
        """
        if isinstance(layer, torch.jit.ScriptModule):  # its state cannot be exchanged
            return
        self.modules.append(layer)
        for prefix, module in layer.named_modules(prefix=name):
            prefix = prefix.replace("_orig_mod.", "").replace("_orig_mod", "")  # compiled
            stores: list[dict[str, Any]] = [module._parameters, module._buffers]
            held = [(s, key, t) for s in stores for key, t in s.items() if t is not None]
            attributes = vars(module)
            for key, value in attributes.items():
                # One that is no leaf is computed anew by the layer, as by `weight_norm`.
                if isinstance(value, torch.Tensor) and value.requires_grad and value.is_leaf:
                    held.append((attributes, key, value))
            for store, key, tensor in held:
                own = f"{prefix}.{key}" if prefix else key
                if is_lazy(tensor):
                    raise UsageError(f"{own} is {unsupported_kind(tensor)}")
                write = functools.partial(store.__setitem__, key)
                names = {0: self._name_tensor(own, tensor)}
                self._spots.append(_Spot(Tree(tensor), names, tensor, write))

    def _search_partial(self, value: functools.partial[Any]) -> None:
        self._search(value.func, "")
        parameters = [p.name for p in parameters_of(value.func)][: len(value.args)]
        parameters += [f"bound {k}" for k in range(len(parameters), len(value.args))]
        bound = dict(zip(parameters, value.args, strict=True)) | value.keywords

        def write(contents: dict[str, Any]) -> None:
            args = tuple(contents[name] for name in parameters)
            options = {key: contents[key] for key in contents if key not in parameters}
            value.__setstate__((value.func, args, options, vars(value)))  # type: ignore[attr-defined]  # how a partial is unpickled

        self._search_place(bound, "", write)

    def _search_function(self, fn: types.FunctionType) -> None:
        """Variables of enclosing functions, and globals that it mentions."""
        code = fn.__code__
        for name, cell in zip(code.co_freevars, fn.__closure__ or (), strict=True):
            try:
                contents = cell.cell_contents
            except ValueError:  # not filled yet
                continue
            self._search_place(contents, name, functools.partial(setattr, cell, "cell_contents"))
        if str(fn.__globals__.get("__name__")).startswith(_WITHOUT_WEIGHTS):
            return
        for name in _global_names(code):
            value = fn.__globals__.get(name)
            is_neighbour = isinstance(value, types.FunctionType) and (
                value.__globals__ is fn.__globals__
            )
            if is_neighbour or isinstance(value, (torch.Tensor, torch.nn.Module, *GENERATORS)):
                self._search_place(value, name, functools.partial(fn.__globals__.__setitem__, name))

    def _search_place(self, value: Any, name: str, write: Callable[[Any], None]) -> None:
        """What a place holds: tensors to exchange, and more to look into."""
        if _holds_nothing(value):
            return
        if isinstance(value, types.FunctionType):
            self._search(value, name)
            return
        tree = Tree(value)
        names: dict[int, Name] = {}
        for place, (leaf, path) in enumerate(zip(tree.leaves, tree.paths, strict=True)):
            own = name + keystr(path) if name or not path else f"{path[0].key}{keystr(path[1:])}"
            if not isinstance(leaf, torch.Tensor):
                self._search(leaf, own)
            elif is_differentiable(leaf) and leaf.requires_grad:
                names[place] = self._name_tensor(own, leaf)
        if names:
            self._spots.append(_Spot(tree, names, value, write))

    def _name_tensor(self, name: str, tensor: torch.Tensor) -> Name:
        """The name of a tensor, which has one however often it is found."""
        if id(tensor) not in self._names:
            while name in self.tensors:
                name += "'"
            self._names[id(tensor)] = name
            self.tensors[name] = tensor
        return self._names[id(tensor)]

    # Calling.

    @property
    def is_empty(self) -> bool:
        """Whether the function reads no tensor from outside that would be exchanged."""
        return not self._spots

    @contextmanager
    def exchange_tensors(
        self, tensors: Mapping[str, torch.Tensor], given: Sequence[torch.Tensor]
    ) -> Iterator[None]:
        """Meanwhile the function reads these tensors in the places of its own.

        Args:
            tensors: by the names of the captured ones.
            given: in the places of those among the arguments.
        """
        others: dict[Name, torch.Tensor] = dict(enumerate(given))
        others.update(tensors)
        with restored(*[functools.partial(spot.write, spot.whole) for spot in self._spots]):
            for spot in self._spots:
                leaves = spot.tree.leaves.copy()
                for place, name in spot.names.items():
                    leaves[place] = others[name]
                spot.write(spot.tree.rebuilt(leaves))
            yield

    def counterparts_in(self, fn: Callable[..., Any], twin: Callable[..., Any]) -> Captured:
        """What another function reads, by the names that its counterparts have here.

        What has none here stays what it is. `twin` is that function before its tensors were
        converted, to recognise them. UsageError where a tensor that requires grad has no
        counterpart in `fn`: neither itself nor one of its name.
        """
        found = Captured(fn)
        # From names in `fn`, which are those in `twin`, to names here.
        counterparts: dict[Name, Name] = {
            own: self._names.get(id(tensor), own) for own, tensor in Captured(twin).tensors.items()
        }
        for name, tensor in self.tensors.items():
            if tensor.requires_grad and name not in counterparts.values():
                raise UsageError(
                    f"{name_of(twin)} reads no tensor {name}, which {name_of(self.fn)} reads "
                    "from outside of its arguments; pass it as an argument to both"
                )
        known = set(self._names.values())
        for k, spot in enumerate(found._spots):
            names = {place: counterparts.get(own) for place, own in spot.names.items()}
            exchanged = {place: name for place, name in names.items() if name in known}
            found._spots[k] = replace(spot, names=exchanged)
        return found


def _holds_nothing(value: Any) -> bool:
    """Whether a place holds nothing to exchange, or to look into, as most closures do."""
    kind = type(value)
    if kind is torch.Tensor:
        return not value.requires_grad
    if kind in (tuple, list):
        return all(type(each) in CONSTANTS for each in value)
    return kind in CONSTANTS or isinstance(value, (type, types.BuiltinFunctionType))


@functools.lru_cache(maxsize=4096)
def _global_names(code: types.CodeType) -> tuple[str, ...]:
    """Names of the globals that a piece of code and the functions defined in it read."""
    own = {str(step.argval) for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL"}
    inner = [_global_names(part) for part in code.co_consts if isinstance(part, types.CodeType)]
    return tuple(sorted(own.union(*inner)))
