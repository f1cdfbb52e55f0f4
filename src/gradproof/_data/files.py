"""Files that reports are written to: their folders, and the form that a name asks for."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from gradproof._data.options import short_repr
from gradproof.errors import UsageError


@contextlib.contextmanager
def _errors_with_option(path: str | os.PathLike[str], option: str) -> Iterator[None]:
    """UsageError, which names the option, where a file cannot be written."""
    try:
        yield
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL
        raise UsageError(f"{option}: cannot write {os.fspath(path)!r}: {error}") from error


def write_file(path: str | os.PathLike[str], text: str, option: str) -> None:
    """Write lines to a file, as UTF-8. UsageError, which begins with the option, where not."""
    with _errors_with_option(path, option):
        Path(path).write_text(text.rstrip("\n") + "\n", encoding="utf-8", newline="\n")


def prepare_folder(path: str | os.PathLike[str], option: str) -> None:
    """Make the folder that a file is to be in. UsageError where no file can be written there."""
    with _errors_with_option(path, option):
        place = Path(path)
        if place.is_dir():
            raise IsADirectoryError("it is a folder")
        place.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(place if place.exists() else place.parent, os.W_OK):
            raise PermissionError("it may not be written")


def form_of(path: str | os.PathLike[str], option: str, forms: Sequence[str]) -> str:
    """The form that the end of a name asks for. UsageError where it is none of these."""
    if not isinstance(path, (str, os.PathLike)):
        raise UsageError(f"{option}: expected the name of a file, got {short_repr(path)}")
    form = os.path.splitext(path)[1].lower().removeprefix(".")
    if form not in forms:
        endings = " or ".join(f".{known}" for known in forms)
        raise UsageError(
            f"{option}: expected a name that ends in {endings}, got {os.path.basename(path)!r}"
        )
    return form
