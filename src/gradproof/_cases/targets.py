"""What TARGET names, a function or something that makes one; its code may do anything."""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from gradproof import _adapters
from gradproof._data.frames import as_told, sentence
from gradproof.errors import UsageError

_OPERATOR = re.compile(r"((?P<where>.+?):)?(?P<name>\w+::\w+(\.\w+)?)", re.DOTALL)
_TARGET = re.compile(r"(?P<where>.+?):(?P<path>[\w.]+)(?P<made>\((?P<given>.*)\))?", re.DOTALL)


class Target(NamedTuple):
    """What was named, and, where that makes the function, the arguments that it is called with."""

    found: Callable[..., Any]
    making: tuple[tuple[Any, ...], dict[str, Any]] | None


def target(text: str, option: str = "TARGET") -> Target:
    """What TARGET names; its module is imported as a script beside it would.

    That is `package.module:name` or `file.py:name`, either followed by `(ARGUMENTS)`; or
    `file.py:mylib::op`, an operator that the file registers, `aten::op` without a file.
    """
    if match := _OPERATOR.fullmatch(text):
        imported(match["where"] or "torch", option)
        imported("torch", option)
        return Target(_adapters.operator(match["name"]), None)
    match = _TARGET.fullmatch(text)
    if match is None:
        raise UsageError(f"{option}: expected package.module:name or file.py:name, got {text!r}")
    found = _attribute(imported(match["where"], option), match["path"], match["where"], option)
    if isinstance(found, type) or match["made"]:
        return Target(found, _making((match["given"] or "").strip(), option))
    return Target(found, None)


def _attribute(found: Any, path: str, where: str, option: str) -> Callable[..., Any]:
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            whole = "" if name == path else f" (looking for {path!r})"
            raise UsageError(f"{option}: {where!r} has no {name!r}{whole}") from None
    if not callable(found):
        raise UsageError(
            f"{option}: '{where}:{path}' is a {type(found).__name__}, which cannot be called"
        )
    return found  # type: ignore[no-any-return] # callable, as checked


def _making(written: str, option: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments in `Name(16, eps=1e-3)`."""
    try:
        call = ast.parse(f"f({written})", mode="eval").body
        if not isinstance(call, ast.Call) or any(key.arg is None for key in call.keywords):
            raise ValueError
        arguments = tuple(ast.literal_eval(argument) for argument in call.args)
        return arguments, {str(key.arg): ast.literal_eval(key.value) for key in call.keywords}
    except (ValueError, SyntaxError, TypeError):
        raise UsageError(
            f"{option}: ({written}) are no literals (a string needs quotes of its own)"
        ) from None


def imported(where: str, option: str = "TARGET") -> Any:
    """The module of a name or of a file. TheirError with their frames where it raises."""
    if where.endswith(".py") and not Path(where).is_file():
        raise UsageError(f"{option}: there is no file {where!r}")
    try:
        if where.endswith(".py"):
            return of_file(where)
        if "" not in sys.path:
            sys.path.insert(0, "")  # as `python -m` does
        return importlib.import_module(where)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever the user's module raises while imported
        raise TheirError(f"{option}: importing {where!r}", error) from error


def of_file(name: str) -> Any:
    """The module of a file, run anew; its folder is on the path, as for a script."""
    file = Path(name).resolve()
    module_name = f"_gradproof_target_{file.stem}"
    spec = importlib.util.spec_from_file_location(module_name, file)
    if spec is None or spec.loader is None:
        raise ImportError("not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # dataclasses and pickle look their module up
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    spec.loader.exec_module(module)
    return module


# What the user's code may not do to us, and what it raised.


class TheirError(UsageError):
    """The user's code raised; `trace` is what Python prints of it, without our frames."""

    def __init__(self, what: str, error: BaseException) -> None:
        super().__init__(f"{what} raised {sentence(error)}")
        self.trace = as_told(error)


class Exited(SystemExit):
    """The user's code called `os._exit`."""

    def __str__(self) -> str:
        return f"os._exit({self.code})"


@contextlib.contextmanager
def contained() -> Iterator[None]:
    """Run a piece of the user's code: it ends by an exception, or not at all.

    What it prints, also past Python, goes to the standard error: the standard output is the
    report's. The working directory is what it was afterwards. `os._exit` raises `Exited`, and a
    process that the code forked ends here: only one may tell what came of the piece.
    """
    here, leave = os.getpid(), os._exit
    folder = None
    with contextlib.suppress(OSError):  # it has been removed
        folder = os.getcwd()

    def exit_(status: int) -> NoReturn:
        if os.getpid() != here:  # of a process of its own: as multiprocessing ends them
            leave(status)
        raise Exited(status)

    os._exit = exit_
    try:
        with _printing_to_stderr():
            yield
    finally:
        os._exit = leave
        if os.getpid() != here:
            leave(0)
        if folder is not None:
            with contextlib.suppress(OSError):
                os.chdir(folder)


@contextlib.contextmanager
def _printing_to_stderr() -> Iterator[None]:
    """What is printed meanwhile, by Python or by what writes to descriptor 1 itself."""
    with contextlib.redirect_stdout(sys.stderr), contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # one of the two is closed: nothing can be mixed
            sys.stdout.flush()
            kept = os.dup(1)
            stack.callback(os.close, kept)
            stack.callback(os.dup2, kept, 1)
            os.dup2(2, 1)
        yield
