"""Options shared by all tests."""

from __future__ import annotations

import os

import hypothesis
import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite the golden files of tests/render and the reports shown in the README",
    )


# Triton decides on import whether it interprets, and parts of PyTorch import it where they find it.
os.environ.setdefault("TRITON_INTERPRET", "1")

# Machines are shared: an example that takes long says nothing.
hypothesis.settings.register_profile("no deadline", deadline=None)
hypothesis.settings.load_profile("no deadline")
