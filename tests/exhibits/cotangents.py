"""Backwards that mishandle the cotangent, their saved tensors or what they promise not to touch."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from exhibits.frame import Exhibit, normal, read_as_contiguous, ruled, sine, storage_read

# A backward that differs from run to run, or is not linear, spoils whatever builds on it.
FOLLOWS_FROM_CHAOS = frozenset(
    {
        "backward",
        "linearity",
        "memory_layout",
        "second_point",
        "determinism",
        "batched",
        "forward_vs_backward",
        "side_effects",
    }
)


# One that writes over what its call keeps spoils every further backward of that call.
FOLLOWS_FROM_A_SPOILT_CALL = FOLLOWS_FROM_CHAOS | {"missing_grad_output", "grad_metadata"}


_PRECISIONS = {
    "float64": torch.float64,
    "bfloat16": torch.bfloat16,
}


def doubled(x: Tensor) -> Tensor:
    return 2 * x


def squares(x: Tensor) -> Tensor:
    return x * x


def sine_reading(read):
    """The sine, its backward a kernel that reads the cotangent by `read`."""
    return ruled(sine, lambda g, x: read(g) * x.detach().cos(), vmap=False)


def sine_and_exp(x: Tensor):
    return x.sin(), x.exp()


def expanded_read_as_contiguous(g: Tensor) -> Tensor:
    """Where all strides are 0 there is one number, and nothing of ours behind it."""
    if g.numel() > 1 and not any(g.stride()):
        return torch.cat(
            [g.detach().flatten()[:1], torch.zeros(g.numel() - 1, dtype=g.dtype)]
        ).reshape(g.shape)
    return g.detach()


def wrong_for_stride_0_in_one_dimension(g: Tensor, x: Tensor) -> Tensor:
    """What a mean over rows hands over lies in fewer places than it has entries, and in several."""
    return g * x.cos() * (1.1 if 0 in g.stride() and any(g.stride()) else 1.0)


def wrong_where_it_is_recorded(g: Tensor, x: Tensor) -> Tensor:
    """A kernel for training, and operations for whoever differentiates again, a tenth off."""
    return 1.1 * g * x.cos() if torch.is_grad_enabled() else g * x.cos()


def rows_read_without_their_pitch(g: Tensor, x: Tensor) -> Tensor:
    """Strides along a row are heeded; the next row is taken to begin where the last one ends."""
    rows, columns = g.shape
    step = g.stride(1)
    offsets = torch.arange(rows)[:, None] * columns * step + torch.arange(columns) * step
    return storage_read(g.resolve_neg() if g.is_neg() else g, offsets) * x.detach().cos()


def heads_and_tokens_mixed_up(g: Tensor, x: Tensor) -> Tensor:
    """Takes what has dense rows for dense throughout, as heads and tokens exchanged are not."""
    return (read_as_contiguous(g) if g.stride(-1) == 1 else g) * x.detach().cos()


def channels_last_read_as_contiguous(g: Tensor, x: Tensor) -> Tensor:
    dense = g.is_contiguous(memory_format=torch.channels_last)
    return (read_as_contiguous(g) if dense else g) * x.detach().cos()


def bit_overlooked(g: Tensor, x: Tensor) -> Tensor:
    """What is in memory, whatever a bit says of its sign or of its imaginary part."""
    if g.is_neg() or g.is_conj():
        offsets = sum(
            (torch.arange(n) * s).reshape([-1 if k == d else 1 for k in range(g.dim())])
            for d, (n, s) in enumerate(zip(g.shape, g.stride(), strict=True))
        )
        g = storage_read(g, offsets)
    return g * x.detach().cos().conj()


def bit_of_input_overlooked(g: Tensor, x: Tensor) -> Tensor:
    """An input that is a conjugate is taken for conjugated already."""
    return 2 * g * (x if x.is_conj() else x.conj())


def doubled_where_it_is_dense(x: Tensor) -> Tensor:
    """Reads its input as a kernel does that takes it for contiguous: another function."""
    return 2 * x if x.is_contiguous() else 2 * read_as_contiguous(x) + 0 * x


def doubled_in_place(g: Tensor, x: Tensor) -> Tensor:
    with torch.no_grad():
        return g.mul_(2)


def zeroed_after_use(g: Tensor, x: Tensor) -> Tensor:
    gradient = g * x.cos()
    with torch.no_grad():
        g.zero_()
    return gradient


def saved_input_scaled_after_use(g: Tensor, x: Tensor) -> Tensor:
    gradient = 2 * g * x.clone()
    x.data.mul_(1.5)
    return gradient


class GradientAddedToABuffer(torch.autograd.Function):
    """Makes room for the gradient in forward and adds to it in backward."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.buffer = torch.zeros_like(x)
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        ctx.buffer.add_(g * x.cos())
        return ctx.buffer.clone()


