"""What importing a module really runs, asked of Python itself.

The contracts read import statements; a lazy loader or an import by name is out of their sight. Here a fresh interpreter
imports the module and tells what it loaded.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

GPU = {"torch", "triton"}
CLUSTER = {"aiohttp", "kopf", "kubernetes"}
MODELS = {"pydantic", "yaml", "cryptography"}


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        pytest.param("sync_runtime", GPU | CLUSTER | MODELS | {"numpy"}, id="the runtime's front door"),
        pytest.param("sync_runtime.contract.names", GPU | CLUSTER | MODELS | {"numpy"}, id="names"),
        pytest.param("sync_runtime.contract.syncgroup", GPU | CLUSTER | {"numpy", "cryptography"}, id="the contract"),
        pytest.param("syncgroup_operator.crdgen", GPU | CLUSTER | {"numpy"}, id="crdgen"),
        pytest.param("syncgroup.cli", GPU | CLUSTER | MODELS | {"numpy"}, id="the command line before a subcommand"),
    ],
)
def test_importing_a_light_module_loads_nothing_heavy(module: str, heavy: set[str]) -> None:
    if not _exists(module):
        pytest.skip(f"{module} is not built yet")
    program = f"import sys, {module}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=8)
    assert result.returncode == 0, result.stderr
    assert set(result.stdout.split()) & heavy == set()


def _exists(module: str) -> bool:
    """Whether a module can be found, without running more than the packages that hold it."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
