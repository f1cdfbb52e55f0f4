"""Does a mistake show? Answered without gradproof, by the plainest means there are.

For each check one test of what it checks: plain central differences, one-hot cotangents, loops.
Slow, blind to precision, and independent of everything in `src`.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

TOLERANCE = 1e-4  # of the largest entry; plain differences are not better
MANY = 400  # rows and columns of a larger Jacobian are sampled

Function = Callable[..., Any]
Inputs = Callable[[], tuple[Any, ...]]


def outputs_of(fn: Function, inputs: tuple[Any, ...]) -> list[Tensor]:
    result = fn(*inputs)
    return list(result) if isinstance(result, tuple) else [result]


def leaves_of(inputs: tuple[Any, ...]) -> list[Tensor]:
    return [each for each in inputs if isinstance(each, Tensor) and each.requires_grad]


def dense(tensors: list[Tensor]) -> list[Tensor]:
    return [each.to_dense() if each.is_sparse else each for each in tensors]


def reals(tensors: list[Tensor]) -> Tensor:
    """One real float64 vector; an imaginary part follows its real part."""
    tensors = [each.resolve_conj() for each in dense([each.detach() for each in tensors])]
    flat = [torch.view_as_real(each) if each.is_complex() else each for each in tensors]
    return torch.cat([each.reshape(-1).double() for each in flat])


def basis(tensors: list[Tensor], index: int) -> list[Tensor]:
    """The unit vector of real coordinate `index`, as tensors shaped like these."""
    result = [torch.zeros(each.shape, dtype=each.dtype) for each in tensors]
    for each in result:
        flat = (torch.view_as_real(each) if each.is_complex() else each).view(-1)
        if 0 <= index < len(flat):
            flat[index] = 1
        index -= len(flat)
    return result


def sample(size: int, extra: tuple[int, ...] = ()) -> list[int]:
    """All coordinates, or of many some: evenly spaced ones, the ends, and `extra`."""
    return sorted({*range(0, size, size // MANY + 1), size - 1, *(i for i in extra if i < size)})


def columns_of(make: Inputs, extra: tuple[int, ...] = ()) -> list[int]:
    """Coordinates of the inputs to measure."""
    return sample(len(reals(leaves_of(make()))), extra)


def shifted(make: Inputs, column: int, step: float) -> tuple[Any, ...]:
    """The inputs with one real coordinate moved by `step`."""
    inputs = make()
    units = iter(basis(leaves_of(inputs), column))
    return tuple(
        moved(each, step * next(units)) if isinstance(each, Tensor) and each.requires_grad else each
        for each in inputs
    )


def moved(leaf: Tensor, by: Tensor) -> Tensor:
    result = dense([leaf.detach()])[0] + by
    return (result.to_sparse() if leaf.is_sparse else result).requires_grad_()


def central(value: Function, make: Inputs, columns: list[int], step: float) -> Tensor:
    """Columns of the Jacobian of `value`, a function of the tuple of inputs."""
    ends = [[value(shifted(make, column, h)) for h in (step, -step)] for column in columns]
    return torch.stack([(above - below) / (2 * step) for above, below in ends], 1)


def gradient(fn: Function, make: Inputs, cotangents: list[Tensor] | None, **options: Any):
    """The VJP at fresh inputs, as one real vector; cotangents of one where None."""
    inputs = make()
    leaves, outputs = leaves_of(inputs), outputs_of(fn, inputs)
    cotangents = cotangents or [torch.ones_like(each) for each in outputs]
    kept = [(o, c) for o, c in zip(outputs, cotangents, strict=True) if o.requires_grad]
    found = torch.autograd.grad(
        [o for o, _ in kept], leaves, [c for _, c in kept], allow_unused=True, **options
    )
    return [
        torch.zeros_like(leaf) if each is None else each
        for each, leaf in zip(found, leaves, strict=True)
    ]


def reverse_jacobian(fn: Function, make: Inputs, rows: list[int], columns: list[int]) -> Tensor:
    outputs = outputs_of(fn, make())
    found = [reals(gradient(fn, make, basis(outputs, row)))[columns] for row in rows]
    return torch.stack(found)


def forward_jacobian(fn: Function, make: Inputs, columns: list[int]) -> Tensor:
    return torch.stack([forward_column(fn, make, column) for column in columns], 1)


def forward_column(fn: Function, make: Inputs, column: int) -> Tensor:
    return forward_along(fn, make, basis(leaves_of(make()), column))


def forward_along(fn: Function, make: Inputs, along: list[Tensor]) -> Tensor:
    inputs, tangents = make(), iter(along)
    with warnings.catch_warnings(), forward_ad.dual_level():
        # PyTorch's own, when forward mode is first used
        warnings.filterwarnings("ignore", ".*torch.jit.script.*", DeprecationWarning)
        duals = tuple(
            forward_ad.make_dual(each.detach(), next(tangents))
            if isinstance(each, Tensor) and each.requires_grad
            else each
            for each in inputs
        )
        pairs = [forward_ad.unpack_dual(each) for each in outputs_of(fn, duals)]
        return reals(
            [
                torch.zeros_like(pair.primal) if pair.tangent is None else pair.tangent
                for pair in pairs
            ]
        )


def differ(claimed: Tensor, expected: Tensor, tolerance: float = TOLERANCE) -> bool:
    """NaN differs from everything."""
    return not bool(((claimed - expected).abs() <= tolerance * expected.abs().max()).all())


def some_cotangents(fn: Function, make: Inputs, seed: int = 11) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(each.shape, generator=generator, dtype=each.dtype)
        for each in outputs_of(fn, make())
    ]


def backward_is_wrong(fn: Function, make: Inputs, step: float, extra: tuple[int, ...]) -> bool:
    columns = columns_of(make, extra)
    rows = sample(len(reals(outputs_of(fn, make()))), extra)
    measured = central(lambda inputs: reals(outputs_of(fn, inputs))[rows], make, columns, step)
    return differ(reverse_jacobian(fn, make, rows, columns), measured)


def forward_is_wrong(fn: Function, make: Inputs, step: float, extra: tuple[int, ...]) -> bool:
    columns = columns_of(make, extra)
    measured = central(lambda inputs: reals(outputs_of(fn, inputs)), make, columns, step)
    return differ(forward_jacobian(fn, make, columns), measured)


def linearity_is_wrong(fn: Function, make: Inputs, *_: Any) -> bool:
    v, w = some_cotangents(fn, make, 11), some_cotangents(fn, make, 12)
    both = [3 * a + b for a, b in zip(v, w, strict=True)]
    of_v, of_w, of_both = (reals(gradient(fn, make, each)) for each in (v, w, both))
    # Nothing is differenced here: half of the digits agree.
    half = max(torch.finfo(each.dtype).eps for each in v) ** 0.5
    close = min(TOLERANCE, half)
    return (
        differ(of_both, 3 * of_v + of_w, close)
        or sizes_matter(fn, make, v, close)
        or plain_ones_matter(fn, make, v, close)
        or tangents_of_ones_matter(fn, make, close)
        or their_place_matters(fn, make, v, close)
    )


def their_place_matters(fn: Function, make: Inputs, v: list[Tensor], close: float) -> bool:
    """Whether a second cotangent has another gradient than its own, lying where the first lay."""
    inputs = make()
    leaves, roots = leaves_of(inputs), outputs_of(fn, inputs)
    kept = [(o, c.clone()) for o, c in zip(roots, v, strict=True) if o.requires_grad]
    outputs, cotangents = [o for o, _ in kept], [c for _, c in kept]

    def pulled() -> Tensor:
        options = {"retain_graph": True, "allow_unused": True, "materialize_grads": True}
        return reals(list(torch.autograd.grad(outputs, leaves, cotangents, **options)))

    once = pulled()
    for each in cotangents:
        each.data.mul_(2)  # the same version
    return differ(pulled(), 2 * once, close)


def tangents_of_ones_matter(fn: Function, make: Inputs, close: float) -> bool:
    """Whether forward mode says of ones, large or not, or of one entry, more than of its parts.

    Nothing is said of large ones in formats without room for them.
    """
    leaves = leaves_of(make())
    room = all(torch.finfo(each.dtype).max > 1e6 for each in leaves)
    ones = [torch.ones_like(each) for each in leaves]
    generator = torch.Generator().manual_seed(13)
    dense = [torch.randn(each.shape, generator=generator, dtype=each.dtype) for each in leaves]
    large = [[2.0**20 * each for each in ones]] * room
    for some in (ones, *large, basis(leaves, 0)):
        rest = [each - part for each, part in zip(some, dense, strict=True)]
        try:
            of_some, of_dense, of_rest = (
                forward_along(fn, make, each) for each in (some, dense, rest)
            )
        except (NotImplementedError, RuntimeError):  # it has no forward mode
            return False
        if differ(of_some, of_dense + of_rest, close):
            return True
    return False


def plain_ones_matter(fn: Function, make: Inputs, v: list[Tensor], close: float) -> bool:
    """Whether ones, 1 and -1 that cancel, or -1/3 are not what they are as a part of others."""
    ones = [torch.ones_like(each) for each in v]
    two = [torch.zeros_like(each) for each in v]
    for each in two:
        each.reshape(-1)[:2] = torch.tensor([1, -1])[: each.numel()].to(each.dtype)
    of_v = reals(gradient(fn, make, v))
    for some in (ones, two, [each / -3 for each in ones]):
        rest = [each - part for each, part in zip(v, some, strict=True)]
        parts = reals(gradient(fn, make, some)) + reals(gradient(fn, make, rest))
        if differ(parts, of_v, close):
            return True
    return False


def sizes_matter(fn: Function, make: Inputs, v: list[Tensor], close: float) -> bool:
    """Whether half of a cotangent made large, or one entry of it, is not what it was, made large.

    And the other half made small. Nothing is said of formats without room for it.
    """
    if any(torch.finfo(each.dtype).max < 1e6 for each in v):
        return False
    first = [_first_half(each) for each in v]
    rest = [each - half for each, half in zip(v, first, strict=True)]
    one = basis(v, 1)
    left = [each - single for each, single in zip(v, one, strict=True)]
    of_v = reals(gradient(fn, make, v))

    def scaled(cotangents: list[Tensor], factor: float) -> Tensor:
        return reals(gradient(fn, make, [factor * each for each in cotangents])) / factor

    for sign in (1.0, -1.0):
        parts = scaled(first, sign * 2.0**20) + scaled(rest, 2.0**-20)
        if differ(parts, of_v, close):
            return True
    return differ(scaled(one, 1.0) + scaled(left, 1.0), of_v, close)


def _first_half(cotangent: Tensor) -> Tensor:
    """Zeros in the second half, and at every third entry of the first; of a number, half of it."""
    if cotangent.numel() == 1:
        return cotangent / 2
    flat = cotangent.reshape(-1).clone()
    flat[flat.numel() // 2 :] = 0
    flat[1::3] = 0
    return flat.reshape(cotangent.shape)


def memory_layout_is_wrong(fn: Function, make: Inputs, *_: Any) -> bool:
    """Cotangents lying otherwise, and one number, or row, expanded over the output; then inputs."""
    shapes = outputs_of(fn, make())
    plain = some_cotangents(fn, make)
    expanded = [torch.full((), 0.7, dtype=each.dtype).expand(each.shape) for each in shapes]
    pairs = [(list(map(lie, plain)), plain) for lie in LYING]
    rows = [each[:1].expand(each.shape) if each.dim() else each for each in plain]
    pairs += [(odd, [each.clone() for each in odd]) for odd in (expanded, rows)]
    if any(
        differ(
            reals(gradient(fn, make, odd)),
            reals(gradient(fn, make, [each.contiguous() for each in even])),
        )
        for odd, even in pairs
    ):
        return True
    other = [lying_in_columns(each) if torch.is_tensor(each) else each for each in make()]
    if differ(reals(outputs_of(fn, tuple(other))), reals(shapes)):
        return True
    given = reals(gradient(fn, make, plain))
    return differ(reals(gradient(fn, lambda: tuple(map(conjugated, make())), plain)), given)


def conjugated(tensor: Any) -> Any:
    """The same complex numbers, of which memory holds the conjugates; anything else as it is."""
    if not torch.is_tensor(tensor) or not tensor.is_complex() or tensor.is_sparse:
        return tensor
    return tensor.detach().conj().resolve_conj().conj().requires_grad_(tensor.requires_grad)


def lying_in_columns(tensor: Tensor) -> Tensor:
    return tensor.mT.contiguous().mT if tensor.dim() > 1 else tensor


LYING = (
    lying_in_columns,
    lambda x: torch.stack([x, -x], -1)[..., 0],
    lambda x: torch.cat([x, -x], -1)[..., : x.shape[-1]] if x.dim() else x,
    lambda x: x.transpose(0, 1).contiguous().transpose(0, 1) if x.dim() > 2 else x,
    lambda x: x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x,
    lambda x: (
        x.conj().resolve_conj().conj() if x.is_complex() else torch.complex(x, -x).conj().imag
    ),
)


def determinism_is_wrong(fn: Function, make: Inputs, *_: Any) -> bool:
    """The backward of one graph, run four times, and once more with a graph of its own."""
    leaves = leaves_of(inputs := make())
    outputs = outputs_of(fn, inputs)
    cotangents = some_cotangents(fn, make)
    first, *others, recorded = (
        torch.autograd.grad(
            outputs,
            leaves,
            [each.clone() for each in cotangents],
            retain_graph=True,
            create_graph=graph,
        )
        for graph in (False, False, False, False, True)
    )
    expected = reals(list(first))
    return any(differ_at_all(expected, reals(list(other))) for other in others) or differ(
        expected, reals([each.detach() for each in recorded])
    )


def differ_at_all(one: Tensor, other: Tensor) -> bool:
    return not torch.equal(one, other)


def second_point_is_wrong(fn: Function, make: Inputs, *_: Any) -> bool:
    """A graph asked again after a call far away; and the gradient there, also in its memory.

    The first entry of an array of several stays, by which a cache may know it.
    """
    cotangents = some_cotangents(fn, make)
    leaves = leaves_of(inputs := make())
    outputs, point = outputs_of(fn, inputs), [each.detach().clone() for each in leaves]

    def far() -> tuple[Any, ...]:
        values = iter(point)
        return tuple(away(next(values)) if leaves_of((each,)) else each for each in inputs)

    def away(values: Tensor) -> Tensor:
        there, first = -0.7 * values, (0,) * values.dim()
        if values.numel() > 1:
            there[first] = values[first]
        return there.requires_grad_()

    def pulled(outputs: list[Tensor], leaves: list[Tensor]) -> Tensor:
        clones = [each.clone() for each in cotangents]
        return reals(list(torch.autograd.grad(outputs, leaves, clones, retain_graph=True)))

    first = pulled(outputs, leaves)
    far_leaves = leaves_of(elsewhere := far())
    there = pulled(outputs_of(fn, elsewhere), far_leaves)
    if differ(pulled(outputs, leaves), first):
        return True
    for leaf, values in zip(leaves, far_leaves, strict=True):
        leaf.data.copy_(values.data)
    again = pulled(outputs_of(fn, inputs), leaves)
    columns = sample(len(reals(far_leaves)))
    slopes = central(lambda inputs: reals(outputs_of(fn, inputs)), far, columns, 1e-5)
    measured = slopes.T @ reals(cotangents)
    return differ(there[columns], measured) or differ(again[columns], measured)


def side_effects_are_wrong(fn: Function, make: Inputs, *_: Any) -> bool:
    """Inputs, cotangents, what is returned or stored, a second backward, and the generator."""
    leaves = leaves_of(inputs := make())
    before = reals(leaves).clone()
    outputs = outputs_of(fn, inputs)
    cotangents = some_cotangents(fn, make)
    kept = reals(cotangents).clone()
    try:
        first, second = (
            torch.autograd.grad(outputs, leaves, cotangents, retain_graph=True, allow_unused=True)
            for _ in range(2)
        )
    except RuntimeError:  # the second
        return True
    known = [i for i, each in enumerate(first) if each is not None]
    returned = [each.clone() for each in (*first, *outputs) if each is not None]
    turned = [-each for each in cotangents]
    torch.autograd.grad(outputs, leaves, turned, retain_graph=True, allow_unused=True)
    outputs_of(fn, [x.detach() / 2 if isinstance(x, Tensor) else x for x in inputs])
    later = [each for each in (*first, *outputs) if each is not None]
    pairs = [
        (reals(later), reals(returned)),
        (reals(leaves), before),
        (reals(cotangents), kept),
        *((reals([first[i]]), reals([second[i]])) for i in known),
    ]
    stored = any(each.grad is not None for each in leaves)
    return stored or any(differ_at_all(*pair) for pair in pairs) or generator_is_misused(fn, make)


def generator_is_misused(fn: Function, make: Inputs) -> bool:
    """Whether gradients go by the global generator's state, or end in a state of their own."""
    cotangents, given = some_cotangents(fn, make), torch.random.get_rng_state()
    found, ends = [], []
    for seed in range(20):
        torch.random.manual_seed(seed)
        found.append(reals(list(gradient(fn, make, cotangents))))
        ends.append(torch.random.get_rng_state())
    torch.random.set_rng_state(given)
    return not differ_at_all(*ends[:2]) or any(differ_at_all(found[0], each) for each in found)