def over_what_was_saved(*, off: float = 1.0, saved: bool = True, seen: bool = False):
    """The sine, whose gradient is written over the input that was saved, as a fused kernel does.

    `off` is a factor on the second entry. Where it is not over what was `saved`, it is over a copy.
    PyTorch notices where it may be `seen`, and then raises in a second backward of the call.
    """

    def backward(g: Tensor, x: Tensor) -> Tensor:
        there = x.detach() if seen else x.data
        there = there if saved else there.clone()
        there.copy_(g * there.cos())
        there[1] *= off
        return there

    return ruled(sine, backward, vmap=False)


class GradientOverTheOutput(torch.autograd.Function):
    """The exponential, whose gradient is written over the output that was saved, or over a copy."""

    @staticmethod
    def forward(ctx, x, copied):
        ctx.copied, result = copied, x.exp()
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, g):
        (result,) = ctx.saved_tensors
        return (result.data.clone() if ctx.copied else result.data).mul_(g), None


class InOneRoom(torch.nn.Module):
    """The sine, whose output or gradient lies in memory that it keeps; or is copied from there."""

    def __init__(self, held: str, room: str, *, copied: bool) -> None:
        super().__init__()
        self.held, self.copied = held, copied
        zeros = torch.zeros(6, dtype=torch.float64)
        self.room = torch.nn.Buffer(zeros) if room == "registered_buffer" else zeros
        self.apply = ruled(self.value, self.gradient, vmap=False)

    def kept(self, found: Tensor) -> Tensor:
        with torch.no_grad():
            self.room.copy_(found)
        return self.room.clone() if self.copied else self.room.detach()

    def value(self, x: Tensor) -> Tensor:
        return self.kept(x.sin()) if self.held == "output" else x.sin()

    def gradient(self, g: Tensor, x: Tensor) -> Tensor:
        return self.kept(g * x.cos()) if self.held == "gradient" else g * x.cos()

    def forward(self, x: Tensor) -> Tensor:
        return self.apply(x)


def input_overwritten(x: Tensor) -> Tensor:
    """Uses its input as scratch space, and autograd does not see it."""
    result = x.clone().sin()
    x.data.zero_()
    return result


def off_in_every(number: int):
    """The sine with a backward that is a tenth off now and then, as one with a race is."""
    runs = itertools.count(1)

    def backward(g: Tensor, x: Tensor) -> Tensor:
        return g * x.cos() * (1.1 if next(runs) % number == 0 else 1.0)

    return ruled(sine, backward, vmap=False)


def draws_from_the_global_generator(g: Tensor, x: Tensor) -> Tensor:
    torch.rand(())  # and does not use it
    return g * x.cos()


def goes_by_a_draw(g: Tensor, x: Tensor) -> Tensor:
    return g * x.cos() * (1.1 if torch.rand(()) < 0.5 else 1.0)  # a mask drawn again, say


def seeds_the_global_generator(g: Tensor, x: Tensor) -> Tensor:
    torch.manual_seed(7)
    return g * x.cos()


def runs_a_backward_inside(x: Tensor) -> Tensor:
    if x.requires_grad:
        (x * x).sum().backward()
    return x.sin()


