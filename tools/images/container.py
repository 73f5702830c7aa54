"""Runs an image in a real container as a restricted pod would: its own user, no rights, no network, a read-only root.

crun starts it from a folder with the image's files. Writable is /tmp alone, as in our pods. Needs root.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import uuid
from pathlib import Path
from typing import Any

from tools.images.archive import ImageFacts, read
from tools.images.daemonless import Builder

NAMESPACES = ("pid", "mount", "ipc", "uts", "network")
TMP_BYTES = 512 << 20
RUN_TIMEOUT_S = 600.0


def run(builder: Builder, archive: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The image's entry point with these words; what it wrote and how it ended."""
    facts = read(archive)
    with builder.mounted(archive) as root, tempfile.TemporaryDirectory(prefix="syncgroup-container-") as bundle:
        (Path(bundle) / "config.json").write_text(json.dumps(specification(facts, root, words)))
        state = ["--root", f"{bundle}/state", "--cgroup-manager", "disabled"]
        command = [*builder.program("crun"), *state, "run", "--bundle", bundle, f"syncgroup-{uuid.uuid4().hex[:8]}"]
        return subprocess.run(
            command, env=builder.environment(), capture_output=True, text=True, check=False, timeout=RUN_TIMEOUT_S
        )


def specification(facts: ImageFacts, root: Path, words: tuple[str, ...]) -> dict[str, Any]:
    """The container in the words of the OCI runtime specification. Pure."""
    user, _, group = facts.user.partition(":")
    return {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": int(user), "gid": int(group or user)},
            "args": [*facts.entrypoint, *words],
            "env": list(facts.environment),
            "cwd": "/",
            "noNewPrivileges": True,
            "capabilities": {},
        },
        "root": {"path": str(root), "readonly": True},
        "hostname": "image-under-test",
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=64k"]},
            {
                "destination": "/tmp",  # noqa: S108 the volume that our pods have
                "type": "tmpfs",
                "source": "tmpfs",
                "options": ["nosuid", "nodev", "mode=1777", f"size={TMP_BYTES}"],
            },
        ],
        "linux": {"namespaces": [{"type": kind} for kind in NAMESPACES]},
    }
