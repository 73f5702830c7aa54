import pytest

from sync_runtime.tensors.layout import Shards
from tests.gpu.checks import check_bytes, check_decoding, check_extraction, check_hostile, mutants_of
from tests.gpu.support import burst_case, cpu_object, make_case

pytestmark = pytest.mark.timeout(300)
ONE_PERCENT = [("a", "BF16", (1500, 1024)), ("b", "BF16", (777, 999)), ("n", "BF16", (100,)), ("s", "BF16", ())]
MIXED = [
    ("a", "BF16", (66, 1024)), ("e", "F8_E4M3", (30, 77)), ("i", "I64", (5,)), ("f", "F32", (300, 300)),
    ("g", "BOOL", (40,)), ("h", "F16", (300, 400)), ("k", "I8", (1000, 100)), ("z", "BF16", (0,)),
]  # fmt: skip


@pytest.mark.parametrize("density", [0.0, 0.0003, 0.01, 0.2, 0.6, 1.0])
def test_bytes_and_states_are_the_cpus_at_every_density(density: float) -> None:
    case = make_case(ONE_PERCENT, density, block_elements=1 << 20)
    check_extraction(case, "cuda")
    check_bytes(case, "cuda")
    check_decoding(case, "cuda")


def test_bytes_and_states_are_the_cpus_for_every_width() -> None:
    case = make_case(MIXED, 0.2)
    check_extraction(case, "cuda")
    check_bytes(case, "cuda")
    check_decoding(case, "cuda")


def test_tiles_of_a_sharded_grid_are_read_through_their_strides() -> None:
    case = make_case([("a", "BF16", (1500, 1024))], 0.005, block_elements=1 << 17, shards={"a": Shards(500, 300)})
    check_extraction(case, "cuda")
    check_bytes(case, "cuda")
    check_decoding(case, "cuda")


def test_a_burst_of_changes_that_outruns_the_words_in_registers_is_decoded() -> None:
    check_decoding(burst_case(4096), "cuda", codecs=(2,))


def test_wild_steps_everywhere_make_dense_blocks() -> None:
    case = make_case([("a", "U8", (300, 300)), ("b", "I8", (300, 300))], 1.0, seed=3)
    check_bytes(case, "cuda")
    check_decoding(case, "cuda")


@pytest.mark.parametrize("codec", [1, 2])
def test_mutated_objects_are_refused_or_mean_what_they_mean_on_the_cpu(codec: int) -> None:
    case = make_case([("a", "BF16", (70, 1000)), ("n", "BF16", (300,)), ("f", "F32", (40,))], 0.01)
    data = cpu_object(case, codec)
    refused, taken = check_hostile(case, "cuda", mutants_of(data, 1500, seed=codec))
    assert refused > 100
    assert taken > 0 or codec == 2
