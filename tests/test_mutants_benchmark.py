"""The benchmark of mutants of our own code: what it changes, and that tests are asked about it."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

pytest.importorskip("torch")  # which the machine's line and most tests need

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import mutants_of_ours as ours  # noqa: E402

SOURCE = b'''"""A module."""

MOST = 3


def near(a: float | int, b):
    """Whether they are near: 5 < 7."""
    if not a <= b and a != 2.5:
        a -= 1
        print(a)
    return a * b
'''


def changes():
    return {(m.function, m.kind, m.before, m.after) for m in ours.mutants("f.py", SOURCE)}


@pytest.mark.parametrize(
    "change",
    [
        ("", "constant", "3", "6"),
        ("near", "comparison", "a <= b", "a < b"),
        ("near", "comparison", "a <= b", "a >= b"),
        ("near", "comparison", "a != 2.5", "a == 2.5"),
        ("near", "constant", "2.5", "5.0"),
        ("near", "operator", "not a <= b", "(a <= b)"),
        ("near", "operator", "not a <= b and a != 2.5", "not a <= b or a != 2.5"),
        ("near", "operator", "a -= 1", "a += 1"),
        ("near", "statement", "a -= 1", "pass"),
        ("near", "statement", "print(a)", "pass"),
        ("near", "operator", "a * b", "a / b"),
    ],
)
def test_one_thing_is_changed(change):
    assert change in changes()


def test_every_mutant_is_another_program_and_annotations_and_texts_stay():
    plain = ast.dump(ast.parse(SOURCE))
    found = list(ours.mutants("f.py", SOURCE))
    assert all(ast.dump(ast.parse(one.applied(SOURCE))) != plain for one in found)
    assert len({one.applied(SOURCE) for one in found}) == len(found)
    assert not any("5 < 7" in one.before or "float" in one.before for one in found)


def test_the_judging_layers_have_thousands_that_are_programs():
    sources = ours.sources()
    assert {file.partition("/")[0] for file in sources} == set(ours.LAYERS)
    every = [one for file, source in sources.items() for one in ours.mutants(file, source)]
    assert len(every) > 1000
    for one in every[::97]:
        ast.parse(one.applied(sources[one.file]))


def test_a_note_is_made_of_every_function_that_is_reached():
    noted = ours.noting("f.py", SOURCE)
    assert "reached_by_tests.add('f.py:near')" in noted


def test_the_tests_of_a_mutant_are_those_that_reach_its_function_one_of_each_kind_first():
    reached = {
        "slow": {"seconds": 2.0, "functions": ["f.py:near"]},
        "quick[1]": {"seconds": 0.1, "functions": ["f.py:near", "g.py:far"]},
        "quick[2]": {"seconds": 0.2, "functions": ["f.py:near"]},
        "other": {"seconds": 0.0, "functions": ["g.py:far", "f.py:further"]},
    }
    inside, top = (SimpleNamespace(file="f.py", function=name) for name in ("near", ""))
    assert ours.reaching(inside, reached) == ["quick[1]", "slow", "quick[2]"]
    assert ours.reaching(top, reached) == ["other", "quick[1]", "slow", "quick[2]"]


MODULE = """
import dataclasses

MOST = 3
TABLE = {near: 1}


def outer(a, most=2):
    def inner():
        return a * most

    return inner() + MOST


class Plan:
    STEP = 4

    @property
    def step(self):
        return self.STEP * 2

    @staticmethod
    def twice(a):
        return 2 * a
""".replace("{near: 1}", "{'near': print}")


@pytest.mark.parametrize(
    ("before", "after", "now"),
    [
        ("MOST = 3", "MOST = 6", [10, 8, 4]),
        ("most=2", "most=4", [11, 8, 4]),
        ("a * most", "a / most", [4, 8, 4]),
        ("STEP = 4", "STEP = 8", [7, 16, 4]),
        ("self.STEP * 2", "self.STEP / 2", [7, 2, 4]),
        ("2 * a", "4 * a", [7, 8, 8]),
        ("import dataclasses", "import dataclasses, ast", None),
    ],
)
def test_a_loaded_module_does_what_its_changed_source_says(monkeypatch, before, after, now):
    module = ModuleType("gradproof._trial")
    module.__file__ = "_trial.py"
    monkeypatch.setitem(sys.modules, "gradproof._trial", module)
    exec(MODULE, module.__dict__)
    outer, plan = module.outer, module.Plan()
    assert ours.changed("_trial.py", MODULE.replace(before, after)) is (now is not None)
    assert [outer(2), plan.step, module.Plan.twice(2)] == (now or [7, 8, 4])


@pytest.mark.slow
def test_it_tells_a_killed_one_from_a_survivor(tmp_path):
    where, record = tmp_path / "map.json", tmp_path / "mutants.json"
    tests = ["tests/checks/test_judging_rules.py"]
    chosen = ["--map", str(where), "--json", str(record), "--seconds", "60", "--tests", *tests]
    sources = ours.sources()
    (one,) = (
        m
        for m in ours.mutants("_judge/entries.py", sources["_judge/entries.py"])
        if (m.before, m.after) == ("map_.given != map_.point", "map_.given == map_.point")
    )
    # In a process of its own: it forks, which threads that other tests started do not stand.
    command = [sys.executable, ours.__file__, *chosen, "--at", f"{one.file}:{one.line}"]
    assert subprocess.run(command, check=False).returncode == 0
    found = json.loads(record.read_text())["mutants"]
    states = {(each["before"], each["after"]): each["state"] for each in found}
    assert states[one.before, one.after] == "killed"
    assert "test_a_row_is_without_bounds" in found[0]["by"]
