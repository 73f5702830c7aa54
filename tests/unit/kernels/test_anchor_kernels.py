"""Anchor kernels through the interpreter."""

import pytest

from sync_runtime.codec import rules
from sync_runtime.codec.gpu import plans
from tests.gpu.anchor_checks import check_anchor, check_hostile_anchors, cpu_anchor, gaussian
from tests.gpu.checks import mutants_of
from tests.gpu.support import make_case

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def many_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes from few elements on, on both sides."""
    for module in (rules, plans):
        monkeypatch.setattr(module, "ANCHOR_LANE_ELEMENTS", 20)


@pytest.mark.usefixtures("many_lanes")
@pytest.mark.parametrize("dtype", ["BF16", "F16", "F8_E4M3", "F8_E5M2", "F32"])
def test_anchors_are_the_cpus(dtype: str) -> None:
    case = make_case([("a", dtype, (19, 31)), ("b", dtype, (45,)), ("i", "I64", (5,)), ("z", "U8", (3,))], 0.5)
    check_anchor(case, "cpu", batch_elements=100)
    assert check_anchor(gaussian(case), "cpu", batch_elements=100) == {4, 5}


def test_gaussian_weights_are_packed() -> None:
    case = make_case([("a", "BF16", (600,)), ("u", "I8", (33,))], 0.02)
    assert check_anchor(case, "cpu", batch_elements=1 << 20) == {4, 5}


def test_mutated_anchors_are_refused_or_mean_what_they_mean_on_the_cpu() -> None:
    case = make_case([("a", "BF16", (90,)), ("u", "I8", (7,))], 0.02)
    refused, taken = check_hostile_anchors(case, "cpu", mutants_of(cpu_anchor(case), 40, seed=3))
    assert refused > 5
    assert taken > 0
