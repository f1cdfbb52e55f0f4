"""The drop-in's pages: every place and test exists, no function of the flows is missing."""

from __future__ import annotations

import ast
import importlib
import json
import re
import statistics
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
USERS = (ROOT / "docs" / "torch.md").read_text(encoding="utf-8")
TEXT = (ROOT / "docs" / "maintainers" / "drop-in.md").read_text(encoding="utf-8")

# Every function that the diagrams of the sparse and of the fast flow name, and the one that
# undoes convert_to_strided_representation.
NAMES = """
    gradcheck_with_sparse_support convert_to_strided_representation
    restore_from_strided_representation to_sparse _to_sparse sparse_mask to
    gradcheck _gradcheck_helper _gradcheck_real_imag
    _test_batched_grad _test_batched_grad_forward_ad _test_undefined_backward_mode
    _test_undefined_forward_mode _test_backward_mul_by_grad_output
    jvp make_dual _make_dual _set_fw_grad set_fw_grad copy_
    _fast_gradcheck _get_analytical_vJu_backward_mode _densify
    _check_no_differentiable_outputs_fast _get_numerical_vJu
    _get_numerical_jvp_wrt_specific_input _check_analytical_jacobian_attributes
    _check_analytical_numerical_equal _run_slow_mode_and_get_error _get_numerical_jacobian
    get_numerical_jacobian_wrt_specific_input _get_analytical_jacobian
    _get_analytical_jacobian_forward_ad
"""
FLOWS = NAMES.split()


def rows(heading: str, text: str = TEXT) -> list[list[str]]:
    """The cells of the table under a heading, its header left out."""
    section = text.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


MAP = rows("Where each function of PyTorch's flow went")
PLACES = sorted(set(re.findall(r"`(gradproof[\w.]*:[\w.]+)`", TEXT)))
TESTS = sorted(set(re.findall(r"`(?:tests/faces/)?(test_\w+\.py::test_\w+)`", TEXT)))


@pytest.mark.parametrize("name", FLOWS)
def test_every_function_of_the_flows_has_one_row_and_a_place(name):
    [row] = [row for row in MAP if row[0] == f"`{name}`"]
    assert len(row) == 3
    assert re.fullmatch(r"`gradproof[\w.]*:[\w.]+`", row[1])
    assert row[2]


def test_no_row_is_about_anything_else():
    assert sorted(row[0].strip("`") for row in MAP) == sorted(FLOWS)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("place", PLACES)
def test_every_place_exists(place):
    module, _, name = place.partition(":")
    found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)


def test_every_difference_names_its_test():
    told = rows("Where the answers differ", USERS)
    tested = rows("Where the answers differ")
    assert [row[0] for row in tested] == [row[0] for row in told]
    assert all(re.fullmatch(r"`test_\w+\.py::test_\w+`", row[1]) for row in tested)


@pytest.mark.parametrize("test", TESTS)
def test_every_test_exists(test):
    file, _, name = test.partition("::")
    tree = ast.parse((ROOT / "tests" / "faces" / file).read_text(encoding="utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_the_cost_that_is_told_is_the_recorded_one():
    """If this fails after `benchmarks/scale.py`: write the record's numbers into docs/torch.md."""
    rows = json.loads((ROOT / "benchmarks/results/scale.json").read_text())["rows"]

    def calls(tool, kind):
        every = [row["calls"][tool][kind] for row in rows]
        low, high = min(every), max(every)
        return f"{low} to {high}" if low < high else str(low)

    def times(peer, sizes):
        chosen = [row["seconds"] for row in rows if row["n"] in sizes and peer in row["seconds"]]
        pairs = [zip(each["ours"], each[peer], strict=True) for each in chosen]
        return [statistics.median(a / b for a, b in each) for each in pairs]

    sizes = {row["n"] for row in rows}
    fast, last, slow = times("fast", sizes), times("fast", {10**6}), times("slow", {4096})
    told = " ".join(USERS.split())
    assert f"{calls('ours', 'calls')} calls and {calls('ours', 'vjps')} VJPs" in told
    assert f"takes {calls('fast', 'calls')} and {calls('fast', 'vjps')}." in told
    assert f"{min(fast):.0f} to {max(fast):.0f} times the time of the fast mode" in told
    assert f"at 10⁶ {min(last):.0f} to {max(last):.0f} times" in told
    assert f"numbers it is up to {max(slow):.1g}" in told
