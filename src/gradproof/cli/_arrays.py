"""Described arrays become arrays of a framework, made by what its adapter offers for that.

The module `gradproof._adapters.FRAMEWORK.samples` has two functions: `array_from_spec(spec, rng,
device)` and `construct(factory, arguments, keywords, seed, dtype, device)`.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from gradproof._data.specs import INTEGERS, ArraySpec
from gradproof.cli._targets import Target
from gradproof.cli._theirs import TheirError
from gradproof.cli._values import mapped, specs_in
from gradproof.errors import UsageError

KNOWN = ("torch", "jax", "numpy")  # in the order in which one is chosen where several are loaded


class Maker:
    """Makes arrays and modules of one framework, from one seed.

    Args:
        framework: its name; where None, the one that the user's code has loaded, else PyTorch.
        seed: of every draw.
        device: where the arrays live; None leaves it to the framework.
    """

    def __init__(self, framework: str | None, seed: int, device: str | None = None) -> None:
        # What the user's code has loaded; NumPy, which we load, only where it must.
        loaded = (name for name in KNOWN[:-1] if name in sys.modules)
        self._specs = _adapter(framework or next(loaded, KNOWN[0]))
        self._seed, self._device = seed, device
        self._rng = np.random.default_rng(seed)

    def arrays(self, tree: Any) -> Any:
        """The tree with its described arrays made."""
        return mapped(tree, self._array)

    def _array(self, leaf: Any) -> Any:
        if not isinstance(leaf, ArraySpec):
            return leaf
        try:
            return self._specs.array_from_spec(leaf, self._rng, self._device)
        except (MemoryError, ValueError, OverflowError) as error:
            raise UsageError(f"SPEC: cannot make such an array: {error}") from error
        except (RuntimeError, AssertionError, TypeError) as error:
            if self._device is None:
                raise
            sentence = str(error).partition("\n")[0]
            raise UsageError(f"--device: cannot use {self._device!r}: {sentence}") from error

    def function(self, target: Target, name: str, tree: Any) -> Callable[..., Any]:
        """The target, or what it makes, in the dtype of the arrays of `tree`."""
        if target.making is None:
            return target.found
        arguments, keywords = target.making
        dtypes = [spec.dtype for spec in specs_in(tree) if spec.dtype not in INTEGERS]
        dtype = dtypes[0] if dtypes else None
        made = self.called(target.found, name, arguments, keywords, dtype)
        if not callable(made):
            raise UsageError(f"TARGET: {name} made a {type(made).__name__}, no function")
        return made  # type: ignore[no-any-return] # callable, as checked

    def called(
        self,
        factory: Callable[..., Any],
        name: str,
        arguments: tuple[Any, ...] = (),
        keywords: dict[str, Any] | None = None,
        dtype: str | None = None,
    ) -> Any:
        """What a function of the user's makes, the framework's random numbers seeded."""
        try:
            return self._specs.construct(
                factory, arguments, keywords or {}, self._seed, dtype, self._device
            )
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # whatever the user's code raises
            raise TheirError(name, error) from error


def used_by(name: str | None) -> str | None:
    """The framework that the module of this name is of, or imports from; None where it is open."""
    roots = {str(name).partition(".")[0]}
    module = sys.modules.get(str(name))
    for value in [] if module is None else list(vars(module).values()):
        of = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", "")
        roots.add(str(of).partition(".")[0])
    return next((framework for framework in KNOWN[:-1] if framework in roots), None)


def _adapter(framework: str) -> ModuleType:
    name = f"gradproof._adapters.{framework}.samples"
    if framework not in KNOWN or importlib.util.find_spec(name) is None:
        raise UsageError(f"--framework: arrays of {framework!r} cannot be made from a SPEC")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        extra = f"pip install 'gradproof[{framework}]'"
        raise UsageError(f"{error.name} is needed: {extra}") from error
