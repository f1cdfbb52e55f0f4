"""Adapters: one module per framework, imported only for a user who imported the framework."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

# Framework -> the attribute of its top module that names the type of its arrays.
FRAMEWORKS = {"torch": "Tensor"}


def find(inputs: Any, kwargs: Mapping[str, Any] | None = None) -> ModuleType | None:
    """The adapter for the framework of the inputs, or None. Imports no framework.

    Containers (tuples, lists, mappings) are searched; the first framework found wins.
    """
    for name, array in FRAMEWORKS.items():
        framework = sys.modules.get(name)
        kind = getattr(framework, array, None)
        if kind is not None and any(isinstance(leaf, kind) for leaf in walk((inputs, kwargs))):
            return importlib.import_module(f"gradproof._adapters.{name}")
    return None


def by_hand() -> ModuleType:
    """The adapter for derivatives that are written by hand, of arrays of any library."""
    return importlib.import_module("gradproof._adapters.numpy")


def walk(tree: Any) -> Iterator[Any]:
    """Everything inside nested tuples, lists and mappings that is none of these."""
    if isinstance(tree, Mapping):
        tree = tree.values()
    elif not isinstance(tree, (tuple, list)):
        yield tree
        return
    for branch in tree:
        yield from walk(branch)
