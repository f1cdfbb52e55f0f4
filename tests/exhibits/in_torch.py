"""The portable exhibits as exhibits of PyTorch, which its own tools can be asked about too."""

from __future__ import annotations

from exhibits import everywhere, portable, sizes
from exhibits.frame import Exhibit
from exhibits.portable import Portable
from portable_frames import torch_function, torch_inputs

# What else fails by the mistake, by the check that is about it.
_ALSO = {
    "linearity": {"backward", "batched", "memory_layout", "forward_vs_backward"},
    "forward": {"forward_vs_backward"},
}
_ALSO_OF = {  # by name
    "cotangent_ignored": {"backward", "missing_grad_output"},
    "masked_score_whose_gradient_is_not_a_number": {"missing_grad_output"},
    "norm_that_is_not_a_number_at_zero": {"missing_grad_output"},
}
# Branches go by options there, or hide where others show; a softmax is plain code.
_WITH_A_VERSION_OF_THEIR_OWN = {
    "constant_factor_missing",
    "flag_read_the_wrong_way_round",
    "gather_overwrites_instead_of_accumulating",
    "normaliser_severed_from_the_graph",
    "product_divided_by_a_zero_entry",
    "small_row_dropped_beside_large_ones",
    "wrong_for_negative_inputs_only",
    "wrong_variable_on_the_gated_branch",
}


def _exhibit(portable: Portable) -> Exhibit:
    slot, entry, output = portable.place or (None, None, None)
    wrong = portable.wrong and torch_function(portable, portable.wrong, portable.wrong_push)
    return Exhibit(
        name=portable.name,
        source=portable.source,
        make_inputs=lambda: torch_inputs(portable),
        wrong=wrong,
        right=torch_function(portable, portable.right, portable.right_push),
        check=portable.check,
        also=frozenset(_ALSO_OF.get(portable.name, _ALSO.get(portable.check, ()))),
        place=(slot, entry, None if output is None else 0, output),
        cause=portable.cause,
    )


EXHIBITS = tuple(
    _exhibit(each)
    for each in (
        *portable.EXHIBITS,
        *everywhere.WRONG,
        *everywhere.RIGHT,
        *sizes.WRONG,
    )
    if each.name not in _WITH_A_VERSION_OF_THEIR_OWN
)
