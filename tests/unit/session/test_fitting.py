"""An engine that cannot use what the trainer publishes is told why, in one sentence that fits into a report."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync_runtime.session.fitting import misfit
from sync_runtime.tensors.layout import Layout, Shards, make_layout

REPORT_CHARACTERS = 200
TENSORS = [("a", "BF16", (512, 256)), ("b", "F32", (7,)), ("c", "BF16", (4, 512, 64))]


def told(own: Layout, trainer: Layout, *, same_blocks: bool = True) -> str:
    found = misfit(own, trainer, same_blocks=same_blocks)
    assert found is not None
    return found


@pytest.mark.parametrize("same_blocks", [True, False])
def test_the_same_layout_fits(*, same_blocks: bool) -> None:
    assert misfit(make_layout(TENSORS), make_layout(TENSORS), same_blocks=same_blocks) is None


def test_tensors_that_one_end_lacks_are_named() -> None:
    whole, less = make_layout(TENSORS), make_layout(TENSORS[:1])
    assert told(less, whole) == "the trainer publishes 'b', 'c', which this engine does not have"
    assert told(whole, less) == "this engine has 'b', 'c', which the trainer does not publish"


def test_another_shape_and_another_dtype_are_shown_from_both_ends() -> None:
    other = [("a", "BF16", (256, 256)), ("b", "F16", (7,)), TENSORS[2]]
    found = told(make_layout(other), make_layout(TENSORS))
    assert found == "'a' is BF16[512, 256] at the trainer and BF16[256, 256] in this engine, and 1 more differ"


def test_a_tie_at_one_end_only_is_named() -> None:
    assert "'head'" in told(make_layout(TENSORS), make_layout(TENSORS, tied={"head": "a"}))


def test_other_cuts_matter_only_to_an_engine_that_decodes_by_itself() -> None:
    own, trainer = make_layout(TENSORS, shards={"a": Shards(256, 128)}), make_layout(TENSORS)
    assert misfit(own, trainer, same_blocks=False) is None
    found = told(own, trainer)
    assert "'a' is cut every 512 rows and 256 columns at the trainer, every 256 rows and 128 columns in" in found
    assert "Publisher.cuts" in found


@given(st.data())
def test_layouts_fit_where_they_are_the_same_and_any_sentence_fits_into_a_report(data: st.DataObject) -> None:
    kinds = st.tuples(st.sampled_from(["BF16", "F32"]), st.sampled_from([(512, 256), (256, 512), (7,), (70_000,)]))
    names = st.sampled_from([f"model.layers.{at}.self_attn.q_proj.weight" for at in range(5)])
    cut = st.sampled_from([Shards(), Shards(128, 64), Shards(None, 64)])

    def layout() -> Layout:
        found = data.draw(st.dictionaries(names, st.tuples(kinds, cut), min_size=1))
        listed = [(name, *kind) for name, (kind, _) in found.items()]
        return make_layout(listed, shards={name: one for name, (_, one) in found.items()})

    own, trainer = layout(), layout()
    found = misfit(own, trainer, same_blocks=True)
    assert (found is None) == (own.hash == trainer.hash)
    assert found is None or len(found) <= REPORT_CHARACTERS + 60
