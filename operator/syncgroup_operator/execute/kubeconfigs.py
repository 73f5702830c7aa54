"""A kubeconfig out of its Secret. The Secret's content is hostile: whoever may write it must not crash the operator."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from syncgroup_operator.errors import AccessError


def kubeconfig_in(secret: Mapping[str, Any], key: str) -> bytes:
    """The bytes under `key`; raises AccessError."""
    name = (secret.get("metadata") or {}).get("name")
    data = secret.get("data")
    encoded = data.get(key) if isinstance(data, Mapping) else None
    if not isinstance(encoded, str):
        raise AccessError(f"Secret {name} has no key {key}: put the kubeconfig there, or name another key")
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise AccessError(f"Secret {name}, key {key}, is not base64: {error}") from error
