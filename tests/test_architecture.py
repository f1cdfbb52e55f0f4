"""The architecture, enforced: layers, who may know a framework, public names, sizes."""

from __future__ import annotations

import ast
import functools
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import gradproof
from gradproof._data.settings import CHECK_NAMES

SOURCE = Path(gradproof.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))

# Unit (a package or module below gradproof, or a module inside a package) -> layer. Imports point
# down only; units of one layer never import each other, except in the layers named below.
LAYERS = {
    "errors": 0,
    "_data": 0,  # what everybody hands on: spaces, records, settings
    "_maps.contract": 1,
    "_guard": 1,  # what a check puts back
    "_measure": 2,
    "_maps": 3,  # maps around a map
    "_judge": 4,
    "_locate": 5,
    "_verdict": 6,
    "_checks": 7,
    "_adapters": 7,
    "_cases": 8,  # what a user writes for functions and arrays
    "_explain": 8,  # words, causes and pictures, from evidence: what judges knows nothing of it
    "_engine": 9,
    "_render": 9,
    "": 10,  # gradproof itself
    "torch": 10,
    "jax": 10,
    "__main__": 10,
    "cli": 10,
    "_survey": 10,
    "pytest_plugin": 10,
    "_output": 10,
    "_asserts": 10,
    "scipy": 10,
    "strategies": 10,
}
MAPS = {"_maps.contract", "_maps", "_adapters"}  # maps themselves, and maps around them
TOP = max(LAYERS.values())
MAY_IMPORT_SIBLINGS = (0, TOP)

# Framework -> the files that may know it, relative to the package.
FRAMEWORKS = {
    "torch": r"torch/\w+\.py|_adapters/torch/\w+\.py",
    "jax": r"jax\.py|_adapters/jax/\w+\.py",
    "distributed": r"_survey/cluster\.py",
}

# `file:function` -> why it is longer than the others.
LONG: dict[str, str] = {
    "_engine/__init__.py:check": "its signature is most of it: the public options, one a line",
}
LONGEST_FUNCTION = 40  # lines, the docstring not counted

PUBLIC = {
    "case",
    "check",
    "compare",
    "assert_derivatives",
    *("survey", "Survey", "Case"),  # of many
    *("Settings", "Variables", "Derivative", "Reference"),  # what is asked
    *("Report", "CheckResult", "Verdict", "Finding", "Place", "Kink", "Statistic"),
    *("Cause", "Patch", "Curve", "Strength", "Planted"),
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
    names = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((name for name in names if name in LAYERS), parts[0] if parts else "")


def layer_of(unit: str) -> int:
    return LAYERS[unit]


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
    layer = layer_of(unit)
    wrong = []
    for imported in imports_of(tree):
        if imported.split(".")[0] != "gradproof" or unit_of(imported) == unit:
            continue
        target = layer_of(unit_of(imported))
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
        ("gradproof._data.records", "from gradproof._judge.decide import decide"),
        ("gradproof._checks.backward", "from gradproof._adapters import torch"),
        ("gradproof._adapters.torch", "import gradproof._checks"),
        ("gradproof._judge.entries", "from gradproof._explain import words"),
        ("gradproof._engine", "def f():\n    from gradproof._render import text"),
        ("gradproof._locate.decode", "from gradproof import check"),
        ("gradproof._measure.probes", "from gradproof import _engine"),
    ],
)
def test_an_import_that_points_up_is_seen(module, line):
    assert upward(module, ast.parse(line))


def test_only_the_engine_asks_for_explanations():
    importers = {
        name_of(file)
        for file in FILES
        if any(name.startswith("gradproof._explain") for name in imports_of(parsed(file)))
    }
    assert {name for name in importers if not name.startswith("_explain/")} == {"_engine/_run.py"}


@pytest.mark.parametrize("file", sorted((SOURCE / "_render").glob("*.py")), ids=name_of)
def test_renderers_see_records_only(file):
    allowed = {"gradproof", "rich", "jinja2", "matplotlib"} | set(sys.stdlib_module_names)
    for imported in imports_of(parsed(file)):
        assert imported.split(".")[0] in allowed
        if imported.startswith("gradproof"):
            assert unit_of(imported) == "_render" or layer_of(unit_of(imported)) == 0


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_a_framework_is_imported_only_where_it_is_known(file, framework):
    if not re.fullmatch(FRAMEWORKS[framework], name_of(file)):
        roots = {imported.split(".")[0] for imported in imports_of(parsed(file))}
        assert framework not in roots


