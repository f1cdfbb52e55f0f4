"""PyTorch functions as differentiable maps: values, and the backward that autograd claims."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch

from gradproof._adapters.torch import forward, leaves, reverse, watch
from gradproof._adapters.torch import layouts as torch_layouts
from gradproof._adapters.torch.call import ARGUMENTS, Arguments, Captured, function_name
from gradproof._adapters.torch.leaves import LONG, full, lendable, unit_roundoff
from gradproof._adapters.torch.siblings import Kin
from gradproof._adapters.torch.sweep import Samples as Samples
from gradproof._adapters.torch.tree import Outputs, floating_in, named_outputs, tensors_in
from gradproof._adapters.torch.watch import declared
from gradproof._data.options import container
from gradproof._data.space import Array, Space
from gradproof._guard import restored
from gradproof._guard.random import RandomState
from gradproof._maps.contract import Trait, Unsupported


def build(
    fn: Callable[..., Any],
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    masked: bool = False,
    names: Sequence[str] | None = None,
    project: Any = None,
    wrt: Any = None,
    captured: bool = True,
) -> TorchMap:
    """The map of `fn` at `inputs`, differentiable in every tensor that requires grad.

    Tensors that the function reads from elsewhere, as a module its parameters, are inputs too.

    Args:
        fn: takes `*inputs, **kwargs`; returns a tensor or a container of tensors.
        inputs: positional arguments; tensors may be inside containers.
        kwargs: keyword arguments, likewise.
        masked: a sparse input stands for its specified entries only.
        names: of the differentiable inputs, instead of the parameters' names.
        project: makes an input valid; a function, or a dict from names of inputs to functions.
        wrt: which of these tensors the map is differentiable in; all where None.
        captured: whether what the function reads from elsewhere is part of the domain.

    Raises:
        UsageError: no input requires grad, one has NaN, overlapping or invalid entries, or fn
            returns no tensor or one that is not strided.
    """
    kwargs = dict(kwargs or {})
    held = Captured(fn, tensors_in((tuple(inputs), kwargs)))
    wrt = ARGUMENTS if wrt is None and not captured else wrt
    arguments = Arguments(fn, inputs, kwargs, captured=held, masked=masked, names=names, wrt=wrt)
    arguments.go_through(project)
    return TorchMap(fn, arguments)


def from_numpy(values: np.ndarray[Any, Any], *, differentiated: bool = False) -> torch.Tensor:
    """A tensor with the numbers and the dtype of an array of NumPy, on the CPU."""
    return torch.from_numpy(np.array(values, order="C")).requires_grad_(differentiated)


class TorchMap(Kin):
    """A PyTorch function at a point. The claimed derivative belongs to one kept call of it.

    Attributes:
        leaves: the differentiable inputs, one per slot of the domain.
        outputs: one per slot of the codomain.
        produced: what a call returns, and how it becomes a vector.
        attached: those of `outputs` that have a derivative.
        results: the floating outputs of the kept call.
        graph: (tensors of `attached`, tensors of `leaves`) of the kept call.
        counts: runs of the user's function and of its backward so far.
        fixed_random: each call starts from the random state at the beginning, as the first drew.
        in_place: the function reads its inputs not from its arguments but from outside, so that
            the user's own tensors are written to, and restored, in every call.
        saved: their values, to restore.
        home: the device on which vectors live; None for NumPy's. Those of NumPy are taken as well.
        duals_need_grad: the function differentiates inside, also in forward mode.
        no_reverse: why the backward cannot run; None where it can.

    Long vectors may be handed over packed: each is copied into double precision anyway.
    `mode` is active whenever the user's function or backward runs.
    """

    no_reverse: Unsupported | None = None

    def __init__(
        self,
        fn: Callable[..., Any],
        arguments: Arguments,
        *,
        without: frozenset[int] | None = None,
        in_place: bool = False,
        mode: AbstractContextManager[Any] | None = None,
    ) -> None:
        self._mode, self.unpacks = mode, True
        self.fn, self.arguments, self.leaves = fn, arguments, arguments.leaves
        self.name = function_name(fn)
        self.memo: dict[Any, Any] = {}
        self.counts: Counter[str] = Counter()
        self.fixed_random, self.in_place, self.duals_need_grad = False, in_place, False
        self.domain = Space(tuple(leaf.slot for leaf in self.leaves))
        self.home = leaves.housed(self.leaves)
        self.parts = [self.domain.span(slot) for slot in range(len(self.leaves))]
        self.point, self.held = leaves.point_of(self)
        self._pairs = list(zip(self.leaves, self.parts, strict=True))
        self.saved = [leaf.original.detach().clone() for leaf in self.leaves] if in_place else []
        self._random = RandomState(arguments.generators)
        try:
            self._claim(without)
        except BaseException:
            self.close()
            raise

    @property
    def notes(self) -> list[str]:
        """What is said of the function beside its derivatives."""
        return watch.notes(self)

    def close(self) -> None:
        """Restore the global random state of when the map was built."""
        self._random.restore()

    # Building.

    def _claim(self, without: frozenset[int] | None) -> None:
        tensors = leaves.leaves_of_graph(self)
        result = container(f"the result of {self.name}", self.call(tensors))
        named_outputs(result, self.name)  # refused before any gradient of it is asked for
        self.point = leaves.point_kept(self)
        self.fixed_random = self._random.changed()
        if not self.in_place:
            tensors, result = reverse.settle(self, tensors, result)
        self.without = declared(self, result) if without is None else without
        self.produced = Outputs(result, self.name, self.without, self.home)
        self.codomain, self.outputs = self.produced.space, self.produced.kept
        self.attached = self.produced.attached
        self.results = floating_in(result)
        self.graph = ([self.results[output.position] for output in self.attached], tensors)
        used = [leaf.original.dtype for leaf in self.leaves] + [o.dtype for o in self.outputs]
        self.resolution = max(map(unit_roundoff, used))

    # Calls.

    def fresh(self) -> list[torch.Tensor]:
        """Leaves at the point: private copies, or the user's own where the map is in place."""
        if self.in_place:
            return [leaf.original for leaf in self.leaves]
        return [leaf.copy().requires_grad_() for leaf in self.leaves]

    def call(self, tensors: Sequence[torch.Tensor]) -> Any:
        """The user's function at these differentiable tensors, of which it leaves no trace."""
        if not self.in_place:
            return self.run(tensors)
        with restored(partial(reverse.restore, self)):
            return self.run(tensors)

    def run(self, tensors: Sequence[torch.Tensor]) -> Any:
        """Like `call`, but whoever wrote into the user's tensors restores them."""
        return self.run_as(self.fn, tensors)

    def run_as(self, fn: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> Any:
        """Like `run`, of another form of the user's function."""
        if self.fixed_random:
            self._random.restore()
        self.counts["function"] += 1
        arguments = self.arguments if fn is self.fn else self.arguments.for_form(fn)
        if torch.is_grad_enabled() and self._mode is None:
            return arguments.call(fn, tensors)
        with torch.enable_grad(), self._mode or nullcontext():
            return arguments.call(fn, tensors)

    def grad(
        self,
        outputs: Sequence[torch.Tensor],
        tensors: Sequence[torch.Tensor],
        cotangents: Sequence[torch.Tensor],
        **options: Any,
    ) -> tuple[torch.Tensor | None, ...]:
        """Run the user's backward; the graph stays, and what is unused gets None."""
        self.counts["vjp"] += 1
        with self._mode or nullcontext():
            return torch.autograd.grad(
                outputs, tensors, cotangents, retain_graph=True, allow_unused=True, **options
            )

    def cotangents(self, v: Array) -> list[torch.Tensor]:
        """Private tensors from a codomain vector, one per attached output."""
        private = lendable(v)
        return [output.tensor(private) for output in self.attached]

    def collect(self, gradients: Iterable[torch.Tensor | None]) -> Array:
        """A domain vector from one gradient per input; None counts as zero."""
        vector = full(self.domain.size, 0.0, self.home)
        for (leaf, part), gradient in zip(self._pairs, gradients, strict=False):
            if gradient is not None:
                vector[part] = leaf.gradient(gradient)
        return vector

    def tensors_at(self, x: Array) -> list[torch.Tensor]:
        """Private tensors at other coordinates, one per input."""
        long = None if x is self.point else LONG
        return self.directions(x if self.held is None else self.held.into(x), long)

    def directions(self, u: Array, long: int | None = LONG) -> list[torch.Tensor]:
        """Private tensors of a domain vector, one per input."""
        private = lendable(u, long=long)
        return [leaf.tensor(private[part]) for leaf, part in self._pairs]

    # The contract.

    def value(self, x: Array) -> Array:
        tensors = self.tensors_at(x)
        if self.in_place:
            return reverse.value(self, tensors)
        for tensor in tensors:
            tensor.requires_grad_()
        found = self.produced.flatten(self.call(tensors))
        return leaves.value_kept(self, found) if x is self.point else found

    def vjp(self, v: Array) -> Array:
        if self.no_reverse is not None:
            raise type(self.no_reverse)(self.no_reverse.reason)
        return self._pull(self.cotangents(v))

    def kept_value(self) -> Array:
        return reverse.kept_value(self)

    def reused(self, x: Array, v: Array) -> tuple[None, Array, Array]:
        return reverse.reused(self, x, v)

    def overtaken(self, x: Array, v: Array) -> tuple[Array, Array, Array]:
        return reverse.overtaken(self, x, v)

    def _pull(self, cotangents: list[torch.Tensor]) -> Array:
        return self.collect(self.grad(*self.graph, cotangents) if cotangents else ())

    def jvp(self, u: Array) -> Array:
        if self._mode is None:
            return forward.jvp(self, u, frozenset())
        # Dual tensors under a dispatch mode crash the process; this is the same number.
        with self._mode:
            return reverse.image(self, u)

    def jvp_undefined(self, u: Array, missing: frozenset[int]) -> Array:
        return forward.jvp(self, u, missing)

    def jvp_batch(self, us: Array) -> Array:
        return forward.jvp_batch(self, us)

    def batchings(self) -> tuple[str, ...]:
        return reverse.BATCHINGS

    def vjp_batch(self, vs: Array, batching: str) -> Array:
        return reverse.vjp_batch(self, vs, batching)

    def transposed_vjp(self, u: Array, v: Array) -> tuple[Array, Array]:
        return reverse.transposed_vjp(self, u, v)

    def vjp_undefined(self, v: Array, missing: frozenset[int]) -> Array:
        return reverse.vjp_undefined(self, v, missing)

    def vjp_wrt(self, v: Array, slots: frozenset[int]) -> Array:
        return reverse.vjp_wrt(self, v, slots)

    def layouts(self) -> tuple[str, ...]:
        return torch_layouts.cotangent_layouts(self.attached)

    def vjp_layout(self, v: Array, layout: str) -> Array:
        return self._pull([torch_layouts.in_layout(t, layout) for t in self.cotangents(v)])

    def input_layouts(self) -> tuple[str, ...]:
        return torch_layouts.input_layouts(self)

    def restrided(self, layout: str) -> tuple[TorchMap, Array]:
        return torch_layouts.restrided(self, layout)

    def by_memory(self) -> str:
        return torch_layouts.by_memory(self)

    def gradient_traits(self, v: Array) -> Sequence[Trait]:
        return watch.gradient_traits(self, v)

    def outside_domain(self, v: Array) -> Sequence[tuple[int, tuple[int, ...], float]]:
        if all(slot.entries is None for slot in self.domain.slots):
            raise Unsupported("every entry of every input is in the domain")
        return watch.outside_domain(self, v)

    def side_effects(self, v: Array) -> Sequence[tuple[str, str]]:
        return watch.side_effects(self, v)

    def unreached(self) -> Sequence[int]:
        return self.arguments_among(self.not_reached)

    @functools.cached_property
    def not_reached(self) -> list[int]:
        """Positions of the leaves that the graph of the kept call does not contain."""
        return reverse.unreachable(*self.graph)

    def arguments_among(self, positions: Sequence[int]) -> list[int]:
        """Those of the inputs that are arguments: what a function holds beside it need not use."""
        return [place for place in positions if place not in self.arguments.beside]
