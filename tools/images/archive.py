"""What an OCI archive says of its image: entry point, variables, user, labels, size. Reads the file; runs nothing."""

from __future__ import annotations

import json
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.errors import BuildError


@dataclass(frozen=True)
class ImageFacts:
    """An image as its archive describes it."""

    entrypoint: tuple[str, ...]
    environment: tuple[str, ...]
    user: str
    labels: dict[str, str]
    compressed_bytes: int
    """Of all layers, as a registry would hold them."""
    num_layers: int


def read(path: Path) -> ImageFacts:
    """The one image of an archive; raises BuildError where there is not exactly one."""
    with tarfile.open(path) as archive:
        (entry, *others) = _json(archive, "index.json")["manifests"]
        if others:
            raise BuildError(f"{path} holds more than one image.")
        manifest = _json(archive, _place(entry["digest"]))
        config = _json(archive, _place(manifest["config"]["digest"]))["config"]
    layers = manifest["layers"]
    return ImageFacts(
        entrypoint=tuple(config.get("Entrypoint") or ()),
        environment=tuple(config.get("Env") or ()),
        user=str(config.get("User") or ""),
        labels=dict(config.get("Labels") or {}),
        compressed_bytes=sum(int(layer["size"]) for layer in layers),
        num_layers=len(layers),
    )


def _place(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")


def _json(archive: tarfile.TarFile, name: str) -> dict[str, Any]:
    try:
        member = archive.extractfile(name)
    except KeyError:
        member = None
    if member is None:
        raise BuildError(f"{archive.name!s} is no OCI archive: it holds no {name}.")
    found: dict[str, Any] = json.load(member)
    return found
