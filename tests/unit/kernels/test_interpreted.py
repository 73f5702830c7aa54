"""The interpreter is slow: a few hundred elements, each test under a minute."""

import numpy as np
import pytest
import torch

from sync_runtime.codec import rules
from sync_runtime.codec.gpu import gpu_tables, plans
from sync_runtime.codec.tables import normalised, value_table
from sync_runtime.delta.kernels.extract import Extractor
from sync_runtime.tensors.device.bind import bind
from sync_runtime.tensors.device.sections import sections_of
from tests.gpu.checks import check_bytes, check_decoding, check_extraction, check_hostile, mutants_of
from tests.gpu.support import Case, burst_case, cpu_object, make_case, on, random_bits
from tests.support.states import SPECIAL_BF16

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def many_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes from few elements on, on both sides: a small block then has many."""
    for module in (rules, plans):
        monkeypatch.setattr(module, "POSITION_LANE_CHANGES", 1)
        monkeypatch.setattr(module, "POSITION_LANE_ELEMENTS", 1)
        monkeypatch.setattr(module, "VALUE_LANE_CHANGES", 2)


def special_case() -> Case:
    """All ordered pairs of special bit patterns."""
    count = len(SPECIAL_BF16)
    patterns = torch.tensor(SPECIAL_BF16, dtype=torch.int32).to(torch.int16)
    case = make_case([("w", "BF16", (count, count))], 0.0)
    case.old["w"] = patterns.repeat_interleave(count).view(torch.bfloat16).reshape(count, count)
    case.new["w"] = patterns.repeat(count).view(torch.bfloat16).reshape(count, count)
    return case


def test_all_pairs_of_special_patterns_survive_fast() -> None:
    case = special_case()
    check_extraction(case, "cpu")
    check_bytes(case, "cpu", codecs=(1,))
    check_decoding(case, "cpu", codecs=(1,))


@pytest.mark.usefixtures("many_lanes")
def test_all_pairs_of_special_patterns_survive_tight() -> None:
    case = special_case()
    check_bytes(case, "cpu", codecs=(2,))
    check_decoding(case, "cpu", codecs=(2,))


@pytest.mark.usefixtures("many_lanes")
@pytest.mark.parametrize("dtype", ["F8_E4M3", "F32", "BOOL"])
def test_bytes_are_the_cpus_for_other_widths(dtype: str) -> None:
    case = make_case([("w", dtype, (9, 31)), ("v", dtype, (17,))], 0.3)
    check_extraction(case, "cpu")
    check_bytes(case, "cpu", codecs=(1, 2))
    check_decoding(case, "cpu")


def test_a_burst_of_changes_that_outruns_the_words_in_registers_is_decoded() -> None:
    check_decoding(burst_case(), "cpu", codecs=(2,))


def test_masters_are_compared_after_the_cast() -> None:
    case = make_case([("n", "BF16", (300,))], 0.0)
    masters = random_bits((300,), "F32", np.random.default_rng(5))
    case.new["n"] = masters.to(torch.bfloat16)
    section = sections_of(case.blocks, "cpu")[0]
    old = bind(case.layout, section, on("cpu", case.old))
    extractor = Extractor(bind(case.layout, section, {"n": masters}, masters=True), old)
    extractor.run()
    check_extraction(case, "cpu", [extractor])


def test_mutated_fast_objects_are_refused_or_mean_the_same() -> None:
    case = make_case([("n", "BF16", (40,))], 0.2)
    refused, _ = check_hostile(case, "cpu", mutants_of(cpu_object(case, 1), 25, seed=1))
    assert refused > 3


def test_choices_for_many_blocks_are_those_of_the_rules() -> None:
    rng = np.random.default_rng(1)
    elements = rng.integers(1, 1 << 24, 2000)
    changed = np.maximum(1, (elements * rng.random(2000) ** 6).astype(np.int64))
    for n, z, bits, places, values in zip(
        elements, changed, plans.gap_bits(elements, changed), plans.log2_position_lanes(elements, changed),
        plans.log2_value_lanes(changed), strict=True,
    ):  # fmt: skip
        assert bits == rules.gap_bits(int(n), int(z))
        assert places == rules.position_lanes_log2(int(n), int(z))
        assert 1 << values == rules.value_lanes(int(z))


def test_tables_on_the_device_are_those_of_the_reference() -> None:
    rng = np.random.default_rng(2)
    counts = np.where(rng.random((256, 32)) < 0.2, rng.integers(0, 1 << 33, (256, 32)), 0)
    counts[0], counts[1, :2] = 0, 7  # nothing counted; equals, of which the lowest takes the rest
    assert np.array_equal(gpu_tables.value_table(torch.from_numpy(counts)).numpy(), value_table(counts))
    assert normalised(counts[0], 1 << 15).sum() == 0