def identifiers_of(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        for field in ("id", "attr", "arg", "name", "asname"):
            value = getattr(node, field, None)
            if isinstance(value, str):
                yield value


CORE = [file for file in FILES if layer_of(unit_of(module_of(file))) < TOP]
CORE = [file for file in CORE if unit_of(module_of(file)) != "_adapters"]


@pytest.mark.parametrize("file", CORE, ids=name_of)
def test_the_core_names_no_framework(file):
    named = [name for name in identifiers_of(parsed(file)) if re.search("(?i)torch|jax", name)]
    assert named == []


def test_a_framework_named_in_the_core_is_seen():
    assert "is_torch" in identifiers_of(ast.parse("def f(x, is_torch): ..."))
    assert "torch_like" in identifiers_of(ast.parse("x.torch_like"))


def test_the_public_names_are_these():
    assert set(gradproof.__all__) == PUBLIC
    assert len(gradproof.__all__) == len(PUBLIC)
    assert all(hasattr(gradproof, name) for name in PUBLIC)
    modules = {name for name in vars(gradproof) if f"gradproof.{name}" in sys.modules}
    # Names that start with "@" are pytest's, which rewrites the asserts of its plugins' packages.
    visible = {name for name in vars(gradproof) if not name.startswith(("_", "@"))} - modules
    assert visible == PUBLIC


# What is written for people, and how a text or a number is looked into.
WORDS = {"summary", "message", "where"}
LOOKS = {"startswith", "endswith", "split", "partition", "rpartition", "find", "index", "count"}
LOOKS |= {"removeprefix", "removesuffix", "strip", "match", "search", "fullmatch"}


def words_in(node: ast.AST) -> set[str]:
    """The words for people that an expression reads; what it calls (`xp.where`) is none."""
    called = {id(each.func) for each in ast.walk(node) if isinstance(each, ast.Call)}
    attributes = (each for each in ast.walk(node) if isinstance(each, ast.Attribute))
    return {each.attr for each in attributes if id(each) not in called} & WORDS


def reads_words(tree: ast.AST) -> list[str]:
    """Where a text for people is compared, or looked into, to decide something."""
    found = []
    for node in ast.walk(tree):
        operands: list[ast.expr] = []
        if isinstance(node, ast.Compare) and not isinstance(node.ops[0], ast.Is | ast.IsNot):
            operands = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            operands = [node.func.value] if node.func.attr in LOOKS else []
        found += [ast.unparse(node) for each in operands if words_in(each)]
    return found


BELOW_RENDERERS = [file for file in FILES if layer_of(unit_of(module_of(file))) < TOP]
BELOW_RENDERERS = [file for file in BELOW_RENDERERS if "_render" not in file.parts]


@pytest.mark.parametrize("file", BELOW_RENDERERS, ids=name_of)
def test_nothing_below_the_renderers_reads_words_to_decide(file):
    assert not reads_words(parsed(file))


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        ("if reason in result.summary: ...", True),
        ("name = finding.message.partition('(')", True),
        ("same = one.where == 'everywhere'", True),
        ("told = f'{result.summary}; not tested'", False),
        ("found = first.where is None", False),
        ("kept = xp.where(gap > bar, 0.0, gap)", False),
        ("ok = xp.where(known, gap, 0.0) <= bar", False),
    ],
)
def test_a_decision_by_words_is_seen(source, wrong):
    assert bool(reads_words(ast.parse(source))) == wrong


# Check -> file that goes by its name, and why: all else goes by the fields of its row.
BY_NAME = {
    ("layout", "_checks/extremes.py"): "the cotangent of stride 0 is handed over by another check",
    **dict.fromkeys(
        (
            (name, "_engine/_first.py")
            for name in ("backward", "forward", "layout", "undefined", "state")
        ),
        "its stages are of these checks: whether they are asked for",
    ),
}


def check_names_in(tree: ast.AST) -> set[str]:
    """Names of checks with which something is compared."""
    compared = (node for node in ast.walk(tree) if isinstance(node, ast.Compare))
    inside = (each for node in compared for each in ast.walk(node))
    values = {each.value for each in inside if isinstance(each, ast.Constant)}
    return values & set(CHECK_NAMES)


