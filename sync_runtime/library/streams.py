"""States as streams of bytes: tensors in the layout's order, row-major, in their wire dtype."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from sync_runtime.errors import LocalProtocolError
from sync_runtime.library.weights import Weights

CHUNK_BYTES = 4 << 20
"""What is cast, or fetched from a device, at a time."""


def state_chunks(weights: Weights) -> Iterator[memoryview]:
    """The state as it is, piece by piece; contiguous CPU tensors are not copied."""
    found = weights.tensors()
    for spec in weights.layout.tensors:
        tensor = found[spec.name]
        wire = weights.wire_dtype_of(tensor)
        flat = tensor.contiguous().reshape(-1)
        step = max(1, CHUNK_BYTES // flat.element_size())
        for at in range(0, flat.numel(), step):
            piece = flat[at : at + step].to(device="cpu", dtype=wire)
            yield bytes_of(piece)


def bytes_of(flat: torch.Tensor) -> memoryview:
    """The memory of a contiguous CPU tensor of one dimension."""
    return flat.view(torch.uint8).numpy().data


class StateSink:
    """Writes a state that arrives as a stream into the live tensors. Only for weights that nobody uses."""

    def __init__(self, weights: Weights) -> None:
        found = weights.tensors()
        self._rest = [found[spec.name] for spec in weights.layout.tensors if spec.numel][::-1]
        self._buffer: torch.Tensor | None = None
        self._filled = 0

    def feed(self, data: memoryview) -> None:
        """The next bytes."""
        while len(data) > 0:
            if self._buffer is None:
                if not self._rest:
                    raise LocalProtocolError("a state is longer than its layout")
                tensor = self._rest[-1]
                self._buffer = torch.empty(tensor.numel() * tensor.element_size(), dtype=torch.uint8)
                self._filled = 0
            size = min(len(data), self._buffer.numel() - self._filled)
            self._buffer.numpy()[self._filled : self._filled + size] = np.frombuffer(data[:size], np.uint8)
            self._filled += size
            data = data[size:]
            if self._filled == self._buffer.numel():
                tensor = self._rest.pop()
                tensor.copy_(self._buffer.view(tensor.dtype).reshape(tensor.shape))
                self._buffer = None

    def finish(self) -> None:
        """The stream has ended."""
        if self._rest or self._buffer is not None:
            raise LocalProtocolError("a state ended before its layout did")
