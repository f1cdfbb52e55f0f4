"""What is installed is what is in the tree: the wheel, its types, its licence, its command."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import gradproof

ROOT = Path(__file__).parents[1]

ENDINGS = ("py", "css", "js", "jinja", "json")  # what a page is made of, and the schema

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
