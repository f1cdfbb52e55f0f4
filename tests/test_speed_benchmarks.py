"""What the benchmarks of speed write, count and record, and what the page says of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest", reason="PyTorch's operator database needs it")

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

import speed  # noqa: E402


def test_each_tool_of_the_benchmark_in_pytest_is_asked_in_a_test_of_its_own(monkeypatch):
    written = []

    def run(command, **_):
        written.append(Path(command[-1]).read_text())

    monkeypatch.setattr(speed.subprocess, "run", run)
    spent = speed.in_pytest(7)
    assert list(spent) == list(speed.SAID)
    for text, (name, said) in zip(written, speed.SAID.items(), strict=True):
        compile(text, name, "exec")
        assert said in text
        assert "range(7)" in text
        assert ("def test_derivative(k, check_derivatives)" in text) == (
            name == "check_derivatives"
        )


def test_the_ratios_in_pytest_are_those_of_whole_processes(capsys):
    spent = {"alone": 4.0, "fast": 5.0, "gradcheck": 7.5, "check_derivatives": 10.0}
    told = speed.print_in_pytest(7, spent, markdown=True)
    assert told == {
        "gradcheck / fast, whole process": 1.5,
        "check_derivatives / fast, whole process": 2.0,
    }
    assert set(told) == set(speed.PYTEST_BARS)
    assert "7 tests" in capsys.readouterr().out


def test_the_page_says_what_was_recorded_in_pytest():
    record = json.loads((ROOT / "benchmarks" / "results" / "speed-pytest.json").read_text())
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    shown = {"alone": "the function alone", "fast": "PyTorch fast", "slow": "PyTorch slow",
             "gradcheck": "`gradproof.torch.gradcheck`",
             "check_derivatives": "the fixture `check_derivatives`"}  # fmt: skip
    for name, words in shown.items():
        seconds = record["seconds"][name]
        assert f"| {words} | {seconds:.3g} | {seconds / record['seconds']['fast']:.3g} |" in page


def test_the_page_says_what_was_recorded_in_passes():
    record = json.loads((ROOT / "benchmarks" / "results" / "speed-passes.json").read_text())
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    for name, row in record["rows"].items():
        assert f"| {name} | {row['milliseconds of a pass']:.3g} | {row['passes']:.3g} |" in page


def test_a_check_in_passes_is_timed_and_one_that_fails_is_told(monkeypatch, capsys):
    def small(activation):
        return torch.nn.Linear(2, 2), (torch.randn(3, 2),)

    monkeypatch.setattr(speed, "encoder", small)
    found = speed.in_passes()
    assert all(row["passes"] > 0 for row in found.values())
    speed.print_in_passes(found, markdown=True)
    assert "100 tensors" in capsys.readouterr().out

    def wrong(activation):
        return lambda x: x * x.detach(), (torch.randn(3, requires_grad=True),)

    monkeypatch.setattr(speed, "encoder", wrong)
    with pytest.raises(SystemExit, match="was not accepted: failed"):
        speed.in_passes()


def test_a_check_that_fails_is_timed_and_counted_and_one_that_passes_is_told(monkeypatch, capsys):
    found = speed.refuted(5, "one row", 1)
    assert found.forwards["slow"] == 11  # the point, and both sides of every input
    assert found.backwards["slow"] == 10  # every row, and once more
    assert min(*found.calls.values(), *found.milliseconds.values(), found.ratio) > 0
    speed.print_failing([found], markdown=True)
    assert "one row" in capsys.readouterr().out
    monkeypatch.setitem(speed.FAILING, "nothing", lambda n: slice(0))
    with pytest.raises(SystemExit, match="accepted nothing wrong of 5"):
        speed.refuted(5, "nothing", 1)


def test_the_page_says_what_was_recorded_of_checks_that_fail():
    record = json.loads((ROOT / "benchmarks" / "results" / "speed-failing.json").read_text())
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    for row in record["rows"]:
        ours, slow = row["milliseconds"]["gradcheck"], row["milliseconds"]["slow"]
        counts = (row[each] for each in ("forwards", "backwards", "calls"))
        told = " | ".join(f"{each['gradcheck']:,} / {each['slow']:,}" for each in counts)
        assert f"| {row['inputs']:,} | {row['wrong']} | {told} | {ours / slow:.2g} |" in page


def test_the_page_says_what_was_recorded_of_first_calls():
    record = json.loads((ROOT / "benchmarks" / "results" / "speed-first.json").read_text())
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert set(record["milliseconds"]) == set(speed.FIRST)
    for name, milliseconds in record["milliseconds"].items():
        assert f"| {name} | {milliseconds:.3g} |" in page


def test_a_first_call_is_timed_in_a_process_of_its_own(monkeypatch, capsys):
    name = "gradproof.check of a wrong Function"
    monkeypatch.setattr(speed, "FIRST", {name: f"assert not {speed.FIRST[name]}"})
    found = speed.first_calls(1)
    assert found[name] > 0
    speed.print_first_calls(found, markdown=True)
    assert name in capsys.readouterr().out


def test_the_page_says_what_was_recorded_of_jax():
    record = json.loads((ROOT / "benchmarks" / "results" / "jax_speed.json").read_text())
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert record["rows"]
    for row in record["rows"]:
        ours, theirs = row["warm"]
        said = f"{1e3 * ours:.3g} | {1e3 * theirs:.3g} | {ours / theirs:.3g} |"
        assert f"| {row['case']} | {row['dtype']} | {said}" in page
        assert row["compiled_again"] == 0


@pytest.mark.slow
def test_the_benchmark_of_jax_tells_times_calls_and_compilations(tmp_path):
    pytest.importorskip("jax")
    file = tmp_path / "record.json"
    script = ROOT / "benchmarks" / "jax_speed.py"
    command = [sys.executable, str(script), "--quick", "--repeats", "1", "--json", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "ratio of calls" in done.stdout, done.stdout + done.stderr
    rows = json.loads(file.read_text())["rows"]
    assert [row["dtype"] for row in rows] == ["float64", "float32"]
    assert all(row["calls"][0] > row["calls"][1] > 100 for row in rows)
    assert all(row["compiled_again"] == 0 for row in rows)
