"""What passed and did not change is taken from the cache, and says so; anything else is run."""

from __future__ import annotations

import inspect
import json as plain
import math
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import gradproof
from gradproof import Verdict, cli
from gradproof._render import json
from gradproof._survey import cache, pieces
from gradproof.errors import UsageError

OPS = """
import numpy as np
from gradproof import case
from slopes import factor

def sine_vjp(x, v):
    import late_slopes
    return factor * late_slopes.factor * v * np.cos(x)

@case(inputs="float64[3]", vjp=sine_vjp)
def sine(x):
    return np.sin(x)

@case(inputs=lambda: "float64[3]", vjp=lambda x, v: 3.0 * v * x)
def wrong(x):
    return x * x
"""
RIGHT, WRONG = "ops.py::sine", "ops.py::wrong"


@pytest.fixture
def checked(tmp_path, monkeypatch):
    """The names of the functions that were checked, in a folder with cases; no file is too new."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(cache, "_BEGUN", math.inf)
    (tmp_path / "ops.py").write_text(OPS)
    (tmp_path / "slopes.py").write_text("factor = 1.0\n")
    (tmp_path / "late_slopes.py").write_text("factor = 1.0\n")
    names = []
    real = pieces.check

    def check(function, *args, **options):
        names.append(function.__name__)
        return real(function, *args, **options)

    check.__signature__ = inspect.signature(real)
    monkeypatch.setattr(pieces, "check", check)
    yield names
    _forget()


def _forget():
    """As a new process would begin."""
    pieces._imported.cache_clear()
    cache._around.cache_clear()
    for name in ("slopes", "late_slopes", "_gradproof_target_ops"):
        sys.modules.pop(name, None)


def _ran(checked, place=RIGHT, **options):
    """A survey in what is as good as a new process, and whether anything was checked."""
    _forget()
    checked.clear()
    found = gradproof.survey([place], cache="kept", **options)
    return found, bool(checked)


def test_what_passed_is_taken_and_says_so_in_the_table_json_and_summary(checked, capsys):
    first, ran = _ran(checked, seed=123)
    assert ran
    assert first
    assert "cache" not in str(first)
    second, ran = _ran(checked)
    assert second
    assert not ran
    [report] = second.reports.values()
    assert report.seed == 123
    [note] = [note for note in report.notes if "cache" in note]
    assert note.startswith("taken from the cache: passed on 20")
    assert "seed 123" in note
    assert note in json.dump(report)
    assert "1 taken from the cache" in str(second).splitlines()[-1]
    assert "taken from the cache" in str(report)
    _forget()
    assert cli.main(["run", RIGHT, "--cache", "kept", "--json", "all.json"]) == 0
    assert "1 taken from the cache" in capsys.readouterr().out
    assert note in dict(json.load_many(Path("all.json").read_text()))[RIGHT].notes


def test_a_failure_is_never_taken(checked):
    for _ in range(2):
        found, ran = _ran(checked, WRONG)
        assert ran
        assert [each.verdict for each in found.reports.values()] == [Verdict.FAILED]
    assert not list(os.scandir("kept"))


@pytest.mark.parametrize("file", ["ops.py", "slopes.py", "late_slopes.py"])
def test_a_change_of_the_function_or_of_what_it_imports_even_late_is_seen(checked, file):
    assert _ran(checked)[0]
    text = Path(file).read_text()
    Path(file).write_text(
        text.replace("factor = 1.0", "factor = 2.00").replace("np.sin(x)", "np.sin(x) * 2")
    )
    found, ran = _ran(checked)
    assert ran
    assert [each.verdict for each in found.reports.values()] == [Verdict.FAILED]


def test_a_change_outside_of_the_folder_is_seen(checked, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    sys.path.insert(0, str(elsewhere))
    os.rename("late_slopes.py", elsewhere / "late_slopes.py")
    assert _ran(checked)[0]
    assert not _ran(checked)[1]
    (elsewhere / "late_slopes.py").write_text("factor = 1.50\n")
    found, ran = _ran(checked)
    assert ran
    assert not found


def test_a_new_file_beside_it_is_seen(checked):
    assert _ran(checked)[0]
    Path("numpy_stub.py").touch()
    assert _ran(checked)[1]


def test_other_options_limits_and_seeds_are_run(checked):
    assert _ran(checked, seed=1)[1]
    assert _ran(checked, seed=2)[1]
    assert not _ran(checked, seed=2)[1]
    assert not _ran(checked)[1]
    assert _ran(checked, budget=1000)[1]
    assert _ran(checked, total_seconds=1000)[1]


def test_another_version_of_anything_installed_is_run(checked, monkeypatch):
    assert _ran(checked)[1]
    assert not _ran(checked)[1]
    real = list(metadata.distributions())
    monkeypatch.setattr(metadata, "distributions", lambda: real[1:])
    assert _ran(checked)[1]


def test_a_variable_that_chooses_a_device_or_a_compiler_is_seen(checked, monkeypatch):
    assert _ran(checked)[1]
    monkeypatch.setenv("TRITON_SOMETHING", "1")
    assert _ran(checked)[1]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"files": {}}'])
def test_a_record_that_cannot_be_read_is_ignored_and_written_anew(checked, text):
    assert _ran(checked)[1]
    [record] = os.scandir("kept")
    Path(record.path).write_text(text)
    assert _ran(checked)[1]
    assert not _ran(checked)[1]


def test_a_record_of_a_failure_is_not_believed(checked):
    assert _ran(checked)[1]
    [record] = os.scandir("kept")
    document = plain.loads(Path(record.path).read_text())
    document["report"]["checks"][0]["verdict"] = "failed"
    document["report"]["verdict"] = "failed"
    Path(record.path).write_text(plain.dumps(document))
    found, ran = _ran(checked)
    assert ran
    assert found


def test_a_file_that_changed_after_the_process_began_is_not_kept(checked, monkeypatch):
    monkeypatch.setattr(cache, "_BEGUN", os.stat("slopes.py").st_ctime_ns)
    assert _ran(checked)[0]
    assert not list(os.scandir("kept"))


def test_values_count_in_full_and_what_is_in_no_file_has_no_place():
    def told(value):
        return cache.Cache("/nowhere", None).entry(__file__, (value,))

    def made(power):
        return lambda x: x**power

    exec(compile("def built(x): return x", "<notebook>", "exec"), space := {})
    assert told(made(2)) == told(made(2)) != told(made(3))
    long = list(range(10_000))
    assert told(long) == told(list(long)) != told([*long[:5000], -1, *long[5001:]])
    assert told(space["built"]) is None
    assert told(each for each in ()) is None


def test_another_process_takes_it_too(checked):
    """Two runs as a user starts them, in two processes each."""
    command = [sys.executable, "-c", "import sys; from gradproof import cli; sys.exit(cli.main())"]
    command += ["run", "ops.py::sine", "--cache", "kept", "-j", "2"]
    first, second = (
        subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(2)
    )
    assert "cache" not in first.stdout
    assert "1 taken from the cache" in second.stdout


def test_a_folder_that_cannot_be_written_is_refused(checked):
    Path("file").touch()
    with pytest.raises(UsageError, match="cache: cannot write"):
        gradproof.survey([RIGHT], cache="file")
