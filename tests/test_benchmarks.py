"""The benchmark scripts: they run, and the mistakes they plant are mistakes."""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest", reason="PyTorch's operator database needs it")

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import _cases  # noqa: E402
import _common  # noqa: E402
import _mistakes  # noqa: E402
import _opdb  # noqa: E402
import _operators_low  # noqa: E402
import _planted_low  # noqa: E402
import _planting  # noqa: E402
import operators  # noqa: E402
import planted  # noqa: E402
import scale  # noqa: E402
from _inaccuracy import inaccuracy  # noqa: E402


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """As the scripts do; on a busy machine threads that wait for each other cost a hundredfold."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCHMARKS / script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


# The scripts -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_operators_prints_a_table_and_records_it(tmp_path: Path) -> None:
    record = tmp_path / "operators.json"
    done = run("operators.py", "--quick", "--ops", "sub|mul", "--json", str(record))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PyTorch slow" in done.stdout
    content = json.loads(record.read_text())
    assert content["cases"] == 2 * 2 * 2 * 2  # operators, dtypes, orders, samples
    assert content["differences"] == 0
    assert content["machine"]["torch"] == torch.__version__


@pytest.mark.slow
def test_operators_uses_several_processes_with_the_same_result(tmp_path: Path) -> None:
    found = []
    for jobs in ("1", "2"):
        record = tmp_path / f"{jobs}.json"
        done = run("operators.py", "--ops", "sub|mul", "--limit-samples", "1", "--order", "1",
                   "--jobs", jobs, "--json", str(record))  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        found.append(json.loads(record.read_text()))
    one, two = ({name: counts["ours"] for name, counts in each["counts"].items()} for each in found)
    assert one == two == {f"{dtype}, order 1": {"pass": 2} for dtype in ("float64", "complex128")}


def test_jobs_are_in_order_and_one_that_dies_is_told(monkeypatch) -> None:
    ends = [("b", 2), ("a", RuntimeError("it died")), ("c", 3)]
    monkeypatch.setattr(_common, "spread", lambda function, jobs, options: iter(ends))
    instead = lambda job, how: f"{job}: {how}"  # noqa: E731
    assert _common.in_order(int, ["a", "b", "c"], None, instead) == ["a: it died", 2, 3]
    with pytest.raises(RuntimeError, match="a: it died"):
        _common.in_order(int, ["a", "b", "c"], None, _common.refused)


@pytest.mark.slow
def test_a_job_that_ends_its_process_is_told_and_the_others_are_done() -> None:
    jobs = ["1 + 1", "2 + 2", "__import__('os')._exit(1)", "4 + 4", "5 + 5"]
    found = dict(_common.spread(eval, jobs, argparse.Namespace(jobs=2)))
    assert isinstance(found.pop(jobs[2]), BrokenExecutor)
    assert found == {"1 + 1": 2, "2 + 2": 4, "4 + 4": 8, "5 + 5": 10}


@pytest.mark.slow
def test_planted_prints_tables_and_finds_everything_at_the_bar(tmp_path: Path) -> None:
    record = tmp_path / "planted.json"
    done = run("planted.py", "--quick", "--case", "mul float64", "--delta", "1e-3",
               "--markdown", "--json", str(record))  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| one entry scaled |" in done.stdout
    assert json.loads(record.read_text())["bar_met"]


@pytest.mark.slow
def test_operators_alone_are_held_against_a_record(tmp_path: Path) -> None:
    plan = ["operators.py", "--ops", "sub", "--dtype", "float64", "--order", "1", "--quick"]
    said = {"ours": "fail", "slow": "fail", "fast": "pass", "samples": "1"}
    case = {"op": "sub", "dtype": "float64", "order": 1}
    record, passed_by_all = tmp_path / "before.json", tmp_path / "all.json"
    record.write_text(json.dumps({"not_passed": [case | said]}))
    passed_by_all.write_text(json.dumps({"not_passed": []}))
    changed = run(*plan, "--against", str(record)).stdout
    assert "- sub float64 order 1, samples 1: ours fail before, pass now; slow fail" in changed
    assert "Ours differs from the record in 1 cases." in changed
    assert "in 0 cases" in run(*plan, "--against", str(passed_by_all)).stdout


def test_what_ours_fails_anew_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    found = {"ours": _cases.Outcome("fail", "", 0.0)}
    case = _cases.Case("sub", 4, "float64", 1, found)
    assert operators.recorded({"not_passed": [
        {"op": "sub", "dtype": "float64", "order": 1, "ours": "error", "samples": "2-4, 7"},
    ]}) == {("sub", "float64", 1, k): {"ours": "error"} for k in (2, 3, 4, 7)}  # fmt: skip
    assert operators.print_changes([case], {})
    known = {("sub", "float64", 1, 4): {"ours": "pass", "slow": "fail"}}
    assert not operators.print_changes([case], known)
    assert "ours pass before, fail now; slow fail" in capsys.readouterr().out


def test_operators_in_low_precision_prints_shares_beside_pytorchs(tmp_path: Path) -> None:
    record = tmp_path / "operators.json"
    done = run("operators.py", "--dtype", "float32,bfloat16", "--ops", "mul|sub",
               "--limit-samples", "1", "--markdown", "--json", str(record))  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PyTorch slow passed" in done.stdout
    content = json.loads(record.read_text())
    assert content["cases"] == 2 * 2  # operators, dtypes
    assert content["counts"]["bfloat16"]["check"] == {"passed": 2}
    assert content["bars_missed"] == []


@pytest.mark.slow
@pytest.mark.parametrize("where", ["low", "both"])
def test_planted_in_low_precision_finds_what_is_wrong_there(where: str, tmp_path: Path) -> None:
    record = tmp_path / "planted.json"
    done = run("planted.py", "--dtype", "float32", "--where", where, "--case", "matmul float32",
               "--samples", "1", "--json", str(record))  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    content = json.loads(record.read_text())
    assert content["bars_missed"] == []
    verdicts = {verdict for kind in content["counts"]["float32"].values() for verdict in kind}
    assert verdicts - {"vacuous"} == {"failed", "passed"}
    assert content["right_not_passed"] == []


@pytest.mark.slow
def test_scale_prints_a_table(tmp_path: Path) -> None:
    record = tmp_path / "scale.json"
    done = run("scale.py", "--functions", "tanh", "--sizes", "100", "--repetitions", "1",
               "--json", str(record))  # fmt: skip
    assert "time / fast" in done.stdout, done.stdout + done.stderr
    (row,) = json.loads(record.read_text())["rows"]
    assert row["calls"]["ours"]["calls"] > 0
    assert not row["errors"]


def test_an_unknown_operator_is_a_usage_error() -> None:
    assert operators.main(["--ops", "no_such_operator"]) == 2


def test_an_unknown_case_is_a_usage_error() -> None:
    assert planted.main(["--case", "no_such_operator float64"]) == 2


@pytest.mark.parametrize("dtypes", ["float8", "float32,float64", "float64,float32"])
def test_dtypes_of_two_kinds_are_a_usage_error(dtypes: str) -> None:
    with pytest.raises(SystemExit):
        operators.main(["--dtype", dtypes])


# The planted mistakes ----------------------------------------------------------------------------


# Square inputs, equal shapes, broadcasting, complex numbers: every kind of mistake fits somewhere.
SHAPES = [
    (torch.matmul, torch.float64, [(3, 3), (3, 2)]),
    (torch.mul, torch.float64, [(2, 3), (3,)]),
    (torch.mul, torch.complex128, [(2, 2), (2, 2)]),
    (torch.atan2, torch.float64, [(2, 3), (2, 3)]),
]


def place(function, dtype, shapes) -> tuple[_opdb.Sample, _mistakes.Site]:
    generator = torch.Generator().manual_seed(0)
    drawn = (torch.randn(*n, dtype=dtype, generator=generator) for n in shapes)
    inputs = tuple(x.requires_grad_() for x in drawn)
    sample = _opdb.Sample(function.__name__, 0, function, inputs, 0.0)
    return sample, planted.site_of(sample, seed=0)


@pytest.fixture(scope="module")
def places() -> list[tuple[_opdb.Sample, _mistakes.Site]]:
    return [place(*arguments) for arguments in SHAPES]


@pytest.mark.parametrize("mistake", _mistakes.mistakes(), ids=lambda mistake: mistake.name)
def test_every_mistake_changes_a_gradient_somewhere(mistake, places) -> None:
    delta = 1e-2
    sizes = [
        planted.size_of(sample, mistake, dataclasses.replace(site, delta=delta))
        for sample, site in places
        if mistake.fits(site)
    ]
    assert sizes, "fits nowhere"
    smallest = 1e-9 if mistake.name == "rounded to float32" else planted.SLACK * delta
    assert max(sizes) >= smallest


@pytest.mark.parametrize(
    "name", ["everything scaled", "one row scaled", "one column scaled", "one entry scaled"]
)
@pytest.mark.parametrize("delta", planted.DELTAS)
def test_a_scaled_mistake_has_the_size_it_claims(name, delta, places) -> None:
    (mistake,) = (m for m in _mistakes.mistakes() if m.name == name)
    for sample, site in places:
        size = planted.size_of(sample, mistake, dataclasses.replace(site, delta=delta))
        assert size == pytest.approx(delta, rel=1e-6)


def test_one_entry_scaled_changes_that_entry_alone(places) -> None:
    sample, site = places[0]
    (mistake,) = (m for m in _mistakes.mistakes() if m.name == "one entry scaled")
    wrong = planted.backward_of(sample, mistake, dataclasses.replace(site, delta=0.5))
    changed = []
    for row, v in enumerate(_planting.basis(site.output)):
        pairs = zip(
            planted.pullback(sample, sample.inputs, v), wrong(sample.inputs, v), strict=True
        )
        for slot, (true, claimed) in enumerate(pairs):
            gap = (claimed - true).reshape(-1).nonzero().reshape(-1).tolist()
            changed += [(row, slot, column) for column in gap]
    assert changed == [(site.row, site.slot, site.column)]


def test_there_are_at_least_twenty_kinds_with_distinct_names() -> None:
    names = [mistake.name for mistake in _mistakes.mistakes()]
    assert len(names) >= 20
    assert len(set(names)) == len(names)


def test_a_transposed_symmetric_gradient_is_vacuous() -> None:
    trial = planted.Trial("trace float64#0", "transposed", None, 0.0)
    assert trial.vacuous
    assert not trial.in_bar


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("mistake", _mistakes.low_mistakes(), ids=lambda mistake: mistake.name)
def test_a_mistake_of_low_precision_alone_is_not_there_in_float64(mistake, dtype) -> None:
    sample, _ = place(torch.matmul, dtype, [(3, 4), (4, 5)])
    site = dataclasses.replace(_planted_low.low_site(sample, seed=0), delta=0.1)
    backward = _planted_low.low_backward(sample, mistake, site, everywhere=False)
    assert _planted_low.ulps_of(sample, backward, site) >= 1
    wide = sample.in_double()
    v = torch.ones(3, 5, dtype=torch.float64)
    for true, claimed in zip(
        planted.pullback(wide, wide.inputs, v), backward(wide.inputs, v), strict=True
    ):
        assert torch.equal(true, claimed)


def test_a_mistake_everywhere_is_there_in_float64() -> None:
    sample, _ = place(torch.matmul, torch.bfloat16, [(3, 4), (4, 5)])
    site = dataclasses.replace(_planted_low.low_site(sample, seed=0), delta=0.01)
    (mistake,) = (m for m in _mistakes.low_mistakes() if m.name == "everything scaled")
    backward = _planted_low.low_backward(sample, mistake, site, everywhere=True)
    wide = sample.in_double()
    v = torch.ones(3, 5, dtype=torch.float64)
    for true, claimed in zip(
        planted.pullback(wide, wide.inputs, v), backward(wide.inputs, v), strict=True
    ):
        torch.testing.assert_close(claimed, 1.01 * true)


def test_a_change_below_one_unit_in_the_last_place_is_vacuous() -> None:
    sample, _ = place(torch.matmul, torch.bfloat16, [(3, 4), (4, 5)])
    site = dataclasses.replace(_planted_low.low_site(sample, seed=0), delta=1e-4)
    (mistake,) = (m for m in _mistakes.low_mistakes() if m.name == "everything scaled")
    backward = _planted_low.low_backward(sample, mistake, site, everywhere=False)
    assert _planted_low.ulps_of(sample, backward, site) == 0


def test_only_named_tensors_and_dtypes_of_a_low_precision_sample_are_converted() -> None:
    (op,) = (o for o in _opdb.differentiable_operators(torch.float32)
             if o.full_name == "softmax.with_dtype")  # fmt: skip
    sample = next(_opdb.samples(op, torch.float32))
    assert sample.function(*sample.in_double().inputs).dtype == torch.float64


# Reading the results -----------------------------------------------------------------------------


def outcome(verdict: str) -> _cases.Outcome:
    return _cases.Outcome(verdict, "", 1.0)


def test_a_difference_is_explained_only_where_every_condition_of_the_row_holds() -> None:
    case = _cases.Case("tanh", 3, "float64", 1, {"ours": outcome("fail"), "slow": outcome("pass")})
    row = {"op": "tan.*", "dtype": "float64", "samples": [3], "ours": "fail", "cause": "because"}
    assert _cases.explanation(case, [row]) == "because"
    for key, other in {"op": "tan", "dtype": "complex128", "samples": [4], "ours": "pass"}.items():
        assert _cases.explanation(case, [{**row, key: other}]) is None


def test_a_failure_is_explained_only_where_it_says_what_the_row_expects() -> None:
    found = {"check": _cases.Outcome("failed", "forward: input 0 -> output 0: claimed 0", 1.0)}
    case = _cases.Case("tanh", 3, "float32", 1, found)
    row = {"op": "tanh", "check": "failed", "says": "^forward: ", "cause": "because"}
    assert _cases.explanation(case, [row]) == "because"
    assert _cases.explanation(case, [{**row, "says": "^backward: "}]) is None
    assert _cases.explanation(case, [{"op": "tanh", "ours": "fail", "cause": "no"}]) is None


def test_explained_differences_have_a_cause() -> None:
    for row in json.loads(_cases.EXPLAINED.read_text()):
        known = {"op", "dtype", "order", "samples", "ours", "slow", "check", "says", "cause"}
        assert set(row) <= known
        assert row.keys() & {"ours", "check"}
        assert row["cause"].endswith(".")


def test_an_inaccuracy_is_told_from_a_bad_condition() -> None:
    def cancelling(x: torch.Tensor) -> torch.Tensor:
        return ((x + 1e4) ** 2 - x * x).sum()  # its derivative is 2e4, by a difference of 2e4 and x

    x = torch.linspace(1, 2, 8).requires_grad_()
    text = inaccuracy(_opdb.Sample("cancelling", 0, cancelling, (x,), 0.0))
    assert "in float64" in text
    assert "one ulp of the inputs moves it by" in text


def test_an_operator_without_float64_still_has_a_line_of_evidence() -> None:
    def single(x: torch.Tensor) -> torch.Tensor:
        assert x.dtype == torch.float32, "float32 only"
        return x.sum()

    x = torch.ones(2, requires_grad=True)
    text = inaccuracy(_opdb.Sample("single", 0, single, (x,), 0.0))
    assert text == "no float64 gradient: AssertionError: float32 only"


def test_reasons_are_grouped_without_their_numbers() -> None:
    first = "backward: 3 of 1,500 entries could not be resolved, x[0, 1] -> output 0[2].real first"
    other = "backward: 12 of 9 entries could not be resolved, input 2[4] -> output 0 first"
    assert _operators_low.reason(first) == _operators_low.reason(other)


def low_case(verdict: str, wrong: bool = False) -> _cases.Case:
    found = {"check": outcome(verdict)}
    return _cases.Case("tanh", 0, "bfloat16", 1, found, "", wrong)


def test_a_bar_in_low_precision_counts_what_is_undecided_against_us() -> None:
    right = [low_case("passed")] * 95
    assert _operators_low.misses([*right, *[low_case("inconclusive")] * 5]) == []
    (line,) = _operators_low.misses([*right, *[low_case("inconclusive")] * 6])
    assert "94 % passed" in line


def test_a_failure_that_nobody_explained_misses_the_bar() -> None:
    found = _operators_low.misses([*[low_case("passed")] * 999, low_case("failed")])
    assert found == ["bfloat16: 1 failures are unexplained"]
    assert _operators_low.misses([*[low_case("passed")] * 9, low_case("failed", wrong=True)]) == []


def test_a_tool_that_raises_anything_is_an_error_and_not_the_end() -> None:
    sample = _opdb.Sample("broken", 0, lambda x: x, (torch.ones(1),), 0.0)

    def broken(*_: object, **__: object) -> bool:
        raise ZeroDivisionError("oops")

    found = _cases.judge(broken, sample, 10.0)
    assert (found.verdict, found.message) == ("error", "ZeroDivisionError: oops")


def test_a_tool_that_hangs_is_stopped() -> None:
    sample = _opdb.Sample("endless", 0, lambda x: x, (torch.ones(1),), 0.0)

    def endless(*_: object, **__: object) -> bool:
        while True:
            pass

    assert _cases.judge(endless, sample, 0.2).message.startswith("TimeoutError")


def test_a_check_that_hangs_is_an_error_and_no_failure() -> None:
    x = torch.ones(1, requires_grad=True)
    calls = []

    def slow_later(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        while len(calls) == 2:
            pass
        return 2 * x

    found = _cases.judge(_cases.check_by_ours, _opdb.Sample("late", 0, slow_later, (x,), 0.0), 2.0)
    assert found.verdict == "error"
    assert found.message.startswith("TimeoutError")


def test_percentages_round_down() -> None:
    assert _common.percent(999, 1000) == "99.9 %"
    assert _common.percent(99_999, 100_000) == "99.9 %"
    assert _common.percent(7, 7) == "100 %"
    assert _common.percent(0, 0) == "-"


def test_markdown_escapes_what_would_split_a_cell() -> None:
    assert _common.markdown_table(("a", "b"), [("x|y", "1")]).splitlines()[-1] == r"| x\|y | 1 |"


def test_the_ratio_is_the_median_within_turns() -> None:
    row = scale.Row("tanh", 10, {"ours": [1.0, 20.0, 3.0], "fast": [1.0, 10.0, 1.0]}, {}, {})
    assert row.ratio("fast") == 2.0
    assert row.ratio("slow") is None


def test_each_scaled_function_has_about_as_many_inputs_as_asked() -> None:
    for name, make in scale.FUNCTIONS.items():
        for n in (1_000, 100_000):
            _, (x, *_) = make(n)
            parts = 3 if name == "attention" else 1  # query, key and value share them
            assert parts * x.numel() == pytest.approx(n, rel=0.05), name
