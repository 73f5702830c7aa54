"""Samples and walks that several tests of the contract share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from sync_runtime.contract.base import Model, submodel

CRDS_DIR = Path(__file__).resolve().parents[3] / "crds"
EXAMPLES = sorted((CRDS_DIR / "examples").glob("*.yaml"))
BAD_EXAMPLES = sorted((CRDS_DIR / "examples" / "bad").glob("*.yaml"))
STALLED_EXAMPLES = sorted((CRDS_DIR / "examples" / "stalled").glob("*.yaml"))
"""Valid ones that end in a condition; the operator's tests pin which."""


def minimal_group() -> dict[str, Any]:
    """The least that a SyncGroup needs; a fresh copy for every caller."""
    return {
        "apiVersion": "syncgroup.dev/v1alpha1",
        "kind": "SyncGroup",
        "metadata": {"name": "grpo"},
        "spec": {
            "trainer": {"region": "us-east-1", "template": {"spec": {"containers": []}}},
            "rollouts": [{"name": "west", "region": "us-west-2", "template": {"spec": {"containers": []}}}],
        },
    }


def minimal_cluster() -> dict[str, Any]:
    """The least that a SyncCluster needs."""
    return {
        "apiVersion": "syncgroup.dev/v1alpha1",
        "kind": "SyncCluster",
        "metadata": {"name": "frankfurt"},
        "spec": {"kubeconfigSecretRef": {"name": "frankfurt-kubeconfig"}, "region": "eu-central-1"},
    }


def models_below(model: type[Model]) -> Iterator[type[Model]]:
    """A model and every model inside it, each once."""
    seen: set[type[Model]] = set()
    waiting = [model]
    while waiting:
        current = waiting.pop()
        if current not in seen:
            seen.add(current)
            yield current
            inner = (submodel(field.annotation) for field in current.model_fields.values())
            waiting.extend(found for found in inner if found is not None)


class PinnedMessages(NamedTuple):
    """What a bad example says about itself in its first lines."""

    refused: str
    """Part of the API server's message."""
    contract: str
    """Part of the contract's; the same unless the API server words its own schema's errors."""


def pinned_messages(path: Path) -> PinnedMessages:
    """The messages that a bad example pins."""
    lines = path.read_text(encoding="utf-8").splitlines()
    refused = lines[0].removeprefix("# refused: ")
    contract = lines[1].removeprefix("# contract: ") if lines[1].startswith("# contract: ") else refused
    return PinnedMessages(refused, contract)
