"""Functions that span ranks: the museum of their mistakes, and ranks that do not do the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.distributed.tensor import Replicate

import rank_pool
from exhibits.ranks import APART, BY_NAME, OnRanks, summed
from gradproof.errors import UsageError
from gradproof.torch import distributed

# The quick ones; the others take a second or two each, on two processors.
QUICK = (
    "the mean's backward lacks the number of ranks",
    "the missing all-reduce of a column-parallel input",
    "Partial taken for Replicate",
    "the second stage returns its own gradient",
)
SOME = [BY_NAME[name] for name in QUICK]
OTHERS = [exhibit for exhibit in BY_NAME.values() if exhibit.name not in QUICK]


@pytest.fixture(scope="module")
def pair() -> Iterator[rank_pool.Pool]:
    with rank_pool.Pool(2) as pool:
        yield pool


def require_found(pool: rank_pool.Pool, exhibit: OnRanks) -> None:
    found = pool.run(rank_pool.checked, exhibit.name, "wrong")
    verdict, failing, places, text = found[0]
    assert all(each == found[0] for each in found), "every rank has the same report"
    assert verdict == "failed", text
    assert exhibit.check in failing, text
    for place in exhibit.places:
        assert any(each.startswith(place) for each in places), text


def require_passed(pool: rank_pool.Pool, exhibit: OnRanks) -> None:
    found = pool.run(rank_pool.checked, exhibit.name, "right")
    assert all(each == found[0] for each in found), "every rank has the same report"
    assert found[0][0] == "passed", found[0][-1]


@pytest.mark.parametrize("exhibit", SOME, ids=str)
def test_a_mistake_is_found_and_its_right_twin_is_not_accused(pair, exhibit):
    require_found(pair, exhibit)
    require_passed(pair, exhibit)


@pytest.mark.slow
@pytest.mark.parametrize("exhibit", [each for each in OTHERS if each.wrong], ids=str)
def test_every_mistake_is_found(pair, exhibit):
    require_found(pair, exhibit)


@pytest.mark.slow
@pytest.mark.parametrize("exhibit", OTHERS, ids=str)
def test_no_right_function_is_accused(pair, exhibit):
    require_passed(pair, exhibit)


@pytest.mark.slow
@pytest.mark.parametrize("size", [3, 4])
def test_more_ranks_are_judged_alike(size):
    with rank_pool.Pool(size) as pool:
        for exhibit in SOME:
            require_found(pool, exhibit)
            require_passed(pool, exhibit)


@pytest.mark.slow
def test_a_group_of_some_ranks_is_judged_under_the_ranks_of_the_job():
    with rank_pool.Pool(3) as pool:
        outside, *inside = pool.run(rank_pool.in_a_group)
    assert outside[:2] == (
        "UsageError",
        "group: this rank is not in it; call check on its ranks alone",
    )
    assert inside[0] == inside[1]
    assert "inputs   rank 1, x: float64[2], rank 2, x: float64[2]" in inside[0]
    assert "backward  FAILED" in inside[0]


@pytest.mark.parametrize("name", APART)
def test_ranks_that_do_not_do_the_same_say_so_everywhere(pair, name):
    said = APART[name][1]
    for kind, message, _ in pair.run(rank_pool.apart, name, False):
        assert kind in ("DivergedError", "RemoteError")
        assert said in message
    reports = pair.run(rank_pool.apart, name, True)
    assert reports[0] == reports[1]
    assert said in " ".join(reports[0].split())


@pytest.mark.parametrize(
    ("shapes", "options", "said"),
    [
        (((3,), (3, 2)), {}, "x has 1 dimensions on rank 0 and 2 dimensions on rank 1"),
        (((3,), None), {}, "x is torch.float64 on rank 0 and nothing that requires grad, were it"),
        (((3,), (3,)), {"rtol": "much"}, "rtol: expected a number >= 0, got 'much'"),
        (((3,), (3,)), {"placements": {"x": 1}}, "placements: expected a dict from names"),
        (
            ((3,), (3,)),
            {"placements": {"outpt 0": Replicate()}},
            "placements: unknown 'outpt 0' (did you mean 'output 0'?); choose from x, output 0",
        ),
        (((3,), (3,)), {"checks": ("forward",)}, "checks: unknown 'forward'; choose from backward"),
        (((3,), (3,)), {"wrt": "z"}, "wrt: 'z' selects no differentiable input"),
    ],
)
def test_bad_input_is_one_sentence_on_every_rank(pair, shapes, options, said):
    found = pair.run(rank_pool.asked, summed, shapes, [options] * 2)
    assert [kind for kind, *_ in found] == ["UsageError"] * 2
    assert found[0][1] == found[1][1]
    assert said in found[0][1]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("rtol", (1e-3, 1e-4)),
        ("wrt", ("x", None)),
        ("placements", ({"output 0": Replicate()}, None)),
    ],
)
def test_ranks_that_disagree_on_an_argument_say_so(pair, name, values):
    found = pair.run(rank_pool.asked, summed, [(3,)] * 2, [{name: value} for value in values])
    said = f"{name}: {values[0]!r} on rank 0 and {values[1]!r} on rank 1; give every rank the same"
    assert [each[:2] for each in found] == [("UsageError", said)] * 2


def test_a_replicated_input_that_differs_says_where(pair):
    found = pair.run(rank_pool.asked, summed, [(3,)] * 2, [{"placements": {"x": Replicate()}}] * 2)
    assert found[0][1] == found[1][1]
    assert "placements: rank 0, x[0] is" in found[0][1]


def test_a_rank_that_does_not_come_is_named_and_the_next_check_works(pair):
    (kind, message, _), elsewhere = pair.run(rank_pool.alone)
    assert kind == "UsageError"
    assert message.startswith("group: rank 1 did not call check within 1 seconds")
    assert elsewhere == "elsewhere"
    require_passed(pair, SOME[0])


def test_without_a_process_group_there_is_one_sentence():
    with pytest.raises(UsageError, match=r"^group: no process group: call torch\.distributed"):
        distributed.check(torch.sin, torch.ones(2, requires_grad=True))


def test_a_check_leaves_no_trace(pair):
    for verdict, *untouched in pair.run(rank_pool.traces):
        assert verdict == "passed"
        assert untouched == [True] * 6


def test_the_faces_for_one_rank_say_that_they_judge_it_alone(pair):
    for answer, said, notes in pair.run(rank_pool.judged_here):
        assert answer is True
        assert len(said) == 1
        assert "gradproof.torch.distributed.check judges that of all ranks together" in said[0]
        assert any("judges that of all ranks together" in note for note in notes)


def after_a_right_function(job: Callable[..., Any]) -> list[Any]:
    """What a job says on two ranks that have judged a function before."""
    with rank_pool.Pool(2) as pool:
        require_passed(pool, SOME[0])
        return pool.run(job)


@pytest.mark.slow
def test_a_rank_that_does_not_come_back_is_named_on_every_rank():
    found = after_a_right_function(rank_pool.sleeping)
    assert [kind for kind, *_ in found] == ["TimeoutError"] * 2
    assert found[0][1] == found[1][1]
    assert found[0][1].startswith("rank 1 did not come back from a call of the function")
