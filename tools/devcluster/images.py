"""Packs a folder into an OCI image archive, byte for byte the same each time. Standard library only."""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_GO_NAMES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}


def image_architecture() -> str:
    """This machine's CPU by the name images use; machines not listed have the same name in both worlds."""
    return _GO_NAMES.get(platform.machine(), platform.machine())


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """No owner, no time: a single mapped id cannot unpack anything but 0:0, and equal folders give equal bytes."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = 0
    return member


def layer_of(folder: Path) -> bytes:
    """The folder as one tar layer, entries in order."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for root, folders, files in os.walk(folder):
            folders.sort()
            for name in sorted([*folders, *files]):
                path = Path(root) / name
                archive.add(path, str(path.relative_to(folder)), recursive=False, filter=_anonymous)
    return buffer.getvalue()


def pack(
    folder: Path,
    target: Path,
    *,
    reference: str,
    entrypoint: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    user: str = "",
    below: Sequence[bytes] = (),
) -> None:
    """Write `target`, an OCI archive of `folder` that containerd imports under the name `reference`.

    `below` are layers under the folder's own, the lowest first.
    """
    layers = {_digest(layer): layer for layer in (*below, layer_of(folder))}
    where = {"architecture": image_architecture(), "os": "linux"}
    path = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    variables = [f"{key}={value}" for key, value in (path | dict(environment or {})).items()]
    config = _json(
        where
        | {
            "config": {"Entrypoint": list(entrypoint), "Env": variables, "User": user},
            "rootfs": {"type": "layers", "diff_ids": list(layers)},
            "history": [{"created_by": "files of a folder"} for _ in layers],  # builders want one for every layer
        }
    )
    kind = "application/vnd.oci.image"
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": f"{kind}.manifest.v1+json",
            "config": _descriptor(f"{kind}.config.v1+json", config),
            "layers": [
                {"mediaType": f"{kind}.layer.v1.tar", "digest": digest, "size": len(layer)}
                for digest, layer in layers.items()
            ],
        }
    )
    annotations = {
        "io.containerd.image.name": reference,
        "org.opencontainers.image.ref.name": reference.rpartition(":")[2],
    }
    entry = _descriptor(f"{kind}.manifest.v1+json", manifest) | {"platform": where, "annotations": annotations}
    index = _json({"schemaVersion": 2, "mediaType": f"{kind}.index.v1+json", "manifests": [entry]})
    files = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": index}
    blobs = layers | {_digest(blob): blob for blob in (config, manifest)}
    files |= {f"blobs/sha256/{digest[7:]}": blob for digest, blob in blobs.items()}
    with tarfile.open(target, "w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def _digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _descriptor(media_type: str, blob: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": _digest(blob), "size": len(blob)}