def missing_grad_output_is_wrong(fn: Function, make: Inputs, *_: Any) -> bool:
    """The cotangent of one output alone, against explicit zeros; and all of these, added up."""
    plain, parts = some_cotangents(fn, make), []
    for defined in range(len(plain)):
        leaves = leaves_of(inputs := make())
        outputs = outputs_of(fn, inputs)
        try:
            found = torch.autograd.grad(outputs[defined], leaves, plain[defined])
        except TypeError:
            return True
        zeros = [v if i == defined else torch.zeros_like(v) for i, v in enumerate(plain)]
        parts.append(reals(gradient(fn, make, zeros)))
        if differ(reals(list(found)), parts[-1]):
            return True
    return differ(sum(parts), reals(gradient(fn, make, plain)))


def batched_is_wrong(fn: Function, make: Inputs, *_: Any) -> bool:
    """A batch of cotangents, against a loop."""
    leaves = leaves_of(inputs := make())
    outputs = outputs_of(fn, inputs)
    some = [some_cotangents(fn, make, seed) for seed in (11, 12)]
    stacked = tuple(torch.stack(each) for each in zip(*some, strict=True))
    batch = torch.vmap(lambda *v: torch.autograd.grad(outputs, leaves, v, retain_graph=True))(
        *stacked
    )
    loop = [reals(gradient(fn, make, each)) for each in some]
    return any(differ(reals([each[row] for each in batch]), loop[row]) for row in range(2))


