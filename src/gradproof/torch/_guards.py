"""What PyTorch's gradcheck refuses or warns of, with the same kinds of exceptions.

Every refusal is one sentence that names the argument. The exceptions are UsageErrors that are also
what PyTorch raises in the same place, so that existing handlers keep working.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch.overrides import is_tensor_like

from gradproof._data.frames import users_frame
from gradproof._data.options import short_repr
from gradproof.errors import UsageError
from gradproof.torch._compat import pytree
from gradproof.torch._memory import require_no_overlap
from gradproof.torch._tensors import unsupported_kind
from gradproof.torch._tree import Tree, refuse_hidden_tensors

Checked = tuple[int, torch.Tensor]  # position of an argument, and a tensor in it that is checked


class WrongTypeError(UsageError, TypeError):
    """An argument is of a type that cannot be checked. PyTorch raises TypeError."""


class WrongNumberError(UsageError, RuntimeError):
    """A tolerance, a step or a cotangent that cannot be used. PyTorch raises RuntimeError."""


class WithoutModeError(UsageError, NotImplementedError):
    """A mode that PyTorch does not have for these inputs. PyTorch raises NotImplementedError."""


def as_tuple(value: Any) -> tuple[Any, ...]:
    """A tuple or list as a tuple, anything else as a tuple of one."""
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def refuse_modes(modes: dict[str, bool], **dependent: tuple[bool, str]) -> None:
    """Raise where no mode is asked for, or an option without the mode that it depends on.

    `dependent` says of each such option whether it is set, and names the mode that it needs. What
    PyTorch asserts is raised: `python -O` removes an `assert`.
    """
    if not any(modes.values()):
        raise AssertionError(f"Expected at least one of {' or '.join(modes)} to be True")
    for name, (value, mode) in dependent.items():
        if value and not modes[mode]:
            raise AssertionError(f"Setting {name}=True requires {mode} to be True")


def refuse_inputs(func: Any, inputs: tuple[Any, ...]) -> list[Checked]:
    """What is checked of the inputs. Raise for a function or inputs that cannot be."""
    if not callable(func):
        raise WrongTypeError(f"func: expected a function, got {short_repr(func)}.")
    checked = [
        (position, leaf)
        for position, argument in enumerate(inputs)
        for leaf in pytree.tree_leaves(argument)
        if is_tensor_like(leaf) and leaf.requires_grad
    ]
    if not checked:
        refuse_hidden_tensors(Tree((inputs, {})), func)
        raise UsageError(
            "gradcheck expects at least one input tensor to require gradient, but none of them "
            "have requires_grad=True; call requires_grad_() on the floating-point or complex "
            "tensors of `inputs` that should be checked."
        )
    for position, tensor in checked:
        if reason := unsupported_kind(tensor):
            raise UsageError(f"inputs[{position}] is {reason}")
        if tensor.layout is torch.strided:
            require_no_overlap(tensor, f"The {position}th input")
    return checked


def warn_of_low_precision(checked: Sequence[Checked]) -> None:
    """Warn where float64 would resolve more."""
    for position, tensor in checked:
        if tensor.dtype not in (torch.float64, torch.complex128):
            warnings.warn(
                f"Input #{position} requires gradient and is not a double precision floating "
                f"point or complex, but {tensor.dtype}: differences of low precision resolve "
                "less. Pass it as float64 or complex128 to check the formula itself.",
                stacklevel=users_frame("torch")[1],
            )
