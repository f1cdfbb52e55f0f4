"""docs/distributed.md shows what its example prints under torchrun."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import pages

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "distributed.md"
EXAMPLE = ROOT / "examples" / "column_parallel.py"


def first_block(language: str) -> str:
    return PAGE.read_text("utf-8").split(f"```{language}\n")[1].split("```")[0]


def test_the_page_shows_the_code_of_the_example():
    code = first_block("python")
    lines = {line.strip() for line in EXAMPLE.read_text("utf-8").splitlines()}
    assert {line.strip() for line in code.splitlines()} <= lines


@pytest.mark.slow
def test_the_page_shows_what_the_example_prints():
    assert torch.distributed.is_available()
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", str(EXAMPLE)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert pages.same(done.stdout, first_block("text"), loose=True), done.stdout
