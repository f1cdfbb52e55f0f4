"""PyTorch's private API: whatever this package uses of it is in this file, each with its reason.

Tried with PyTorch 2.13.0, and by hand with 2.14.1. Nothing here imports PyTorch's compiler or
SymPy, which takes seconds: what belongs to the compiler is imported when it is asked for.
Attributes of tensors, layers and nodes that begin with an underscore, such as `tensor._version`,
stay where they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

# Formulas by which a fused operation is made of others, to round each of these.
# `torch.export.default_decompositions` leaves out what its core operators are, copies the rest, and
# so takes a tenth of a second in every process.
from torch._decomp import decomposition_table as decomposition_table
from torch.autograd import forward_ad
from torch.utils import _pytree

# The base of modes of operators: documented, but only under this name.
from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode

# Containers as PyTorch takes them apart, with registered classes and paths of keys. There is no
# public module of it.
pytree = _pytree

# How the names of nodes begin that `torch.library.register_autograd` makes.
LIBRARY_BACKWARD = "GeneratedBackwardFor_"

# The base of `autograd.Function` that has `apply`, patched while a run is recorded: there is no
# public hook for calls of custom functions.
SingleLevelFunction = torch.autograd.function._SingleLevelFunction
# The class whose `apply` is looked up by every call of a Function. Up to 2.13 `Function.apply` ends
# in that of the class below it; since 2.14 it is made in C.
FUNCTION_WITH_APPLY = (
    SingleLevelFunction
    if isinstance(vars(torch.autograd.Function)["apply"], classmethod)
    else torch.autograd.Function
)

# In it the inputs of a kept run are written to, and have the old values again before its backward
# reads them, as an optimiser would use the memory. `allow_mutation_on_saved_tensors` copies what is
# written to, so that no mistake would show.
preserved_version_counter = torch.autograd.grad_mode._unsafe_preserve_version_counter

# The engine, on the CPU and with what PyTorch has around it for threads of devices.
# `torch.autograd.grad` first looks at shapes, which takes longer than the backward of a few numbers
# and, when cotangents are given for the first time, imports SymPy.
run_engine: Any = torch.autograd.Variable._execution_engine.run_backward
run_engine_with_devices = torch.autograd.graph._engine_run_backward

# Hands an undefined gradient to what is before it, as in PyTorch's gradcheck. Nothing public does.
UndefinedGrad: Any = torch._C._functions.UndefinedGrad


def legacy_vmap(
    fn: Callable[..., Sequence[torch.Tensor | None]], stacks: Sequence[torch.Tensor]
) -> list[torch.Tensor | None]:
    """Stacks of what a function returns for every row of stacks; None stays None.

    It is the batching behind `is_grads_batched`; `torch.vmap` is another, with other rules. What
    `torch._vmap_internals._vmap` does for containers takes longer than a backward.
    """
    count, level = len(stacks[0]), torch._C._vmapmode_increment_nesting()
    try:
        found = fn(*[torch._add_batch_dim(stack, 0, level) for stack in stacks])
        return [y if y is None else torch._remove_batch_dim(y, level, count, 0) for y in found]
    finally:
        torch._C._vmapmode_decrement_nesting()


def forward_level() -> int:
    """The level of forward mode that was entered last, -1 where none was.

    Levels do not nest: `dual_level` raises where there is one, and nothing public says so before.
    """
    return forward_ad._current_level


# Those of `forward_ad`, which looks up the environment and a mode of torch.export in every call:
# that takes three times as long as they do.
make_dual: Callable[..., torch.Tensor] = torch._make_dual
unpack_dual: Callable[..., tuple[torch.Tensor, torch.Tensor | None]] = torch._unpack_dual

# The two kinds of what is under `torch.ops`; they have no other name.
OpOverload: Any = torch._ops.OpOverload
OpOverloadPacket: Any = torch._ops.OpOverloadPacket

# A view with the negative bit, as `x.conj().imag` has it: made of any tensor by nothing public.
neg_view: Callable[[torch.Tensor], torch.Tensor] = torch._neg_view

# Dispatch keys of the lazy bits: how a dispatch mode sees conjugated and negated tensors. They are
# switched off inside of a mode, so that bits are passed over there (docs/defects/pytorch.md).
LAZY_BITS = (torch._C.DispatchKey.Conjugate, torch._C.DispatchKey.Negative)
is_key_excluded: Callable[[Any], bool] = torch._C._dispatch_tls_is_dispatch_key_excluded
set_key_excluded: Callable[[Any, bool], None] = torch._C._dispatch_tls_set_dispatch_key_excluded

# The stack of default hooks of saved tensors. The context managers that are public add to it, and
# cannot take off what a function left there after it had raised.
saved_tensor_hooks: Any = torch._C._autograd

# The switches of gradients and of forward mode, each in one step that no interrupt divides. The
# public classes take several, and there is none for forward mode.
is_forward_grad_enabled: Callable[[], bool] = torch._C._is_fwd_grad_enabled
set_grad_enabled: Callable[[bool], None] = torch._C._set_grad_enabled
set_forward_grad_enabled: Callable[[bool], None] = torch._C._set_fwd_grad_enabled

# Stacks of modes, of functions first: the height, and what takes the last mode off. For modes that
# a function entered and never left; publicly a mode is left by itself alone.
MODE_STACKS: tuple[tuple[Callable[[], int], Callable[[], Any]], ...] = (
    (torch._C._len_torch_function_stack, torch._C._pop_torch_function_stack),
    (torch._C._len_torch_dispatch_stack, partial(torch._C._pop_torch_dispatch_stack, None)),
)

# Transforms of torch.func that are entered, and leaving those that a function never left.
transform_depth: Callable[[], int] = torch._C._functorch.get_dynamic_layer_stack_depth
leave_transforms: Callable[[int], Any] = (
    torch._C._functorch.pop_dynamic_layer_stack_and_undo_to_depth
)
# Whether any transform of torch.func runs: tensors are wrapped then, and hold no values to record.
are_transforms_active: Callable[[], bool] = torch._C._are_functorch_transforms_active


def is_fake_mode_active() -> bool:
    """Whether tensors have no numbers now. Nothing public says so."""
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None


def default_device() -> Any:
    """The mode that makes a device the default one; None where nobody has set one.

    `torch.get_default_device` takes six calls, and says nothing of whether somebody set it.
    """
    return getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)


def compiler_error() -> type[Exception]:
    """The base of what `torch.compile` raises; imports the compiler. It has no public name."""
    from torch._dynamo.exc import TorchDynamoException

    return TorchDynamoException