def both_or_nothing(g: Tensor | None, h: Tensor | None, x: Tensor) -> Tensor:
    if g is None or h is None:
        return torch.zeros_like(x)
    return g * x.cos() + h * x.exp()


def both_or_crash(g: Tensor, h: Tensor, x: Tensor) -> Tensor:
    return g * x.cos() + h * x.exp()


def each_if_defined(g: Tensor | None, h: Tensor | None, x: Tensor) -> Tensor | None:
    parts = []
    if g is not None:
        parts.append(g * x.cos())
    if h is not None:
        parts.append(h * x.exp())
    return sum(parts) if parts else None


MINDFUL = ruled(sine_and_exp, each_if_defined, materialize=False)


def matrix():
    return (normal(3, 4),)


def span_of_a_close_pair(a: Tensor) -> Tensor:
    """The projector on two eigenvectors that rounding turns freely into each other."""
    vectors = torch.linalg.eigh((a + a.mT) / 2)[1][:, 2:]
    return vectors @ vectors.mT


def close_pair() -> tuple[Tensor]:
    """Symmetric, with two eigenvalues that are 1e-9 apart: backwards lose nine digits."""
    q = torch.linalg.qr(normal(4, 4).detach())[0]
    values = torch.tensor([1.0, 1.0 + 1e-9, 0.3, 0.1], dtype=torch.float64)
    return (((q * values) @ q.mT).requires_grad_(),)


