"""Staged deltas, ranks and snapshots under the interpreter: small, and many shapes of them."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sync_runtime.codec.gpu.decode import DeltaDecoder
from sync_runtime.delta.kernels.staging import DeviceStaging
from sync_runtime.errors import DigestError
from sync_runtime.tensors.device.fold import folded, plain_fold
from sync_runtime.tensors.device.sections import sections_of
from sync_runtime.tensors.digest import Digest
from tests.gpu.checks import bases_of
from tests.gpu.staging_checks import chain_of, check_overlay, check_staging, promised, random_list
from tests.gpu.support import cpu_object, make_case, on

pytestmark = pytest.mark.timeout(120)
SMALL = [("n", "BF16", (60,)), ("m", "BF16", (3, 20)), ("e", "F8_E4M3", (50,))]


@given(
    seed=st.integers(0, 1000),
    density=st.sampled_from([0.02, 0.3, 1.0]),
    codecs=st.lists(st.sampled_from([1, 2]), min_size=1, max_size=3),
)
@settings(max_examples=6, deadline=None)
def test_staged_deltas_fold_into_the_list_that_the_cpu_makes(seed: int, density: float, codecs: list[int]) -> None:
    case = make_case(SMALL, density, seed=seed)
    check_staging(case, "cpu", chain_of(case, 3, density, seed), codecs)


@given(seed=st.integers(0, 1000), densities=st.tuples(*[st.sampled_from([0.0, 0.01, 0.5, 1.0])] * 2))
@settings(max_examples=12, deadline=None)
def test_a_folded_list_is_that_of_plain_torch(seed: int, densities: tuple[float, float]) -> None:
    case = make_case([("n", "BF16", (500,)), ("f", "F32", (33,)), ("u", "U8", (40,))], 0.0)
    rng = np.random.default_rng(seed)
    for section in sections_of(case.blocks, "cpu"):
        earlier, later = (random_list(section, rng, density) for density in densities)
        found, wanted = folded(section, earlier, later), plain_fold(earlier, later)
        assert torch.equal(found.first, wanted.first)
        assert torch.equal(found.where, wanted.where)
        assert torch.equal(found.value, wanted.value)


def test_blocks_are_patched_part_by_part() -> None:
    case = make_case([("a", "BF16", (66, 1024)), ("b", "BF16", (70, 1000)), ("n", "BF16", (300,))], 0.0)
    check_overlay(case, "cpu", 0.01, parts=3)


def test_a_delta_that_leads_elsewhere_is_not_folded_in() -> None:
    case = make_case(SMALL, 0.2)
    bases = bases_of(case, "cpu", on("cpu", case.old))
    staging = DeviceStaging(case.layout, bases)
    lists = DeltaDecoder(case.blocks, bases).decode(cpu_object(case, 1), staging.overlays())
    right = promised(case, case.old, case.new)
    with pytest.raises(DigestError, match="nothing was changed"):
        staging.add(lists, [right[0].plus(Digest(0, 1)), *right[1:]])
    assert staging.num_elements == 0
    staging.add(lists, right)
    assert staging.num_elements > 0
    staging.clear()
    assert staging.num_elements == 0
