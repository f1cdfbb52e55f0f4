"""What is installed is what is in the tree: the wheel, its types, its licence, its command."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import gradproof

ROOT = Path(__file__).parents[1]

ENDINGS = ("py", "jinja")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> zipfile.ZipFile:
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(ROOT)], check=True)
    [file] = folder.glob("gradproof-*.whl")
    with zipfile.ZipFile(file) as opened:
        yield opened


def text_of(wheel: zipfile.ZipFile, end: str) -> str:
    [name] = [name for name in wheel.namelist() if name.endswith(end)]
    return wheel.read(name).decode()


def test_the_wheel_holds_every_module_and_nothing_else(wheel):
    packaged = {name for name in wheel.namelist() if ".dist-info/" not in name}
    source = ROOT / "src"
    files = [path for end in ENDINGS for path in source.rglob(f"*.{end}")]
    present = {path.relative_to(source).as_posix() for path in files}
    assert packaged == present | {"gradproof/py.typed"}
    assert "gradproof/_render/report.html.jinja" in packaged


def test_the_wheel_tells_version_licence_and_command(wheel):
    metadata = text_of(wheel, ".dist-info/METADATA")
    assert f"\nVersion: {gradproof.__version__}\n" in metadata
    assert "\nLicense-Expression: Apache-2.0\n" in metadata
    assert "gradproof = gradproof.cli:main" in text_of(wheel, "entry_points.txt")
    assert "Apache License" in text_of(wheel, "licenses/LICENSE")


@pytest.fixture(scope="module")
def sdist(tmp_path_factory) -> set[str]:
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("sdist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(folder)]
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True)
    [file] = folder.glob("gradproof-*.tar.gz")
    with tarfile.open(file) as opened:
        return {name.partition("/")[2] for name in opened.getnames()}


def test_the_sdist_holds_what_its_tests_need(sdist):
    for folder in ("src", "tests", "benchmarks", "examples", "docs"):
        files = [path for path in (ROOT / folder).rglob("*") if path.is_file()]
        there = {path.relative_to(ROOT).as_posix() for path in files}
        assert {name for name in there if "__pycache__" not in name} <= sdist
    whole = {"Makefile", "constraints.txt", "constraints-oldest.txt", ".ci/run", "pyproject.toml"}
    assert whole | {"CONTRIBUTING.md", "CHANGELOG.md", "README.md", "LICENSE"} <= sdist


UNTESTED = {  # at their oldest; constraints-oldest.txt says why
    *("torch", "triton", "jacobi", "mpmath", "numdifftools", "furo", "myst-parser"),
    *("sphinx", "expecttest", "mypy", "ruff", "distributed"),
}


def test_the_oldest_column_has_every_declared_minimum():
    tomllib = pytest.importorskip("tomllib")  # of Python 3.11
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    declared = {}
    extras = project["optional-dependencies"].values()
    for line in itertools.chain(project["dependencies"], *extras):
        name, least = re.match(r"([\w-]+)>=([\d.]+)", line).groups()
        assert declared.setdefault(name, least) == least, f"{name} has two minima"
    lines = (ROOT / "constraints-oldest.txt").read_text("utf-8").splitlines()
    tested = dict(line.split("==") for line in lines if "==" in line and line[0] != "#")
    assert tested == {name: least for name, least in declared.items() if name not in UNTESTED}
