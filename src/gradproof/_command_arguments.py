"""What words of the command line stand for: functions, arrays in files or drawn, literals."""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import operator
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from gradproof import _adapters
from gradproof._data.by_hand import ByHand
from gradproof._data.exceptions import exception_line, first_line
from gradproof._data.frames import users_traceback
from gradproof._data.options import short_repr
from gradproof.errors import UsageError

FLOATS = ("float16", "bfloat16", "float32", "float64")
COMPLEX = ("complex64", "complex128")
INTEGERS = ("bool", "uint8", "int8", "int16", "int32", "int64")

_FORM = re.compile(r"(?P<dtype>\w+)\[(?P<shape>([0-9]{1,18}(,[0-9]{1,18})*)?)\]")


class UserCodeError(UsageError):
    """The user's code raised; `trace` is what Python prints of it, without the frames of ours."""

    def __init__(self, what: str, error: BaseException) -> None:
        super().__init__(f"{what} raised {exception_line(error)}")
        self.trace = users_traceback(error)


def target_function(option: str, text: str) -> Callable[..., Any] | ByHand:
    """What `package.module:name` or `file.py:name` names, its module imported.

    It is a function, or one with a derivative by hand.
    """
    where, _, path = text.rpartition(":")
    if not (where and path):
        raise UsageError(f"{option}: expected package.module:name or file.py:name, got {text!r}")
    if where.endswith(".py") and not Path(where).is_file():
        raise UsageError(f"{option}: there is no file {where!r}")
    if "" not in sys.path:
        sys.path.insert(0, "")  # as `python -m` does
    try:
        module = _imported_file(where) if where.endswith(".py") else importlib.import_module(where)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever the user's module raises while imported
        raise UserCodeError(f"{option}: importing {where!r}", error) from error
    try:
        function = operator.attrgetter(path)(module)
    except AttributeError:
        raise UsageError(f"{option}: {where!r} has no {path!r}") from None
    if not (callable(function) or isinstance(function, ByHand)):
        kind = type(function).__name__
        raise UsageError(f"{option}: {text!r} is of type {kind}, which cannot be called")
    return function  # type: ignore[no-any-return] # callable, as checked


def _imported_file(name: str) -> ModuleType:
    """The module of a file, run anew; its folder is on the path, as for a script."""
    file = Path(name).resolve()
    spec = importlib.util.spec_from_file_location(f"_gradproof_target_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise ImportError("not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickle look their module up
    sys.path.insert(0, str(file.parent))
    spec.loader.exec_module(module)
    return module


def framework_of_arrays(function: Callable[..., Any] | ByHand) -> str:
    """The framework of the arrays: what the function's module is of or imports."""
    if isinstance(function, ByHand):
        return "numpy"
    module = getattr(function, "__module__", None) or type(function).__module__
    imported = vars(sys.modules[module]).values() if module in sys.modules else ()
    names = [module]
    for value in imported:
        is_module = isinstance(value, ModuleType)
        names.append(value.__name__ if is_module else getattr(value, "__module__", ""))
    used = {str(name).partition(".")[0] for name in names}
    # A function of plain Python takes the tensors of PyTorch.
    return next((name for name in ("torch", "jax", "numpy") if name in used), "torch")


def call_arguments(
    arguments: argparse.Namespace, framework: str, seed: int
) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments of the call, arrays drawn or read."""
    try:
        arrays = _adapters.samples_module(framework)
    except ModuleNotFoundError as error:
        raise UsageError(f"--framework: {error}") from None
    rng, device = np.random.default_rng(seed), arguments.device

    def argument_value(option: str, text: str) -> Any:
        if not _is_array(text):
            return _literal_value(option, text)
        if text.endswith(".pt") and framework != "torch":
            raise UsageError(f"{option}: {text!r} is of PyTorch, and the arrays are of {framework}")
        try:
            if text.endswith(".pt"):
                return arrays.array_from_file(text, device)
            if text.endswith(".npy"):
                values = np.load(text)
                dtype = str(values.dtype)
            else:
                values, dtype = _drawn_array(text, rng)
            return arrays.array_from_numpy(values, dtype, device)
        except UsageError:
            raise
        except Exception as error:  # no such file, device or dtype, or no memory
            reason = first_line(error)
            raise UsageError(f"{option}: cannot make an array of {text!r}: {reason}") from error

    named = {}
    for text in arguments.kwarg:
        name, equals, written = text.partition("=")
        if not (equals and name.isidentifier()):
            raise UsageError(f"--kwarg: expected NAME=ARGUMENT, got {short_repr(text)}")
        named[name] = written
    if not any(map(_is_array, [*arguments.arguments, *named.values()])):
        raise UsageError("ARGUMENT: give at least one array, such as float64[8,16] or x.npy")
    inputs = [argument_value("ARGUMENT", text) for text in arguments.arguments]
    return inputs, {name: argument_value(f"--kwarg {name}", text) for name, text in named.items()}


def _drawn_array(text: str, rng: np.random.Generator) -> tuple[np.ndarray[Any, Any], str]:
    """Values of the array that a text describes, and its dtype.

    Args:
        text: `DTYPE[SIZE,...]`; blanks are ignored.
        rng: draws standard normal numbers; 0 and 1 for the dtypes of whole numbers.

    Returns:
        Values in float64, complex128 or int64, to be cast to the dtype, and the name of that. Real
        and imaginary parts are independent.

    Raises:
        UsageError: another form, an unknown dtype, a size that is no integer >= 0.
    """
    match = _FORM.fullmatch(re.sub(r"\s", "", text))
    if match is None:
        raise UsageError(
            "array: expected DTYPE[SIZE,...] such as float64[3,4], where sizes are integers >= 0 "
            f"of at most 18 digits, got {short_repr(text)}"
        )
    dtype, known = match["dtype"], FLOATS + COMPLEX + INTEGERS
    if dtype not in known:
        raise UsageError(
            f"array: unknown dtype {short_repr(dtype)} in {short_repr(text)}; "
            f"use {', '.join(known)}"
        )
    shape = tuple(map(int, re.findall("[0-9]+", match["shape"])))
    if dtype in INTEGERS:
        return np.asarray(rng.integers(0, 2, shape)), dtype
    values = np.asarray(rng.standard_normal(shape))
    if dtype in COMPLEX:
        values = values + 1j * rng.standard_normal(shape)
    return np.asarray(values), dtype


def _is_array(text: str) -> bool:
    return text.endswith((".npy", ".pt")) or re.match(r"\s*\w+\s*\[", text) is not None


def _literal_value(option: str, text: str) -> Any:
    """A literal of Python, or the text itself where it is a word."""
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        if re.fullmatch(r"[^\W\d][\w.-]*", text):
            return text
        raise UsageError(
            f"{option}: expected an array such as float64[3,4], a file .npy or .pt, a literal of "
            f"Python or a word, got {short_repr(text)}"
        ) from None
