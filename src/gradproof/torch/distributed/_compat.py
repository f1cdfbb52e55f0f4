"""Private API of torch.distributed, in a file of its own: not every PyTorch has torch.distributed.

Tried with PyTorch 2.13.0. What begins with an underscore and belongs to a group or a backend, such
as `group._get_backend`, stays where it is called.
"""

from __future__ import annotations

import torch.distributed as dist
from torch.distributed import distributed_c10d

# What a functional collective returns, to wait for it where ranks meet: `DTensor` hands it out, and
# no public name tells it from another subclass of tensors.
from torch.distributed._functional_collectives import AsyncCollectiveTensor as AsyncCollectiveTensor


def process_groups() -> list[dist.ProcessGroup]:
    """Every group that this process is in: a collective of PyTorch names its group in words.

    Publicly a group is known to who made it alone.
    """
    return list(distributed_c10d._world.pg_map)


def default_store() -> distributed_c10d.Store:
    """The store in which the ranks met: publicly only who made the groups can have it."""
    return distributed_c10d._get_default_store()
