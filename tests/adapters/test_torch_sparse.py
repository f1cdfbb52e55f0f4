"""Sparse inputs: which entries are the domain, and their derivatives."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from gradproof._maps.contract import Unsupported  # noqa: E402
from gradproof.torch._adapter import build  # noqa: E402

DOUBLE = torch.float64
DENSE = torch.tensor([[0, 2.0, 0, 1], [3, 0, 0, 0], [0, 0, 0, 0], [1, 0, 4, 0]], dtype=DOUBLE)
LAYOUTS = [
    (torch.sparse_coo, None),
    (torch.sparse_csr, None),
    (torch.sparse_csc, None),
    (torch.sparse_bsr, (2, 1)),
    (torch.sparse_bsc, (1, 2)),
]


def sparse(layout, blocksize=None, dense=DENSE, **options):
    if blocksize:
        options["blocksize"] = blocksize
    return dense.to_sparse(layout=layout, **options).requires_grad_()


def differences(target, step=1e-6):
    columns = []
    for axis in np.eye(target.domain.size):
        up, down = (
            target.value(target.point + step * axis),
            target.value(target.point - step * axis),
        )
        columns.append((up - down) / (2 * step))
    return np.stack(columns, axis=1)


def backward(target):
    return np.stack([target.vjp(axis) for axis in np.eye(target.codomain.size)])


def assert_right(target):
    np.testing.assert_allclose(backward(target), differences(target), rtol=1e-6, atol=1e-7)


def assert_reference(target, fn, dense):
    """Measured columns are those of the dense function, at the place each coordinate names."""
    jacobian = torch.autograd.functional.jacobian(fn, dense).reshape(-1, dense.numel()).numpy()
    assert target.domain.size
    places = [target.domain.locate(i).index for i in range(target.domain.size)]
    columns = [int(np.ravel_multi_index(place, dense.shape)) for place in places]
    np.testing.assert_allclose(differences(target), jacobian[:, columns], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(backward(target), jacobian[:, columns], rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(target.point, dense.reshape(-1).numpy()[columns])


def weighted(dense):
    weights = torch.linspace(1, 2, dense.numel(), dtype=DOUBLE).view(dense.shape)
    return (weights * dense) ** 2 + dense


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize(("layout", "blocksize"), LAYOUTS)
def test_every_layout_has_the_derivative_of_the_dense_function(layout, blocksize, masked):
    given = sparse(layout, blocksize)
    target = build(lambda s: weighted(s.to_dense(masked_grad=masked)), (given,), masked=masked)
    stored = given.detach().values() if layout is not torch.sparse_coo else given._values()
    assert target.domain.size == (stored.numel() if masked else 16)
    assert_reference(target, weighted, DENSE)


class ToDense(torch.autograd.Function):
    """Where to_dense of PyTorch has no backward: batches, if masked."""

    @staticmethod
    def forward(ctx, s):
        return s.to_dense()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize(
    "layout", [torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc]
)
def test_batches_of_compressed_tensors(layout, masked):
    dense = torch.stack([DENSE, DENSE * 2])
    given = sparse(
        layout, (2, 2) if layout in (torch.sparse_bsr, torch.sparse_bsc) else None, dense
    )
    to_dense = ToDense.apply if masked else lambda s: s.to_dense(masked_grad=False)
    target = build(lambda s: weighted(to_dense(s)), (given,), masked=masked)
    assert target.domain.slots[0].describe.startswith("float64[2, 4, 4]")
    places = [target.domain.locate(i).index for i in range(target.domain.size)]
    np.testing.assert_array_equal(target.point, [dense[place] for place in places])
    # One-hot cotangents have batches of unequal sparsity, which PyTorch's backward refuses.
    for v in np.random.default_rng(0).normal(size=(3, 32)):
        np.testing.assert_allclose(target.vjp(v), v @ differences(target), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("masked", [True, False])
def test_dense_dimensions(masked):
    dense = torch.stack([DENSE, DENSE * 2], dim=-1)
    for layout, blocksize in LAYOUTS:
        given = sparse(layout, blocksize, dense, dense_dim=1)
        if layout is torch.sparse_coo:
            target = build(
                lambda s: weighted(s.to_dense(masked_grad=masked)),
                (given,),
                masked=masked,
            )
            assert_reference(target, weighted, dense)
        else:  # to_dense has no backward here; the coordinates are still right
            target = build(lambda s: weighted(s.detach().to_dense()), (given,), masked=masked)
            places = [target.domain.locate(i).index for i in range(target.domain.size)]
            np.testing.assert_array_equal(target.point, [dense[place] for place in places])
            np.testing.assert_allclose(
                target.value(target.point), weighted(dense).reshape(-1).numpy()
            )


@pytest.mark.parametrize("masked", [True, False])
def test_complex_values(masked):
    dense = torch.complex(DENSE, DENSE * 2)
    for layout, blocksize in LAYOUTS:
        given = sparse(layout, blocksize, dense)
        target = build(
            lambda s: (lambda z: z * z.conj() + z)(s.to_dense(masked_grad=masked)),
            (given,),
            masked=masked,
        )
        assert target.domain.slots[0].parts == ("real", "imag")
        assert_right(target)


@pytest.mark.parametrize("masked", [True, False])
def test_duplicates_of_an_uncoalesced_tensor(masked):
    indices = torch.tensor([[0, 0, 1], [1, 1, 2]])
    values = torch.tensor([1.0, 2, 3], dtype=DOUBLE)
    given = torch.sparse_coo_tensor(indices, values, (2, 3)).requires_grad_()
    target = build(lambda s: s.to_dense(masked_grad=masked) ** 2, (given,), masked=masked)
    assert_right(target)
    if masked:
        assert target.point.tolist() == [1, 2, 3]
        assert target.domain.slots[0].entries.tolist() == [[0, 1], [0, 1], [1, 2]]
        assert target.vjp(np.ones(6)).tolist() == [6, 6, 6]
    else:
        assert target.point.tolist() == [0, 3, 0, 0, 0, 3]
    seen = []
    build(
        lambda s: (seen.append(s.is_coalesced()), s.to_dense())[1],
        (given,),
        masked=True,
    )
    assert seen == [False]


@pytest.mark.parametrize("masked", [True, False])
def test_no_entry_stored(masked):
    for layout, blocksize in LAYOUTS:
        given = sparse(layout, blocksize, torch.zeros(4, 4, dtype=DOUBLE))
        target = build(lambda s: s.to_dense(masked_grad=masked) * 2, (given,), masked=masked)
        assert target.domain.size == (0 if masked else 16)
        assert_right(target) if not masked else target.vjp(np.ones(16))


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_gradients_of_unspecified_entries_lie_outside_a_masked_domain(layout):
    given = sparse(layout)
    v = np.arange(1.0, 17)
    wrong = build(lambda s: s.to_dense(masked_grad=False), (given,), masked=True)
    outside = wrong.outside_domain(v)
    stored = {tuple(entry) for entry in torch.nonzero(DENSE).tolist()}
    assert {index for _, index, _ in outside} == {
        (i, j) for i in range(4) for j in range(4)
    } - stored
    assert (0, (0, 0), 1.0) in outside
    right = build(lambda s: s.to_dense(masked_grad=True), (given,), masked=True)
    assert right.outside_domain(v) == []
    with pytest.raises(Unsupported):
        build(lambda s: s.to_dense(), (given,)).outside_domain(v)


@pytest.mark.parametrize("masked", [True, False])
def test_second_order_of_a_sparse_input(masked):
    for layout, blocksize in LAYOUTS:
        target = build(
            lambda s: s.to_dense(masked_grad=masked) ** 3,
            (sparse(layout, blocksize),),
            masked=masked,
        )
        second = target.derivative(np.linspace(1, 2, 16))
        np.testing.assert_allclose(backward(second), differences(second), rtol=1e-6, atol=1e-6)


def test_transposed_vjp_of_a_sparse_input():
    for layout, blocksize in LAYOUTS:
        target = build(
            lambda s: weighted(s.to_dense(masked_grad=False)), (sparse(layout, blocksize),)
        )
        u, v = np.linspace(1, 2, 16), np.linspace(-1, 2, 16)
        np.testing.assert_allclose(
            target.transposed_vjp(u, v)[0], differences(target) @ u, rtol=1e-6, atol=1e-6
        )


def test_forward_mode_is_unsupported_not_an_error():
    for layout, blocksize in LAYOUTS:
        target = build(lambda s: s.to_dense(), (sparse(layout, blocksize),))
        with pytest.raises(Unsupported):
            target.jvp(np.ones(16))
        with pytest.raises(Unsupported):
            target.jvp_batch(np.ones((2, 16)))


def test_a_matrix_product_and_a_fixed_sparse_input():
    given, weight = sparse(torch.sparse_coo), torch.rand(4, 2, dtype=DOUBLE, requires_grad=True)
    assert_right(build(torch.matmul, (given, weight)))
    assert_right(build(torch.sparse.mm, (given, weight), masked=True))
    with pytest.raises(AssertionError):  # its gradient is masked
        assert_right(build(torch.sparse.mm, (given, weight)))
    fixed = build(torch.sparse.mm, (given.detach(), weight))
    assert fixed.domain.size == 8
    assert_right(fixed)


def test_the_users_sparse_tensor_stays_untouched():
    for layout, blocksize in LAYOUTS:
        given = sparse(layout, blocksize)
        before = given.detach().clone()

        def fn(s):
            with torch.no_grad():
                (s._values() if s.layout is torch.sparse_coo else s.values()).mul_(2)
            return s.to_dense(masked_grad=False) * 1

        for masked in (True, False):
            target = build(fn, (given,), masked=masked)
            target.value(target.point)
            target.value(target.point + 1)
        assert torch.equal(given.detach().to_dense(), before.to_dense())


def test_traits_compare_sparse_gradients_with_their_input():
    target = build(lambda s: s.to_dense(masked_grad=True), (sparse(torch.sparse_csr),))
    assert target.gradient_traits(np.ones(16)) == []

    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, s):
            return s.to_dense()

        @staticmethod
        def backward(ctx, gradient):
            return gradient.to_sparse(1)

    (one, other) = build(Wrong.apply, (sparse(torch.sparse_coo),)).gradient_traits(np.ones(16))
    assert (one.what, one.claimed, one.expected) == ("sparse_dim", "1", "2")
    assert (other.what, other.claimed, other.expected) == ("dense_dim", "1", "0")
