"""The first process of a lab: how the kernel wants to be told which cores receive."""

from __future__ import annotations

import pytest

from tools.linkemu.labinit import cpu_mask


@pytest.mark.parametrize(
    ("cores", "mask"),
    [
        ({0}, "00000001"),
        (set(range(16)), "0000ffff"),
        ({1, 31}, "80000002"),
        ({0, 32}, "00000001,00000001"),
        (set(range(72)), "000000ff,ffffffff,ffffffff"),
    ],
)
def test_a_set_of_cores_as_the_kernel_writes_it(cores: set[int], mask: str) -> None:
    assert cpu_mask(cores) == mask
