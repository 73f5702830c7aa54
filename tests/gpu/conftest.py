import os

import pytest

torch = pytest.importorskip("torch", reason="kernels need torch")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = None
    if not torch.cuda.is_available():
        reason = "needs a CUDA device"
    elif os.environ.get("TRITON_INTERPRET") == "1":
        reason = "Triton's interpreter is on in this process: run tests/gpu by themselves"
    for item in items:
        if "tests/gpu" in str(item.path) and reason:
            item.add_marker(pytest.mark.skip(reason=reason))
