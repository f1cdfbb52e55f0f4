"""Operators that are registered with torch.library: their names, lookup by name, and authors."""

from __future__ import annotations

from typing import Any

import torch

from gradproof.errors import UsageError
from gradproof.torch._compat import CustomOpDef, OpOverload, OpOverloadPacket

_NATIVE = "aten::", "prims::"


def operator_name(fn: Any) -> str:
    """`mylib::op`; "" where the function is no operator of torch.library."""
    if isinstance(fn, CustomOpDef):
        return str(fn._qualname)
    if isinstance(fn, OpOverload):
        return str(fn.name())
    return str(fn._qualified_op_name) if isinstance(fn, OpOverloadPacket) else ""


def is_custom(operator: str) -> bool:
    """Whether the operator of this name is somebody's own; not where there is no name."""
    return bool(operator) and not operator.startswith(_NATIVE)


def operator(text: str) -> Any:
    """The operator `mylib::op`, or one overload, `mylib::op.default`. UsageError without it."""
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


def is_pytorch_operator(func: Any) -> bool:
    """Whether nobody else wrote an operator, who may have detached by mistake."""
    if isinstance(func, (OpOverload, OpOverloadPacket)):
        return str(func).startswith("aten.")
    module = getattr(func, "__module__", None) or "torch"  # builtin ones name none
    return str(module).partition(".")[0] == "torch"
