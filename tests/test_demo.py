"""The script of `make demo`: it writes the page that it names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parent.parent / "examples" / "page_of_a_mistake.py"


@pytest.mark.needs("torch", "jinja2")
def test_the_demo_writes_a_page_about_the_wrong_layer_norm(tmp_path):
    page = tmp_path / "page.html"
    subprocess.run([sys.executable, EXAMPLE, page], check=True, capture_output=True)
    assert "layer_norm" in page.read_text("utf-8")
