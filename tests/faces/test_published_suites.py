"""Published libraries, as their sdists hold them: our gradcheck in their tests, and in a model."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.needs("torch", "scipy")]

# The inputs of some tests are drawn from no seed: each is then another test in each run.
SEEDED = """
import pytest, torch

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    torch.manual_seed(0)
"""


# The metadata of entmax's sdist import the library, and so PyTorch: not in an isolated environment.
LIBRARIES = {"entmax==1.0": ["--no-build-isolation"], "xitorch==0.5.1": []}


@pytest.fixture(scope="module", params=LIBRARIES)
def sdist(request, tmp_path_factory):
    """The folder of a library's sources, tests included; nothing of it is installed."""
    folder = tmp_path_factory.mktemp("sdist")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    options = ["--no-deps", "--no-binary=:all:", "--dest", str(folder), *LIBRARIES[request.param]]
    command = [*pip, *options, request.param]
    got = subprocess.run(command, capture_output=True, text=True, check=False)
    if got.returncode:
        pytest.skip(f"no index with {request.param}: {got.stderr.strip().splitlines()[-1:]}")
    [archive] = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    (folder / "seeded.py").write_text(SEEDED, encoding="utf-8")
    return next(path for path in folder.iterdir() if path.is_dir())


TESTS = {  # of xitorch a file that needs seconds: others need minutes
    "entmax": ["entmax"],
    "xitorch": ["xitorch/_tests/test_jac.py"],
}
CALLS = {"entmax": 136, "xitorch": 48}  # at least
# Tests of a function that is 1 throughout, as a softmax of one number: nothing is tested there.
FLAT = {"entmax": 4, "xitorch": 0}


def outcomes(sdist: Path, *options: str) -> dict[str, int]:
    """How many tests passed, failed, ...: runs the suite."""
    paths = [str(sdist), str(sdist.parent), os.environ.get("PYTHONPATH", "")]
    pytest_ = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "seeded"]
    run = subprocess.run(
        [*pytest_, "-p", "no:xdist", "--gradproof-seed=1", *options, *TESTS[name_of(sdist)]],
        cwd=sdist,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    last = run.stdout.strip().splitlines()[-1]
    words = re.findall(r"(\d+) (passed|failed|inconclusive|errors?)", last)
    found = {word: int(count) for count, word in words}
    assert found, run.stdout + run.stderr
    return found


def name_of(sdist: Path) -> str:
    return sdist.name.partition("-")[0]


def test_a_published_suite_ends_the_same_with_ours(sdist):
    as_published = outcomes(sdist)
    report = sdist.parent / "report.json"
    replaced = outcomes(sdist, "--gradproof-gradcheck=replace", f"--gradproof-report={report}")
    assert replaced.pop("inconclusive", 0) == (flat := FLAT[name_of(sdist)])
    assert replaced["passed"] + flat == as_published["passed"]
    assert replaced.keys() == as_published.keys()
    checked = json.loads(report.read_text(encoding="utf-8"))["reports"]
    assert len(checked) >= 0.9 * CALLS[name_of(sdist)]


of_entmax = pytest.mark.parametrize("sdist", ["entmax==1.0"], indirect=True)


@of_entmax
def test_a_mistake_that_pytorchs_does_not_see_fails(sdist):
    """The other way round: what stands in their place does check."""
    file = sdist / "entmax" / "activations.py"
    right = file.read_text(encoding="utf-8")
    try:
        file.write_text(right.replace("dX = dY * gppr", "dX = dY.mul_(gppr)"), encoding="utf-8")
        theirs = outcomes(sdist, "-k", "mapping")
        ours = outcomes(sdist, "--gradproof-gradcheck=replace", "-k", "mapping")
    finally:
        file.write_text(right, encoding="utf-8")
    assert theirs == {"passed": 6}
    assert ours == {"passed": 3, "failed": 3}


# A training step of a model that attends in four ways and is trained by four losses.
STEP = """
import json, sys
import entmax, torch
from torch import nn
import gradproof.torch

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(13, 8), nn.Linear(8, 13)
        self.query, self.key = nn.Linear(8, 8), nn.Linear(8, 8)
        self.alpha = nn.Parameter(torch.tensor(1.3))

    def forward(self, tokens):
        x = self.embed(tokens)
        scores = self.query(x) @ self.key(x).mT
        x = x + entmax.entmax15(scores, dim=-1) @ x + entmax.sparsemax(scores, dim=-1) @ x
        x = x + entmax.entmax_bisect(scores, self.alpha) @ x + entmax.sparsemax_bisect(scores) @ x
        return self.out(x).flatten(0, 1)

torch.manual_seed(0)
model = Model().to(getattr(torch, sys.argv[1]))
tokens = torch.arange(12).reshape(2, 6)
target = (tokens.flatten() + 1) % 13
losses = [entmax.sparsemax_loss, entmax.entmax15_loss]
losses += [entmax.entmax_bisect_loss, entmax.sparsemax_bisect_loss]
with gradproof.torch.record() as seen:
    y = model(tokens)
    sum(loss(y, target).mean() for loss in losses).backward()
found = seen.check(seed=0)
shapes = {each.name: each.inputs[0].shape for each in seen.met}
verdicts = {name: str(report.verdict) for name, report in found.reports.items()}
print(json.dumps([shapes, verdicts, found.errors, str(found)]))
"""
MAPPINGS = ("Entmax15", "Sparsemax", "EntmaxBisect", "SparsemaxBisect")
FUNCTIONS = {f"{name}Function": [2, 6, 6] for name in MAPPINGS}
FUNCTIONS |= {f"{name}LossFunction": [12, 13] for name in MAPPINGS}


def recorded(sdist: Path, dtype: str) -> dict[str, str]:
    """The verdicts on what a training step with the library meets, the worst first."""
    path = os.pathsep.join([str(sdist), os.environ.get("PYTHONPATH", "")])
    run = subprocess.run(
        [sys.executable, "-c", STEP, dtype],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    shapes, verdicts, errors, told = json.loads(run.stdout.splitlines()[-1])
    assert shapes == FUNCTIONS
    assert errors == {}
    assert all(name in told for name in verdicts)
    return verdicts


@of_entmax
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_every_function_of_a_library_that_a_training_step_meets_is_checked(sdist, dtype):
    assert recorded(sdist, dtype) == dict.fromkeys(FUNCTIONS, "passed")


@of_entmax
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_mistake_in_one_of_them_is_found_in_that_one(sdist, dtype):
    file = sdist / "entmax" / "activations.py"
    right = file.read_text(encoding="utf-8")
    assert right.count("dX -= q * gppr") == 1
    try:
        file.write_text(right.replace("dX -= q * gppr", "dX -= 0.9 * q * gppr"), encoding="utf-8")
        verdicts = recorded(sdist, dtype)
    finally:
        file.write_text(right, encoding="utf-8")
    assert next(iter(verdicts)) == "Entmax15Function"
    assert verdicts == dict.fromkeys(FUNCTIONS, "passed") | {"Entmax15Function": "failed"}
