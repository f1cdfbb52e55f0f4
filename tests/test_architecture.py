"""The architecture, enforced: layers, who may know a framework, and the public names."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import gradproof

SOURCE = Path(gradproof.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))

# Unit (a package or module below gradproof, or a module inside a package) -> layer. Imports point
# down only; units of one layer never import each other, except in the layers named below.
LAYERS = {
    "errors": 0,
    "_data": 0,  # what everybody hands on: spaces, records, settings
    "_maps": 1,  # the contract with a framework
    "_guard": 1,  # what a check puts back
    "_numdiff": 2,
    "_measurements": 3,  # what the checks of one run share
    "_compare": 4,
    "_low_precision": 5,
    "_checks": 6,
    "_adapters": 6,
    "_numpy": 6,
    "_explain": 7,  # words and causes, from evidence: what judges knows nothing of it
    "_engine": 8,
    "_render": 8,
    "": 9,  # gradproof itself
    "torch": 9,
    "jax": 9,
    "__main__": 9,
    "cli": 9,
    "_command_arguments": 9,
    "_survey": 9,
    "pytest_plugin": 9,
    "_asserts": 9,
    "strategies": 9,
}
# Modules of a framework's folder that belong to its public face; the others are its adapter.
FACES = {
    "torch": {
        *("_double_backward", "_fast_path", "_fast_slopes", "_guards", "_judge", "_messages"),
        *("_record", "_suite", "distributed"),
    },
    "jax": set(),
    "_numpy": set(),
}
MAY_IMPORT_SIBLINGS = (0, 9)

# Framework -> the files that may know it, relative to the package.
FRAMEWORKS = {
    "torch": r"torch/(distributed/)?\w+\.py",
    "jax": r"jax/\w+\.py",
}

PUBLIC = {
    "check",
    "compare",
    "assert_derivatives",
    *("survey", "SurveyReport", "Case", "CaseResult"),  # of many
    *("Settings", "by_hand"),  # what is asked
    *("Report", "CheckResult", "Verdict", "Finding", "Place", "Kink", "Statistic"),
    "Cause",
    *("DerivativeError", "Unsupported"),
}


def name_of(file: Path) -> str:
    return file.relative_to(SOURCE).as_posix()


def module_of(file: Path) -> str:
    parts = ["gradproof", *file.relative_to(SOURCE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(file) for file in FILES}


def unit_of(module: str) -> str:
    """`gradproof._render.text` -> `_render`; the longest name that has a layer."""
    parts = module.split(".")[1:]
    if parts and parts[0] in FACES and not FACES[parts[0]].issuperset(parts[1:2]):
        return "_adapters"
    if len(parts) == 3 and parts[:2] == ["torch", "distributed"]:
        return "_adapters"
    names = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((name for name in names if name in LAYERS), parts[0] if parts else "")


def imports_of(tree: ast.AST) -> Iterator[str]:
    """Every module imported, wherever in the file; `from a import b` may mean the module a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            assert node.module is not None
            if node.module == "gradproof":
                for alias in node.names:
                    yield f"gradproof.{alias.name}" if alias.name in LAYERS else "gradproof"
            else:
                inner = [f"{node.module}.{alias.name}" for alias in node.names]
                yield from (name if name in MODULES else node.module for name in inner)


@functools.cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def upward(module: str, tree: ast.AST) -> list[str]:
    """The imports of `module` that do not point down."""
    unit = unit_of(module)
    layer = LAYERS[unit]
    wrong = []
    for imported in imports_of(tree):
        if imported.split(".")[0] != "gradproof" or unit_of(imported) == unit:
            continue
        target = LAYERS[unit_of(imported)]
        if target > layer or (target == layer and layer not in MAY_IMPORT_SIBLINGS):
            wrong.append(f"{module} (layer {layer}) imports {imported} (layer {target})")
    return wrong


def test_every_unit_has_a_layer():
    units = {unit_of(module_of(file)) for file in FILES}
    assert units <= set(LAYERS)


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_imports_point_down_only(file):
    assert upward(module_of(file), parsed(file)) == []


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("gradproof.torch._adapter", "import gradproof._checks"),
        ("gradproof._engine", "def f():\n    from gradproof._render import text"),
        ("gradproof._compare.localize", "from gradproof import check"),
    ],
)
def test_an_import_that_points_up_is_seen(module, line):
    assert upward(module, ast.parse(line))


