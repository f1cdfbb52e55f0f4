"""One run of a PyTorch function, kept with its graph, and every backward through it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from gradproof._adapters.handed_out import OVERWRITTEN, HandedOut, changed_slots
from gradproof._adapters.raised import unsupported
from gradproof._data.exceptions import exception_line, first_line
from gradproof._data.space import Array
from gradproof._maps.contract import Raised, Refused, Unsupported
from gradproof.torch._call import Call, backward_gradients
from gradproof.torch._compat import UndefinedGrad
from gradproof.torch._graph_contents import may_have_raising_node
from gradproof.torch._outputs import Outputs, floating_in

BATCHINGS = ("torch.vmap", "is_grads_batched")
OLDER_BATCHING = BATCHINGS[1]


class Graph:
    """One run of a function, kept, and the backwards through it.

    Attributes:
        results: its floating outputs.
        roots: those that have a derivative.
        returned_gradients: those of the first backward, to see whether a later one overwrites them.
        later_effects: what runs that shared its buffers changed, as (kind, sentence).
    """

    def __init__(
        self, call: Call, outputs: Outputs, tensors: Sequence[torch.Tensor], result: Any
    ) -> None:
        self.call, self.inputs, self.outputs = call, call.inputs, outputs
        self.tensors, self.results = tensors, floating_in(result)
        self.roots = [self.results[output.position] for output in outputs.attached]
        self._is_vmapped = False  # by torch.vmap, which did not refuse it
        self._value: Array | None = None  # what the run returned
        self.returned_gradients = HandedOut()
        self.later_effects: list[tuple[str, str]] = []

    def graph_of_other_run(self, tensors: Sequence[torch.Tensor]) -> Graph:
        """The graph of another run of the same function."""
        return Graph(self.call, self.outputs, tensors, self.call(tensors))

    def roots_at(
        self, *tensors: torch.Tensor, fn: Callable[..., Any] | None = None
    ) -> tuple[torch.Tensor, ...]:
        """The outputs that have a derivative of a run of the function, or of another form of it."""
        return tuple(self.outputs.roots(self.call(tensors, fn)))

    def value(self) -> Array:
        """What the run returned, when this was first asked."""
        if self._value is None:
            self._value = self.outputs.flatten(self.results)
        return self._value

    def overwritten_gradients(self) -> list[tuple[str, str]]:
        """Outputs, and gradients of the first backward, that changed since: (kind, sentence) each.

        A function may return its own work space, which the next call or backward overwrites.
        """
        found = self.returned_gradients.overwritten_gradients(self.inputs.space)
        found += self.later_effects
        if self._value is not None:
            now = self.outputs.flatten(self.results)
            for name in changed_slots(self.outputs.space, self._value, now):
                if any(output.slot.name == name for output in self.outputs.attached):
                    found.append(("output", OVERWRITTEN.format("call", name)))
        return found

    def grad(
        self, cotangents: Sequence[torch.Tensor], **options: Any
    ) -> tuple[torch.Tensor | None, ...]:
        """One gradient per input, by one backward; None for an input that is not used."""
        return self.call.grad(self.roots, self.tensors, cotangents, **options)

    def gradient(self, cotangents: Sequence[torch.Tensor], v: Array) -> Array:
        """J^T v as a vector; the cotangents are the tensors of v. Zero where there are none."""
        found = self.grad(cotangents)
        vector, handed_out = self.inputs.vector(found), self.returned_gradients
        if handed_out.pair is None:
            handed_out.watch(v, found, vector, self.inputs.vector)
        return vector

    def vjp_batch(self, vs: Array, batching: str) -> Array:
        """J^T v for every row of `vs` in one vectorised backward.

        `torch.vmap` runs the `vmap` rule of a custom Function; the older batching of
        `is_grads_batched` does not, and has rules of its own for PyTorch's operators.
        """
        if not self.roots or not len(vs):
            return np.zeros((len(vs), self.inputs.space.size))
        stacked = [stack.contiguous() for stack in self.outputs.cotangents(vs)]
        by = self._rows_by_vmap if batching == BATCHINGS[0] else self._rows_by_older_batching
        found = by(stacked)
        rows = [[None if g is None else g[row] for g in found] for row in range(len(vs))]
        return np.array([self.inputs.vector(row) for row in rows])

    def _rows_by_vmap(self, stacked: list[torch.Tensor]) -> list[torch.Tensor | None]:
        """By `torch.vmap`."""
        there: list[int] = []

        def pull(*cotangents: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
            gradients = self.call.grad(self.roots, self.tensors, cotangents)
            there[:] = [k for k, gradient in enumerate(gradients) if gradient is not None]
            found = tuple(gradient for gradient in gradients if gradient is not None)
            return found[0] if len(found) == 1 else found  # no container is taken apart

        found = batched_result(lambda: torch.vmap(pull)(*stacked))
        self._is_vmapped = True
        known = dict(zip(there, (found,) if len(there) == 1 else found, strict=True))
        return [known.get(k) for k in range(len(self.tensors))]

    def _rows_by_older_batching(self, stacked: list[torch.Tensor]) -> Any:
        """By `is_grads_batched`.

        It has no guard against a write into `.data`, and ends the process: torch.vmap says so
        first.
        """
        try:
            if not self._is_vmapped:
                self._rows_by_vmap(stacked)
        except Unsupported as refused:
            if "data" in refused.reason:
                raise
        return batched_result(lambda: self.grad(stacked, is_grads_batched=True))

    def vjp_undefined(self, v: Array, missing: frozenset[int]) -> Array:
        """J^T v where the cotangents of the output slots `missing` reach the backward undefined."""
        roots, cotangents = list(self.roots), self.outputs.cotangents(v)
        slots = [k for k, slot in enumerate(self.outputs.space.slots) if not slot.detached]
        for place, slot in enumerate(slots):
            if slot in missing:
                roots[place] = UndefinedGrad()(roots[place])
                cotangents[place] = torch.zeros_like(cotangents[place])
        return self.inputs.vector(self.call.grad(roots, self.tensors, cotangents))

    def vjp_wrt(self, v: Array, slots: frozenset[int]) -> Array:
        """J^T v of a run of its own, in which only the inputs `slots` require grad."""
        tensors = self.inputs.copy_inputs()
        for place, tensor in enumerate(tensors):
            tensor.requires_grad_(place in slots)
        with unsupported(why=exception_line, kind=Refused):
            roots = self.roots_at(*tensors)
        pairs = zip(roots, self.outputs.cotangents(v), strict=True)
        used = [(root, cotangent) for root, cotangent in pairs if root.requires_grad]
        wanted, given = [tensors[place] for place in slots], [cotangent for _, cotangent in used]
        found = self.call.grad([root for root, _ in used], wanted, given, at=tensors)
        gradients = dict(zip(slots, found, strict=True))
        return self.inputs.vector([gradients.get(place) for place in range(len(tensors))])

    def transposed_vjp(self, u: Array, v: Array) -> tuple[Array, Array]:
        """(J u, J^T v) from one backward and its own backward.

        J^T v is linear in v, so the derivative of s(v) = <J^T v, u> = <v, J u> is J u. With <a, b>
        = Re sum conj(a) b this is PyTorch's gradient of s for complex v as well.
        """
        if not self.roots:
            return self.outputs.vector(()), self.inputs.vector(())
        cotangents = [tensor.requires_grad_() for tensor in self.outputs.cotangents(v)]
        directions = self.inputs.direction_tensors(u)
        with unsupported(RuntimeError):
            gradients = self.grad(cotangents, create_graph=True)
            pairs = [
                (_dense_tensor(gradient), _dense_tensor(direction))
                for gradient, direction in zip(gradients, directions, strict=True)
                if gradient is not None and gradient.requires_grad
            ]
            made, weights = zip(*pairs, strict=True) if pairs else ((), ())
            columns = backward_gradients(made, cotangents, weights, retain_graph=False)
            if all(column is None for column in columns):
                raise Unsupported("the backward is not differentiable in its cotangent")
        del pairs, made  # their graph holds vectors of the size of the inputs
        image = self.outputs.vector(zip(self.outputs.attached, columns, strict=True))
        return image, self.inputs.vector(gradients)

    # The derivative as a function of its own.

    def derivative(self, v: Array) -> tuple[Callable[..., Any], list[torch.Tensor], list[str]]:
        """The function (x, v) -> J(x)^T v, tensors to call it at, and their names."""
        if not self.roots:
            raise Unsupported("no output has a derivative")
        call, count = self.call, len(self.tensors)

        def gradient(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            for tensor in tensors:
                if not tensor.requires_grad:
                    tensor.requires_grad_()
            inputs, cotangents = tensors[:count], tensors[count:]
            roots = self.roots_at(*inputs)
            gradients = call.grad(roots, inputs, cotangents, create_graph=True)
            if all(gradient is None for gradient in gradients):
                raise Unsupported("no output depends on an input")
            return tuple(
                gradient
                if gradient.layout is torch.strided
                else gradient.to_dense(masked_grad=call.arguments.masked)
                for gradient in gradients
                if gradient is not None
            )

        gradient.__name__ = f"gradient of {call.name}"
        cotangents = [tensor.requires_grad_() for tensor in self.outputs.cotangents(v)]
        names = [slot.name for slot in self.inputs.space.slots]
        names += [f"cotangent of {output.slot.name}" for output in self.outputs.attached]
        return gradient, [*call.inputs.copy_inputs(), *cotangents], names

    def refusal(self) -> Unsupported | None:
        """Why its own backward cannot run, where the function is itself a derivative.

        Raised where it raises; otherwise it is declared to have none. A gradient without any graph,
        or with one that leads to no input, does neither: it claims to be constant, and is measured.
        """
        if not self.roots:
            return None
        try:
            for root in filter(may_have_raising_node, self.roots):
                # once_differentiable raises only if its node is run, which a graph that ends there
                # never does.
                alone = self.call.grad([root], self.tensors, [torch.ones_like(root)])
                if all(gradient is None for gradient in alone):
                    return Unsupported(
                        "a backward says that it cannot be differentiated (once_differentiable, "
                        "or an operator without such a rule)"
                    )
            ones = np.ones(self.outputs.space.size)
            self.gradient(self.outputs.cotangents(ones), ones)
        except NotImplementedError as error:
            return Unsupported(first_line(error))
        except RuntimeError as error:
            if any(map(may_have_raising_node, self.roots)):
                return Unsupported(first_line(error))
            return Raised(exception_line(error))
        return None


def _dense_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor, differentiable also where a sparse one leaves out entries because they are zero."""
    return tensor if tensor.layout is torch.strided else tensor.to_dense(masked_grad=False)


def batched_result(run: Callable[[], Any]) -> Any:
    """What a batched derivative returns, or Unsupported where PyTorch refuses."""
    refusals = RuntimeError, IndexError, TypeError, ValueError
    with unsupported(*refusals), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "There is a performance drop|Please use `torch.vmap`")
        return run()
