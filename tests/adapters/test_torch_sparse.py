"""Sparse inputs: which entries are the domain, and their derivatives."""

from __future__ import annotations

import pytest
import torch

import gradproof
from exhibits.frame import ruled
from gradproof import Settings, Verdict

DOUBLE = torch.float64
DENSE = torch.tensor([[0, 2.0, 0, 1], [3, 0, 0, 0], [0, 0, 0, 0], [1, 0, 4, 0]], dtype=DOUBLE)
LAYOUTS = [
    (torch.sparse_coo, None),
    (torch.sparse_csr, None),
    (torch.sparse_csc, None),
    (torch.sparse_bsr, (2, 1)),
    (torch.sparse_bsc, (1, 2)),
]
every_layout = pytest.mark.parametrize(("layout", "blocksize"), LAYOUTS)
both = pytest.mark.parametrize("masked", [True, False])


def sparse(layout=torch.sparse_coo, blocksize=None, dense=DENSE):
    options = {"blocksize": blocksize} if blocksize else {}
    return dense.to_sparse(layout=layout, **options).requires_grad_()


def check(fn, *inputs, masked=False, **options):
    settings = Settings(masked=masked)
    return gradproof.check(fn, inputs, seed=0, settings=settings, **options)


def weighted(dense):
    weights = torch.linspace(1, 2, dense.numel(), dtype=DOUBLE).view(dense.shape)
    return (weights * dense) ** 2 + dense


@both
@every_layout
def test_every_layout_has_the_derivative_of_the_dense_function(layout, blocksize, masked):
    given = sparse(layout, blocksize)
    before = given.detach().to_dense().clone()
    report = check(
        lambda s: weighted(s.to_dense(masked_grad=masked)), given, masked=masked, order=2
    )
    assert report.verdict is Verdict.PASSED, str(report)
    assert report["second_order"].verdict is Verdict.PASSED
    assert torch.equal(given.detach().to_dense(), before)
    stored = given.detach().values() if layout is not torch.sparse_coo else given._values()
    columns = stored.numel() if masked else 16
    assert report["backward"].summary.startswith(f"16 x {columns} Jacobian")


FACTOR = torch.ones(4, 4, dtype=DOUBLE)
FACTOR[1, 0] = 1.01
wrong_to_dense = ruled(lambda s: s.to_dense(), lambda g, s: g * FACTOR)


@both
@every_layout
def test_a_wrong_entry_of_a_sparse_gradient_is_named(layout, blocksize, masked):
    report = check(wrong_to_dense, sparse(layout, blocksize), masked=masked)
    assert report["backward"].verdict is Verdict.FAILED
    assert {finding.input_index for finding in report["backward"].findings} == {(1, 0)}


def test_of_entries_that_are_not_stored_the_cause_names_masked():
    report = gradproof.check(torch.sparse.mm, (sparse(), DENSE), seed=0)
    (cause,) = report["backward"].causes
    assert cause.name == "unspecified entries"
    assert "Settings(masked=True)" in cause.advice


@both
def test_an_uncoalesced_tensor_stays_so(masked):
    indices, values = torch.tensor([[0, 0, 1], [1, 1, 2]]), torch.tensor([1.0, 2, 3], dtype=DOUBLE)
    given = torch.sparse_coo_tensor(indices, values, (2, 3)).requires_grad_()
    seen = set()

    def fn(s):
        seen.add(s.is_coalesced())
        return s.to_dense(masked_grad=masked) ** 2

    report = check(fn, given, masked=masked)
    assert report["backward"].verdict is Verdict.PASSED, str(report)
    assert False in seen


def test_a_matrix_product_and_a_fixed_sparse_input():
    weight = torch.rand(4, 2, dtype=DOUBLE, requires_grad=True)
    assert check(torch.matmul, sparse(), weight)["backward"].verdict is Verdict.PASSED
    masked = check(torch.sparse.mm, sparse(), weight, masked=True)
    assert masked["backward"].verdict is Verdict.PASSED
    whole = check(torch.sparse.mm, sparse(), weight)  # its gradient is masked
    assert whole["backward"].verdict is Verdict.FAILED
    fixed = check(torch.sparse.mm, sparse().detach(), weight)
    assert fixed.verdict is Verdict.PASSED
    assert len(fixed.inputs) == 1
