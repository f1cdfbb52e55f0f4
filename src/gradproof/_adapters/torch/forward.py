"""Forward mode of PyTorch: dual numbers, one by one and under vmap."""

from __future__ import annotations

import abc
import functools
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch

# torch.func.vmap has no rule for make_dual, and torch.func.jvp refuses custom functions that
# dual numbers accept; this is the vmap that PyTorch itself puts around dual numbers.
from torch._vmap_internals import _vmap as vectorised
from torch.autograd import forward_ad

from gradproof._adapters.arrays import first_line
from gradproof._adapters.raised import by_user
from gradproof._adapters.torch.leaves import full, own
from gradproof._adapters.torch.operators import may_lack_forward
from gradproof._adapters.torch.tree import floating_in
from gradproof._data.space import Array
from gradproof._maps.contract import Unsupported

if TYPE_CHECKING:
    from gradproof._adapters.torch import TorchMap

CAPTURED = "the function uses captured tensors, which cannot carry tangents"
WITHOUT_FORWARD = (
    "an operator of torch.library has no forward mode; PyTorch takes its tangent for zero"
)
# How PyTorch says, in a RuntimeError, that an operation has no forward mode.
NO_FORWARD = (
    "forward AD",
    "forward mode AD",
    "forward-mode AD",
    "jvp function",
    "jvp is not implemented",
    "_make_dual",
    "do not have strides",
    "Cannot access storage of",
    "ZeroTensors are immutable",  # the backward of mse_loss, pytorch#123996
)
_PYTORCH = frozenset({"torch"})
NEEDS_GRAD = ("does not require grad", "appears to not have been used in the graph")


class Nestable(abc.ABC):
    """A function that runs forward mode inside, and can put it inside another forward mode."""

    @abc.abstractmethod
    def nested(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The function by torch.func, which nests, where dual numbers do not."""


@contextmanager
def level() -> Iterator[None]:
    """A level of forward mode: a new one, or the user's, since they do not nest."""
    with nullcontext() if forward_ad._current_level >= 0 else forward_ad.dual_level():
        yield


def jvp(target: TorchMap, u: Array, missing: frozenset[int]) -> Array:
    """J u by forward mode; the inputs `missing` are plain tensors instead of zero tangents."""
    require_forward(target)
    function: object = target.fn
    if isinstance(function, Nestable):
        return _jvp_nested(target, function, u)
    tangents = [
        None if slot in missing else tensor for slot, tensor in enumerate(target.directions(u))
    ]
    vector = full(target.codomain.size, 0.0, target.home)
    with level():
        for output, tangent in zip(
            target.outputs, push(target, tangents, materialise=False), strict=True
        ):
            if tangent is not None:
                vector[output.part] = output.vector(tangent)
    return vector


def _jvp_nested(target: TorchMap, function: Nestable, u: Array) -> Array:
    """J u by torch.func; Unsupported where that refuses the function, as it does some."""
    primals = tuple(target.tensors_at(own(target.point)))
    tangents = tuple(target.directions(own(u)))
    try:
        found = torch.func.jvp(function.nested, primals, tangents)[1]
    except (RuntimeError, TypeError, AttributeError) as error:
        raise Unsupported(first_line(error)) from error
    vector = full(target.codomain.size, 0.0, target.home)
    for output in target.outputs:
        vector[output.part] = output.vector(found[output.position])
    return vector


def jvp_batch(target: TorchMap, us: Array) -> Array:
    """J u for every row of `us` by forward mode under vmap."""
    require_forward(target)
    if isinstance(target.fn, Nestable):
        raise Unsupported("no batched forward mode of forward mode")
    rows = [target.directions(u) for u in us]
    if not rows:
        return full((0, target.codomain.size), 0.0, target.home)

    def push_one(*tangents: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with level():
            return tuple(push(target, tangents, materialise=True))

    try:
        stacked = [torch.stack(column) for column in zip(*rows, strict=True)]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="There is a performance drop")
            warnings.filterwarnings("ignore", message="Please use `torch.vmap`")
            results = vectorised(push_one)(*stacked)
    except (RuntimeError, IndexError, TypeError, ValueError) as error:
        raise Unsupported(first_line(error)) from error
    batch = full((len(rows), target.codomain.size), 0.0, target.home)
    for output, result in zip(target.outputs, results, strict=True):
        batch[:, output.part] = output.vector(result).reshape(len(rows), -1)
    return batch


def require_forward(target: TorchMap) -> None:
    """Unsupported where no tangent can be attached to an input."""
    if target.in_place:
        raise Unsupported(CAPTURED)
    for leaf in target.leaves:
        if leaf.no_forward:
            raise Unsupported(leaf.no_forward)
    _load_forward_mode()
    if may_lack_forward(target.fn) and _takes_tangents_for_zero(target):
        raise Unsupported(WITHOUT_FORWARD)


def _takes_tangents_for_zero(target: TorchMap) -> bool:
    """Whether no output has a tangent where every input has one; found out once."""
    key = ("no forward mode",)
    if key not in target.memo:
        tangents = [torch.ones_like(primal) for primal in target.tensors_at(target.point)]
        with level():
            target.memo[key] = all(t is None for t in push(target, tangents, materialise=False))
    return bool(target.memo[key])


@functools.cache
def _load_forward_mode() -> None:
    # PyTorch's first dual loads formulas through its own deprecated torch.jit.script; that warning
    # is not the user's, whose filters may turn it into an error.
    with warnings.catch_warnings(), level():
        warnings.simplefilter("ignore", DeprecationWarning)
        forward_ad.make_dual(torch.zeros(()), torch.zeros(()))


def push(target: TorchMap, tangents: Sequence[torch.Tensor | None], materialise: bool) -> list[Any]:
    """One tangent per output slot, inside a dual level; None, unless materialised, where zero."""
    try:
        return _push(target, tangents, materialise)
    except NotImplementedError as error:
        raise Unsupported(first_line(error)) from error
    except RuntimeError as error:
        message = str(error)
        if not target.duals_need_grad and any(phrase in message for phrase in NEEDS_GRAD):
            target.duals_need_grad = True
            return push(target, tangents, materialise)
        if any(phrase in message for phrase in NO_FORWARD) and not by_user(error, _PYTORCH):
            raise Unsupported(first_line(error)) from error
        raise


def _push(
    target: TorchMap, tangents: Sequence[torch.Tensor | None], materialise: bool
) -> list[Any]:
    primals = target.tensors_at(target.point)
    duals = []
    for primal, tangent in zip(primals, tangents, strict=True):
        if target.duals_need_grad:
            primal.requires_grad_()
        duals.append(primal if tangent is None else forward_ad.make_dual(primal, tangent))
    floating = floating_in(target.call(duals))
    results = []
    for output in target.outputs:
        tensor = floating[output.position]
        tangent = forward_ad.unpack_dual(tensor).tangent
        if tangent is None and materialise:
            tangent = torch.zeros(output.shape, dtype=output.dtype, device=tensor.device)
        results.append(tangent)
    return results
