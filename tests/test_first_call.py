"""What the first check in a process imports: neither PyTorch's compiler nor, mostly, SymPy."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("torch")

PROCESS = """
import sys, torch, gradproof, gradproof.torch
x = torch.linspace(1, 2, 6, dtype=torch.float64).reshape(2, 3).requires_grad_()
{call}
print(*(name for name in ("sympy", "torch._dynamo", "torch._inductor") if name in sys.modules))
"""


def imported_by(call: str) -> list[str]:
    command = [sys.executable, "-c", PROCESS.format(call=call)]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    return run.stdout.split()


@pytest.mark.parametrize(
    "call",
    [
        "gradproof.check(torch.sin, x)",
        "gradproof.check(lambda x: x.softmax(1), x)",
        "gradproof.torch.gradcheck(lambda x: 2 * x, x)",
        "gradproof.torch.gradcheck(lambda x: 2 * x, x, eps=1e-5)",
        "gradproof.torch.gradgradcheck(lambda x: x**2, x)",
    ],
)
def test_a_check_imports_neither_the_compiler_nor_sympy(call: str) -> None:
    assert imported_by(call) == []


@pytest.mark.parametrize(
    "call",
    [
        "gradproof.check(lambda x: 2 * x, x)",
        "gradproof.check(torch.nn.Linear(3, 2), x.detach().float())",
    ],
)
def test_forward_mode_of_constants_does_not_import_the_compiler(call: str) -> None:
    """PyTorch's own formulas for a tangent that is not there import SymPy."""
    assert set(imported_by(call)) <= {"sympy"}


def test_the_compiler_is_told_of_what_it_must_not_look_into() -> None:
    call = """
gradproof.check(lambda x: 2 * x, x, checks=["forward"])
import torch._dynamo
told = []
torch._dynamo.disable = lambda function, *_, **__: told.append(function) or function
gradproof.check(lambda x: 2 * x, x, checks=["forward"])
assert told
"""
    assert "torch._dynamo" in imported_by(call)
