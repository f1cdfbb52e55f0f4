"""Options shared by all tests."""

from __future__ import annotations

import os
import random
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import numpy as np
import pytest

from columns import TESTS, missing, needed_by

pytest_plugins = "pytester"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite the golden files of tests/render and the reports shown in the README",
    )
    parser.addoption(
        "--fresh-seeds",
        action="store_true",
        help="let every check draw a new seed, as for users, instead of one by the test's name",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--fresh-seeds"):
        hypothesis.settings.load_profile("fresh")
    config.addinivalue_line("markers", "needs(*packages): runs only where they are installed")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    is_test = collection_path.suffix == ".py" and collection_path.name.startswith("test_")
    return True if is_test and missing(needed_by(collection_path)) else None


def pytest_report_header() -> list[str]:
    """Says what is left out, and for want of what."""
    lacking: dict[str, int] = {}
    for file in sorted(TESTS.rglob("test_*.py")):
        if gone := missing(needed_by(file)):
            lacking[", ".join(gone)] = lacking.get(", ".join(gone), 0) + 1
    return [f"not collected: {count} files that need {what}" for what, count in lacking.items()]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = {
        item
        for item in items
        for mark in item.iter_markers("needs")
        if missing(frozenset(mark.args))
    }
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


@pytest.fixture(autouse=True)
def numbers_by_name(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test draws the same random numbers in every run, whatever ran before it."""
    if request.config.getoption("--fresh-seeds"):
        return
    numbers = random.Random(request.node.nodeid)
    monkeypatch.setattr(secrets, "randbits", lambda bits: numbers.randrange(2**bits))
    np.random.seed(numbers.randrange(2**32))  # a test's function may draw from it  # noqa: NPY002
    if torch := sys.modules.get("torch"):
        torch.manual_seed(numbers.randrange(2**32))


# Triton decides on import whether it interprets, and parts of PyTorch import it where they find it.
os.environ.setdefault("TRITON_INTERPRET", "1")

# Machines are shared: an example that takes long says nothing. CI always draws the same examples.
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True)
hypothesis.settings.register_profile("fresh", deadline=None)
hypothesis.settings.load_profile("ci")


@pytest.fixture
def as_in_the_engine() -> Iterator[None]:
    """NumPy's warnings are off, as they are while a check runs."""
    with np.errstate(all="ignore"):
        yield
