"""Layouts: one document for one state, whatever the order; blocks that cover every element once."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sync_runtime.errors import FormatError, LayoutError, LimitError, SyncError, UnknownFormatError
from sync_runtime.tensors.blocks import BlockMap, kind_of
from sync_runtime.tensors.dtypes import wire_dtype
from sync_runtime.tensors.layout import Grid, Layout, Shards, TensorSpec, canonical_json, make_layout, parse_layout

TENSORS = [
    ("model.layers.1.w", "BF16", (512, 256)),
    ("model.layers.0.w", "BF16", (512, 256)),
    ("norm", "BF16", (64,)),
    ("scalar", "I64", ()),
    ("empty", "F32", (0, 3)),
]


def test_a_layout_does_not_depend_on_the_order_of_its_tensors() -> None:
    assert make_layout(TENSORS).document == make_layout(reversed(TENSORS)).document


def test_a_layout_is_read_back_as_it_was_written() -> None:
    layout = make_layout(TENSORS, tied={"head": "norm"})
    assert parse_layout(layout.document) == layout


def test_names_ascend_by_their_utf8_bytes() -> None:
    names = ["\U0001f600", "\uffff", "é", "z", "Z"]
    layout = make_layout([(name, "U8", (1,)) for name in names])
    assert [tensor.name for tensor in layout.tensors] == ["Z", "z", "é", "\uffff", "\U0001f600"]


def test_the_hash_changes_with_every_part_of_the_layout() -> None:
    documents = [
        make_layout(TENSORS),
        make_layout(TENSORS, block_elements=1 << 17),
        make_layout(TENSORS, tied={"head": "norm"}),
        make_layout(TENSORS, shards={"model.layers.0.w": Shards(row_period=128)}),
        make_layout([*TENSORS[1:], ("model.layers.1.w", "F16", (512, 256))]),
    ]
    assert len({layout.hash for layout in documents}) == len(documents)


@given(
    rows=st.integers(256, 700),
    cols=st.integers(256, 700),
    period=st.integers(40, 700),
    step=st.integers(40, 700),
    col_step=st.integers(40, 700),
)
@settings(max_examples=40, deadline=None)
@pytest.mark.timeout(20)
def test_tiles_cover_every_element_of_a_tensor_once(
    rows: int, cols: int, period: int, step: int, col_step: int
) -> None:
    period, col_step = min(period, rows), min(col_step, cols)
    grid = Grid(period, min(step, period), col_step)
    layout = Layout((TensorSpec("w", wire_dtype("U8"), (rows, cols), grid),))
    seen = np.zeros((rows, cols), np.uint8)
    for block in BlockMap(layout):
        (piece,) = block.pieces
        assert piece.row_start // period == (piece.row_start + piece.num_rows - 1) // period, "a tile crosses a shard"
        assert piece.num_rows <= grid.row_step
        rectangle = (
            slice(piece.row_start, piece.row_start + piece.num_rows),
            slice(piece.col_start, piece.col_start + piece.num_cols),
        )
        seen[rectangle] += 1
    assert seen.min() == seen.max() == 1


def test_small_tensors_of_one_dtype_share_a_block_and_empty_ones_have_none() -> None:
    blocks = list(
        BlockMap(make_layout([("a", "BF16", (40,)), ("b", "F32", (3,)), ("c", "BF16", (2, 2)), ("d", "BF16", (0,))]))
    )
    assert [[piece.tensor for piece in block.pieces] for block in blocks] == [[0, 2], [1]]
    assert [block.num_elements for block in blocks] == [44, 3]


def test_a_pack_ends_before_it_exceeds_the_size_of_a_block() -> None:
    layout = make_layout([(f"t{at}", "U8", (600,)) for at in range(5)], block_elements=1300)
    assert [block.num_elements for block in BlockMap(layout)] == [1200, 1200, 600]


def test_layers_and_experts_of_one_kind_share_tables_and_small_kinds_share_those_of_their_dtype() -> None:
    large = [(f"layers.{at}.experts.{at}.w", "BF16", (1024, 512)) for at in range(2)]
    blocks = BlockMap(make_layout([*large, ("odd.w", "BF16", (512, 256)), ("norm", "BF16", (5,))]))
    assert [(group.kind, group.num_elements) for group in blocks.groups] == [
        ("", 512 * 256 + 5),
        ("layers.#.experts.#.w", 1 << 20),
    ]
    assert kind_of("layers.10.w2") == "layers.#.w#"


def test_a_default_grid_makes_blocks_near_the_asked_size_and_cuts_long_rows() -> None:
    layout = make_layout([("w", "BF16", (3000, 4096)), ("v", "BF16", (5_000_000,))])
    sizes = [block.num_elements for block in BlockMap(layout)]
    assert max(sizes) <= 1 << 20
    assert len(sizes) == -(-3000 // 256) + 5


def test_a_declared_shard_is_never_crossed_and_not_cut_finer_than_needed() -> None:
    layout = make_layout([("w", "BF16", (4096, 4096))], shards={"w": Shards(row_period=1365, col_step=2048)})
    assert layout.tensors[0].grid == Grid(1365, 512, 2048)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        pytest.param(lambda d: d.update(format="syncgroup-layout/2"), UnknownFormatError, id="version"),
        pytest.param(lambda d: d.update(extra=1), FormatError, id="unknown field"),
        pytest.param(lambda d: d["tensors"].reverse(), LayoutError, id="order"),
        pytest.param(lambda d: d["tensors"][0].__setitem__(1, "F4"), UnknownFormatError, id="dtype"),
        pytest.param(lambda d: d["tensors"][0].__setitem__(2, [-1]), LayoutError, id="negative"),
        pytest.param(lambda d: d["tensors"][0].__setitem__(2, [1.5]), FormatError, id="fraction"),
        pytest.param(lambda d: d["tensors"][0].__setitem__(2, [True]), FormatError, id="boolean"),
        pytest.param(lambda d: d["tensors"][0].__setitem__(2, [2**60]), LimitError, id="too many elements"),
        pytest.param(lambda d: d["tensors"][1].__setitem__(3, None), LayoutError, id="large without a grid"),
        pytest.param(lambda d: d["tensors"][1].__setitem__(3, [0, 0, 0]), LayoutError, id="grid of nothing"),
        pytest.param(lambda d: d["tied"].append(["x", "nowhere"]), LayoutError, id="tied to nothing"),
        pytest.param(lambda d: d.update(block_elements=1 << 30), LimitError, id="block size"),
    ],
)
def test_a_wrong_layout_is_refused(change: object, error: type[SyncError]) -> None:
    document = json.loads(make_layout([*TENSORS[:2], ("a", "U8", (3,))]).document)
    change(document)  # type: ignore[operator]
    with pytest.raises(error):
        parse_layout(canonical_json(document))


def test_another_spelling_of_a_layout_is_refused() -> None:
    document = make_layout(TENSORS).document
    for other in (document + b"\n", document.replace(b":", b": ", 1), document[:-1], b"\xff", b"[]", b"1" * 9000):
        with pytest.raises(FormatError):
            parse_layout(other)


def test_a_layout_of_hostile_size_is_refused_before_its_blocks_are_listed() -> None:
    tensor = TensorSpec("w", wire_dtype("U8"), (1 << 40,), Grid(1, 1, 1))
    with pytest.raises(LimitError):
        BlockMap(Layout((tensor,)))
