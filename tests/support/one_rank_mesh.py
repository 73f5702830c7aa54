"""A process group of one rank inside the test's own process, for tensors that torch calls spread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore
from torch.distributed.device_mesh import DeviceMesh


@contextmanager
def one_rank_mesh() -> Iterator[DeviceMesh]:
    """A mesh of one rank; the group ends with the block."""
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        yield DeviceMesh("cpu", torch.arange(1), mesh_dim_names=("all",))
    finally:
        dist.destroy_process_group()
