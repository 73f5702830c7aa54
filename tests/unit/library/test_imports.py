"""What the user's process has to load: nothing that any image with torch does not have."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
import sync_runtime
assert "torch" not in sys.modules, "the front door is light"
sync_runtime.Publisher, sync_runtime.Subscriber
import sync_runtime.library.copying
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


@pytest.mark.timeout(60)
def test_on_the_cpu_the_library_needs_numpy_and_torch_only() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert {"numpy", "torch"} <= loaded
    assert not loaded & {"triton", "numba", "pydantic", "cryptography", "aiohttp", "opentelemetry"}


def test_a_name_that_is_not_there_is_an_ordinary_error() -> None:
    import sync_runtime

    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        getattr(sync_runtime, "Nothing")  # noqa: B009 an attribute access, not an expression without effect
