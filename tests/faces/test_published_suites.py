"""Published libraries, as their sdists hold them: our gradcheck in their tests."""

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
