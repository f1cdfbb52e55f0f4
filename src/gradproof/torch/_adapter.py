"""A PyTorch function at a point as a map: its values, what autograd claims, and maps made of it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from gradproof._adapters.double import twin_in_double
from gradproof._adapters.raised import unsupported
from gradproof._data.exceptions import exception_line
from gradproof._data.formats import SINGLE
from gradproof._data.space import Array, Space
from gradproof._maps.contract import (
    DifferentiableMap,
    Raised,
    Refused,
    Trait,
    Transform,
    Unsupported,
)
from gradproof.errors import UsageError
from gradproof.torch import _layouts as torch_layouts
from gradproof.torch._arguments import Arguments
from gradproof.torch._call import Call, backward_gradients
from gradproof.torch._compat import UndefinedGrad, preserved_version_counter
from gradproof.torch._forward import Forward
from gradproof.torch._graph import BATCHINGS, Graph, rows_of_stacks
from gradproof.torch._graph_contents import coarsest_unit, leaves_near
from gradproof.torch._in_double import InDouble, tensor_in_double, value_in_double
from gradproof.torch._leaves import Leaf
from gradproof.torch._non_differentiable import non_differentiable_outputs
from gradproof.torch._notes import notes_on_function
from gradproof.torch._outputs import Outputs, named_outputs
from gradproof.torch._rounding import Rounding
from gradproof.torch._samples import array_like as array_like
from gradproof.torch._samples import values_of as values_of
from gradproof.torch._side_effects import side_effects
from gradproof.torch._tensors import PLAIN
from gradproof.torch._transforms import TRANSFORMS, transformed_vjp


def build(
    fn: Callable[..., Any],
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    wrt: Any = None,
    names: Sequence[str] | None = None,
    masked: bool = False,
) -> TorchMap:
    """The map of `fn` at `inputs`, differentiable in every tensor that requires grad.

    Tensors that the function reads from elsewhere, as a module its parameters, are inputs too,
    unless `wrt` is ARGUMENTS.

    UsageError where no input requires grad, one has NaN, overlapping or invalid entries, fn reads
    one from a place where it cannot be exchanged, or returns no tensor or one that is not strided.
    """
    arguments = Arguments(fn, inputs, kwargs or {}, names=names, wrt=wrt, masked=masked)
    built = TorchMap(Call(fn, arguments))
    leaves, are_all = leaves_near(built.graph.roots)
    leaf_ids = set(map(id, leaves))
    unread = [k for k, tensor in enumerate(built.graph.tensors) if id(tensor) not in leaf_ids]
    for place in unread:
        leaf = built.inputs.leaves[place]
        if place not in arguments.optional and id(leaf.original) in leaf_ids:
            built.close()
            raise UsageError(
                f"{built.name} reads {leaf.slot.name} not from its arguments, but from where it "
                "cannot be exchanged, as a container among the globals; let it use its argument"
            )
    # A tensor that the function holds, and cuts off, was not asked about: a code book, a target.
    idle = set(unread).intersection(arguments.optional) if wrt is None and are_all else set()
    built.unsearched = _tensors_from_elsewhere(built, leaves) if wrt is None else ()
    if not idle or len(idle) == len(built.inputs.leaves):
        return built
    built.close()
    slots = built.domain.slots
    reached = [slot.name for place, slot in enumerate(slots) if place not in idle]
    found = build(fn, inputs, kwargs, wrt=reached, names=names, masked=masked)
    found.idle = [slots[place].name for place in sorted(idle)]
    found.unsearched = built.unsearched
    return found


def _tensors_from_elsewhere(built: TorchMap, leaves: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Leaves that are no inputs, nor made anew in every run: read from a place unknown."""
    own = set(map(id, built.graph.tensors))
    found = [leaf for leaf in leaves if id(leaf) not in own]
    if not found:
        return []
    again, _ = leaves_near(built.graph.roots_at(*built.inputs.copy_inputs()))
    return [leaf for leaf in found if any(leaf is other for other in again)]


