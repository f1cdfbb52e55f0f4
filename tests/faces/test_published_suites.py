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


# Of xitorch one file runs, which needs seconds; others need minutes. The metadata of entmax's sdist
# import the library, and so PyTorch: not in an isolated environment.
LIBRARIES = {  # options of pip, tests, calls of gradcheck at least
    "entmax==1.0": (["--no-build-isolation"], "entmax", 136),
    "xitorch==0.5.1": ([], "xitorch/_tests/test_jac.py", 48),
}


def sources_of(library: str, folder: Path) -> Path:
    """The folder of a library's sources, tests included; nothing of it is installed."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    options = ["--no-deps", "--no-binary=:all:", "--dest", str(folder), *LIBRARIES[library][0]]
    got = subprocess.run([*pip, *options, library], capture_output=True, text=True, check=False)
    if got.returncode:
        pytest.skip(f"no index with {library}: {got.stderr.strip().splitlines()[-1:]}")
    [archive] = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    (folder / "seeded.py").write_text(SEEDED, encoding="utf-8")
    return next(path for path in folder.iterdir() if path.is_dir())


def outcomes(sdist: Path, *options: str) -> dict[str, int]:
    """How many tests passed, failed, ...: runs the suite."""
    paths = [str(sdist), str(sdist.parent), os.environ.get("PYTHONPATH", "")]
    pytest_ = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "seeded"]
    run = subprocess.run(
        [*pytest_, "-p", "no:xdist", "--gradproof-seed=1", *options],
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


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_published_suite_ends_the_same_with_ours(library, tmp_path):
    _, tests, calls = LIBRARIES[library]
    sdist = sources_of(library, tmp_path)
    as_published = outcomes(sdist, tests)
    report = tmp_path / "report.json"
    ours = ("--gradproof-gradcheck=replace", f"--gradproof-report={report}")
    replaced = outcomes(sdist, tests, *ours)
    assert replaced == as_published
    checked = json.loads(report.read_text(encoding="utf-8"))["reports"]
    assert len(checked) >= 0.9 * calls
