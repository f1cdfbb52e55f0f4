"""Tensors that a PyTorch function reads from outside of its arguments, found and exchanged.

Parameters and buffers of modules; tensors that require grad in closures, partial applications,
default arguments, attributes of callable objects and globals. For the time of one call others
stand in their places, so that they are inputs like any other, and nothing of the user's changes.
"""

from __future__ import annotations

import copy
import dis
import functools
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import _vmap_internals
from torch._library.custom_ops import CustomOpDef
from torch.autograd.graph import _engine_run_backward
from torch.nn.parameter import is_lazy
from torch.overrides import has_torch_function

from gradproof._adapters.raised import unsupported
from gradproof._data.frames import first_line
from gradproof._data.inputs import chosen, name_of, parameter_names, parameters_of
from gradproof._data.options import container
from gradproof._data.space import Array
from gradproof._guard import restored
from gradproof._guard.random import RandomState
from gradproof._maps.contract import CallCounter, Unsupported
from gradproof.errors import UsageError
from gradproof.torch._leaves import (
    MKLDNN,
    SORTED,
    SPARSE,
    DenseLeaf,
    Inputs,
    Leaf,
    MkldnnLeaf,
    OverlapError,
    SharedLeaf,
    in_kind,
    is_differentiable,
    private_copy,
)
from gradproof.torch._rounding import InDouble, Rounding
from gradproof.torch._sparse import sparse_leaf
from gradproof.torch._state import GENERATORS, sources_in
from gradproof.torch._tree import (
    Outputs,
    Path,
    Tree,
    argument_of,
    input_name,
    is_flat,
    keystr,
    replaced,
    tensors_of,
    unsupported_kind,
)

# What holds no tensor and is not called.
_WITHOUT = (type, torch.Tensor, types.BuiltinFunctionType)
_ENGINE: Any = torch.autograd.Variable._execution_engine.run_backward
_WITHOUT_WEIGHTS = ("torch.", "gradproof.")  # how modules begin that hold none
_PLAIN = (str, bytes, bool, int, float, complex, type(None), type, torch.dtype, torch.device)


_CONSTANT = frozenset({*_PLAIN, types.BuiltinFunctionType})  # as they are, no subclasses


@dataclass(frozen=True)
class _Spot:
    """A place outside of the arguments that holds tensors, and how to write to it."""

    tree: Tree  # what it holds
    names: Mapping[int, str]  # of the leaves that are exchanged, by their place in `tree`
    whole: Any  # what it holds, untouched
    write: Callable[[Any], None]  # puts something else there


