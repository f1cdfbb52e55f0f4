"""Numbers that a test compares with those recorded: what moves them is meant to, and is looked at.

They are made of sums, products, quotients and roots alone, which every machine rounds alike, and
are told in three digits.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest


def told(value: Any) -> str:
    """A number, an array or anything else in few words."""
    if isinstance(value, (bool, np.bool_, str, int)) or value is None:
        return str(value)
    if isinstance(value, (list, tuple, dict)):
        return " ".join(map(told, value.items() if isinstance(value, dict) else value))
    values = np.asarray(value)
    if values.dtype.kind not in "fiub":
        return str(value)
    return " ".join(f"{each + 0.0:.3g}" for each in values.reshape(-1).astype(float))


def compare(request: pytest.FixtureRequest, file: Path, lines: Iterable[tuple[str, Any]]) -> None:
    """Holds named numbers against those in a file, which `--update-golden` writes."""
    found = [f"{name}: {told(value)}".rstrip() for name, value in lines]
    if request.config.getoption("--update-golden"):
        file.parent.mkdir(exist_ok=True)
        file.write_text("\n".join(found) + "\n", encoding="utf-8")
    assert found == file.read_text(encoding="utf-8").splitlines()
