"""How the adapter of a framework is found, without an import of any framework.

The framework is that of the arrays among the arguments of a function, or of those that the function
holds. Its adapter is in the folder of its name; the modules here are what adapters share.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from types import BuiltinFunctionType, MethodType, ModuleType
from typing import Any

from gradproof._data.by_hand import ByHand
from gradproof._data.options import contained_values

# Frameworks, each with the name of a type of its arrays in its top module.
_ARRAYS = (("numpy", "ndarray"), ("numpy", "generic"), ("torch", "Tensor"), ("jax", "Array"))


def framework_of(value: Any) -> str:
    """Whose array a value is: "numpy", "torch" or "jax"; "" for anything else."""
    for framework, array in _ARRAYS:
        if isinstance(value, getattr(sys.modules.get(framework), array, ())):
            return framework
    return ""


def find_adapter(inputs: Any, kwargs: Mapping[str, Any], fn: Any) -> ModuleType | None:
    """The adapter for the framework of the inputs, or None. Imports no framework.

    A derivative written by hand has one for arrays of any library. Otherwise containers (tuples,
    lists, mappings, dataclasses) are searched, then what the function holds: a layer may have
    parameters and no input. The first framework found wins.
    """
    if isinstance(fn, ByHand):
        return importlib.import_module("gradproof._numpy.adapter")
    for tree in ((inputs, kwargs), list(referenced_objects(fn))):
        values = list(walk_values(tree))
        for framework in ("torch", "jax"):
            if any(_belongs_to(value, framework) for value in values):
                return importlib.import_module(f"gradproof.{framework}._adapter")
    return None


def _belongs_to(value: Any, framework: str) -> bool:
    """Whether a value is an array of a framework, or of a class that builds on one of its own."""
    modules = [base.__module__.partition(".")[0] for base in type(value).__mro__]
    return framework in modules or framework_of(value) == framework


def referenced_objects(fn: Any) -> Iterator[Any]:
    """What a function reads from elsewhere: its object, bound arguments, closure."""
    yield fn
    if isinstance(fn, (partial, MethodType, BuiltinFunctionType)):
        for part in parts_of(fn):
            yield from referenced_objects(part)
    yield from closure_values(fn)


def closure_values(fn: Any) -> list[Any]:
    """What a function reads from functions around it."""
    found = []
    for cell in getattr(fn, "__closure__", None) or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # not filled yet
            continue
    return found


def parts_of(value: Any) -> Iterator[Any]:
    """What a container holds, or what a partial application or a method binds."""
    if isinstance(value, (tuple, list)):
        yield from value
    elif isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, partial):
        yield from (value.func, value.args, value.keywords)
    elif isinstance(value, (MethodType, BuiltinFunctionType)):
        yield from (value.__self__, getattr(value, "__func__", None))


def samples_module(framework: str) -> ModuleType:
    """The module that makes arrays of "torch", "jax" or "numpy": `array_from_numpy`."""
    name = "_numpy.samples" if framework == "numpy" else f"{framework}._samples"
    return importlib.import_module(f"gradproof.{name}")


def walk_values(tree: Any) -> Iterator[Any]:
    """Everything inside nested tuples, lists, mappings and dataclasses that is none of these."""
    branches = contained_values(tree)
    if branches is None:
        yield tree
        return
    for branch in branches:
        yield from walk_values(branch)