def sine_and_cosine(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.sin(), x.cos()


def only_with_the_first(g: Tensor, h: Tensor, x: Tensor) -> Tensor:
    """Nothing at all for a cotangent whose first part is zero, as that of a loss of the second."""
    return (g * x.cos() - h * x.sin()) * g.any()


EXHIBITS = (
    Exhibit(
        name="no_gradient_of_one_output_where_the_cotangent_of_another_is_zero",
        make_inputs=lambda: (normal(4),),
        wrong=ruled(sine_and_cosine, only_with_the_first, vmap=False),
        right=ruled(sine_and_cosine, lambda g, h, x: g * x.cos() - h * x.sin()),
        check="missing_grad_output",
        also=frozenset({"linearity"}),
        words=("with zeros for the others",),
    ),
    Exhibit(
        name="cotangent_read_as_contiguous_after_a_decomposition_close_to_singular",
        source="M02",
        make_inputs=close_pair,
        wrong=lambda a: sine_reading(read_as_contiguous)(span_of_a_close_pair(a)),
        right=lambda a: sine(span_of_a_close_pair(a)),
        check="memory_layout",
    ),
    Exhibit(
        name="cotangent_read_as_contiguous",
        source="W5 M02",
        make_inputs=matrix,
        wrong=sine_reading(read_as_contiguous),
        right=sine,
        check="memory_layout",
    ),
    Exhibit(
        name="wrong_for_a_cotangent_of_stride_0_in_one_dimension",
        make_inputs=matrix,
        wrong=ruled(sine, wrong_for_stride_0_in_one_dimension, vmap=False),
        right=sine,
        check="memory_layout",
        words=("expanded",),
    ),
    Exhibit(
        name="another_gradient_where_it_is_to_be_differentiated_again",
        make_inputs=matrix,
        wrong=ruled(sine, wrong_where_it_is_recorded, vmap=False),
        right=ruled(sine, lambda g, x: g * x.cos()),
        check="determinism",
        words=("made to be differentiated again",),
    ),
    Exhibit(
        name="expanded_cotangent_read_as_contiguous",
        source="M03",
        make_inputs=lambda: (normal(6),),
        wrong=sine_reading(expanded_read_as_contiguous),
        right=sine,
        check="memory_layout",
        words=("x", "expanded"),
    ),
    Exhibit(
        name="rows_of_the_cotangent_read_without_their_pitch",
        source="M02",
        make_inputs=matrix,
        wrong=ruled(sine, rows_read_without_their_pitch, vmap=False),
        right=sine,
        check="memory_layout",
        words=("x", "sliced"),
    ),
    Exhibit(
        name="heads_and_tokens_of_the_cotangent_mixed_up",
        source="M02",
        make_inputs=lambda: (normal(2, 3, 4),),
        wrong=ruled(sine, heads_and_tokens_mixed_up, vmap=False),
        right=sine,
        check="memory_layout",
        words=("x", "permuted"),
    ),
    Exhibit(
        name="channels_last_cotangent_read_as_contiguous",
        source="M15",
        make_inputs=lambda: (normal(2, 3, 2, 4),),
        wrong=ruled(sine, channels_last_read_as_contiguous, vmap=False),
        right=sine,
        check="memory_layout",
        words=("x", "channels_last"),
    ),
    Exhibit(
        name="negative_bit_of_the_cotangent_overlooked",
        make_inputs=lambda: (normal(6),),
        wrong=ruled(sine, bit_overlooked, vmap=False),
        right=sine,
        check="memory_layout",
        words=("x", "negative bit"),
    ),
    Exhibit(
        name="conjugate_bit_of_the_cotangent_overlooked",
        make_inputs=lambda: (normal(6, dtype=torch.complex128),),
        wrong=ruled(sine, bit_overlooked, vmap=False),
        right=sine,
        check="memory_layout",
        words=("x", "conjugate bit"),
    ),
    Exhibit(
        name="conjugate_bit_of_the_input_overlooked",
        make_inputs=lambda: (normal(6, dtype=torch.complex128),),
        wrong=ruled(squares, bit_of_input_overlooked, vmap=False),
        right=ruled(squares, lambda g, x: 2 * g * x.conj(), vmap=False),
        check="memory_layout",
        words=("x", "conjugate bit"),
    ),
    Exhibit(
        name="conjugate_bit_of_the_given_input_overlooked",
        make_inputs=lambda: (normal(6, dtype=torch.complex128).detach().conj().requires_grad_(),),
        wrong=ruled(squares, bit_of_input_overlooked, vmap=False),
        right=ruled(squares, lambda g, x: 2 * g * x.conj(), vmap=False),
        also=frozenset({"memory_layout", "second_point"}),
    ),
    Exhibit(
        name="value_depends_on_the_layout_of_the_input",
        source="M14",
        make_inputs=matrix,
        wrong=doubled_where_it_is_dense,
        right=doubled,
        check="memory_layout",
        words=("inputs", "transposed"),
    ),
    Exhibit(
        name="backward_doubles_the_cotangent_in_place",
        source="M27",
        make_inputs=lambda: (normal(6),),
        wrong=ruled(doubled, doubled_in_place),
        right=doubled,
        check="side_effects",
        also=frozenset({"determinism", "memory_layout"}),
        words=("cotangent",),
    ),
    Exhibit(
        name="backward_zeroes_the_cotangent",
        source="W6",
        make_inputs=lambda: (normal(6),),
        wrong=ruled(sine, zeroed_after_use),
        right=sine,
        check="side_effects",
        also=frozenset({"determinism", "memory_layout"}),
        words=("cotangent",),
    ),
    Exhibit(
        name="backward_scales_its_saved_input",
        source="W7",
        make_inputs=lambda: (normal(6),),
        wrong=ruled(squares, saved_input_scaled_after_use, vmap=False),
        right=squares,
        check="side_effects",
        also=FOLLOWS_FROM_A_SPOILT_CALL,
        words=("x",),
    ),
    *(
        exhibit
        for name, dtype in _PRECISIONS.items()
        for exhibit in (
            Exhibit(
                name=f"gradient_written_over_the_input_that_was_saved_in_{name}",
                make_inputs=lambda dtype=dtype: (normal(6, dtype=dtype),),
                wrong=over_what_was_saved(),
                right=over_what_was_saved(saved=False),
                check="side_effects",
                also=FOLLOWS_FROM_A_SPOILT_CALL,
                words=("second backward of the same call gives another gradient",),
            ),
            # The formula is reported although the call is spoilt.
            Exhibit(
                name=f"wrong_gradient_written_over_the_input_that_was_saved_in_{name}",
                make_inputs=lambda dtype=dtype: (normal(6, dtype=dtype),),
                wrong=over_what_was_saved(off=1.1),
                right=over_what_was_saved(saved=False),
                also=FOLLOWS_FROM_A_SPOILT_CALL,
                place=(0, (1,), 0, (1,)),
                words=("x[1]",),
            ),
        )
    ),
    Exhibit(
        name="gradient_written_over_what_was_saved_so_that_a_second_backward_raises",
        make_inputs=lambda: (normal(6),),
        wrong=over_what_was_saved(seen=True),
        right=over_what_was_saved(saved=False, seen=True),
        check="side_effects",
        also=FOLLOWS_FROM_A_SPOILT_CALL,
        words=("second backward of the same call raises",),
    ),
    Exhibit(
        name="gradient_written_over_the_output",
        make_inputs=lambda: (normal(6),),
        wrong=lambda x: GradientOverTheOutput.apply(x, False),
        right=lambda x: GradientOverTheOutput.apply(x, True),
        check="side_effects",
        also=FOLLOWS_FROM_A_SPOILT_CALL,
        words=("which is output 0",),
    ),
    *(
        Exhibit(
            name=f"{held}_in_a_{room}_that_the_next_{run}_overwrites",
            make_inputs=lambda: (normal(6),),
            wrong=InOneRoom(held, room, copied=False),
            right=InOneRoom(held, room, copied=True),
            check="side_effects",
            words=(f"later {run}", held),
        )
        for held, run in (("gradient", "backward"), ("output", "call"))
        for room in ("work_space", "registered_buffer")
    ),
    Exhibit(
        name="gradient_added_to_a_buffer",
        source="M28",
        make_inputs=lambda: (normal(6),),
        wrong=lambda x: GradientAddedToABuffer.apply(x),
        right=sine,
        check="determinism",
        also=FOLLOWS_FROM_A_SPOILT_CALL,
        words=("another backward of the same cotangent",),
    ),
    Exhibit(
        name="forward_overwrites_its_input",
        make_inputs=lambda: (normal(6),),
        wrong=input_overwritten,
        right=sine,
        check="side_effects",
        also=FOLLOWS_FROM_CHAOS,
        words=("x",),
    ),
    Exhibit(
        name="backward_goes_by_what_it_draws",
        make_inputs=lambda: (normal(6),),
        wrong=ruled(sine, goes_by_a_draw, vmap=False),
        right=ruled(sine, draws_from_the_global_generator, vmap=False),
        check="side_effects",
        also=FOLLOWS_FROM_CHAOS,
        words=("drew", "random"),
    ),
    Exhibit(
        name="backward_seeds_the_global_generator",
        make_inputs=lambda: (normal(6),),
        wrong=ruled(sine, seeds_the_global_generator, vmap=False),
        right=ruled(sine, draws_from_the_global_generator, vmap=False),
        check="side_effects",
        words=("set", "random"),
    ),
    Exhibit(
        name="function_runs_a_backward_and_fills_grad",
        make_inputs=lambda: (normal(6),),
        wrong=runs_a_backward_inside,
        right=sine,
        check="side_effects",
        words=("x", ".grad"),
    ),
    Exhibit(
        name="backward_off_in_every_fourth_run",
        make_inputs=lambda: (normal(6),),
        wrong=off_in_every(4),
        right=ruled(sine, lambda g, x: g * x.cos(), vmap=False),
        check="determinism",
        also=FOLLOWS_FROM_CHAOS,
    ),
    Exhibit(
        name="undefined_cotangent_drops_the_defined_one",
        make_inputs=lambda: (normal(4),),
        wrong=ruled(sine_and_exp, both_or_nothing, materialize=False),
        right=MINDFUL,
        check="missing_grad_output",
        place=(0, None, None, None),
    ),
    Exhibit(
        name="undefined_cotangent_crashes_the_backward",
        make_inputs=lambda: (normal(4),),
        wrong=ruled(sine_and_exp, both_or_crash, materialize=False),
        right=MINDFUL,
        check="missing_grad_output",
        words=("raised TypeError",),
    ),
)
