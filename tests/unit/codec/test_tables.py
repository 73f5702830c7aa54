"""Tables: integers only, nothing lost, samples where groups are large, one spelling."""

import numpy as np
import pytest

from sync_runtime.codec.cpu.steps import count_block
from sync_runtime.codec.rules import PROBABILITY_ONE
from sync_runtime.codec.tables import Histograms, build_tables, is_sampled, normalised, pack_tables, parse_tables
from sync_runtime.delta.cpu import extract_block
from sync_runtime.errors import FormatError, SyncError
from sync_runtime.tensors.blocks import BlockMap, Group
from sync_runtime.tensors.dtypes import wire_dtype
from sync_runtime.tensors.layout import make_layout
from tests.support.states import stepped, weights

GROUPS = (Group(wire_dtype("BF16"), "", 1000), Group(wire_dtype("F8_E4M3"), "", 1000))


def counts(**at: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    found = np.zeros(256, np.int64)
    for name, value in at.items():
        found[int(name[1:])] = value
    return found


def built(elements: dict[str, int], changed: dict[str, int], group: Group = GROUPS[0]) -> list[int]:
    histograms = Histograms({0: counts(**elements)}, {0: counts(**changed)}, {})
    table = build_tables(histograms, [group]).position[0]
    return [int(table[int(name[1:])]) for name in elements]


def test_probabilities_are_rounded_shares_within_their_bounds() -> None:
    found = built({"e10": 1000, "e11": 1000, "e12": 1000, "e13": 10**9}, {"e10": 10, "e12": 1000, "e13": 1})
    assert found == [328, 0, PROBABILITY_ONE - 1, 1]


def test_large_groups_are_estimated_from_samples() -> None:
    large = GROUPS[0]._replace(num_elements=1 << 24)
    assert is_sampled(large)
    assert not is_sampled(GROUPS[0])
    assert built({"e10": 100}, {"e10": 16}, large) == [(16 * PROBABILITY_ONE + 804) // 1608]


def test_samples_are_every_sixteenth_run_of_1024_elements() -> None:
    bits = weights((50_000,), 1)
    old, new = bits.matrix.reshape(-1), stepped(bits, 2).matrix.reshape(-1)
    block = BlockMap(make_layout([("w", "BF16", (50_000,))])).block(0)
    delta = extract_block(old, new, 0)
    seen = count_block(old, delta.positions, delta.differences, block, sampled=True)
    chosen = old[(np.arange(old.size) >> 10) % 16 == 0]
    assert seen.elements[0].tolist() == np.bincount(chosen >> np.uint16(7) & np.uint16(255), minlength=256).tolist()
    assert int(seen.changed[0].sum()) == delta.num_changed


def test_frequencies_sum_to_one_and_lose_no_class() -> None:
    for row in ([1], [1, 1, 1], [10**12, 1, 0, 5], [3] * 32, [0, 0, 7]):
        found = normalised(np.array(row, np.int64), PROBABILITY_ONE)
        assert int(found.sum()) == PROBABILITY_ONE
        assert [value > 0 for value in found] == [value > 0 for value in row]
    assert normalised(np.zeros(5, np.int64), PROBABILITY_ONE).sum() == 0


def sample_section() -> bytes:
    classes = np.zeros((256, 32), np.int64)
    classes[100, :3] = (70, 20, 1)
    classes[102, 5] = 9
    histograms = Histograms(
        {0: counts(e100=500, e101=1, e102=40), 1: counts(e3=9)},
        {0: counts(e100=91, e102=9), 1: counts(e3=4)},
        {10: classes},
    )
    return pack_tables(build_tables(histograms, GROUPS))


def test_tables_are_read_back_as_they_were_written() -> None:
    section = sample_section()
    assert pack_tables(parse_tables(memoryview(section), GROUPS)) == section


def test_every_truncation_of_the_tables_is_refused() -> None:
    section = sample_section()
    whole = {0, 28, 44, len(section)}  # between two tables the section is merely shorter
    for size in sorted(set(range(len(section))) - whole):
        with pytest.raises(SyncError):
            parse_tables(memoryview(section[:size]), GROUPS)


@pytest.mark.parametrize(
    ("at", "value"),
    [
        pytest.param(0, 3, id="unknown type"),
        pytest.param(1, 1, id="reserved"),
        pytest.param(2, 99, id="unknown dtype"),
        pytest.param(6, 200, id="too many contexts"),
        pytest.param(6, 0, id="no contexts"),
        pytest.param(8, 0, id="empty first context"),
        pytest.param(12, 1, id="frequencies do not sum to one"),
    ],
)
def test_a_wrong_field_is_refused(at: int, value: int) -> None:
    section = bytearray(sample_section())
    assert section[at] != value
    section[at] = value
    with pytest.raises(FormatError):
        parse_tables(memoryview(bytes(section)), GROUPS)


def test_tables_out_of_order_or_for_groups_that_do_not_exist_are_refused() -> None:
    section = sample_section()
    for groups in (GROUPS[:1], ()):
        with pytest.raises(FormatError):
            parse_tables(memoryview(section), groups)
    with pytest.raises(FormatError, match="order"):
        parse_tables(memoryview(section + section), GROUPS)
