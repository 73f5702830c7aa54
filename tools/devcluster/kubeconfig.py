"""kubeconfig files: for components inside a region, for people outside, for any service account."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any


def _document(name: str, server: str, authority: bytes, user: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": name, "cluster": {"server": server, "certificate-authority-data": _b64(authority)}},
        ],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def with_certificate(pki: Path, *, name: str, server: str, user: str) -> str:
    """A kubeconfig with the certificate `user` of the region's `pki` folder inside it (JSON is YAML)."""
    credentials = {
        "client-certificate-data": _b64((pki / f"{user}.crt").read_bytes()),
        "client-key-data": _b64((pki / f"{user}.key").read_bytes()),
    }
    return json.dumps(_document(name, server, (pki / "ca.crt").read_bytes(), credentials), indent=1)


def with_token(pki: Path, *, name: str, server: str, token: str) -> str:
    """A kubeconfig that logs in with a service-account token."""
    return json.dumps(_document(name, server, (pki / "ca.crt").read_bytes(), {"token": token}), indent=1)


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.chmod(0o600)  # the file may have been there
    path.write_text(text)
