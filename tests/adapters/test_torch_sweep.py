"""sweep=True: mistakes that the given inputs hide, and nothing else."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from torch.nn import functional

import gradproof
import museum
from exhibits.frame import leaf, normal, ruled
from gradproof import strategies
from gradproof.errors import UsageError

HIDDEN = {e.name: e for e in museum.EXHIBITS if e.wrong is not None and e.hidden_inputs}
# Exhibits whose mistake a sweep does not find from inputs that hide it, and why.
NOT_FOUND = {
    "constant_factor_missing": "needs another number than 1, and numbers stay as they are",
    "group_norm_divides_by_the_last_extent": "sizes that are equal stay equal",
    "values_stored_with_the_stride_of_keys": "likewise",
    "source_larger_than_index": "likewise",
    "backward_starts_at_a_skipped_splat": "is undecided at the inputs that show it",
}


def swept(fn, inputs, **options) -> gradproof.Report:
    return gradproof.check(fn, inputs, seed=0, sweep=True, **{"checks": ["backward"], **options})


@pytest.mark.parametrize("name", ["batch_offset_missing", "wrong_for_negative_inputs_only"])
def test_a_sweep_finds_what_the_point_hides_and_spares_the_right_twin(name):
    exhibit = HIDDEN[name]
    report = swept(exhibit.wrong, exhibit.hidden_inputs())
    assert report["backward"].verdict == "passed"
    assert report["sweep"].verdict == "failed", report["sweep"].summary
    assert swept(exhibit.right, exhibit.hidden_inputs())["sweep"].verdict == "passed"


@pytest.mark.slow
@pytest.mark.parametrize("exhibit", HIDDEN.values(), ids=str)
def test_what_a_sweep_finds_of_the_museum_is_known(exhibit):
    options = {"order": exhibit.order, "checks": [exhibit.check], **exhibit.options}
    found = swept(exhibit.wrong, exhibit.hidden_inputs(), **options)["sweep"].verdict == "failed"
    assert found == (exhibit.name not in NOT_FOUND)


def test_a_failure_names_the_change_and_the_shapes():
    exhibit = HIDDEN["product_divided_by_a_zero_entry"]
    report = swept(exhibit.wrong, exhibit.hidden_inputs())
    assert report["sweep"].summary == (
        "wrong at one zero (x: float64[4]): backward: 1 of 4 entries wrong"
    )
    assert [finding.check for finding in report["sweep"].findings] == ["sweep"]
    assert len(str(report).splitlines()) <= 25


def test_a_flag_is_tried_the_other_way_round_also_by_keyword():
    exhibit = HIDDEN["wrong_variable_on_the_gated_branch"]
    v, z, gate = exhibit.hidden_inputs()

    def fn(v, z, gate):
        return exhibit.wrong(v, z, gate)

    report = gradproof.check(fn, (v, z), {"gate": gate}, checks=["backward"], sweep=True, seed=0)
    assert report["sweep"].summary.startswith(f"wrong at gate={not gate} (v: float64[4]")


def test_where_the_function_raises_or_has_no_value_is_no_fault():
    def root(x):
        if x.numel() == 0 or x.dim() != 1:
            raise ValueError("expected a vector")
        return x.sqrt()

    report = swept(root, (leaf(0.5, 1.5, 2.5),))
    assert report["sweep"].verdict == "passed", report["sweep"].summary
    assert any("none that the function takes" in note for note in report["sweep"].notes)


def test_a_sweep_keeps_to_its_budget_and_says_where_it_stopped():
    report = swept(torch.sin, (normal(3),), budget=100)
    assert sum(report["sweep"].calls.values()) < 400
    assert any("the budget was spent after" in note for note in report["sweep"].notes)
    report = swept(torch.sin, (normal(3),), budget_seconds=1e-9)
    assert report["sweep"].verdict == "inconclusive"


def test_a_sweep_leaves_the_arguments_and_the_random_state_alone():
    x = normal(3)
    before, state = x.detach().clone(), torch.get_rng_state()
    swept(lambda x: torch.nn.functional.dropout(x, 0.5), (x,), budget=300)
    assert torch.equal(x, before)
    assert x.grad is None
    assert torch.equal(torch.get_rng_state(), state)


def test_parameters_of_a_layer_stay_while_its_arguments_are_varied():
    torch.manual_seed(0)
    report = swept(torch.nn.Linear(3, 2).double(), (normal(4, 3),), budget=3000)
    assert report["sweep"].verdict == "passed", report["sweep"].summary


def test_masks_and_indices_are_resized_with_the_array():
    shapes = set()

    def selected(x, mask, index):
        shapes.add((tuple(x.shape), tuple(mask.shape), tuple(index.shape)))
        return torch.where(mask, x, 2 * x)[index]

    mask, index = torch.tensor([True, False, True]), torch.tensor([2, 0, 2])
    report = swept(selected, (normal(3), mask, index), budget=3000)
    assert report["sweep"].verdict == "passed", report["sweep"].summary
    assert ((5,), (5,), (5,)) in shapes


# Strategies.

WRONG = ruled(lambda x: x.abs() * x, lambda g, x: 2 * g * x)  # right where x is positive


def test_a_property_test_finds_what_an_example_hides():
    seen = []

    @settings(database=None, deadline=None, max_examples=60)
    @given(strategies.inputs(WRONG, (leaf(0.5, 1.0, 2.0),), shapes=False))
    def property_holds(inputs):
        seen.append(inputs[0].detach())
        gradproof.assert_derivatives(WRONG, inputs, checks=["backward"], seed=0)

    with pytest.raises(gradproof.DerivativeError):
        property_holds()
    assert any(bool((x == 0).any()) for x in seen) or any(bool((x < 0).any()) for x in seen)


def test_a_derivative_by_hand_of_tensors_has_other_inputs_too():
    hand = gradproof.by_hand(torch.sin, vjp=lambda x, v: v * x.cos())
    strategies.inputs(hand, (leaf(0.5, 1.0, 2.0),)).validate()


def test_inputs_without_an_array_are_refused():
    with pytest.raises(UsageError, match="examples: expected at least one array"):
        strategies.inputs(WRONG, (3,))


# What is right -----------------------------------------------------------------------------------
# Functions that are wrong somewhere are in docs/defects/pytorch.md and not here: atan2, hypot,
# xlogy at zeros, det of singular matrices, logcumsumexp of wide rows, GroupNorm of nothing.


def positive(*shape: int) -> torch.Tensor:
    return (normal(*shape).detach().abs() + 0.5).requires_grad_()


RIGHT = {
    **{
        name: (getattr(torch, name), normal(3)) for name in ("sin", "tanh", "floor", "abs", "expm1")
    },
    **{name: (getattr(torch, name), positive(3)) for name in ("log", "sqrt", "digamma")},
    **{name: (getattr(functional, name), normal(4)) for name in ("gelu", "elu", "relu6")},
    "hardshrink": (functional.hardshrink, normal(4)),
    "softmax": (lambda x: x.softmax(-1), normal(3, 4)),
    "sort": (lambda x: torch.sort(x).values, normal(4)),
    "layer_norm": (lambda x: functional.layer_norm(x, x.shape[-1:]), normal(3, 4)),
    "max_pool1d": (lambda x: functional.max_pool1d(x, 2), normal(1, 2, 6)),
    "matmul": (torch.matmul, (normal(2, 3), normal(3, 4, seed=2))),
    "conv2d": (functional.conv2d, (normal(1, 2, 5, 5), normal(3, 2, 3, 3, seed=2))),
    "Linear": (torch.nn.Linear(3, 2).double(), normal(4, 3)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_function_is_not_accused_by_a_sweep(name):
    report = gradproof.check(*RIGHT[name], seed=0, sweep=True)
    assert report["sweep"].verdict == "passed", [f.message for f in report["sweep"].findings]
    assert not any("the budget was spent" in note for note in report["sweep"].notes)
