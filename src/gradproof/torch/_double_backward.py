"""The gradient of a function as a function of its inputs and of grad_outputs, drawn or given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.overrides import is_tensor_like

from gradproof._adapters.arrays import name_at
from gradproof._data.inputs import name_of, parameter_names
from gradproof.errors import UsageError
from gradproof.torch._arguments import Arguments
from gradproof.torch._call import Call, backward_gradients
from gradproof.torch._compat import pytree
from gradproof.torch._guards import WrongNumberError, as_tuple
from gradproof.torch._layouts import in_layout
from gradproof.torch._outputs import ChangingOutputError, named_outputs
from gradproof.torch._tree import Tree, input_name

_SEED = 0x6772616470726F6F  # any number: the probes, not these cotangents, are what varies


def draw_grad_outputs(
    func: Callable[..., Any], inputs: Sequence[Any], *, noncontiguous: bool
) -> tuple[torch.Tensor, ...]:
    """One cotangent per output that requires grad, uniform in [-1, 1), requiring grad.

    Drawn from a private generator: the user's random state stays as it is.
    """
    generator = torch.Generator(device="cpu").manual_seed(_SEED)
    cotangents = []
    for output in _outputs_of_call(func, inputs):
        wide, one = (torch.complex128, 1 + 1j) if output.is_complex() else (torch.float64, 1)
        drawn = 2 * torch.rand(output.shape, generator=generator, dtype=wide, device="cpu") - one
        drawn = drawn.to(output.device, output.dtype)
        laid = in_layout(drawn, "gaps") if noncontiguous else drawn
        cotangents.append(laid.requires_grad_())
    return tuple(cotangents)


def given_grad_outputs(
    func: Callable[..., Any], inputs: Sequence[Any], grad_outputs: Any
) -> tuple[Any, ...]:
    """The cotangents as a tuple. UsageError unless they match the outputs that require grad."""
    cotangents, outputs = as_tuple(grad_outputs), _outputs_of_call(func, inputs)
    if len(cotangents) != len(outputs):
        raise WrongNumberError(
            f"grad_outputs: expected one per output that requires grad, {len(outputs)} in all, "
            f"got {len(cotangents)}"
        )
    for place, (cotangent, output) in enumerate(zip(cotangents, outputs, strict=True)):
        if not is_tensor_like(cotangent):
            kind = type(cotangent).__name__
            raise UsageError(f"grad_outputs[{place}]: expected a tensor, got {kind}")
        expected, got = _description(output), _description(cotangent)
        if got != expected:
            raise WrongNumberError(
                f"grad_outputs[{place}]: expected {expected}, as its output is, got {got}"
            )
    return cotangents


def _description(tensor: torch.Tensor) -> str:
    """What a cotangent shares with its output."""
    numbers = "complex" if tensor.is_complex() else "real"
    return f"{numbers} {tensor.layout} of shape {list(tensor.shape)} on {tensor.device}"


def _outputs_of_call(func: Callable[..., Any], inputs: Sequence[Any]) -> tuple[torch.Tensor, ...]:
    """Those of one call that require grad. UsageError where some tensor has no coordinates."""
    # Of private copies: a function may write into what it is handed.
    _, result = Call(func, Arguments(func, inputs, {})).first_run()
    if pytree.tree_leaves(result):
        named_outputs(result, name_of(func))
    return _differentiable_outputs(result)


def gradient_of(
    func: Callable[..., Any], inputs: Sequence[Any], grad_outputs: Sequence[Any]
) -> tuple[Callable[..., tuple[torch.Tensor, ...]], list[str]]:
    """(*inputs, *grad_outputs) -> the gradients of `func`, differentiable themselves.

    And the names of what of its arguments requires grad. A caller may hand over detached or dual
    tensors (forward mode does): inputs that required grad here are made to require it again.
    """
    count, tree = len(inputs), Tree(((*inputs, *grad_outputs), {}))
    wanted = [k for k, leaf in enumerate(tree.leaves) if _requires_grad(leaf)]
    checked = [k for k in wanted if tree.paths[k][1].idx < count]

    def gradient(*arguments: Any) -> tuple[torch.Tensor, ...]:
        leaves = pytree.tree_leaves(list(arguments))
        for place in checked:
            if not leaves[place].requires_grad:
                leaves[place].requires_grad_()
        outputs = _differentiable_outputs(func(*arguments[:count]))
        if not outputs:
            raise UsageError(
                "func: none of its outputs requires grad, so there is no gradient to differentiate."
            )
        shapes, expected = ([tuple(y.shape) for y in ys] for ys in (outputs, arguments[count:]))
        if shapes != expected:
            raise ChangingOutputError(
                f"{name_of(func)} returned outputs of shapes {expected} at first and {shapes} now; "
                "make the shapes independent of the values"
            )
        wrt = [leaves[place] for place in checked]
        grads = backward_gradients(outputs, wrt, arguments[count:], create_graph=True)
        # Nothing depends on anything: no entry to check, rather than no output.
        return tuple(grad for grad in grads if grad is not None) or (wrt[0].new_zeros(0),)

    parameters = parameter_names(func)
    names = [name_at(parameters, place) for place in range(count)]
    names += [f"grad_outputs[{k}]" for k in range(len(grad_outputs))]
    return gradient, [input_name(tree.paths[k], names) for k in wanted]


def _requires_grad(value: Any) -> bool:
    return bool(is_tensor_like(value) and value.requires_grad)


def _differentiable_outputs(outputs: Any) -> tuple[torch.Tensor, ...]:
    return tuple(leaf for leaf in pytree.tree_leaves(outputs) if _requires_grad(leaf))
