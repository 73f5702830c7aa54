"""Pod templates, opaque: trainer and rollouts each bring one."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from sync_runtime.contract.base import Model
from sync_runtime.contract.fields import PreserveUnknown


class PodTemplate(Model):
    """A pod template. Its content belongs to Kubernetes: it is kept as given and checked when the pod is created."""

    metadata: Annotated[dict[str, Any], Field(max_length=16), PreserveUnknown()] = Field(
        default_factory=dict, description="Labels and annotations of the pod. The operator adds its own."
    )
    spec: Annotated[dict[str, Any], Field(max_length=128), PreserveUnknown()] = Field(
        description="The pod's spec, as in any workload. The operator adds the sync-runtime sidecar and its volumes."
    )
