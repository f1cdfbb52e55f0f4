"""Functions of JAX that are handed arrays of NumPy, which JAX makes its own.

Such a call names no array of JAX, so that the framework is read from the function's type and code.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

import numpy as np

from gradproof._adapters import FRAMEWORKS, closure_values, find_adapter, globals_of, walk_values

_DEEP = 3  # functions that call functions: so far their code is looked at
_FAMILY = {"jaxlib": "jax", "equinox": "jax", "flax": "jax"}  # package -> framework it belongs to


def adapter_of_code(fn: Any, arguments: Any) -> ModuleType | None:
    """The adapter of JAX where `fn` is a function of JAX and `arguments` hold arrays of NumPy."""
    if "jax" not in sys.modules or find_adapter((), None, fn) is not None:
        return None
    if not any(isinstance(value, (np.ndarray, np.generic)) for value in walk_values(arguments)):
        return None
    named = packages_of(fn) & set(FRAMEWORKS)
    return importlib.import_module("gradproof.jax._adapter") if named == {"jax"} else None


def packages_of(fn: Any, deep: int = _DEEP) -> set[str]:
    """The top packages that a function belongs to or names in its code."""
    owner = getattr(fn, "__self__", None)
    kind = owner if isinstance(owner, type) else type(owner)
    owned = () if isinstance(owner, ModuleType) else kind.__mro__
    modules = [getattr(each, "__module__", None) for each in (fn, *type(fn).__mro__, *owned)]
    found = {_family(module) for module in modules if isinstance(module, str)}
    if not deep:
        return found
    plain = getattr(fn, "__func__", fn)
    inner = getattr(fn, "func", None), getattr(fn, "__wrapped__", None)
    for value in (*inner, *closure_values(plain), *globals_of(plain)):
        if isinstance(value, ModuleType):
            found.add(_family(value.__name__))
        elif callable(value):
            found |= packages_of(value, deep - 1)
    return found


def _family(module: str) -> str:
    package = module.partition(".")[0]
    return _FAMILY.get(package, package)
