"""Tracebacks of the user's code without our frames, and public classes under public names."""

from __future__ import annotations

import dis
import os
import sys
import sysconfig
import traceback
import typing
from types import FrameType, ModuleType, TracebackType
from typing import Any, TypeVar

from gradproof.errors import DerivativeError, UsageError

# Packages whose frames say nothing: ours, and what stands between `import` and a module.
SILENT = ("gradproof", "importlib")
_RAISE = "RAISE_VARARGS"  # the instruction

Error = TypeVar("Error", bound=BaseException)


def drop_our_frames(error: Error) -> Error:
    """An error whose traceback, and those of what it was raised from, have lost our frames.

    A mistake of gradproof's own keeps them all: whoever reports it needs them.
    """
    seen: BaseException | None = None if is_our_mistake(error) else error
    while seen is not None:
        seen.__traceback__ = _pruned_trace(seen.__traceback__)
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
    return error


def _pruned_trace(trace: TracebackType | None) -> TracebackType | None:
    kept = []
    while trace is not None:
        if package_of(trace.tb_frame) not in SILENT:
            kept.append(trace)
        trace = trace.tb_next
    for frame in reversed(kept):
        trace = TracebackType(trace, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return trace


def is_our_mistake(error: BaseException) -> bool:
    """Whether our code raised, and not to say something to the user.

    Adapters and faces run the user's functions, and builtin ones leave no frame: what is raised
    there is known to be ours only where Python says it of a name or an attribute of ours.
    """
    trace = error.__traceback__
    if trace is None or isinstance(error, (UsageError, DerivativeError)):
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    parts = str(trace.tb_frame.f_globals.get("__name__", "")).split(".")
    if parts[0] != SILENT[0]:
        return False
    runs_theirs = (
        len(parts) == 1 or parts[1] in ("_adapters", "_numpy") or not parts[1].startswith("_")
    )
    return not runs_theirs or _is_about_ours(error, trace)


def _is_about_ours(error: BaseException, trace: TracebackType) -> bool:
    """Whether Python misses a name in our code, an attribute of our object, or an assertion.

    `trace` is the innermost one.
    """
    if isinstance(error, AttributeError):
        of = error.obj.__name__ if isinstance(error.obj, ModuleType) else type(error.obj).__module__
        return str(of).split(".")[0] == SILENT[0]
    is_asserted = isinstance(error, AssertionError) and has_raise_in_line(trace)
    return isinstance(error, NameError) or is_asserted


def has_raise_in_line(trace: TracebackType) -> bool:
    """Whether the line at which a frame stopped raises something, as `raise` and `assert` do.

    Where it calls, what was called and raised left no frame: compiled code, or frames that JAX has
    removed from the traceback.
    """
    code = trace.tb_frame.f_code
    # Without an argument the instruction hands on what it caught.
    raises = [one.offset for one in dis.get_instructions(code) if one.opname == _RAISE and one.arg]
    return any(
        line == trace.tb_lineno and any(start <= offset < end for offset in raises)
        for start, end, line in code.co_lines()
    )


def users_traceback(error: BaseException) -> str:
    """The error as Python prints it, our frames left out; "" where no line of the user's is in it.

    A SyntaxError has its line in itself.
    """
    error = drop_our_frames(error)
    if error.__traceback__ is None and not isinstance(error, SyntaxError):
        return ""
    return "".join(traceback.format_exception(error)).rstrip("\n")


def place_of_error(error: BaseException) -> str:
    """`, in forward (ops.py:12)`: whose function raised, by the last frame that is the user's.

    A backward may run a forward anew, as checkpoints do. "" where no frame is the user's.
    """
    installed = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
    for frame in reversed(traceback.extract_tb(drop_our_frames(error).__traceback__)):
        if not any(frame.filename.startswith(folder) for folder in installed):
            return f", in {frame.name} ({os.path.basename(frame.filename)}:{frame.lineno})"
    return ""


def users_frame(*between: str) -> tuple[FrameType, int]:
    """The frame of the user's that called, and the `stacklevel` of a warning that names its line.

    Lines of the packages between, which may call ours for the user, are not meant either.
    """
    ours, frame, level = {*SILENT, *between}, sys._getframe(1), 1
    while frame.f_back is not None and package_of(frame) in ours:
        frame, level = frame.f_back, level + 1
    return frame, level


def package_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).split(".")[0]


def set_public_module(thing: Any, module: str) -> Any:
    """A class or function of which messages, pickles and documents now say that it is of `module`.

    Called by that module, and not where the thing is written: the types of a class are looked up
    in the module that it says it is of, so they are looked up before.
    """
    if isinstance(thing, type) and thing.__module__ != module:
        own = vars(thing).get("__annotations__", {})
        hints = typing.get_type_hints(thing) if own else {}
        thing.__annotations__ = {name: hints[name] for name in own}
    thing.__module__ = module
    return thing
