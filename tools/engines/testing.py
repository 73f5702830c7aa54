"""Runs the tests of a plug-in in its engine's environment, where the engine finds the plug-in as if it were installed.

The code is the checkout's; what the project's wheel says of itself, entry points above all, lies beside it on the
path. So one environment serves all checkouts.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from tools.engines.environments import ROOT, ensure
from tools.errors import BuildError


def test(name: str, arguments: list[str]) -> int:
    """The exit code of pytest."""
    python = ensure(name)
    with tempfile.TemporaryDirectory(prefix="syncgroup-engine-") as folder:
        told, home = _what_the_wheel_says(Path(folder)), python.parents[1]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "operator"), str(told)]),
            "PYTHONPYCACHEPREFIX": str(home / "pycache"),
            "NUMBA_CACHE_DIR": str(home / "numba"),
            "PYTHONNOUSERSITE": "1",
        }
        # Warnings are errors in our own tests; an engine's packages have theirs, and none of them is ours to mend.
        command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "default"]
        command += [f"tests/engines/{name}", *arguments]
        return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def _what_the_wheel_says(folder: Path) -> Path:
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    wheels = list(folder.glob("*.whl"))
    if built.returncode != 0 or len(wheels) != 1:
        raise BuildError("this project's wheel could not be built: " + " / ".join(built.stderr.splitlines()[-4:]))
    with zipfile.ZipFile(wheels[0]) as wheel:
        wheel.extractall(folder / "site", [name for name in wheel.namelist() if ".dist-info/" in name])
    return folder / "site"
