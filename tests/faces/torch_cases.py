"""Functions, right and wrong, shared by the tests of the drop-in."""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from exhibits.frame import ruled

F64 = torch.float64
C128 = torch.complex128


def real(*shape, seed=0, grad=True):
    """Normal numbers, at least 0.1 away from zero."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(shape, generator=generator, dtype=F64)
    return (values + 0.1 * values.sign()).requires_grad_(grad)


def cplx(*shape, seed=0, grad=True):
    parts = (real(*shape, seed=seed + k, grad=False) for k in (0, 1))
    return torch.complex(*parts).requires_grad_(grad)


def custom(forward, backward, jvp=None):
    """A function of one tensor: `backward(x, *g)` is its VJP, `jvp(x, t)` its JVP."""

    def vjp(*cotangents_and_x):
        *cotangents, x = cotangents_and_x
        return backward(x, *cotangents)

    return ruled(forward, vjp, jvp and (lambda t, x: jvp(x, t)), vmap=False)


def hooked(change):
    """The identity whose gradient goes through `change`."""

    def function(x):
        y = x.clone()
        y.register_hook(change)
        return y

    return function


def scaled(gradient):
    """A hook that makes gradients 10 % too large."""
    return None if gradient is None else 1.1 * gradient


def _double_where_defined(g, x):
    if g is None:
        raise RuntimeError("undefined gradient")
    return 2 * g


def _ones_where_undefined(g, x):
    return torch.ones(2, dtype=F64) if g is None else 2 * g


needs_defined_gradient = ruled(lambda x: 2 * x, _double_where_defined, materialize=False)
makes_up_gradients = ruled(lambda x: 2 * x, _ones_where_undefined, materialize=False)


def nondeterministic():
    """Backward that drifts by less than 7e-3, and is at no two runs the same."""
    runs = [0]

    def backward(x, g):
        runs[0] += 1
        return g * (2 + 7e-3 * (0.618034 * runs[0] % 1))

    return custom(lambda x: 2 * x, backward)


def changes(kind):
    """A function whose output has another shape or dtype above 0.5 than below."""

    def function(x):
        above = x.detach().max() > 0.5
        if kind == "shape":
            return torch.cat([x, x]) if above else x * 1
        return x.to(torch.float32) if above else x * 1

    return function


def without_numbers(kind):
    """A tensor whose numbers cannot be read."""
    if kind == "meta":
        return torch.ones(2, device="meta", dtype=F64, requires_grad=True)
    if kind == "fake":
        return FakeTensorMode().from_tensor(real(2))
    return torch.nn.UninitializedParameter()