class Captured:
    """What a function reads from outside of its arguments; their tensors, `given`, never count.

    Attributes:
        tensors: by name, as the user would write it: `weight`, `encoder.layers.0.bias`.
        modules: every layer among what is captured, those inside a layer left out.
        generators: of random numbers, PyTorch's and others.
    """

    def __init__(self, fn: Callable[..., Any], given: Sequence[torch.Tensor] = ()) -> None:
        self.fn = fn
        self.tensors: dict[str, torch.Tensor] = {}
        self.modules: list[torch.nn.Module] = []
        self.generators: list[object] = []
        self._given = set(map(id, given))
        self._seen: set[int] = set()
        self._names: dict[int, str] = {}
        self._spots: list[_Spot] = []
        self._walk(fn, "")

    # Finding.

    def _walk(self, value: Any, name: str) -> None:
        """Look into a function, or what a place holds that can be called."""
        if id(value) in self._seen or isinstance(value, _WITHOUT):
            return
        self._seen.add(id(value))
        if type(value) is types.FunctionType:
            self._walk_function(value)
        elif isinstance(value, torch.nn.Module):
            self._walk_layer(value, name)
        elif isinstance(value, functools.partial):
            self._walk_partial(value)
        elif isinstance(value, types.MethodType):
            self._walk(value.__self__, "" if isinstance(value.__self__, torch.nn.Module) else name)
            self._walk(value.__func__, name)
        elif _kind_of(value.__class__)[0]:
            self.generators.append(value)
        elif callable(value) and isinstance(inside := getattr(value, "__dict__", None), dict):
            self._walk(inside.get("__wrapped__"), name)
            for key in list(inside):
                if not key.startswith("__"):  # annotations and the like hold nothing to exchange
                    self._hold(inside[key], key, functools.partial(inside.__setitem__, key))

    def _walk_layer(self, layer: torch.nn.Module, name: str) -> None:
        """Parameters and buffers; a shared one has its first name, as in `named_parameters`."""
        if isinstance(layer, torch.jit.ScriptModule):  # its state cannot be exchanged
            return
        self.modules.append(layer)
        for prefix, module in layer.named_modules(prefix=name):
            prefix = prefix.replace("_orig_mod.", "").replace("_orig_mod", "")  # compiled
            stores: list[dict[str, Any]] = [module._parameters, module._buffers]
            held = [(store, key, tensor) for store in stores for key, tensor in store.items()]
            for store, key, tensor in held:
                if tensor is not None and id(tensor) not in self._given:
                    own = f"{prefix}.{key}" if prefix else key
                    if is_lazy(tensor):
                        raise UsageError(f"{own} is {unsupported_kind(tensor)}")
                    own = self._add(own, tensor)
                    write = functools.partial(store.__setitem__, key)
                    self._spots.append(_Spot(Tree(tensor), {0: own}, tensor, write))
            if isinstance(module, torch.nn.RNNBase):  # it keeps its weights in a list as well
                self._hold_list(module)

    def _hold_list(self, module: torch.nn.RNNBase) -> None:
        tree = Tree(module._flat_weights)
        names = {k: self._names[id(w)] for k, w in enumerate(tree.leaves) if id(w) in self._names}
        write = functools.partial(module.__dict__.__setitem__, "_flat_weights")
        self._spots.append(_Spot(tree, names, module._flat_weights, write))

    def _walk_partial(self, value: functools.partial[Any]) -> None:
        self._walk(value.func, "")
        parameters = [p.name for p in parameters_of(value.func)][: len(value.args)]
        parameters += [f"bound {k}" for k in range(len(parameters), len(value.args))]
        whole = dict(zip(parameters, value.args, strict=True)) | value.keywords

        def write(contents: dict[str, Any]) -> None:
            args = tuple(contents[name] for name in parameters)
            options = {key: contents[key] for key in contents if key not in parameters}
            value.__setstate__((value.func, args, options, vars(value)))  # type: ignore[attr-defined]  # how a partial is unpickled

        self._hold(whole, "", write)

    def _walk_function(self, fn: types.FunctionType) -> None:
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
            try:
                value = cell.cell_contents
            except ValueError:  # not filled yet
                continue
            self._hold(value, name, functools.partial(setattr, cell, "cell_contents"))
        code, options = fn.__code__, fn.__kwdefaults__ or {}
        if fn.__defaults__:
            last = code.co_varnames[: code.co_argcount][-len(fn.__defaults__) :]
            defaults = dict(zip(last, fn.__defaults__, strict=True))
            self._hold(defaults, "", lambda d: setattr(fn, "__defaults__", tuple(d.values())))
        if options:
            self._hold(dict(options), "", functools.partial(setattr, fn, "__kwdefaults__"))
        # PyTorch's own globals, and ours, are nobody's weights; closures of transforms, and of
        # backwards, hold the user's. functools.wraps takes __module__ from elsewhere.
        home = str(fn.__globals__.get("__name__"))
        for name in () if home.startswith(_WITHOUT_WEIGHTS) else _names_in(code):
            value = fn.__globals__.get(name)
            beside = type(value) is types.FunctionType and value.__globals__ is fn.__globals__
            kind: Any = value.__class__
            if beside or _kind_of(kind)[1]:
                self._hold(value, name, functools.partial(fn.__globals__.__setitem__, name))

    def _hold(self, value: Any, name: str, write: Callable[[Any], None]) -> None:
        """What a place holds: tensors to exchange, and more to look into."""
        if type(value) in _CONSTANT:
            return
        if not isinstance(value, (torch.Tensor, dict, list, tuple)) and not hasattr(
            value, "__dataclass_fields__"
        ):
            self._walk(value, name)
            return
        if type(value) in (tuple, list, dict) and self._is_plain(value):
            return
        tree = Tree(value)
        named: dict[int, str] = {}
        for place, leaf in enumerate(tree.leaves):
            if type(leaf) in _CONSTANT or isinstance(leaf, _PLAIN) or id(leaf) in self._given:
                continue
            held = isinstance(leaf, torch.Tensor)
            if held and not (is_differentiable(leaf) and leaf.requires_grad):
                continue
            path = tree.paths[place]
            own = name + keystr(path) if name else f"{path[0].key}{keystr(path[1:])}"
            if held:
                named[place] = self._add(own, leaf)
            else:
                self._walk(leaf, own)
        if named:
            self._spots.append(_Spot(tree, named, value, write))

    def _is_plain(self, value: Any) -> bool:
        """Whether a container holds constants and given tensors alone, as nearly always."""
        for leaf in value.values() if type(value) is dict else value:
            if type(leaf) not in _CONSTANT and id(leaf) not in self._given:
                return False
        return True

    def _add(self, name: str, tensor: torch.Tensor) -> str:
        """The name of a tensor, which has one however often it is found."""
        if id(tensor) not in self._names:
            while name in self.tensors:
                name += "'"
            self._names[id(tensor)] = name
            self.tensors[name] = tensor
        return self._names[id(tensor)]

    # Calling.

    @contextmanager
    def exchanged(self, tensors: Mapping[str, torch.Tensor]) -> Iterator[None]:
        """Meanwhile the function reads these tensors in the places of its own."""
        with restored(*(functools.partial(spot.write, spot.whole) for spot in self._spots)):
            for spot in self._spots:
                others = {place: tensors[name] for place, name in spot.names.items()}
                spot.write(replaced(spot.tree, others))
            yield

    def of(self, fn: Callable[..., Any], twin: Callable[..., Any]) -> Captured:
        """What another function reads, by the names that its counterparts have here.

        What has none here stays what it is. `twin` is that function before its tensors were
        converted, to recognise them. UsageError where a tensor that requires grad has no
        counterpart in `fn`: neither itself nor one of its name.
        """
        found, before = Captured(fn), Captured(twin)
        names = {name: self._names.get(id(t), name) for name, t in before.tensors.items()}
        wanted = [name for name, tensor in self.tensors.items() if tensor.requires_grad]
        if missing := [name for name in wanted if name not in names.values()]:
            raise UsageError(
                f"{name_of(twin)} reads no tensor {missing[0]}, which {name_of(self.fn)} reads "
                "from outside of its arguments; pass it as an argument to both"
            )
        found._spots = [
            replace(
                spot,
                names={p: names[n] for p, n in spot.names.items() if names[n] in self.tensors},
            )
            for spot in found._spots
        ]
        return found


