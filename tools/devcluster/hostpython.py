"""Python for pods without an image: read-only mounts of this machine's interpreter, libraries and checkout.

A torch of five gigabytes is too heavy to pack for every change. In development a pod runs the empty image and sees the
host's folders under their own paths, so that a virtual environment works unchanged.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

IMAGE = "syncgroup.local/empty:1"
"""An image with nothing in it, which every node has."""
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32", "/etc/ssl", "/etc/ld.so.cache")
REPOSITORY = Path(__file__).resolve().parents[2]


def host_paths() -> list[str]:
    """What Python needs of this machine: each path once, none below another."""
    wanted = [path for path in SYSTEM if os.path.exists(path)]
    for prefix in (sys.prefix, sys.base_prefix):  # by both names: links inside an environment may use either
        wanted += [os.path.abspath(prefix), os.path.realpath(prefix)]
    wanted.append(str(REPOSITORY))
    kept: list[str] = []
    for path in sorted(set(wanted), key=lambda text: (text.count("/"), text)):
        if not any(path == other or path.startswith(other + "/") for other in kept):
            kept.append(path)
    return kept


def volumes() -> list[dict[str, Any]]:
    """Volumes for a pod's spec; on systems where /bin is a link its target is mounted under the name /bin."""
    return [
        {"name": f"host-{number}", "hostPath": {"path": os.path.realpath(path)}}
        for number, path in enumerate(host_paths())
    ]


def mounts() -> list[dict[str, Any]]:
    """The mounts that belong to `volumes`."""
    return [{"name": f"host-{number}", "mountPath": path, "readOnly": True} for number, path in enumerate(host_paths())]


def container(
    name: str, arguments: Sequence[str], *, environment: Mapping[str, str] | None = None, **fields: Any
) -> dict[str, Any]:
    """A container that runs this interpreter with `arguments`; `fields` go into it as they are."""
    variables = {"PYTHONPATH": str(REPOSITORY), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}
    if sys.pycache_prefix is not None and _is_mounted(sys.pycache_prefix):
        variables["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix  # torch takes minutes to compile on a busy machine
    variables |= dict(environment or {})
    extra_mounts = fields.pop("volumeMounts", [])
    return {
        "name": name,
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": [sys.executable, *arguments],
        "env": [{"name": key, "value": value} for key, value in variables.items()],
        "volumeMounts": [*mounts(), *extra_mounts],
        **fields,
    }


def _is_mounted(path: str) -> bool:
    return any(Path(path).is_relative_to(mounted) for mounted in host_paths())
