"""How each framework dresses a portable exhibit: its value with a rule, as a function to check."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import gradproof
from array_names import numpy_names, torch_names
from exhibits.portable import Portable

Rule = Callable[..., Any]


def in_numpy(exhibit: Portable, rule: Rule, push: Rule | None = None, **options: Any) -> Any:
    xp = numpy_names()

    def vjp(*arguments: Any) -> Any:
        *inputs, cotangent = arguments
        gradients = rule(xp, cotangent, *inputs)
        return gradients if len(gradients) > 1 else gradients[0]

    def fn(*inputs: Any) -> Any:
        return exhibit.value(xp, *inputs)

    def jvp(*arguments: Any) -> Any:
        *inputs, tangents = arguments
        return push(xp, *(tangents if isinstance(tangents, tuple) else (tangents,)), *inputs)

    hand = gradproof.by_hand(fn, vjp=vjp, jvp=None if push is None else jvp)
    return gradproof.check(hand, exhibit.inputs(), **options)


def in_jax(exhibit: Portable, rule: Rule, push: Rule | None = None, **options: Any) -> Any:
    import jax
    import jax.numpy as jnp

    from x64 import enable_x64

    def value(*inputs: Any) -> Any:
        return exhibit.value(jnp, *inputs)

    def backward(inputs: Any, cotangent: Any) -> Any:  # JAX's is the transpose, not conjugated
        return tuple(map(jnp.conj, rule(jnp, jnp.conj(cotangent), *inputs)))

    if push is None:
        fn = jax.custom_vjp(value)
        fn.defvjp(lambda *inputs: (value(*inputs), inputs), backward)
    else:
        fn = jax.custom_jvp(value)
        fn.defjvp(lambda inputs, tangents: (value(*inputs), push(jnp, *tangents, *inputs)))
    with enable_x64(True):
        return gradproof.check(fn, tuple(map(jnp.asarray, exhibit.inputs())), **options)


def torch_function(exhibit: Portable, rule: Rule, push: Rule | None = None) -> Any:
    """The exhibit as a function of PyTorch with this rule."""
    import torch

    xp = torch_names()

    class Ruled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)
            return exhibit.value(xp, *inputs)

        @staticmethod
        def backward(ctx: Any, cotangent: Any) -> Any:
            return tuple(rule(xp, cotangent, *ctx.saved_tensors))

    if push is not None:
        Ruled.jvp = staticmethod(lambda ctx, *u: push(xp, *u, *ctx.saved_tensors))
    return Ruled.apply


def torch_inputs(exhibit: Portable) -> tuple[Any, ...]:
    """Its inputs, which require a gradient."""
    import torch

    return tuple(torch.from_numpy(array).requires_grad_() for array in exhibit.inputs())


def in_torch(exhibit: Portable, rule: Rule, push: Rule | None = None, **options: Any) -> Any:
    fn = torch_function(exhibit, rule, push)
    return gradproof.check(fn, torch_inputs(exhibit), **options)


FRAMES = {"numpy": in_numpy, "jax": in_jax, "torch": in_torch}
INSTALLED = [name for name in FRAMES if importlib.util.find_spec(name) is not None]
