"""Operators registered with torch.library: their names, and what opcheck says of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._library.custom_ops import CustomOpDef

from gradproof._adapters.arrays import first_line
from gradproof._maps.contract import Unsupported
from gradproof.errors import UsageError

if TYPE_CHECKING:
    from gradproof._adapters.torch import TorchMap

_NATIVE = "aten::", "prims::"


def operator_name(fn: Any) -> str:
    """`mylib::op`; "" where the function is no operator of torch.library."""
    if isinstance(fn, CustomOpDef):
        return str(fn._qualname)
    if isinstance(fn, torch._ops.OpOverload):
        return str(fn.name())
    return str(fn._qualified_op_name) if isinstance(fn, torch._ops.OpOverloadPacket) else ""


def named(text: str) -> Any:
    """The operator `mylib::op`, or one overload of it, `mylib::op.default`.

    Raises:
        UsageError: no operator of that name is registered.
    """
    namespace, _, path = text.partition("::")
    name, _, overload = path.partition(".")
    try:
        found = getattr(getattr(torch.ops, namespace), name)
        return getattr(found, overload) if overload else found
    except AttributeError:
        raise UsageError(
            f"fn: no operator {text!r} is registered with torch.library; import the module that "
            "registers it first"
        ) from None


def may_lack_forward(fn: Any) -> bool:
    """Whether it is an operator that was registered with a backward and perhaps nothing else.

    PyTorch 2.13 has no way to give such a one a forward mode, and takes its tangent for zero,
    silently: the operator by itself is then not accused of it.
    """
    name = operator_name(fn)
    return bool(name) and not name.startswith(_NATIVE)


def faults_of_operator(target: TorchMap) -> list[str]:
    """What torch.library.opcheck finds: schema, registration, fake tensors, AOT dispatch.

    It compares no gradient with anything; the other checks do.
    """
    name = operator_name(target.fn)
    if name.startswith(_NATIVE):
        raise Unsupported(f"{name} is PyTorch's own; opcheck is for custom operators")
    taken: dict[str, Any] = {}

    def take(*args: Any, **kwargs: Any) -> Any:
        taken.update(args=args, kwargs=kwargs)

    target.arguments.call(take, target.fresh())
    operator: Any = target.fn
    told: Any = torch.library.opcheck(
        operator, taken["args"], taken["kwargs"], raise_exception=False
    )
    return [
        f"{name}: torch.library.opcheck, {test}: {first_line(said)}"
        for test, said in told.items()
        if isinstance(said, BaseException)
    ]
