"""What the user writes for an argument, SPECs, literals, trees of both, and the arrays made of it.

Trees are lists, tuples and dicts; a text inside one that reads as a SPEC stands for an array. The
module `gradproof._adapters.FRAMEWORK.samples` makes it: `array_from_spec(spec, rng, device)`, and
`construct(factory, arguments, keywords, seed, dtype, device)`.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from gradproof._cases.targets import Target, TheirError
from gradproof._data.frames import first_line
from gradproof._data.specs import COMPLEX, FLOATS, INTEGERS, ArraySpec, parse
from gradproof.errors import UsageError

_SPEC = re.compile(rf"\s*({'|'.join(FLOATS + COMPLEX + INTEGERS)})\s*\[")
_PATH = re.compile(r"(?P<name>[^\W\d]\w*)(?P<rest>(\.\w+|\[\d+\])*)")
_STEP = re.compile(r"\.(?P<key>\w+)|\[(?P<index>\d+)\]")


def described(tree: Any) -> Any:
    """The tree with every text that reads as a SPEC replaced by its `ArraySpec`."""
    return mapped(tree, lambda leaf: parse(leaf) if _is_spec(leaf) else leaf)


def _is_spec(leaf: object) -> bool:
    return isinstance(leaf, str) and _SPEC.match(leaf) is not None


def mapped(tree: Any, change: Callable[[Any], Any]) -> Any:
    """The tree with its leaves changed. What holds no changed leaf stays the same object."""
    if isinstance(tree, Mapping):
        branches = {key: mapped(branch, change) for key, branch in tree.items()}
        same = all(branches[key] is branch for key, branch in tree.items())
        return tree if same else branches
    if not isinstance(tree, (list, tuple)):
        return change(tree)
    made = [mapped(branch, change) for branch in tree]
    if all(new is old for new, old in zip(made, tree, strict=True)):
        return tree
    return type(tree)(*made) if hasattr(tree, "_fields") else type(tree)(made)


def specs_in(tree: Any) -> list[ArraySpec]:
    found: list[ArraySpec] = []

    def keep(leaf: Any) -> Any:
        if isinstance(leaf, ArraySpec):
            found.append(leaf)
        return leaf

    mapped(tree, keep)
    return found


def positional(text: str) -> Any:
    """An argument from one SPEC of the command line: an array, or a list or dict of them."""
    if text.lstrip()[:1] in ("[", "{", "("):
        return described(_literal("SPEC", text))
    return parse(text)


def value(option: str, text: str) -> Any:
    """A SPEC, or a Python literal, in which texts that read as SPECs are arrays."""
    return parse(text) if _is_spec(text) else described(_literal(option, text))


def _literal(option: str, text: str) -> Any:
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise UsageError(
            f"{option}: {text!r} is no Python literal and no SPEC "
            "(a string needs quotes of its own)"
        ) from None


def assign(option: str, text: str, into: dict[str, Any]) -> None:
    """Put the value of `PATH=VALUE` where the path says; `batch.mask[0]` makes what is missing."""
    path, equals, written = text.partition("=")
    match = _PATH.fullmatch(path.strip())
    if not equals or match is None:
        raise UsageError(f"{option}: expected NAME=VALUE, or NAME.key[0]=VALUE, got {text!r}")
    put(option, match, value(f"{option} {path.strip()}", written), into)


def put(option: str, path: re.Match[str], found: Any, into: dict[str, Any]) -> None:
    """Put a value at a path, making the dicts and lists on the way to it."""
    steps: list[str | int] = [path["name"]]
    for match in _STEP.finditer(path["rest"]):
        steps.append(match["key"] if match["key"] is not None else int(match["index"]))
    place: Any = into
    for step, after in zip(steps, [*steps[1:], None], strict=True):
        if not _takes(place, step):
            raise UsageError(f"{option}: {path[0]!r} goes into a {type(place).__name__}")
        missing = step == len(place) if isinstance(step, int) else step not in place
        if missing and isinstance(step, int):
            place.append(None)
        elif isinstance(step, int) and step > len(place):
            raise UsageError(f"{option}: {path[0]!r} leaves out [{len(place)}]")
        if after is None:
            place[step] = found
        elif missing:
            place[step] = [] if isinstance(after, int) else {}
        place = place[step]


def _takes(place: object, step: str | int) -> bool:
    return isinstance(place, list if isinstance(step, int) else dict)


def from_file(file: str) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments of an `--inputs` file."""
    try:
        document = json.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"--inputs: cannot read {file!r}: {error}") from error
    if isinstance(document, list):
        document = {"args": document}
    if not isinstance(document, dict) or not set(document) <= {"args", "kwargs"}:
        raise UsageError(f'--inputs: {file!r}: expected {{"args": [...], "kwargs": {{...}}}}')
    arguments, keywords = document.get("args", []), document.get("kwargs", {})
    if not isinstance(arguments, list) or not isinstance(keywords, dict):
        raise UsageError(f"--inputs: {file!r}: args is a list and kwargs an object")
    into: dict[str, Any] = {}
    for name, tree in keywords.items():
        match = _PATH.fullmatch(name)
        if match is None:
            raise UsageError(f"--inputs: {file!r}: {name!r} is no NAME and no path like a.b[0]")
        put("--inputs", match, described(tree), into)
    return described(arguments), into


_HALVES = {"float32": "complex64", "float64": "complex128"}


def in_dtype(tree: Any, dtype: str | None) -> Any:
    """The tree with its floating and complex arrays in another dtype.

    A floating dtype keeps complex arrays complex, of the same precision.
    """
    if dtype is None:
        return tree
    if dtype not in FLOATS + COMPLEX:
        raise UsageError(f"--dtype: expected one of {', '.join(FLOATS + COMPLEX)}, got {dtype!r}")

    def change(leaf: Any) -> Any:
        if not isinstance(leaf, ArraySpec) or leaf.dtype in INTEGERS:
            return leaf
        if leaf.dtype in COMPLEX and dtype in FLOATS:
            if dtype not in _HALVES:
                raise UsageError(f"--dtype: there is no complex {dtype} for {leaf.dtype}")
            return replace(leaf, dtype=_HALVES[dtype])
        return replace(leaf, dtype=dtype)

    return mapped(tree, change)


# Arrays of a framework, and what the user's code makes with them.


KNOWN = ("torch", "jax", "numpy")  # in the order in which one is chosen where several are loaded


class Maker:
    """Makes arrays and modules of one framework, from one seed.

    Where none is named it is the one that the user's code has loaded, else PyTorch.
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
            said = first_line(error)
            raise UsageError(f"--device: cannot use {self._device!r}: {said}") from error

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