@functools.lru_cache(maxsize=1024)
def _kind_of(kind: Any) -> tuple[bool, bool]:
    """Whether a type is one of generators of random numbers, and whether it is worth holding.

    Types are few, and those of PyTorch take long to say so.
    """
    drawn = issubclass(kind, GENERATORS)
    return drawn, drawn or issubclass(kind, (torch.Tensor, torch.nn.Module))


@functools.lru_cache(maxsize=4096)
def _names_in(code: types.CodeType) -> tuple[str, ...]:
    """Names of the globals that a piece of code and the functions defined in it read."""
    own = {str(step.argval) for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL"}
    inner = [_names_in(part) for part in code.co_consts if isinstance(part, types.CodeType)]
    return tuple(sorted(own.union(*inner)))


# Calling a PyTorch function: its arguments, the names of inputs and outputs, random state.


ARGUMENTS = object()  # for `wrt`: all of them, and nothing else


@dataclass(frozen=True)
class Choice:
    """Which tensors are differentiated, and as what."""

    # Of the differentiable arguments, or of these and the captured tensors; those found where None.
    names: Sequence[str] | None = None
    wrt: Any = None  # which of the differentiable tensors are exchangeable; all where None
    masked: bool = False  # sparse inputs stand for their specified entries only
    # No output need depend on any of them: the gradient of a linear function depends on none of its
    # inputs.
    optional: bool = False


class Arguments:
    """Positional and keyword arguments, and captured tensors, with exchangeable ones among them.

    Other tensors are handed over as private copies, made anew whenever the function changed one.

    Attributes:
        leaves: one per exchangeable tensor, in the order of the arguments, captured ones last.
        beside: positions among `leaves` of those on which no output need depend: captured ones.
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
        choice: Choice,
        capture: Callable[[Any, Sequence[torch.Tensor]], Captured] | None = None,
    ) -> None:
        self.masked = choice.masked
        given: tuple[Any, ...] = (tuple(inputs), dict(kwargs))
        self._tree = Tree(given)
        captured = capture and capture(fn, tensors_of(self._tree))
        self.captured = captured if captured and captured.tensors else None
        if captured and captured.tensors:
            self._tree = Tree((*given, dict(captured.tensors)))
        self._flat = _initialised(self._tree, fn)
        paths = self._pick(fn, choice)
        self.beside: list[int] = []
        self._kinds: list[tuple[int, torch.Tensor]] = []
        for place, (path, leaf) in enumerate(zip(paths, self.leaves, strict=True)):
            if choice.optional or path[0].idx == 2:
                self.beside.append(place)
            if type(leaf.original) is not torch.Tensor or vars(leaf.original):
                self._kinds.append((place, leaf.original))
        beside = [] if captured is None else captured.generators
        self.generators = sources_in([*self._flat, *beside])
        self._nested = bool(kwargs) or not is_flat(inputs, self._flat)
        self._only_leaves = len(self._where) == len(self._flat) and not self._nested
        self._keep_private()

    def _pick(self, fn: Callable[..., Any], choice: Choice) -> list[Path]:
        """Make leaves of the tensors that are differentiated; their paths."""
        places, paths, names, parameters = [], [], [], parameter_names(fn)
        for place, value in enumerate(self._flat):
            if is_differentiable(value) and value.requires_grad:
                places.append(place)
                paths.append(self._tree.paths[place])
                names.append(input_name(paths[-1], parameters))
        found = _named(names, paths, choice.names)
        picked: Sequence[int] = range(len(found))
        if choice.wrt is ARGUMENTS:
            picked = [k for k, path in enumerate(paths) if path[0].idx < 2]
        elif choice.wrt is not None and found:
            picked = chosen(found, [argument_of(path) for path in paths], choice.wrt)
        if not picked:
            raise UsageError(
                "inputs: nothing to check, for none of them have requires_grad=True; call "
                ".requires_grad_() on the floating-point or complex tensors that are meant"
            )
        if len(picked) < len(places):
            places, found = [places[k] for k in picked], [found[k] for k in picked]
            paths = [paths[k] for k in picked]
        self._where = places
        self._make_leaves(found)
        return paths

    def _make_leaves(self, names: Sequence[str]) -> None:
        self.leaves = []
        for place, name in zip(self._where, names, strict=True):
            self.leaves.append(make_leaf(self._flat[place], name, self.masked))

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

    @property
    def are_leaves(self) -> bool:
        """Whether the exchangeable tensors, as they are, are all the arguments there are."""
        return self._only_leaves and not self._kinds

    def call(self, fn: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> Any:
        """Run `fn` at these exchangeable tensors. Raises what fn raises."""
        if self.are_leaves:
            return fn(*tensors)
        if self._in_kind(tensors):
            return self._called(fn, tensors)
        try:
            return self._called(fn, tensors)
        except (TypeError, ValueError) as error:
            reason = f"a Parameter would be no leaf here, and was refused: {first_line(error)}"
            raise Unsupported(reason) from error

    def _in_kind(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Give tensors the classes of the user's; whether all may have theirs.

        A parameter is a leaf: what is computed, as with a graph outside, stays a tensor.
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
        flat = self._filled(tensors)
        try:
            if not self._nested:
                return fn(*flat)
            args, kwargs, *held = self._tree.rebuilt(flat)
            with self.captured.exchanged(*held) if self.captured else nullcontext():
                return fn(*args, **kwargs)
        finally:
            if not self._left:
                self._renew_written()

    def _filled(self, tensors: Sequence[torch.Tensor]) -> list[Any]:
        flat = self._flat.copy()
        for position, tensor in zip(self._where, tensors, strict=True):
            flat[position] = tensor
        return flat

    @contextmanager
    def held(self, tensors: Sequence[torch.Tensor]) -> Iterator[None]:
        """The backward of a run at these tensors finds them where the run found them.

        A backward that runs the function again, as gradient checkpointing does, reads them there.
        """
        if not self.captured:
            yield
            return
        try:
            with self.captured.exchanged(self._tree.rebuilt(self._filled(tensors))[2]):
                yield
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
        for position in self._written():
            self._renew(position)
            self.writes = True

    def _written(self) -> list[int]:
        """Positions of private copies that calls wrote into and that are not made anew yet."""
        versions = self._versions.items()
        return [place for place, before in versions if self._flat[place]._version != before]

    def written(self) -> tuple[str, ...]:
        """The same tensors by name."""
        return tuple(input_name(self._tree.paths[place], []) for place in self._written())

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
        flat = [change(value) for value in self._flat]
        for position, tensor in zip(self._where, tensors, strict=True):
            flat[position] = tensor
        captured = self.captured
        if captured and fn is not captured.fn:
            captured = captured.of(fn, twin or fn)
        made = copy.copy(self)
        made._flat, made.captured = flat, captured
        made._make_leaves([leaf.slot.name for leaf in self.leaves])
        made._keep_private()
        return made

    def _renew(self, position: int) -> None:
        # A new tensor, not a write into the old one: the kept graph may have saved that.
        given = self._given[position]
        private = private_copy(given)
        if given.requires_grad:  # not asked for by `wrt`, but as the user's program has it
            private.requires_grad_()
        self._flat[position] = in_kind(private, given)
        self._versions[position] = private._version


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
        if tensor.numel() > SORTED or type(tensor) is not torch.Tensor:
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


def function_name(fn: Callable[..., Any]) -> str:
    """A name for messages."""
    return str(getattr(fn, "__name__", type(fn).__name__))


class Call:
    """A PyTorch function, run at other differentiable tensors.

    Args:
        mode: active whenever the user's function or backward runs, if any.
        in_double: how a function of few bits runs in double precision; as `like`, where None.
        like: another call of the same function, whose runs are counted with these, and which
            begins from the same random state.
        in_place: the function reads its inputs not from its arguments but from outside, so that
            the user's own tensors are written to, and restored, in every call.

    Attributes:
        counts: runs of the user's function and of its backward so far.
        random: the state of random numbers that the first run started from.
        fixed_random: each run starts from that state, as the first drew.
        raised: the exception of the last run that raised, for who asks to have it kept.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        arguments: Arguments,
        *,
        mode: Rounding | None = None,
        in_double: InDouble | None = None,
        like: Call | None = None,
        in_place: bool = False,
    ) -> None:
        self.fn, self.arguments, self.mode = fn, arguments, mode
        self.in_double: InDouble | None = (
            like.in_double if like and in_double is None else in_double
        )
        self._plainly = arguments.are_leaves
        self.name, self.inputs = function_name(fn), Inputs(arguments.leaves)
        self.counts: CallCounter = like.counts if like else CallCounter()
        self.random: RandomState = like.random if like else RandomState(arguments.generators)
        self.raised: list[Exception] | None = like.raised if like else None
        self.in_place, self.fixed_random = in_place, False
        self._saved = self._values() if in_place else []

    def _values(self) -> list[torch.Tensor]:
        return [leaf.original.detach().clone() for leaf in self.inputs.leaves]

    def first(self) -> tuple[list[torch.Tensor], Any]:
        """The run to keep: its differentiable tensors, and what it returned."""
        tensors = self.fresh()
        result = self(tensors)
        if type(result) is not torch.Tensor:
            container(f"the result of {self.name}", result)
        self.fixed_random = self.random.changed()
        if self.in_double is not None and not self.in_double.needed:
            self.in_double = None
        return tensors, result

    def on_originals(self) -> Call:
        """The same on the user's own tensors, in place."""
        made = copy.copy(self)
        made.in_place, made._saved = True, self._values()
        return made

    def require_arguments(self) -> None:
        """Unsupported where the function does not take its inputs as arguments."""
        if self.in_place:
            raise Unsupported("the function reads its inputs from outside its arguments")

    def fresh(self) -> list[torch.Tensor]:
        """Inputs of a run at the point: private copies, or the user's own in place."""
        if self.in_place:
            return [leaf.original for leaf in self.inputs.leaves]
        return self.inputs.copies()

    def __call__(self, tensors: Sequence[torch.Tensor]) -> Any:
        """The user's function at these differentiable tensors, of which it leaves no trace."""
        if not self.in_place:
            return self.run(tensors)
        with restored(self._restore):
            return self.run(tensors)

    def run(self, tensors: Sequence[torch.Tensor], fn: Callable[..., Any] | None = None) -> Any:
        """Like a call, of another form of the function where one is given.

        Whoever wrote into the user's tensors restores them.
        """
        if self.fixed_random:
            self.random.restore()
        self.counts.add("function")
        fn = self.fn if fn is None else fn
        try:
            if self.mode is None and self.in_double is None and torch.is_grad_enabled():
                return fn(*tensors) if self._plainly else self.arguments.call(fn, tensors)
            with torch.enable_grad(), self._modes(tensors):
                return self.arguments.call(fn, tensors)
        except Exception as error:
            if self.raised is not None:
                own = error.__cause__ if isinstance(error, Unsupported) else None
                self.raised[:] = [own if isinstance(own, Exception) else error]
            raise

    def evaluate(
        self, tensors: Sequence[torch.Tensor], outputs: Outputs, into: Array | None = None
    ) -> Array:
        """F at these inputs, in `into` where given, read before they have their values again."""
        if not self.in_place:
            for tensor in tensors:
                tensor.requires_grad_()
            return outputs.flatten(self.run(tensors), into)
        originals = self.fresh()
        with restored(self._restore):
            for original, tensor in zip(originals, tensors, strict=True):
                original.data.copy_(tensor)
            return outputs.flatten(self.run(originals), into)

    def grad(
        self,
        outputs: Sequence[torch.Tensor],
        tensors: Sequence[torch.Tensor],
        cotangents: Sequence[torch.Tensor],
        *,
        at: Sequence[torch.Tensor] | None = None,
        **options: Any,
    ) -> tuple[torch.Tensor | None, ...]:
        """Run the user's backward; the graph stays, and what is unused gets None.

        `at` are all differentiable tensors of that run, where `tensors` are not all.
        """
        self.counts.add("vjp")
        if self.mode is None and self.in_double is None and not self.arguments.captured:
            return pulled(outputs, tensors, cotangents, **options)
        with self.arguments.held(at or tensors), self._modes(cotangents, backward=True):
            return pulled(outputs, tensors, cotangents, **options)

    @contextmanager
    def _modes(self, given: Sequence[torch.Tensor], *, backward: bool = False) -> Iterator[None]:
        """In it the user's function, or backward, runs on what it is given.

        One that raises where operations are rounded was rounded out of its domain, or is not made
        for it: it claims nothing wrong.
        """
        rounding: AbstractContextManager[Any] = nullcontext()
        refused: AbstractContextManager[Any] = nullcontext()
        if self.mode is not None:
            rounding, refused = self.mode.active(given), unsupported()
        if self.in_double is None:
            widening: AbstractContextManager[Any] = nullcontext()
        else:
            widening = self.in_double.backward if backward else self.in_double.forward
        with refused, rounding, widening:
            yield

    def _restore(self) -> None:
        """Give the user's tensors their values back."""
        for leaf, saved in zip(self.inputs.leaves, self._saved, strict=True):
            leaf.original.data.copy_(saved)


