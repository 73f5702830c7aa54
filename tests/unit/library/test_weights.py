from typing import Any

import pytest
import torch

from sync_runtime.errors import LayoutError
from sync_runtime.library import engines
from sync_runtime.library.streams import CHUNK_BYTES, StateSink, state_chunks
from sync_runtime.library.weights import Weights


def weights_of(model: Any, **options: Any) -> Weights:
    return Weights(engines.attach("module", model), **options)


def state_of(model: Any, **options: Any) -> bytes:
    return b"".join(bytes(chunk) for chunk in state_chunks(weights_of(model, **options)))


class Tied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.z = torch.nn.Linear(3, 3, bias=False)
        self.a = torch.nn.Linear(3, 3, bias=False)
        self.a.weight = self.z.weight
        self.register_buffer("kept", torch.arange(2))
        self.register_buffer("scratch", torch.zeros(5), persistent=False)


def test_parameters_and_persistent_buffers_travel_and_tied_ones_once() -> None:
    layout = weights_of(Tied()).layout
    assert [(spec.name, spec.dtype.name) for spec in layout.tensors] == [("a.weight", "F32"), ("kept", "I64")]
    assert layout.tied == (("z.weight", "a.weight"),)


def test_tensors_that_only_look_alike_are_not_tied() -> None:
    base = torch.arange(8.0)
    model = {"a": base[:4], "b": base[4:], "c": base[:4].view(2, 2), "e": torch.zeros(0), "f": torch.zeros(0)}
    layout = weights_of(model).layout
    assert [spec.name for spec in layout.tensors] == ["a", "b", "c", "e", "f"]
    assert not layout.tied


def test_wrappers_do_not_change_names() -> None:
    plain = weights_of(Tied()).layout.hash
    assert weights_of(torch.nn.DataParallel(Tied())).layout.hash == plain

    class Compiled(torch.nn.Module):  # as the compiler wraps a module
        def __init__(self) -> None:
            super().__init__()
            self._orig_mod = Tied()

    assert weights_of(Compiled()).layout.hash == plain


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        ([torch.zeros(3)], "not a list"), ({"a": 3}, "'a' is a int"), ({}, "no tensors"),
        ({"a": torch.zeros(2, device="meta")}, "meta device"), ({"a": torch.zeros(2).to_sparse()}, "sparse"),
        ({"a": torch.zeros(2, dtype=torch.complex128)}, "complex128"),
    ],
)  # fmt: skip
def test_what_cannot_travel_is_refused_with_a_sentence(model: Any, sentence: str) -> None:
    with pytest.raises(LayoutError, match=sentence):
        weights_of(model)


def test_an_engine_that_does_not_exist_is_refused() -> None:
    with pytest.raises(LayoutError, match=r"there are: .*module"):
        engines.attach("nothing", {})


def test_a_state_is_the_tensors_in_order_row_major() -> None:
    model = {"b": torch.arange(6, dtype=torch.int16).view(2, 3).T, "a": torch.tensor([True, False])}
    assert state_of(model) == b"\1\0" + bytes([0, 0, 3, 0, 1, 0, 4, 0, 2, 0, 5, 0])


def test_masters_are_rounded_and_others_travel_as_they_are() -> None:
    model = {"w": torch.randn(40), "i": torch.arange(3), "h": torch.randn(4).to(torch.float16)}
    weights = weights_of(model, wire_dtype=torch.bfloat16)
    assert [spec.dtype.name for spec in weights.layout.tensors] == ["F16", "I64", "BF16"]
    rounded = model["w"].to(torch.bfloat16).view(torch.uint8).numpy().tobytes()
    assert state_of(model, wire_dtype=torch.bfloat16)[-80:] == rounded
    with pytest.raises(LayoutError, match="bfloat16 or float16"):
        weights_of(model, wire_dtype=torch.float32)


def test_a_large_tensor_comes_in_chunks_without_a_copy() -> None:
    model = {"w": torch.zeros(CHUNK_BYTES + 4, dtype=torch.uint8)}
    chunks = list(state_chunks(weights_of(model)))
    assert [len(chunk) for chunk in chunks] == [CHUNK_BYTES, 4]
    model["w"][0] = 7
    assert chunks[0][0] == 7


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_a_state_comes_back_into_the_tensors(step: int) -> None:
    source = {"a": torch.randn(5, 3).T, "b": torch.tensor(2), "e": torch.zeros(0), "n": torch.full((3,), float("nan"))}
    target = {"a": torch.zeros(3, 5), "b": torch.tensor(0), "e": torch.zeros(0), "n": torch.zeros(3)}
    data = memoryview(state_of(source))
    sink = StateSink(weights_of(target))
    for at in range(0, len(data), step):
        sink.feed(data[at : at + step])
    sink.finish()
    assert state_of(target) == bytes(data)


def test_a_tensor_that_no_longer_fits_is_named() -> None:
    model = {"a": torch.zeros(3), "b": torch.zeros(2)}
    weights = weights_of(model)
    model["b"] = torch.zeros(2, dtype=torch.float16)
    with pytest.raises(LayoutError, match=r"'b' has become F16\[2\]"):
        weights.tensors()
    del model["b"]
    with pytest.raises(LayoutError, match="lost its tensor 'b'"):
        weights.tensors()
