"""Forward mode of PyTorch: dual numbers, one by one and under vmap, and J u as a function."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch

# torch.func.vmap has no rule for make_dual, and torch.func.jvp refuses custom functions that
# dual numbers accept; this is the vmap that PyTorch itself puts around dual numbers.
from torch.autograd import forward_ad

from gradproof._adapters.raised import is_raised_by_user, unsupported
from gradproof._data.exceptions import first_line, text_of
from gradproof._data.space import Array
from gradproof._maps.contract import Unsupported
from gradproof.torch._compat import forward_level, legacy_vmap, make_dual, unpack_dual
from gradproof.torch._graph import Graph, batched_result, rows_of_stacks
from gradproof.torch._graph_contents import has_library_operator
from gradproof.torch._outputs import floating_in

# How PyTorch says that an operation has no forward mode.
_NO_FORWARD = (
    "forward AD",
    "forward mode AD",
    "forward-mode AD",
    "jvp function",
    "jvp is not implemented",
    "_make_dual",
    "do not have strides",
    "Cannot access storage of",
    "flat_bdims must not be None",  # vmap of a Function without `jvp`: an AssertionError
    "ZeroTensors are immutable",  # the backward of mse_loss, pytorch#123996
)
_WANTS_GRAD = (
    "does not require grad",
    "appears to not have been used in the graph",
    "on a tensor that doesn't require gradient",  # register_hook
    "can't retain_grad",
)
_PYTORCH = frozenset({"torch"})


def _dual_level() -> AbstractContextManager[Any]:
    """A level of forward mode: a new one, or the user's, since they do not nest."""
    return nullcontext() if forward_level() >= 0 else forward_ad.dual_level()


@functools.cache
def _load_formulas() -> None:
    """Have PyTorch compile the formulas by which some backwards are differentiated forward.

    Its `make_dual` does when it is first called, by its own deprecated `torch.jit.script`. That
    warning is not the user's, whose filters may turn it into an error.
    """
    with warnings.catch_warnings(), _dual_level():
        warnings.simplefilter("ignore", DeprecationWarning)
        forward_ad.make_dual(torch.zeros(()), torch.zeros(()))


class Forward:
    """Forward mode of a function.

    Args:
        graph: of a run of the function, in which operators are looked for.

    Raises:
        Unsupported: no tangent can be attached to an input.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph, self._call = graph, graph.call
        self._inputs, self._outputs = graph.inputs, graph.outputs
        self._needs_grad = False  # the function differentiates, or sets hooks, inside
        _load_formulas()
        # PyTorch 2.13 has no way to give an operator of torch.library a forward mode, and takes its
        # tangent for zero, silently: a function that uses one is not accused of it.
        if has_library_operator(graph.roots):
            raise Unsupported(
                "an operator of torch.library has no forward mode; PyTorch takes its tangent for "
                "zero"
            )

    def jvp(self, u: Array, missing: frozenset[int] = frozenset()) -> Array:
        """J u; the inputs `missing` are plain tensors instead of having zero tangents."""
        tangents = [
            None if slot in missing else tensor
            for slot, tensor in enumerate(self._inputs.direction_tensors(u))
        ]
        with _dual_level():
            return self._outputs.vector(self._outputs.kept, self._output_tangents(tangents))

    def jvp_batch(self, us: Array) -> Array:
        """J u for every row of `us`, under vmap."""
        rows, kept = [self._inputs.direction_tensors(u) for u in us], self._outputs.kept

        def push_one(*tangents: torch.Tensor) -> list[torch.Tensor | None]:
            with _dual_level():
                return self._output_tangents(tangents)

        def push_all() -> Any:
            stacks = [torch.stack(column) for column in zip(*rows, strict=True)]
            return legacy_vmap(push_one, stacks)

        by_row = rows_of_stacks(batched_result(push_all), len(us))
        return np.array([self._outputs.vector(kept, row) for row in by_row])

    def _output_tangents(
        self, tangents: Sequence[torch.Tensor | None]
    ) -> list[torch.Tensor | None]:
        """One tangent per output slot, inside a dual level; None where it is zero."""
        primals = self._inputs.tensors_at(self._inputs.point)
        for primal in primals:
            primal.requires_grad_(self._needs_grad)
        pairs, level = zip(primals, tangents, strict=True), forward_level()
        try:
            duals = [x if u is None else make_dual(x, u, level=level) for x, u in pairs]
            floating = floating_in(self._call(duals))
        except NotImplementedError as error:
            raise Unsupported(first_line(error)) from error
        except (RuntimeError, AssertionError) as error:
            if not self._needs_grad and any(words in text_of(error) for words in _WANTS_GRAD):
                self._needs_grad = True
                return self._output_tangents(tangents)
            refused = any(phrase in text_of(error) for phrase in _NO_FORWARD)
            if refused and not is_raised_by_user(error, _PYTORCH):
                raise Unsupported(first_line(error)) from error
            raise
        return [unpack_dual(floating[y.position], level=level)[1] for y in self._outputs.kept]

    def functional_jvp(self, u: Array) -> Array:
        """J u by torch.func.jvp. Unsupported where it refuses the function."""
        if not self._outputs.attached:
            raise Unsupported("no output has a derivative")
        primals = tuple(self._inputs.tensors_at(self._inputs.point))
        tangents = tuple(self._inputs.direction_tensors(u))
        found = functional_result(lambda: torch.func.jvp(self._graph.roots_at, primals, tangents))
        return self._outputs.vector(self._outputs.attached, found[1])

    def derivative(self, u: Array) -> tuple[Callable[..., Any], list[torch.Tensor], list[str]]:
        """The function (x, u) -> J(x) u, tensors to call it at, and their names."""
        if not self._outputs.attached:
            raise Unsupported("no output has a derivative")
        primals = self._inputs.copy_inputs()
        directions = self._inputs.direction_tensors(u)

        def tangent(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            inputs, tangents = tensors[: len(primals)], tensors[len(primals) :]
            return tuple(torch.func.jvp(self._graph.roots_at, inputs, tangents)[1])

        tangent.__name__ = f"tangent of {self._call.name}"
        names = [slot.name for slot in self._inputs.space.slots]
        names += [f"tangent of {name}" for name in names]
        return tangent, [*primals, *[each.requires_grad_() for each in directions]], names


def functional_result(run: Callable[[], Any]) -> Any:
    """What torch.func returns, or Unsupported where it refuses the function."""
    _load_formulas()
    # NotImplementedError is a RuntimeError.
    with unsupported(RuntimeError, TypeError, AttributeError, AssertionError):
        return run()
