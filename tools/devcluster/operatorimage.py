"""The operator's image for real nodes, made of this machine's Python and this checkout: no registry, no Docker.

It stands on the runtime's lowest layer, so that a node unpacks interpreter and common packages once for both.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Final

from tools.devcluster import images, runtimeimage
from tools.devcluster.hostpython import REPOSITORY

REFERENCE: Final = "syncgroup.local/operator:dev"
EXTRA: Final = "operator"
CODE: Final = ("sync_runtime", "operator/syncgroup_operator")
ENVIRONMENT: Final = {
    "LD_LIBRARY_PATH": f"/{runtimeimage.PREFIX}/lib",
    "PYTHONUNBUFFERED": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}


def build(target: Path) -> None:
    """Write `target`, an OCI archive of the operator as it is in this checkout."""
    below = runtimeimage.base_layer().read_bytes()
    there = {one.metadata["Name"] for one in runtimeimage.needed()}
    with tempfile.TemporaryDirectory(prefix="operator-image-") as holder:
        root = Path(holder)
        packages = root / runtimeimage.packages_folder()
        packages.mkdir(parents=True)
        for distribution in runtimeimage.needed(EXTRA):
            if distribution.metadata["Name"] not in there:
                runtimeimage.copy_distribution(distribution, packages)
        for name in CODE:
            source = REPOSITORY / name
            shutil.copytree(source, packages / source.name, ignore=shutil.ignore_patterns("__pycache__"))
        runtimeimage.compile_below(packages, root, "/")
        runtimeimage.make_readable(root)
        images.pack(
            root, target, reference=REFERENCE, below=[below], environment=ENVIRONMENT,
            entrypoint=[runtimeimage.python_name(), "-m", "syncgroup_operator"],
        )  # fmt: skip
