"""Runs an image in a real container as a restricted pod would: its own user, no rights, no network, a read-only root.

runc starts it from a folder with the image's files. Writable is /tmp alone, as in our pods. Needs root.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from tools.images.archive import ImageFacts, read
from tools.images.daemonless import Builder

NAMESPACES = ("pid", "mount", "ipc", "uts", "network")
TMP_BYTES = 512 << 20
ROOT = "root"
# Mounts of the image live in the mount namespace of this one shell, so all of it happens there.
SCRIPT = """\
name=$(from 2>/dev/null | tail -n 1)
trap 'umount "$0/root" 2>/dev/null; remove "$name" >/dev/null' EXIT
mount --bind "$(mount_image "$name")" "$0/root"
runc --root "$0/state" run --bundle "$0" "$(basename "$0")"
"""


def run(
    builder: Builder, archive: Path, *words: str, entrypoint: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """The image's entry point, or another program of it, with these words; what it wrote and how it ended."""
    builder.prepare()
    facts = read(archive)
    with tempfile.TemporaryDirectory(prefix="syncgroup-container-") as bundle:
        Path(bundle, ROOT).mkdir()
        Path(bundle, "config.json").write_text(
            json.dumps(specification(replace(facts, entrypoint=entrypoint or facts.entrypoint), words))
        )
        lines = {
            "FROM": builder.command("from", "--pull-never", f"oci-archive:{archive}"),
            "MOUNT_IMAGE": builder.command("mount"),
            "REMOVE": builder.command("rm"),
        }
        head = "\n".join(f'{name.lower()}() {{ {shlex.join(line)} "$@"; }}' for name, line in lines.items())
        return builder.inside(["sh", "-euc", f"{head}\n{SCRIPT}", bundle])


def specification(facts: ImageFacts, words: tuple[str, ...]) -> dict[str, Any]:
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
        "root": {"path": ROOT, "readonly": True},
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