class TorchMap(DifferentiableMap):
    """A PyTorch function at a point. The claimed derivative belongs to one kept run of it.

    Args:
        call: the function with its arguments; its first run is kept.
        without: positions of the floating outputs that are left out; where None, those that are
            declared to have no derivative.
        is_tangent: whether the function is the tangent of another one, by forward mode.

    Attributes:
        graph: of the kept run.
        idle: names of tensors that the function holds, and that no gradient reaches: not inputs.
        unsearched: tensors that require grad, which it reads from where they are not found.
    """

    idle: Sequence[str] = ()
    unsearched: Sequence[torch.Tensor] = ()
    _raised = ""  # what its own backward raised, of a derivative

    def __init__(
        self, call: Call, *, without: frozenset[int] | None = None, is_tangent: bool = False
    ) -> None:
        self.name, self.counts, self._is_tangent = call.name, call.counts, is_tangent
        self.call, self.inputs = call, call.inputs
        try:
            tensors, result = call.first_run()
            if without is None:
                without = non_differentiable_outputs(call, result)
            self._without = without
            self.outputs = Outputs(named_outputs(result, call.name), call.name, without)
            self.graph = Graph(call, self.outputs, tensors, result)
        except BaseException:
            self.close()
            raise
        self.domain, self.codomain = self.inputs.space, self.outputs.space
        self.point, self.held = self.inputs.point, self.inputs.held
        slots = (*self.domain.slots, *self.codomain.slots)
        self.resolution = max([slot.grain.unit for slot in slots])
        if self.resolution < SINGLE:
            self.resolution = max(self.resolution, coarsest_unit(self.graph.roots))

    def keep_limits(self, domain: Space) -> None:
        self.domain = self.inputs.space = domain

    @functools.cached_property
    def _forward(self) -> Forward:
        if self._is_tangent:
            raise Unsupported("forward mode of forward mode is not checked in PyTorch")
        return Forward(self.graph)

    @property
    def notes(self) -> list[str]:
        """Remarks for the report: random numbers, inputs and outputs of a special kind."""
        return notes_on_function(self.graph, self.idle, self.unsearched)

    def close(self) -> None:
        """Restore the global random state of when the map was built."""
        self.call.random.restore()

    # The function and its derivatives.

    def value(self, x: Array) -> Array:
        tensors = [tensor.requires_grad_() for tensor in self.inputs.tensors_at(x)]
        found = self.outputs.flatten(self.call(tensors))
        if x is self.point:
            self.graph.value()  # read before a later run can overwrite it
        return found

    def kept_value(self) -> Array:
        return self.graph.value()

    def products_in_reused_arrays(self, x: Array, v: Array) -> tuple[None, Array, Array]:
        # The version of the tensors is another while they hold x, as after an optimiser's step, and
        # that of the kept graph again afterwards.
        tensors = self.graph.tensors
        if not self.inputs.are_dense or any(type(tensor) not in PLAIN for tensor in tensors):
            raise Unsupported("its inputs are not written into")
        before = [tensor.detach().clone() for tensor in tensors]
        with preserved_version_counter(tuple(tensors)), torch.no_grad():
            try:
                for tensor, values in zip(tensors, self.inputs.tensors_at(x), strict=True):
                    tensor.copy_(values)
                with torch.enable_grad():
                    there = self.graph.graph_of_other_run(tensors)
                    return None, there.value(), there.gradient(self.outputs.cotangents(v), v)
            finally:
                for tensor, values in zip(tensors, before, strict=True):
                    tensor.copy_(values)

    def products_of_overtaken_call(self, x: Array, v: Array) -> tuple[Array, Array, Array]:
        arguments, graph = self.call.arguments, self.graph
        if not arguments.writes:
            raise Unsupported("the function writes into no tensor of its own")
        tensors = [tensor.requires_grad_() for tensor in self.inputs.tensors_at(x)]
        with arguments.keep_written_copies():
            here = graph.graph_of_other_run(self.inputs.copy_inputs())
            here.value()
            there = graph.graph_of_other_run(tensors)
            value, first = there.value(), here.gradient(self.outputs.cotangents(v), v)
            last = there.gradient(self.outputs.cotangents(v), v)
            here.returned_gradients.watch_gradients(x, (), last, self.inputs.vector)
            graph.later_effects = here.overwritten_gradients()
            return first, value, last

    def carried_arrays(self) -> tuple[str, ...]:
        arguments = self.call.arguments
        if not arguments.writes:
            return ()
        with arguments.keep_written_copies():
            value, next_value = [
                self.graph.graph_of_other_run(self.inputs.copy_inputs()).value() for _ in range(2)
            ]
            return () if bool((value == next_value).all()) else arguments.written_names()

    def vjp(self, v: Array) -> Array:
        if self._raised:
            raise Raised(self._raised)
        return self.graph.gradient(self.outputs.cotangents(v), v)

    def batchings(self) -> tuple[str, ...]:
        return BATCHINGS

    def vjp_batch(self, vs: Array, batching: str) -> Array:
        if not self.graph.roots or not len(vs):
            return np.zeros((len(vs), self.domain.size))
        graph, stacked = self.graph, [each.contiguous() for each in self.outputs.cotangents(vs)]
        by = graph.rows_by_vmap if batching == BATCHINGS[0] else graph.rows_by_older_batching
        by_row = rows_of_stacks(by(stacked), len(vs))
        return np.array([self.inputs.vector(row) for row in by_row])

    def transposed_vjp(self, u: Array, v: Array) -> tuple[Array, Array]:
        images, gradient = self._transposed_products([u], v)
        return images[0], gradient

    def _transposed_products(self, us: Sequence[Array], v: Array) -> tuple[list[Array], Array]:
        """J u for every one of `us`, and J^T v, by a single backward that is differentiated."""
        # J^T v is linear in v, so the derivative of s(v) = <J^T v, u> = <v, J u> is J u. With
        # <a, b> = Re sum conj(a) b this is PyTorch's gradient of s for complex v as well.
        if not self.graph.roots:
            return [self.outputs.vector((), ()) for _ in us], self.inputs.vector(())
        cotangents = [tensor.requires_grad_() for tensor in self.outputs.cotangents(v)]
        with unsupported(RuntimeError):
            gradients = self.graph.grad(cotangents, create_graph=True)
            # Sparse ones are differentiated also where they leave out entries that are zero.
            made = {
                place: gradient.to_dense(masked_grad=False)
                for place, gradient in enumerate(gradients)
                if gradient is not None and gradient.requires_grad
            }
            images = []
            for left, u in zip(reversed(range(len(us))), us, strict=True):
                directions = self.inputs.direction_tensors(u)
                weights = [directions[place].to_dense() for place in made]
                columns = backward_gradients(
                    list(made.values()), cotangents, weights, retain_graph=left > 0
                )
                if all(column is None for column in columns):
                    raise Unsupported("the backward is not differentiable in its cotangent")
                images.append(self.outputs.vector(self.outputs.attached, columns))
        del made  # their graph holds vectors of the size of the inputs
        return images, self.inputs.vector(gradients)

    def vjp_undefined(self, v: Array, missing: frozenset[int]) -> Array:
        roots, cotangents = list(self.graph.roots), self.outputs.cotangents(v)
        slots = [k for k, slot in enumerate(self.codomain.slots) if not slot.detached]
        for place, slot in enumerate(slots):
            if slot in missing:
                roots[place] = UndefinedGrad()(roots[place])
                cotangents[place] = torch.zeros_like(cotangents[place])
        return self.inputs.vector(self.call.grad(roots, self.graph.tensors, cotangents))

    def vjp_wrt(self, v: Array, slots: frozenset[int]) -> Array:
        tensors = self.inputs.copy_inputs()
        for place, tensor in enumerate(tensors):
            tensor.requires_grad_(place in slots)
        with unsupported(why=exception_line, kind=Refused):
            roots = self.graph.roots_at(*tensors)
        pairs = zip(roots, self.outputs.cotangents(v), strict=True)
        used = [(root, cotangent) for root, cotangent in pairs if root.requires_grad]
        wanted, given = [tensors[place] for place in slots], [cotangent for _, cotangent in used]
        found = self.call.grad([root for root, _ in used], wanted, given, at=tensors)
        gradients = dict(zip(slots, found, strict=True))
        return self.inputs.vector([gradients.get(place) for place in range(len(tensors))])

    def jvp(self, u: Array) -> Array:
        if self.call.mode is not None:
            return self.products(u[None], forward=True)[0]
        self.counts.add("jvp")
        return self._forward.jvp(u)

    def products(self, probes: Array, *, forward: bool) -> Array:
        if not forward or self.call.mode is None:
            return super().products(probes, forward=forward)
        self.counts.add("jvp", len(probes))
        # Dual tensors under a dispatch mode crash the process; these are the same numbers.
        with self.call.mode:
            return np.stack(self._transposed_products(probes, np.ones(self.codomain.size))[0])

    def jvp_undefined(self, u: Array, missing: frozenset[int]) -> Array:
        self.counts.add("jvp")
        return self._forward.jvp(u, missing)

    def jvp_batch(self, us: Array) -> Array:
        self.counts.add("jvp")
        return self._forward.jvp_batch(us)

    # What a backward does beside computing numbers.

    def layouts(self) -> tuple[str, ...]:
        return torch_layouts.cotangent_layouts(self.outputs.attached)

    def vjp_layout(self, v: Array, layout: str) -> Array:
        given = self.outputs.cotangents(v)
        return self.graph.gradient([torch_layouts.in_layout(one, layout) for one in given], v)

    def input_layouts(self) -> tuple[str, ...]:
        return torch_layouts.input_layouts(self.call)

    def map_in_layout(self, layout: str) -> TorchMap:
        return self._map_of_tensors(torch_layouts.inputs_in_layout(self.call, layout))

    def memory_dependence(self) -> str:
        return torch_layouts.memory_dependence(self.call)

    def gradient_traits(self, v: Array) -> Sequence[Trait]:
        return [
            Trait(slot, what, claimed, expected)
            for slot, gradient, leaf in self._gradients(v)
            for what, claimed, expected in leaf.traits(gradient)
            if claimed != expected
        ]

    def outside_domain(self, v: Array) -> Sequence[tuple[int, tuple[int, ...], float]]:
        if all(slot.entries is None for slot in self.domain.slots):
            return super().outside_domain(v)
        return [
            (slot, index, value)
            for slot, gradient, leaf in self._gradients(v)
            for index, value in leaf.entries_outside(gradient)
        ]

    def _gradients(self, v: Array) -> list[tuple[int, torch.Tensor, Leaf]]:
        """Gradients as the backward returns them, each with the place and leaf of its input."""
        found = zip(self.graph.grad(self.outputs.cotangents(v)), self.inputs.leaves, strict=True)
        return [(slot, one, leaf) for slot, (one, leaf) in enumerate(found) if one is not None]

    def side_effects(self, v: Array) -> Sequence[tuple[str, str]]:
        return side_effects(self.graph, v)

    def transforms(self) -> Sequence[Transform]:
        return TRANSFORMS

    def transformed_product(self, probe: Array, transform: Transform) -> Array:
        if not transform.forward:
            return transformed_vjp(self.graph, probe, transform.name)
        self.counts.add("jvp")
        return self._forward.functional_jvp(probe)

    # Maps made of this one.

    def map_at(self, x: Array) -> TorchMap:
        return self._map_of_tensors(self.inputs.tensors_at(x))

    def _map_of_tensors(self, tensors: list[torch.Tensor]) -> TorchMap:
        """The same function at these inputs."""
        fn, tensors = self.call.fn, self.inputs.with_hooks(tensors)
        return self._similar_map(
            fn, self.call.arguments.changed_arguments(fn, tensors, lambda value: value)
        )

    def map_in_double(self, fn: Callable[..., Any] | None = None) -> DifferentiableMap:
        arguments, given = self.call.arguments, self.call.fn if fn is None else fn

        def made() -> TorchMap:
            twin = value_in_double(given)
            tensors = [tensor_in_double(leaf.copy()) for leaf in arguments.leaves]
            tensors = self.inputs.with_hooks(tensors)
            changed = arguments.changed_arguments(twin, tensors, value_in_double, given)
            dtypes = {leaf.original.dtype.to_real() for leaf in arguments.leaves}
            only = next(iter(dtypes)) if len(dtypes) == 1 else None
            in_double = InDouble(None if only is torch.float64 else only)
            return self._similar_map(twin, changed, in_double=in_double)

        return twin_in_double(self, fn, made)

    def map_without_casts(self) -> DifferentiableMap | None:
        if self.call.in_double is not None:  # it is such a map
            return None
        try:
            twin = self.map_in_double()
        except Unsupported:
            return None
        return twin if twin.cast_unit else None

    @property
    def cast_unit(self) -> float:
        return 0.0 if self.call.in_double is None else self.call.in_double.cast_unit

    def rounded_map(self, unit: float, tiny: float, seed: int) -> TorchMap:
        return self._similar_map(self.call.fn, self.call.arguments, Rounding(unit, tiny, seed))

    def _similar_map(
        self,
        fn: Callable[..., Any],
        arguments: Arguments,
        mode: Rounding | None = None,
        in_double: InDouble | None = None,
    ) -> TorchMap:
        """A map that leaves out the same outputs, and begins from the same random state."""
        in_double = in_double or self.call.in_double
        call = Call(fn, arguments, mode=mode, in_double=in_double, like=self.call)
        made = TorchMap(call, without=self._without, is_tangent=self._is_tangent)
        made.keep_limits(made.domain.with_limits_of(self.domain))
        return made

    def derivative(self, v: Array) -> TorchMap:
        made = self._derivative_map(*self.graph.derivative(v))
        refused = made.graph.refusal()
        if isinstance(refused, Raised):
            made._raised = refused.reason  # forward mode over reverse mode may yet exist
        elif refused is not None:
            raise refused
        return made

    def forward_derivative(self, u: Array) -> TorchMap:
        # Every tangent is one of an output that has a derivative: none is left out here.
        derivative = self._forward.derivative(u)
        made = self._derivative_map(*derivative, without=frozenset(), is_tangent=True)
        if refused := made.graph.refusal():  # a pair of modes that PyTorch lacks
            raise Unsupported(refused.reason)
        return made

    def _derivative_map(
        self, fn: Callable[..., Any], tensors: list[torch.Tensor], names: list[str], **options: Any
    ) -> TorchMap:
        masked = self.call.arguments.masked
        arguments = Arguments(fn, tensors, {}, names=names, masked=masked, derived=True)
        with unsupported(RuntimeError):  # NotImplementedError is one
            made = TorchMap(Call(fn, arguments), **options)
        made.keep_limits(made.domain.with_limits_of(self.domain))
        return made
