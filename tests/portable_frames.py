"""How each framework dresses a portable exhibit: its value with a rule, as a function to check."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import gradproof
from exhibits.portable import Portable

Rule = Callable[..., Any]


def in_numpy(exhibit: Portable, rule: Rule, **options: Any) -> gradproof.Report:
    import array_api_compat.numpy as xp  # NumPy 1.26 lacks some names of the standard

    def vjp(*arguments: Any) -> Any:
        *inputs, cotangent = arguments
        gradients = rule(xp, cotangent, *inputs)
        return gradients if len(gradients) > 1 else gradients[0]

    def fn(*inputs: Any) -> Any:
        return exhibit.value(xp, *inputs)

    return gradproof.check(fn, exhibit.inputs(), vjp=vjp, **options)


def in_jax(exhibit: Portable, rule: Rule, **options: Any) -> gradproof.Report:
    import jax
    import jax.numpy as jnp

    @jax.custom_vjp
    def fn(*inputs: Any) -> Any:
        return exhibit.value(jnp, *inputs)

    def backward(inputs: Any, cotangent: Any) -> Any:  # JAX's is the transpose, not conjugated
        return tuple(map(jnp.conj, rule(jnp, jnp.conj(cotangent), *inputs)))

    fn.defvjp(lambda *inputs: (fn(*inputs), inputs), backward)
    with jax.enable_x64(True):
        return gradproof.check(fn, tuple(map(jnp.asarray, exhibit.inputs())), **options)


def in_torch(exhibit: Portable, rule: Rule, **options: Any) -> gradproof.Report:
    import array_api_compat.torch as xp
    import torch

    class Ruled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            ctx.save_for_backward(*inputs)
            return exhibit.value(xp, *inputs)

        @staticmethod
        def backward(ctx: Any, cotangent: Any) -> Any:
            return tuple(rule(xp, cotangent, *ctx.saved_tensors))

    inputs = [torch.from_numpy(array).requires_grad_() for array in exhibit.inputs()]
    return gradproof.check(Ruled.apply, inputs, **options)


FRAMES = {"numpy": in_numpy, "jax": in_jax, "torch": in_torch}
INSTALLED = [name for name in FRAMES if importlib.util.find_spec(name) is not None]
