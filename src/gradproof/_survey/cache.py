"""Reports of cases that passed, kept for as long as nothing changes that a case can depend on.

A wrong hit is a wrong derivative that passes. So the net is wide, and what does not fit into it
runs: a case is kept with the SHA-256 of every file of code below its file's folder, and of every
module and shared library that the process had loaded once it was checked, those of the standard
library and of installed packages excepted; these are told by the versions and the hashes that
installers record. What a case reads from data files, and most variables of the environment, are
not seen.
"""

from __future__ import annotations

import datetime
import functools
import hashlib
import io
import json
import os
import pickle
import platform
import re
import sys
import sysconfig
import time
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import gradproof
from gradproof._data import files
from gradproof._data.records import Report, Verdict
from gradproof._render import json as codec
from gradproof._render.summary import FROM_CACHE

_BEGUN = time.time_ns()  # a file that is newer may not be what this process has loaded
_OURS = str(Path(gradproof.__file__).parent)
_INSTALLED = tuple(
    os.path.realpath(sysconfig.get_path(name))
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
)
_SYSTEM = ("/lib", "/usr/lib", "/proc", "/sys", "/dev")  # of libraries: as the platform says

# What a kernel is written in, or compiled to.
_CODE = re.compile(
    r"\.(py|pyx|pxd|so(\.\d+)*|pyd|dylib|dll|c|cc|cpp|cxx|h|hh|hpp|inl|cu|cuh|hip|cl|ptx|cubin|hsaco"
    r"|metal|mlir|ll|f|f90|rs|jl)$"
)
_NO_CODE = {"__pycache__", "node_modules", "site-packages"}  # folders
# Beginnings of the names of variables that choose devices, compilers and precisions.
_SWITCHES = ("CUDA", "HIP", "JAX", "NVIDIA", "PYTHON", "PYTORCH", "ROC", "TORCH", "TRITON", "XLA")


@dataclass(frozen=True)
class Cache:
    """A folder with a record of each case that passed."""

    folder: str  # its path, absolute
    seed: int | None  # that of a report that may be taken; None where any may

    def entry(self, file: str, asked: tuple[object, ...]) -> Entry | None:
        """The place of a case in a loaded file; None where what is asked is in no file.

        `asked` is all that is asked of it, but for the seed.
        """
        try:
            switches = sorted(each for each in os.environ.items() if each[0].startswith(_SWITCHES))
            told = _told((file, asked, switches, _around()))
        except Exception:  # whatever the user's objects raise: they belong to no file
            return None
        return Entry(Path(self.folder, f"{_sha(told)}.json"), os.path.dirname(file), self.seed)


@dataclass(frozen=True)
class Entry:
    """The place of one case in the cache, and the folder of its file."""

    place: Path
    folder: str
    seed: int | None

    def taken(self) -> Report | None:
        """The report of an earlier run, which says so; None where the case has to be run."""
        try:
            record = json.loads(self.place.read_text(encoding="utf-8"))
            kept = dict(record["files"])
            report = codec.load(json.dumps(record["report"]))
            date = str(record["date"])
            if not report.checks or report.verdict is not Verdict.PASSED:
                return None
            if self.seed not in (None, report.seed):
                return None
            if not _depended_on(self.folder) <= set(kept) or kept != _hashes(kept):
                return None
        except Exception:  # a record that cannot be read is as if it were not there
            return None
        note = (
            f"{FROM_CACHE}: passed on {date}, seed {report.seed}; "
            "no code that it depends on has changed"
        )
        first, *others = report.checks
        first = replace(first, notes=(note, *first.notes))
        return replace(report, checks=(first, *others))

    def keep(self, report: Report) -> None:
        """Keep a report that passed; where that cannot be done, the case runs again."""
        if report.verdict is not Verdict.PASSED:
            return
        try:
            names = _depended_on(self.folder)
            states = [os.stat(name) for name in names]
            if any(max(each.st_mtime_ns, each.st_ctime_ns) >= _BEGUN for each in states):
                return
            record = {
                "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
                "files": _hashes(names),
                "report": json.loads(codec.dump(report)),
            }
            files.prepare(self.place, "cache")
            files.write(self.place, json.dumps(record, indent=1), "cache")
        except (OSError, ValueError):
            return


class _Pickler(pickle.Pickler):
    """Values as they are, and a function as the place in a file where it is written."""

    def reducer_override(self, value: Any) -> Any:
        if not isinstance(value, types.FunctionType):
            return NotImplemented
        code = value.__code__
        if not os.path.isfile(code.co_filename):
            raise ValueError("it is in no file")
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        place = (code.co_filename, code.co_firstlineno, code.co_code, value.__qualname__)
        return tuple, ((*place, value.__defaults__, value.__kwdefaults__, cells, vars(value)),)


def _told(value: object) -> bytes:
    """Bytes that differ where the values do; whatever pickling raises for one that has none."""
    written = io.BytesIO()
    _Pickler(written, protocol=4).dump(value)
    return written.getvalue()


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@functools.cache
def _around() -> tuple[object, ...]:
    """What surrounds every case: Python, the machine, what is installed, and gradproof itself."""
    machine = platform.uname()
    installed = sorted(
        (str(each.name), each.version, _sha((each.read_text("RECORD") or "").encode()))
        for each in metadata.distributions()
    )
    drivers = [*Path("/proc/driver/nvidia").glob("version")]
    drivers += sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
    return (
        sys.version,
        tuple(sys.flags),
        (machine.system, machine.release, machine.machine, platform.processor()),
        [driver.read_text() for driver in drivers],
        installed,
        _hashes(_code_below(_OURS)),
    )


def _depended_on(folder: str) -> set[str]:
    """The files that a case of a folder can depend on, as far as this process has loaded them."""
    return {*_code_below(folder), *_loaded(), *_mapped()}


def _code_below(folder: str) -> Iterator[str]:
    """The files of code below a folder, those of virtual environments and hidden ones excepted."""
    return (str(file) for file in files.below(folder, _NO_CODE) if _CODE.search(file.name))


def _loaded() -> Iterator[str]:
    """The files of the loaded modules that are no part of what is installed."""
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        file = getattr(spec, "origin", None) if getattr(spec, "has_location", False) else None
        if spec is None and name in ("__main__", "__mp_main__"):
            file = getattr(module, "__file__", None)
        if isinstance(file, str) and not _below(file, (*_INSTALLED, _OURS)):
            yield os.path.abspath(file)


def _mapped() -> Iterator[str]:
    """The shared libraries in memory that are no part of what is installed; of Linux alone."""
    maps = Path("/proc/self/maps")
    for line in maps.read_text(errors="replace").splitlines() if maps.exists() else ():
        _, access, _, _, _, *name = line.split(maxsplit=5)
        if name and "x" in access and name[0].startswith("/"):
            made = name[0].startswith("/memfd:")  # by code that is loaded
            if not made and not _below(name[0], (*_INSTALLED, _OURS, *_SYSTEM)):
                yield name[0]


def _below(file: str, folders: tuple[str, ...]) -> bool:
    return os.path.realpath(file).startswith(tuple(folder + os.sep for folder in folders))


def _hashes(names: Any) -> Mapping[str, str]:
    """The SHA-256 of each file. OSError where one cannot be read."""
    found = {}
    for name in sorted(names):
        state = os.stat(name)
        found[name] = _hash(name, (state.st_mtime_ns, state.st_ctime_ns, state.st_size))
    return found


@functools.cache
def _hash(name: str, _state: tuple[int, int, int]) -> str:
    """The SHA-256 of a file as it is now; read once."""
    return _sha(Path(name).read_bytes())
