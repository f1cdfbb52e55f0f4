"""Functions, right and wrong, shared by the tests of the drop-in."""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from exhibits.frame import ruled

F64 = torch.float64


def real(*shape, seed=0, grad=True):
    """Normal numbers, at least 0.1 away from zero."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(shape, generator=generator, dtype=F64)
    return (values + 0.1 * values.sign()).requires_grad_(grad)


def custom(forward, backward, jvp=None):
    """A function of one tensor: `backward(x, *g)` is its VJP, `jvp(x, t)` its JVP."""

    def vjp(*cotangents_and_x):
        *cotangents, x = cotangents_and_x
        return backward(x, *cotangents)

    return ruled(forward, vjp, jvp and (lambda t, x: jvp(x, t)), vmap=False)


def without_numbers(kind):
    """A tensor whose numbers cannot be read."""
    if kind == "meta":
        return torch.ones(2, device="meta", dtype=F64, requires_grad=True)
    if kind == "fake":
        return FakeTensorMode().from_tensor(real(2))
    return torch.nn.UninitializedParameter()
