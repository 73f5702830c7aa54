"""Handles are judged before anything is opened: arithmetic on hostile numbers, and what must not reach the driver."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync_runtime.library.export_cuda import check_environment, check_segments
from sync_runtime.library.export_errors import ExportError
from sync_runtime.library.export_handles import CudaHandle, FileHandle, TensorHandle, check_cuda, check_extent

CUDA = CudaHandle(b"\2c" + bytes(64), 512, 32, "/torch_12_345_6", 9999, bytes(64), waits_for_event=True)


def test_a_handle_as_torch_makes_it_is_sound() -> None:
    check_cuda(CUDA)
    check_cuda(replace(CUDA, counter="/torch_12_345"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"handle": b"\2e" + bytes(64)}, "expandable segments"),
        ({"handle": bytes(64)}, "not of memory from cudaMalloc"),
        ({"handle": b"\2c" + bytes(65)}, "not of memory from cudaMalloc"),
        ({"event": bytes(63)}, "event"),
        ({"counter": "/etc/passwd"}, "reference count"),
        ({"counter": "/torch_1_2_3/../x"}, "reference count"),
        ({"counter_at": 10_000}, "reference count"),
        ({"counter_at": -1}, "reference count"),
        ({"size_bytes": 0}, "no bytes"),
        ({"offset_bytes": -1}, "begins before"),
    ],
)
def test_a_handle_that_must_not_reach_the_driver_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ExportError, match=message):
        check_cuda(replace(CUDA, **change))  # type: ignore[arg-type]


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 9)), max_size=4),
    st.integers(0, 20), st.sampled_from([1, 2, 4, 8]), st.integers(1, 400),
)  # fmt: skip
def test_a_tensor_is_let_in_exactly_if_its_elements_fit_and_the_last_is_inside(
    sizes: list[tuple[int, int]], offset: int, item_bytes: int, size_bytes: int
) -> None:
    shape, stride = tuple(size for size, _ in sizes), tuple(step for _, step in sizes)
    places = offset + sum(np.indices(shape)[axis] * stride[axis] for axis in range(len(shape)))
    inside = (int(np.max(places)) + 1) * item_bytes <= size_bytes
    fits = inside and int(np.prod(shape)) * item_bytes <= size_bytes
    tensor = TensorHandle("w", 0, "x", shape, stride, offset)
    try:
        check_extent(tensor, item_bytes, (FileHandle("/w", size_bytes),))
    except ExportError:
        assert not fits
    else:
        assert fits


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shape": (-1, 2)}, "negative"),
        ({"stride": (-2, 1)}, "negative"),
        ({"offset": -1}, "negative"),
        ({"shape": (4,)}, "sizes and"),
        ({"shape": (1,) * 65, "stride": (1,) * 65}, "65 sizes"),
        ({"storage": -1}, "not exported"),
        ({"shape": (0, 2)}, "inside its storage"),
        ({"shape": (1 << 62, 1 << 62), "stride": (0, 0)}, "more elements"),
    ],
)
def test_a_tensor_that_cannot_be_is_refused(change: dict[str, object], message: str) -> None:
    tensor = TensorHandle("w", 0, "float32", (4, 2), (2, 1), 0)
    check_extent(tensor, 4, (FileHandle("/w", 32),))
    with pytest.raises(ExportError, match=message):
        check_extent(replace(tensor, **change), 4, (FileHandle("/w", 32),))  # type: ignore[arg-type]


def test_a_storage_that_lies_at_an_odd_place_is_refused() -> None:
    tensor = TensorHandle("w", 0, "float32", (2,), (1,), 0)
    check_extent(tensor, 4, (CUDA,))
    with pytest.raises(ExportError, match="multiple"):
        check_extent(tensor, 4, (replace(CUDA, offset_bytes=2),))


@pytest.mark.parametrize("name", ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"])
def test_expandable_segments_are_refused_by_their_setting(name: str) -> None:
    check_environment({name: "max_split_size_mb:64, expandable_segments:False"})
    with pytest.raises(ExportError, match="expandable_segments:False"):
        check_environment({name: "max_split_size_mb:64, expandable_segments:True"})


def test_expandable_segments_are_refused_where_tensors_lie_in_them() -> None:
    segments = [
        {"address": 1000, "total_size": 100, "is_expandable": True},
        {"address": 2000, "total_size": 100, "is_expandable": False},
        {"address": 3000, "total_size": 100},
    ]
    check_segments(segments, frozenset({999, 1100, 2000, 3050}))
    with pytest.raises(ExportError, match="lies in an expandable segment"):
        check_segments(segments, frozenset({2000, 1099}))
