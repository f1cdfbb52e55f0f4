"""The exhibits of `exhibits.sizes` that PyTorch's own tools can be asked about."""

from __future__ import annotations

from exhibits.frame import Exhibit
from exhibits.portable import Portable
from exhibits.sizes import CHANGES, COTANGENTS, MEAN
from portable_frames import torch_function, torch_inputs

# A rounding to whole numbers, or through fewer bits, shows in the numbers themselves too.
_ALSO = frozenset({"backward", "batched", "memory_layout", "forward_vs_backward"})
_CAUSES = {name: cause for name, (_, _, cause) in CHANGES.items()} | {MEAN.name: ""}


def _exhibit(portable: Portable) -> Exhibit:
    assert portable.wrong is not None
    return Exhibit(
        name=portable.name,
        source=portable.source,
        make_inputs=lambda: torch_inputs(portable),
        wrong=torch_function(portable, portable.wrong),
        right=torch_function(portable, portable.right),
        check="linearity",
        also=_ALSO,
        cause=_CAUSES.get(portable.name, ""),
    )


EXHIBITS = tuple(_exhibit(each) for each in COTANGENTS)