def grad_metadata_is_wrong(fn: Function, make: Inputs, *_: Any) -> bool:
    """Another kind of array, or another gradient where other inputs need none."""
    cotangents = some_cotangents(fn, make)
    found = gradient(fn, make, cotangents)
    if any(
        each.layout != leaf.layout or each.dtype != leaf.dtype
        for each, leaf in zip(found, leaves_of(make()), strict=True)
    ):
        return True
    count = len(found)
    for needed in itertools.product((False, True), repeat=count):
        leaves = leaves_of(inputs := make())
        for leaf, needs in zip(leaves, needed, strict=True):
            leaf.requires_grad_(needs)
        if 0 < sum(needed) < count:
            wanted = list(itertools.compress(leaves, needed))
            some = torch.autograd.grad(
                outputs_of(fn, inputs),
                wanted,
                cotangents,
                allow_unused=True,
                materialize_grads=True,
            )
            if differ(reals(some), reals(list(itertools.compress(found, needed)))):
                return True
    return False


def sparse_is_wrong(fn: Function, make: Inputs, *_: Any) -> bool:
    """Gradients where a sparse input stores nothing."""
    found = gradient(fn, make, some_cotangents(fn, make))
    return any(
        bool((dense([each])[0][leaf.detach().to_dense() == 0] != 0).any())
        for each, leaf in zip(found, leaves_of(make()), strict=True)
    )


