"""Options shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import pytest

from columns import TESTS, missing, needed_by

pytest_plugins = "pytester"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite the golden files of tests/render and the reports shown in the README",
    )


def pytest_configure(config: pytest.Config) -> None:
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


# Triton decides on import whether it interprets, and parts of PyTorch import it where they find it.
os.environ.setdefault("TRITON_INTERPRET", "1")

# Machines are shared: an example that takes long says nothing.
hypothesis.settings.register_profile("no deadline", deadline=None)
hypothesis.settings.load_profile("no deadline")