def test_nothing_below_the_renderers_goes_by_the_name_of_a_check():
    core = [file for file in BELOW_RENDERERS if "_adapters" not in file.parts]
    found = {(name, name_of(file)) for file in core for name in check_names_in(parsed(file))}
    assert found == set(BY_NAME)


def test_a_decision_by_the_name_of_a_check_is_seen():
    assert check_names_in(ast.parse("if row.name in ('layout', 'other'): ...")) == {"layout"}
    assert check_names_in(ast.parse("if claim.check != 'backward': ...")) == {"backward"}
    assert check_names_in(ast.parse("name = 'layout'")) == set()


HEAVY = {*FRAMEWORKS, "numpy", "array_api_compat", "rich"}


def loaded_by(statement: str) -> set[str]:
    """What is heavy and loaded in a fresh interpreter after a statement."""
    program = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(SOURCE.parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split()) & HEAVY


@pytest.mark.parametrize("module", ["gradproof", "gradproof.cli", "gradproof.pytest_plugin"])
def test_importing_a_face_loads_nothing_heavy(module):
    assert loaded_by(f"import {module}") == set()


def test_the_engine_loads_no_framework():
    assert loaded_by("from gradproof import *") & set(FRAMEWORKS) == set()


@pytest.mark.needs("torch")
def test_a_framework_that_is_loaded_is_seen():
    made = "import sys, types\nsys.modules['jax'] = types.ModuleType('jax')"
    assert loaded_by(made) == {"jax"}
    assert loaded_by("import gradproof.torch") & set(FRAMEWORKS) == {"torch"}
    assert "numpy" in loaded_by("import gradproof; gradproof.check")


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function, decorators and docstring not counted."""
    assert function.end_lineno is not None
    lines = function.end_lineno - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function) is not None and first.end_lineno is not None:
        lines -= first.end_lineno - first.lineno + 1
    return lines


def too_long(file: Path) -> set[str]:
    long = set()
    for node in ast.walk(parsed(file)):
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if is_function and lines_of(node) > LONGEST_FUNCTION:
            long.add(f"{name_of(file)}:{node.name}")
    return long


def test_functions_are_short_or_say_why():
    long = set().union(*map(too_long, FILES))
    assert long - set(LONG) == set(), "too long: shorten it, or give the reason in LONG"
    assert set(LONG) - long == set(), "no longer long: take it out of LONG"


def test_a_docstring_does_not_make_a_function_long():
    source = 'def f():\n    """One.\n\n    Two.\n    """\n    return 1\n'
    [function] = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef)
    assert lines_of(function) == 2


MOST_PARAMETERS = 6
_GIVEN = "a framework gives its signature"
_PUBLIC = "its options are the public ones, by keyword"
# `file:function` -> why it takes more.
MANY = {
    "_engine/__init__.py:check": _PUBLIC,
    "_survey/__init__.py:survey": _PUBLIC,
    "torch/distributed.py:check": _PUBLIC,
    "jax.py:check_grads": _GIVEN,
    "jax.py:check_jvp": _GIVEN,
    "jax.py:check_vjp": _GIVEN,
    "scipy.py:check_grad": _GIVEN,
    "torch/__init__.py:gradcheck": _GIVEN,
    "torch/__init__.py:gradgradcheck": _GIVEN,
}


def parameters_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """The names of what a function takes, itself left out."""
    given = function.args
    names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    names += [each.arg for each in (given.vararg, given.kwarg) if each is not None]
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


def test_functions_take_few_parameters_or_say_why():
    many = {
        f"{name_of(file)}:{node.name}"
        for file in FILES
        for node in ast.walk(parsed(file))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and len(parameters_of(node)) > MOST_PARAMETERS
    }
    assert many == set(MANY)


def test_every_parameter_is_counted_and_self_is_none():
    [function] = ast.parse("def f(self, a, /, b, *c, d=1, **e): ...").body
    assert isinstance(function, ast.FunctionDef)
    assert parameters_of(function) == ["a", "b", "d", "c", "e"]


def arguments_in(docstring: str) -> list[str]:
    """The arguments that a docstring tells of; an entry may be about several: "atol, rtol: ..."."""
    _, _, after = inspect.cleandoc(docstring).partition("\nArgs:\n")
    entries = re.findall(r"^ {4}([\w*][\w*, ]*):", after.partition("\n\n")[0], re.MULTILINE)
    return [name.strip(" *") for entry in entries for name in entry.split(",")]


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_a_docstring_that_tells_of_arguments_tells_of_each_once(file):
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            told = arguments_in(ast.get_docstring(node) or "")
            if told:
                assert sorted(told) == sorted(parameters_of(node)), node.name


def test_arguments_of_which_one_entry_tells_are_read_apart():
    told = arguments_in("Do.\n\nArgs:\n    a: one.\n        More: of it.\n    b, *c: two.\n\nMore.")
    assert told == ["a", "b", "c"]


# `file:object.attribute` -> why an adapter writes an attribute of another object than its own.
WRITTEN = {
    "_adapters/torch/graph.py:ctx.tell": "how PyTorch hands something to a backward",
    "_adapters/torch/lockstep.py:dist.Work.wait": "with a limit meanwhile, and put back",
    "_adapters/torch/placed.py:one.grad": "of the user's parameters, trained for a step; put back",
    "_adapters/torch/watch.py:FunctionCtx.mark_non_differentiable": "listened to, and put back",
}


def written_elsewhere(tree: ast.AST) -> Iterator[str]:
    """Attributes of other objects than `self` that are assigned to; names of functions left out."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            written = ast.unparse(node)
            if not written.startswith("self.") and not node.attr.startswith("__"):
                yield written


