import numpy as np
import pytest
import torch

from sync_runtime.codec.gpu.decode import DeltaDecoder
from sync_runtime.delta.kernels.staging import DeviceStaging
from sync_runtime.errors import DigestError, FormatError
from sync_runtime.tensors.device.fold import folded, plain_fold
from sync_runtime.tensors.device.sections import sections_of
from sync_runtime.tensors.layout import Shards
from tests.gpu.checks import bases_of, mutants_of, raw
from tests.gpu.staging_checks import chain_of, check_overlay, check_staging, promised, random_list
from tests.gpu.support import Case, cpu_object, make_case, on

pytestmark = pytest.mark.timeout(300)
TENSORS = [("a", "BF16", (500, 1024)), ("b", "BF16", (377, 999)), ("n", "BF16", (100,)), ("f", "F32", (90, 1000))]


@pytest.mark.parametrize("codecs", [(1,), (2,), (1, 2)])
@pytest.mark.parametrize("density", [0.001, 0.01, 0.4])
def test_staged_deltas_fold_into_the_list_that_the_cpu_makes(codecs: tuple[int, ...], density: float) -> None:
    case = make_case(TENSORS, density, seed=2, block_elements=1 << 18)
    check_staging(case, "cuda", chain_of(case, 5, density, seed=3), codecs)


@pytest.mark.parametrize("parts", [1, 3, 16])
def test_blocks_are_patched_part_by_part(parts: int) -> None:
    tensors = [("a", "BF16", (500, 1024)), ("b", "F32", (377, 999)), ("n", "BF16", (100,))]
    check_overlay(make_case(tensors, 0.01, seed=4, block_elements=1 << 18), "cuda", 0.01, parts)


def test_tiles_of_a_sharded_grid_are_staged_through_their_strides() -> None:
    case = make_case([("a", "BF16", (700, 1024))], 0.005, block_elements=1 << 17, shards={"a": Shards(350, 300)})
    check_staging(case, "cuda", chain_of(case, 3, 0.005, seed=6), (2,))


@pytest.mark.parametrize("densities", [(0.01, 0.01), (0.0, 0.3), (1.0, 0.2), (0.9, 1.0)])
def test_a_folded_list_is_that_of_plain_torch(densities: tuple[float, float]) -> None:
    case = make_case([("a", "BF16", (70, 1000)), ("f", "F32", (333,)), ("u", "U8", (3000,))], 0.0)
    rng = np.random.default_rng(7)
    for section in sections_of(case.blocks, "cuda"):
        earlier, later = (random_list(section, rng, density) for density in densities)
        found, wanted = folded(section, earlier, later), plain_fold(earlier, later)
        assert torch.equal(found.first, wanted.first)
        assert torch.equal(found.where, wanted.where)
        assert torch.equal(found.value, wanted.value)


@pytest.mark.parametrize("codec", [1, 2])
def test_damaged_bytes_over_a_staged_list_change_neither_list_nor_weights(codec: int) -> None:
    case = make_case([("a", "BF16", (70, 1000)), ("n", "BF16", (300,))], 0.01)
    states = chain_of(case, 2, 0.01, seed=8)
    live = on("cuda", case.old)
    bases = bases_of(case, "cuda", live)
    decoder, staging = DeltaDecoder(case.blocks, bases), DeviceStaging(case.layout, bases)
    staging.add(decoder.decode(cpu_object(case, codec)), promised(case, states[0], states[1]))
    staged, want = staging.lists, promised(case, states[1], states[2])
    data = cpu_object(Case(case.layout, states[1], states[2]), codec)
    mutants = [mutant for mutant in mutants_of(data, 200, seed=codec) if mutant != data]
    for mutant in mutants:
        with pytest.raises((FormatError, DigestError)):
            staging.add(decoder.decode(mutant, staging.overlays()), want)
        assert staging.lists is staged
    for name, tensor in live.items():
        assert torch.equal(raw(tensor), raw(case.old[name]))
    staging.add(decoder.decode(data, staging.overlays()), want)
    staging.commit()
    for name, tensor in live.items():
        assert torch.equal(raw(tensor), raw(states[2][name]))
