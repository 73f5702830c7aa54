"""The coder `library`: weights are on a GPU and are extracted, encoded, decoded and written there. Needs triton."""

from __future__ import annotations

from collections.abc import Callable

from sync_runtime.codec.gpu.fast_kernels import fast_measure
from sync_runtime.errors import LayoutError
from sync_runtime.library.coders import PublishCoder
from sync_runtime.library.device_idle import IdlePublisher
from sync_runtime.library.device_publish import DevicePublisher
from sync_runtime.library.device_stage import DeviceSubscriber
from sync_runtime.library.weights import Weights


def make_publisher(weights: Weights, *, host_snapshot: bool = False) -> PublishCoder:
    """For one publisher; one of several ranks may have nothing to publish. Raises LayoutError for weights elsewhere."""
    _check_device(weights)
    if weights.is_part and not weights.holding.counted:
        return IdlePublisher(weights)
    return DevicePublisher(weights, pinned=host_snapshot)


def make_subscriber(weights: Weights, between: Callable[[], None]) -> DeviceSubscriber:
    """For one subscriber; its work is short enough not to be interrupted. Raises LayoutError for weights elsewhere."""
    del between
    _check_device(weights)
    return DeviceSubscriber(weights)


def _check_device(weights: Weights) -> None:
    """Kernels run where the weights are, and a CPU has none but under Triton's interpreter, which tests use."""
    if weights.device.type != "cpu" or type(fast_measure).__name__ == "InterpretedFunction":
        return
    if weights.is_part:
        raise LayoutError(
            "this rank's shards are on the CPU, as FSDP2's CPU offload leaves them; several ranks code what they "
            "publish on their GPUs: shard without offload, or gather and publish from one process with coder `sidecar`"
        )
    raise LayoutError("coder `library` codes on a GPU, and these weights are on the CPU: leave `coder` out")
