"""Without a framework: one sentence with the line that installs it, and all else works."""

from __future__ import annotations

import subprocess
import sys

import pytest

WITHOUT = "import sys; sys.modules.update(torch=None, jax=None); "


def run_without_frameworks(code):
    command = [sys.executable, "-c", WITHOUT + code]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("import gradproof.torch", "gradproof.torch needs PyTorch: pip install torch"),
        (
            "from gradproof.jax import check_grads",
            "gradproof.jax needs JAX: pip install jax",
        ),
        (
            "from gradproof.cli import main; sys.exit(main(['check', 'math:sin', 'float64[]']))",
            "--framework: gradproof.torch needs PyTorch: pip install torch",
        ),
    ],
)
def test_a_missing_framework_is_one_sentence(code, sentence):
    done = run_without_frameworks(code)
    assert done.returncode != 0
    assert done.stderr.strip().endswith(sentence)


def test_the_command_checks_what_needs_numpy_only():
    words = ["check", "math:sin", "float64[]", "--grad", "math:cos"]
    done = run_without_frameworks(f"from gradproof.cli import main; sys.exit(main({words!r}))")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("gradproof  sin  passed")
