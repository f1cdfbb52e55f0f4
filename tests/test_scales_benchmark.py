"""The scales benchmark: its mistakes are mistakes, its right kernels right, its counts fair."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import _scaled_functions as points  # noqa: E402
import scales  # noqa: E402


def point(name: str, scale: str = "1", dtype=torch.float64):
    (case,) = points.named([name])
    return case.function, case.inputs(scale, dtype, seed=0)


def test_there_are_enough_functions_with_different_names() -> None:
    assert len({case.name for case in points.CASES}) == len(points.CASES) >= 50


@pytest.mark.parametrize("case", points.CASES, ids=lambda case: case.name)
def test_every_function_is_defined_somewhere(case) -> None:
    scale = "1" if "1" in case.scales() else "0.01"
    inputs = case.inputs(scale, torch.float64, seed=0)
    assert scales.is_normal(case.function, inputs, scales.jacobian(case.function, inputs))


@pytest.mark.parametrize("twice", [True, False])
@pytest.mark.parametrize("name", ["exp", "matrix product", "layer norm"])
def test_a_kernel_has_the_jacobian_it_is_given(name: str, twice: bool) -> None:
    function, inputs = point(name)
    J = scales.jacobian(function, inputs)
    right = scales.kernel(function, lambda J: J, twice=twice)
    torch.testing.assert_close(scales.jacobian(right, inputs), J, rtol=1e-12, atol=0)
    for spoil in scales.spoilers(function, J, inputs, seed=0).values():
        wrong = scales.jacobian(scales.kernel(function, spoil, twice=twice), inputs)
        assert not torch.allclose(wrong, J, rtol=1e-3, atol=0)


def test_a_kernel_knows_its_jacobian_in_every_precision() -> None:
    function, inputs = point("exp", dtype=torch.float32)
    right = scales.kernel(function, lambda J: J, twice=True)
    for dtype in (torch.float32, torch.float64):
        x = inputs[0].detach().to(dtype).requires_grad_()
        torch.testing.assert_close(scales.jacobian(right, [x]), scales.jacobian(function, [x]))


def test_an_output_that_drowns_in_its_rounding_is_not_spoilt() -> None:
    x = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)

    def function(x):
        return torch.stack([x[0], (1 + 1e-13 * x[1]) - 1])

    J = scales.jacobian(function, [x])
    for seed in range(4):
        spoilers = scales.spoilers(function, J, [x], seed=seed)
        assert bool((spoilers["row dropped"](J)[0] == 0).all())


def test_a_constant_function_has_nothing_to_test() -> None:
    x = torch.tensor([50.0], dtype=torch.float64, requires_grad=True)
    J = scales.jacobian(torch.tanh, [x])
    assert scales.has_nothing(torch.tanh, [x], J)


@pytest.mark.parametrize(
    ("kind", "nothing", "verdict", "outcome"),
    [
        ("right", False, "passed", "right"),
        ("right", False, "failed", "false failure"),
        ("right", False, "inconclusive", "inconclusive"),
        ("right", True, "inconclusive", "not counted"),
        ("right", True, "failed", "false failure"),
        ("column zero", False, "passed", "false pass"),
        ("column zero", False, "failed", "right"),
    ],
)
def test_outcomes(kind: str, nothing: bool, verdict: str, outcome: str) -> None:
    trial = scales.Trial("f", "float64", "1", 1.0, kind, nothing, False, {"gradproof": verdict})
    assert trial.outcome("gradproof") == outcome


@pytest.mark.slow
def test_it_prints_a_table_and_records_it(tmp_path: Path) -> None:
    record = tmp_path / "scales.json"
    command = [sys.executable, str(BENCHMARKS / "scales.py"), "--functions", "exp,log",
               "--scales", "1", "--dtypes", "float64", "--json", str(record)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "false passes" in done.stdout
    content = json.loads(record.read_text())
    assert content["not_right"] == {}
    assert content["misses"] == []