def pulled(
    outputs: Sequence[torch.Tensor],
    tensors: Sequence[torch.Tensor],
    cotangents: Sequence[torch.Tensor],
    *,
    create_graph: bool = False,
    retain_graph: bool = True,
    is_grads_batched: bool = False,
) -> tuple[torch.Tensor | None, ...]:
    """One gradient for each tensor, None where it is not used; the graph stays if it is retained.

    The cotangents are of the shapes of their outputs, or stacks of such. `torch.autograd.grad`
    would look at that first, which takes longer than the backward of an operation on a few
    numbers, and in a process for the first time imports SymPy.
    """
    if has_torch_function((*outputs, *tensors)):  # a subclass, or a mode, may be told of it
        return torch.autograd.grad(
            outputs,
            tensors,
            cotangents,
            retain_graph=retain_graph,
            allow_unused=True,
            create_graph=create_graph,
            is_grads_batched=is_grads_batched,
        )
    outputs, tensors = tuple(outputs), tuple(tensors)
    # What PyTorch has around its engine is for threads of devices, and a log of every node.
    run = _ENGINE if outputs[0].is_cpu else _engine_run_backward

    rest = retain_graph, create_graph, tensors, True
    if not is_grads_batched:
        return run(outputs, tuple(cotangents), *rest, accumulate_grad=False)
    pull = functools.partial(run, accumulate_grad=False)
    rows = _vmap_internals._vmap(lambda *given: pull(outputs, given, *rest), 0, 0, True)
    return tuple(rows(*cotangents))


# Operators that are registered with torch.library.


_NATIVE = "aten::", "prims::"


def operator_name(fn: Any) -> str:
    """`mylib::op`; "" where the function is no operator of torch.library."""
    if isinstance(fn, CustomOpDef):
        return str(fn._qualname)
    if isinstance(fn, torch._ops.OpOverload):
        return str(fn.name())
    return str(fn._qualified_op_name) if isinstance(fn, torch._ops.OpOverloadPacket) else ""


def is_custom(operator: str) -> bool:
    """Whether the operator of this name is somebody's own; not where there is no name."""
    return bool(operator) and not operator.startswith(_NATIVE)


def operator(text: str) -> Any:
    """The operator `mylib::op`, or one overload, `mylib::op.default`. UsageError without it."""
    namespace, _, path = text.partition("::")
    name, _, overload = path.partition(".")
    try:
        found = getattr(getattr(torch.ops, namespace), name)
        return getattr(found, overload) if overload else found
    except AttributeError:
        raise UsageError(
            f"fn: no operator {text!r} is registered with torch.library; import the module that "
            "registers it first"
        ) from None
