"""The benchmark of mutants of our own code: what it changes, and that tests are asked about it."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

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


BRANCHES = b'''"""A module."""

_MOST = 3
_MORE = _MOST + 1


class Plan:
    """Steps."""

    top: float = 2.0

    def steps(self):
        """All of them."""
        if self.top > _MORE:
            return []
        found = [self.top]
        for step in found:
            print(step)
        else:
            print("none")
        return found


def far(a, most=2):
    return Plan(a).steps()[:most]
'''


def test_a_note_is_made_wherever_statements_without_a_branch_begin():
    noted = ours.noting("f.py", BRANCHES)
    for number in range(6):
        assert noted.count(f"reached_by_tests('f.py:Plan.steps#{number}')") == 1
    assert "reached_by_tests('f.py:far#0')" in noted
    assert noted.count("reached_by_tests(") == 7
    assert (
        '"""All of them."""'
        in noted.splitlines()[noted.splitlines().index("    def steps(self):") + 1]
    )


@pytest.mark.parametrize(
    ("before", "statements"),
    [
        ("self.top > _MORE", ["steps#0"]),
        ("print(step)", ["steps#4"]),
        ("print('none')", ["steps#5"]),
        ("3", ["steps#0"]),  # by way of _MORE
        ("_MOST + 1", ["steps#0"]),
        ("2.0", ["far#0"]),  # of a class: where it is made
        ("2", ["far#0"]),  # a default
    ],
)
def test_a_mutant_may_change_its_own_statements_or_those_that_name_what_it_changes(
    before, statements
):
    (one, *_) = [m for m in ours.mutants("f.py", BRANCHES) if m.before.replace('"', "'") == before]
    found = ours.around(one, {"f.py": BRANCHES, "g.py": b"def near():\n    return 1\n"})
    assert {name.rpartition(".")[2].removeprefix("py:") for name in found} == set(statements)


def test_the_tests_of_a_mutant_are_short_and_reach_it_and_little_else_one_of_each_kind_first():
    names = ["near#0", "far#0", "further#0"]
    reached = {
        "whole": {"seconds": 0.2, "reached": [0, 1, 2]},
        "long": {"seconds": 2.0, "reached": [0]},
        "near[1]": {"seconds": 0.1, "reached": [0]},
        "near[2]": {"seconds": 0.2, "reached": [0]},
        "near[3]": {"seconds": 0.2, "reached": [0]},
        "near[4]": {"seconds": 0.2, "reached": [0]},
        "other": {"seconds": 0.0, "reached": [1, 2]},
    }
    known = {"statements": names, "tests": reached}
    near = ["near[1]", "near[2]", "near[3]", "whole", "near[4]", "long"]
    assert ours.reaching({"near#0"}, known, {}) == near
    assert ours.reaching({"further#0"}, known, {}) == ["other", "whole"]
    assert ours.reaching({"near#0"}, known, {"whole": 1, "other": 9})[:2] == ["whole", "near[1]"]


MODULE = """
import dataclasses

MOST = 3
TABLE = {near: 1}


def outer(a, most=2):
    def inner():
        return a * most

    return inner() + MOST * (TABLES[1].top / 2)


@dataclasses.dataclass
class Table:
    top: float = 1.0


TABLES = (Table(), Table(top=2.0))


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
        ("top=2.0", "top=4.0", [10, 8, 4]),
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


FORKING = """
import time
import mutants_of_ours as ours

def busy(seconds):
    while time.process_time() < seconds:
        pass
    return "done"

print(ours._forked(lambda: time.sleep(1.5) or "slept", limit=1.0))
print(ours._forked(busy, 0.5, limit=60.0), ours._forked(busy, 600.0, limit=1.0))
"""


def test_only_time_of_the_processor_ends_a_process():
    command = [sys.executable, "-c", FORKING]
    found = subprocess.run(command, check=True, cwd=BENCHMARKS, capture_output=True, text=True)
    assert found.stdout.split() == ["slept", "done", "None"]