@pytest.mark.parametrize("file", sorted((SOURCE / "_render").glob("*.py")), ids=name_of)
def test_renderers_see_records_only(file):
    allowed = {"gradproof", "rich", "jinja2", "cattrs"} | set(sys.stdlib_module_names)
    for imported in imports_of(parsed(file)):
        assert imported.split(".")[0] in allowed
        if imported.startswith("gradproof"):
            assert unit_of(imported) == "_render" or LAYERS[unit_of(imported)] == 0


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_a_framework_is_imported_only_where_it_is_known(file, framework):
    if not re.fullmatch(FRAMEWORKS[framework], name_of(file)):
        roots = {imported.split(".")[0] for imported in imports_of(parsed(file))}
        assert framework not in roots


def private_uses(tree: ast.AST, framework: str) -> list[str]:
    """A framework's private names in a file: modules, and attributes of what it imports."""

    def is_private(name: str) -> bool:
        parts = name.split(".")
        return any(part.startswith("_") and not part.startswith("__") for part in parts)

    known, found = {framework: framework}, []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [(alias.asname, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [
                (each.asname or each.name, f"{node.module}.{each.name}") for each in node.names
            ]
        else:
            continue
        for name, path in names:
            if path.split(".")[0] == framework:
                known[name or framework] = path if name else framework
                found += [path] if is_private(path) else []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            name, dot, rest = ast.unparse(node).partition(".")
            is_operator = (name, rest.partition(".")[0]) == ("torch", "ops")  # names, not API
            if name in known and is_private(rest) and not is_operator:
                found.append(f"{known[name]}{dot}{rest}")
    return found


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_private_api_of_a_framework_is_used_in_its_compat_file_only(file, framework):
    if file.name != "_compat.py":
        assert private_uses(parsed(file), framework) == []


def test_the_public_names_are_these():
    assert sorted(gradproof.__all__) == sorted(PUBLIC)
    assert all(hasattr(gradproof, name) for name in PUBLIC)
    modules = {name for name in vars(gradproof) if f"gradproof.{name}" in sys.modules}
    # Names that start with "@" are pytest's, which rewrites the asserts of its plugins' packages.
    visible = {name for name in vars(gradproof) if not name.startswith(("_", "@"))} - modules
    assert visible == PUBLIC


def loaded_by(statements: str) -> set[str]:
    """What is loaded in a fresh interpreter after some statements."""
    done = subprocess.run(
        [sys.executable, "-c", f"{statements}\nimport sys\nprint(*sys.modules)"],
        env={"PYTHONPATH": str(SOURCE.parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("module", ["gradproof", "gradproof.pytest_plugin"])
def test_importing_a_face_loads_nothing_heavy(module):
    assert not loaded_by(f"import {module}") & {*FRAMEWORKS, "numpy", "rich"}


def test_the_engine_loads_no_framework():
    assert not loaded_by("from gradproof import *") & set(FRAMEWORKS)


FIRST = """
import torch, gradproof.torch
x = torch.linspace(1, 2, 6, dtype=torch.float64).reshape(2, 3).requires_grad_()
"""


@pytest.mark.needs("torch")
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
def test_a_first_check_loads_neither_pytorchs_compiler_nor_sympy(call):
    """PyTorch itself does for the forward mode of 2 * x: a tangent that is not there."""
    assert not loaded_by(FIRST + call) & {"sympy", "torch._dynamo", "torch._inductor"}


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("import gradproof.torch", "gradproof.torch needs PyTorch: pip install torch"),
        ("from gradproof.jax import check_grads", "gradproof.jax needs JAX: pip install jax"),
    ],
)
def test_a_missing_framework_is_one_sentence(code, sentence):
    without = "import sys; sys.modules.update(torch=None, jax=None); "
    command = [sys.executable, "-c", without + code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert done.stderr.strip().endswith(sentence)
