import pytest

from sync_runtime.tensors.layout import Shards
from tests.gpu.anchor_checks import check_anchor, check_hostile_anchors, cpu_anchor, gaussian
from tests.gpu.checks import mutants_of
from tests.gpu.support import make_case

pytestmark = pytest.mark.timeout(300)
MIXED = [
    ("a", "BF16", (700, 1024)), ("b", "BF16", (333, 999)), ("e", "F8_E4M3", (300, 777)), ("f", "F32", (300, 300)),
    ("g", "BOOL", (40,)), ("h", "F16", (300, 400)), ("i", "I64", (5,)), ("n", "BF16", (100,)), ("s", "F8_E5M2", ()),
    ("z", "BF16", (0,)),
]  # fmt: skip


@pytest.mark.parametrize("batch_elements", [1, 1 << 28])
def test_anchors_are_the_cpus(batch_elements: int) -> None:
    case = make_case(MIXED, 0.3, block_elements=1 << 18)
    assert check_anchor(case, "cuda", batch_elements=batch_elements) == {4, 5}


@pytest.mark.parametrize("dtype", ["F16", "F8_E4M3", "F8_E5M2", "F32"])
def test_packed_anchors_of_every_float_are_the_cpus(dtype: str) -> None:
    case = gaussian(make_case([("a", dtype, (333, 999)), ("n", dtype, (100,))], 0.3, block_elements=1 << 18))
    assert 4 in check_anchor(case, "cuda", batch_elements=1 << 28)


def test_anchors_of_a_sharded_grid_are_read_and_written_through_strides() -> None:
    case = make_case([("a", "BF16", (700, 1024))], 0.5, block_elements=1 << 17, shards={"a": Shards(350, 300)})
    check_anchor(case, "cuda", batch_elements=1 << 18)


def test_mutated_anchors_are_refused_or_mean_what_they_mean_on_the_cpu() -> None:
    case = make_case([("a", "BF16", (30, 1000)), ("n", "BF16", (300,)), ("u", "I8", (300,)), ("f", "F32", (40,))], 0.01)
    refused, taken = check_hostile_anchors(case, "cuda", mutants_of(cpu_anchor(case), 400, seed=3))
    assert refused > 100
    assert taken > 0
