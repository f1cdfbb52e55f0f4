"""Files that are written whole, or left as they were."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from gradproof.errors import UsageError


@contextlib.contextmanager
def _errors_with_option(path: str | os.PathLike[str], option: str) -> Iterator[None]:
    """UsageError, which names the option, where a file cannot be written."""
    try:
        yield
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL
        raise UsageError(f"{option}: cannot write {os.fspath(path)!r}: {error}") from error


def write(path: str | os.PathLike[str], text: str, option: str) -> None:
    """Put a text, as UTF-8, in the place of a file.

    It is written to a new file beside it, which is then renamed: where that fails, and where
    somebody reads meanwhile, the old file is there, whole. A link stays a link; what is no file
    of a disk (`/dev/stdout`, a pipe) is written to as it is. UsageError where it cannot be written;
    the sentence begins with the option.
    """
    with _errors_with_option(path, option):
        _write(Path(os.path.realpath(path)), text)


def _write(place: Path, text: str) -> None:
    data = text.encode("utf-8")
    if place.exists() and not place.is_file():
        place.write_bytes(data)
        return
    beside = place.with_name(f".{place.name[:200]}.{secrets.token_hex(4)}")
    try:
        with beside.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if place.exists():
            beside.chmod(stat.S_IMODE(place.stat().st_mode))
        beside.replace(place)
    except BaseException:  # an interrupt too leaves nothing behind
        with contextlib.suppress(OSError):
            beside.unlink()
        raise


def prepare(path: str | os.PathLike[str], option: str) -> None:
    """Make the folder that a file is to be in. UsageError where no file can be written there."""
    with _errors_with_option(path, option):
        place = Path(os.path.realpath(path))
        if place.is_dir():
            raise IsADirectoryError("it is a folder")
        place.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(place if place.exists() else place.parent, os.W_OK):
            raise PermissionError("it may not be written")


def form_of(path: str | os.PathLike[str], option: str, forms: Sequence[str]) -> str:
    """The form that the end of a name asks for. UsageError where it is none of these."""
    form = os.path.splitext(path)[1].lower().removeprefix(".")
    if form not in forms:
        endings = " or ".join(f".{known}" for known in forms)
        raise UsageError(
            f"{option}: expected a name that ends in {endings}, got {os.path.basename(path)!r}"
        )
    return form
