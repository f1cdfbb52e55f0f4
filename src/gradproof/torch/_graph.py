"""One run of a PyTorch function, kept with its graph, and every backward through it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from gradproof._adapters.handed_out import OVERWRITTEN, HandedOut, changed_slots
from gradproof._adapters.raised import unsupported
from gradproof._data.exceptions import exception_line, first_line
from gradproof._data.space import Array
from gradproof._maps.contract import Raised, Unsupported
from gradproof.torch._call import Call
from gradproof.torch._compat import legacy_vmap
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
        results = floating_in(self.call(tensors, fn))
        return tuple([results[output.position] for output in self.outputs.attached])

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
        self, cotangents: Sequence[torch.Tensor], *, create_graph: bool = False
    ) -> tuple[torch.Tensor | None, ...]:
        """One gradient per input, by one backward; None for an input that is not used."""
        return self.call.grad(self.roots, self.tensors, cotangents, create_graph=create_graph)

    def gradient(self, cotangents: Sequence[torch.Tensor], v: Array) -> Array:
        """J^T v as a vector; the cotangents are the tensors of v. Zero where there are none."""
        found = self.grad(cotangents)
        vector, handed_out = self.inputs.vector(found), self.returned_gradients
        if handed_out.pair is None:
            handed_out.watch_gradients(v, found, vector, self.inputs.vector)
        return vector

    def rows_by_vmap(self, stacked: list[torch.Tensor]) -> Any:
        """Stacks of gradients, of stacks of cotangents, by `torch.vmap`.

        It runs the `vmap` rule of a custom Function; the older batching of `is_grads_batched` does
        not, and has rules of its own for PyTorch's operators.
        """

        def pull(*cotangents: torch.Tensor) -> tuple[torch.Tensor, ...]:
            pairs = zip(self.grad(cotangents), self.tensors, strict=True)
            return tuple(torch.zeros_like(x) if found is None else found for found, x in pairs)

        found = batched_result(lambda: torch.vmap(pull)(*stacked))
        self._is_vmapped = True
        return found

    def rows_by_older_batching(self, stacked: list[torch.Tensor]) -> Any:
        """The same by `is_grads_batched`.

        It has no guard against a write into `.data`, and ends the process: torch.vmap says so
        first.
        """
        try:
            if not self._is_vmapped:
                self.rows_by_vmap(stacked)
        except Unsupported as refused:
            if "data" in refused.reason:
                raise
        return batched_result(lambda: legacy_vmap(lambda *rows: self.grad(rows), stacked))

    # The derivative as a function of its own.

    def derivative(self, v: Array) -> tuple[Callable[..., Any], list[torch.Tensor], list[str]]:
        """The function (x, v) -> J(x)^T v, tensors to call it at, and their names."""
        if not self.roots:
            raise Unsupported("no output has a derivative")
        call, count = self.call, len(self.tensors)

        def gradient(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            inputs, cotangents = tensors[:count], tensors[count:]
            for tensor in inputs:
                if not tensor.requires_grad:
                    tensor.requires_grad_()
            roots = self.roots_at(*inputs)
            gradients = call.grad(roots, inputs, cotangents, create_graph=True)
            if all(gradient is None for gradient in gradients):
                raise Unsupported("no output depends on an input")
            dense = partial(torch.Tensor.to_dense, masked_grad=call.arguments.masked)
            return tuple(dense(gradient) for gradient in gradients if gradient is not None)

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


def rows_of_stacks(
    stacks: Sequence[torch.Tensor | None], count: int
) -> list[list[torch.Tensor | None]]:
    """The tensors of each of so many rows; None is the same in every row."""
    return [[None if stack is None else stack[row] for stack in stacks] for row in range(count)]


def batched_result(run: Callable[[], Any]) -> Any:
    """What a batched derivative returns, or Unsupported where PyTorch refuses."""
    refusals = RuntimeError, IndexError, TypeError, ValueError
    with unsupported(*refusals), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "There is a performance drop|Please use `torch.vmap`")
        return run()