def second_order_is_wrong(fn: Function, make: Inputs, step: float, _: tuple[int, ...]) -> bool:
    """The derivative of the VJP in the inputs and in the cotangents, by double backward."""
    cotangents = some_cotangents(fn, make)

    def with_cotangents() -> tuple[Any, ...]:
        return (*make(), *(each.clone().requires_grad_() for each in cotangents))

    def vjp(*values: Any):
        inputs, v = values[: -len(cotangents)], list(values[-len(cotangents) :])
        found = torch.autograd.grad(outputs_of(fn, inputs), leaves_of(inputs), v, create_graph=True)
        return tuple(found)

    columns = columns_of(with_cotangents)
    measured = central(
        lambda values: reals(outputs_of(vjp, values)), with_cotangents, columns, step
    )
    rows = list(range(len(measured)))
    alone, graphed = gradient(fn, make, cotangents), vjp(*with_cotangents())
    if len(alone) == len(graphed) and differ(reals(graphed), reals(alone)):
        return True
    try:
        return differ(reverse_jacobian(vjp, with_cotangents, rows, columns), measured)
    except RuntimeError as error:  # what cannot be run at all
        return "modified by an inplace operation" in str(error)


def forward_over_forward_is_wrong(
    fn: Function, make: Inputs, step: float, _: tuple[int, ...]
) -> bool:
    """The JVP of the JVP along one direction, against differences of the JVP."""
    inputs = tuple(leaf.detach() for leaf in make())
    along = tuple(x.cos() for x in inputs)

    def pushed(*values: Any) -> Any:
        return torch.func.jvp(fn, values, along)[1]

    claimed = torch.func.jvp(pushed, inputs, along)[1]
    sides = [
        pushed(*(x + way * step * u for x, u in zip(inputs, along, strict=True))) for way in (1, -1)
    ]
    return differ(reals([claimed]), (reals([sides[0]]) - reals([sides[1]])) / (2 * step))


