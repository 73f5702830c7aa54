"""What children say they have."""

from hypothesis import given
from hypothesis import strategies as st

from sync_runtime.session.shelf import covered

RANGES = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)).map(list), max_size=12)


@given(RANGES)
def test_ranges_in_any_order_and_over_each_other_cover_their_union(ranges: list[list[int]]) -> None:
    assert covered(ranges) == {index for start, end in ranges for index in range(start, end)}


def test_the_same_range_again_and_again_costs_no_more_than_once() -> None:
    assert len(covered([[0, 1 << 40]] * 4096)) == 1 << 20
