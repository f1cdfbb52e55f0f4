"""Which tests the installed frameworks can run.

A test file is collected where every framework can be imported that it, or a module of tests/ that
it imports, names in an import at its top. A test that needs one in another way says so:
`@pytest.mark.needs("torch")`.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
OPTIONAL = ("torch", "jax", "scipy", "equinox", "flax", "jinja2", "triton")
OPTIONAL += ("distributed",)  # Dask's


@functools.cache
def is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


@functools.cache
def needed_by(file: Path) -> frozenset[str]:
    """The optional packages that importing a file of tests/ imports."""
    found: set[str] = set()
    for name in _imported_at_the_top(file):
        root = name.partition(".")[0]
        if root in OPTIONAL:
            found.add(root)
        elif root == "gradproof":
            part = name.removeprefix("gradproof.")
            found |= {framework for framework in ("torch", "jax") if part.startswith(framework)}
        for place in _in_tests(name):
            if place != file:
                found |= needed_by(place)
    return frozenset(found)


def _in_tests(name: str) -> Iterator[Path]:
    """The file of tests/ that an imported name is; the name may be one inside the module."""
    parts = name.split(".")
    for end in (len(parts), len(parts) - 1):
        place = TESTS.joinpath(*parts[:end])
        for file in (place.with_suffix(".py"), place / "__init__.py"):
            if end and file.is_file():
                yield file
                return


def _imported_at_the_top(file: Path) -> Iterator[str]:
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def missing(packages: frozenset[str]) -> list[str]:
    return sorted(package for package in packages if not is_installed(package))