def gradient_of(fn: Function, inputs: tuple[Any, ...]) -> Tensor:
    outputs = outputs_of(fn, inputs)
    return reals(
        list(torch.autograd.grad(outputs, leaves_of(inputs), list(map(torch.cos, outputs))))
    )


def compiled_is_wrong(fn: Function, make: Inputs, _: float, __: tuple[int, ...]) -> bool:
    """The gradient of the compiled function against that of eager mode."""
    compiled = torch.compile(fn, backend="aot_eager", dynamic=False)
    return differ(gradient_of(compiled, make()), gradient_of(fn, make()))


def functional_is_wrong(fn: Function, make: Inputs, _: float, __: tuple[int, ...]) -> bool:
    """The gradient by torch.func.vjp against that by torch.autograd.grad."""
    inputs = tuple(leaf.detach() for leaf in make())
    output, pull = torch.func.vjp(fn, *inputs)
    return differ(reals(list(pull(output.cos()))), gradient_of(fn, make()))


SHOWS: dict[str, Callable[..., bool]] = {
    "backward": backward_is_wrong,
    "forward": forward_is_wrong,
    "linearity": linearity_is_wrong,
    "memory_layout": memory_layout_is_wrong,
    "determinism": determinism_is_wrong,
    "second_point": second_point_is_wrong,
    "side_effects": side_effects_are_wrong,
    "missing_grad_output": missing_grad_output_is_wrong,
    "batched": batched_is_wrong,
    "grad_metadata": grad_metadata_is_wrong,
    "sparse": sparse_is_wrong,
    "second_order": second_order_is_wrong,
    "forward_over_forward": forward_over_forward_is_wrong,
    "compiled": compiled_is_wrong,
    "functional_vjp": functional_is_wrong,
}
