"""Without a framework: one sentence with the line that installs it. test_cli.py has more."""

from __future__ import annotations

import subprocess
import sys

import pytest

WITHOUT = "import sys; sys.modules.update(torch=None, jax=None); "


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("import gradproof.torch", "gradproof.torch needs PyTorch: pip install torch"),
        ("from gradproof.jax import check_grads", "gradproof.jax needs JAX: pip install jax"),
    ],
)
def test_a_missing_framework_is_one_sentence(code, sentence):
    command = [sys.executable, "-c", WITHOUT + code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode != 0
    assert done.stderr.strip().endswith(sentence)
