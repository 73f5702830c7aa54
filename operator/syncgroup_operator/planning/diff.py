"""Wanted objects against seen ones: what to apply and what to delete.

Pure. Knows documents as plain JSON values, not how they are sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from syncgroup_operator.planning.observation import ObjectKey

Document: TypeAlias = Mapping[str, Any]
"""A Kubernetes object as JSON values, with apiVersion, kind and metadata."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """An object that should exist, in the words of server-side apply: only what the operator owns."""

    cluster: str
    document: Document

    @property
    def key(self) -> ObjectKey:
        """Which object."""
        return key_of(self.document)


@dataclass(frozen=True, slots=True)
class Apply:
    """Server-side apply of a whole document."""

    cluster: str
    document: Document

    @property
    def key(self) -> ObjectKey:
        """Which object."""
        return key_of(self.document)


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletion of exactly the object that was seen."""

    cluster: str
    key: ObjectKey
    uid: str
    grace_s: int | None = None
    """None: the object's own grace. 0: at once."""


Action: TypeAlias = Apply | Delete


def key_of(document: Document) -> ObjectKey:
    """Which object a document is about."""
    metadata = document["metadata"]
    return ObjectKey(str(document["kind"]), str(metadata.get("namespace", "")), str(metadata["name"]))
