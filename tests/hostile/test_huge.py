"""More than 2^31 elements in one tensor: positions, rows and digests do not wrap."""

import numpy as np
import pytest

from sync_runtime.offline import apply, diff
from sync_runtime.tensors.bits import BitTensor
from sync_runtime.tensors.dtypes import wire_dtype

ROWS, COLS = (1 << 15) + 1, 1 << 16


def zeros() -> BitTensor:
    """Pages that are only read stay the kernel's one page of zeros."""
    return BitTensor(wire_dtype("U8"), (ROWS, COLS), np.zeros((ROWS, COLS), np.uint8))


@pytest.mark.timeout(120)
def test_changes_beyond_2_to_the_31_survive() -> None:
    before, after = {"w": zeros()}, {"w": zeros()}
    places = [(0, 0), (ROWS - 2, COLS - 1), (ROWS - 1, 0), (ROWS - 1, COLS - 1)]
    for at, place in enumerate(places):
        after["w"].matrix[place] = at + 1
    delta = diff(before, after)
    assert delta.manifest.num_changed == len(places)
    apply(before, delta, held=delta.base.digest)
    assert [int(before["w"].matrix[place]) for place in places] == [1, 2, 3, 4]
    assert int(before["w"].matrix[-1].sum()) == 7