def test_adapters_write_attributes_of_their_own_only():
    files = [file for file in FILES if unit_of(module_of(file)) == "_adapters"]
    found = {f"{name_of(file)}:{w}" for file in files for w in written_elsewhere(parsed(file))}
    assert found == set(WRITTEN)


def test_an_attribute_of_another_object_that_is_written_is_seen():
    assert [*written_elsewhere(ast.parse("self.a, other.b = 1, 2"))] == ["other.b"]
    assert [*written_elsewhere(ast.parse("made.counts += 1"))] == ["made.counts"]
    assert [*written_elsewhere(ast.parse("fn.__name__ = self.name = found"))] == []


MOST_FILES = 16  # of Python in one folder


def test_folders_are_small():
    folders: dict[str, int] = {}
    for file in FILES:
        folder = file.parent.relative_to(SOURCE).as_posix()
        folders[folder] = folders.get(folder, 0) + 1
    assert {folder: count for folder, count in folders.items() if count > MOST_FILES} == {}


EVALUATOR = "gradproof._measure.evaluate"
ABOVE_MAPS = [file for file in FILES if unit_of(module_of(file)) not in MAPS]


def asks_for_values(tree: ast.AST) -> list[str]:
    """Where the `value` of a map is called, or handed on to be called.

    Any attribute `value` that is called counts, but for that of an imported module; one that is
    not, where the name in front of it is annotated as a map.
    """
    nodes = list(ast.walk(tree))
    calls = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    modules = {
        alias.asname or alias.name
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    maps = {
        node.arg if isinstance(node, ast.arg) else ast.unparse(node.target)
        for node in nodes
        if isinstance(node, ast.arg | ast.AnnAssign)
        and node.annotation is not None
        and ast.unparse(node.annotation) == "DifferentiableMap"
    }
    maps |= {f"self.{name}" for name in maps}
    asked = []
    for node in nodes:
        if isinstance(node, ast.Attribute) and node.attr == "value":
            base = ast.unparse(node.value)
            if (id(node) in calls and base not in modules) or base in maps:
                asked.append(f"{base}.value in line {node.lineno}")
    return asked


@pytest.mark.parametrize("file", ABOVE_MAPS, ids=name_of)
def test_values_of_a_map_are_asked_for_in_one_module(file):
    asked = asks_for_values(parsed(file))
    assert bool(asked) is (module_of(file) == EVALUATOR), asked


@pytest.mark.parametrize(
    "line",
    [
        "map_.value(x)",
        "self.map.value(x)",
        "def f(other: DifferentiableMap):\n    return Ladder(other.value, x)",
        "class A:\n    m: DifferentiableMap\n    def f(self):\n        return g(self.m.value)",
    ],
)
def test_a_value_asked_for_elsewhere_is_seen(line):
    assert asks_for_values(ast.parse(line))


@pytest.mark.parametrize(
    "line",
    [
        "found.value + 1",
        "from gradproof._cases import arrays\narrays.value(text)",
        "def f(found: Estimate):\n    return found.value",
    ],
)
def test_another_value_is_none_of_a_map(line):
    assert asks_for_values(ast.parse(line)) == []


MOVES = {"value_beside": 2, "values_beside": 2, "nearby": 3}  # function -> place of its step
STEPS = "gradproof._measure.steps"


def own_steps(tree: ast.AST) -> list[str]:
    """Ladders planned, and moves of F by a number that is written where they are made."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func).split(".")[-1]
        if name == "Plan":
            found.append(ast.unparse(node))
        elif name in MOVES and len(node.args) > MOVES[name]:
            step = node.args[MOVES[name]]
            parts = [part for part in ast.walk(step) if isinstance(part, ast.Constant)]
            if any(isinstance(part.value, float) for part in parts):
                found.append(ast.unparse(node))
    return found


@pytest.mark.parametrize("file", ABOVE_MAPS, ids=name_of)
def test_steps_are_chosen_in_one_table(file):
    assert bool(own_steps(parsed(file))) is (module_of(file) == STEPS)


@pytest.mark.parametrize(
    "line", ["Plan(top=0.5)", "values_beside(map_, u, 2.0**-20)", "probes.nearby(map_, 0, 1, 0.5)"]
)
def test_a_step_of_its_own_is_seen(line):
    assert own_steps(ast.parse(line))


def at_run_time(module: str) -> set[str]:
    """What a module imports when it is loaded: not in functions, nor for types only."""
    [file] = [file for file in FILES if module_of(file) == module]
    tree = parsed(file)
    loaded = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    return set(imports_of(ast.Module(loaded, [])))


def test_no_module_imports_itself_in_a_circle():
    depths: dict[str, int] = {}

    def depth(module: str, above: tuple[str, ...]) -> int:
        assert module not in above, " -> ".join((*above, module))
        if module not in depths:
            targets = {name for name in at_run_time(module) if name in MODULES} - {module}
            depths[module] = 1 + max((depth(name, (*above, module)) for name in targets), default=0)
        return depths[module]

    for module in sorted(MODULES):
        depth(module, ())


# What is allowed is computed in one module. File -> why it has allowances of its own.
ALLOWING = "_judge/decide.py"
ALLOWANCES = {
    "_measure/statistics.py": "a statistic has no entry: it is held against that of honest runs",
    "_verdict/low_precision.py": "likewise, with room for another algorithm in forward mode",
}
# Words, causes and pictures are made of what was decided; an adapter decides nothing.
TOLD = ("_explain/", "_render/", "_adapters/")


def allowances(tree: ast.AST) -> list[str]:
    """Sums and products with what is allowed, sums that are called so, and comparisons by it."""

    def is_allowed(node: ast.AST) -> bool:
        return getattr(node, "id", getattr(node, "attr", "")) in ("allowed", "further")

    found = []
    for node in ast.walk(tree):
        parts: list[ast.AST] = []
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub | ast.Mult):
            parts = [node.left, node.right]
        elif isinstance(node, ast.AugAssign):
            parts = [node.target]
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp):
            parts = node.targets
        elif isinstance(node, ast.Call):
            parts = [ast.Name("allowed")] if ast.unparse(node.func).endswith("within") else []
        if any(is_allowed(part) for part in parts):
            found.append(ast.unparse(node))
    return found


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_what_is_allowed_is_computed_in_one_module(file):
    name = name_of(file)
    if name == ALLOWING or name in ALLOWANCES or name.startswith(TOLD):
        return
    assert allowances(parsed(file)) == []


@pytest.mark.parametrize("name", [ALLOWING, *ALLOWANCES])
def test_what_is_allowed_is_computed_there(name):
    assert allowances(parsed(SOURCE / name))


@pytest.mark.parametrize(
    "line",
    [
        "allowed = atol + rtol * size",
        "allowed += 4 * bar",
        "wrong = gap > 2 * found.allowed",
        "ok = within(gap, bar)",
        "ok = decide._within(gap, bar)",
    ],
)
def test_an_allowance_is_seen(line):
    assert allowances(ast.parse(line))
    assert not allowances(ast.parse("part = found.allowed / size; told = found.allowed"))
