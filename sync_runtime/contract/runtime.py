"""The runtime that the operator adds to the pods of a SyncGroup: image, resources, environment, library, storage."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from sync_runtime.contract import patterns
from sync_runtime.contract.base import Model
from sync_runtime.contract.fields import DnsSubdomain, ListMap, Quantities
from sync_runtime.contract.names import ENV_PREFIX
from sync_runtime.contract.rules import Invariant, Rule, UpdateRule
from sync_runtime.contract.sync import GIB, MAX_SPOOL_BYTES, MIB

ImagePullPolicy = Literal["Always", "IfNotPresent", "Never"]
LibraryMode = Literal["Mount", "PythonPath", "None"]
StorageType = Literal["EmptyDir", "PersistentVolumeClaim"]

_CLAIM = "PersistentVolumeClaim"


class KeyRef(Model):
    """One key of a ConfigMap or Secret in the pod's namespace."""

    name: DnsSubdomain = Field(description="Name of the object.")
    key: Annotated[str, Field(min_length=1, max_length=253, pattern=patterns.DATA_KEY)] = Field(
        description="Key inside it."
    )


class EnvSource(Model):
    """Where a variable's value comes from; exactly one."""

    config_map_key_ref: KeyRef | None = Field(None, description="A key of a ConfigMap.")
    secret_key_ref: KeyRef | None = Field(None, description="A key of a Secret.")

    RULES: ClassVar[tuple[Invariant, ...]] = (
        Rule(
            cel="has(self.configMapKeyRef) != has(self.secretKeyRef)",
            message="valueFrom needs exactly one of configMapKeyRef and secretKeyRef",
            holds=lambda self: (self.config_map_key_ref is None) != (self.secret_key_ref is None),
        ),
    )


class EnvVar(Model):
    """An environment variable of the sidecar."""

    name: Annotated[str, Field(min_length=1, max_length=128, pattern=patterns.ENV_NAME)] = Field(
        description="Name of the variable."
    )
    value: Annotated[str, Field(max_length=4096)] | None = Field(None, description="Its value.")
    value_from: EnvSource | None = Field(None, description="Where its value comes from, instead of value.")

    RULES: ClassVar[tuple[Invariant, ...]] = (
        Rule(
            cel="has(self.value) != has(self.valueFrom)",
            message="an environment variable needs exactly one of value and valueFrom",
            holds=lambda self: (self.value is None) != (self.value_from is None),
        ),
        Rule(
            cel=f"!self.name.startsWith('{ENV_PREFIX}')",
            message=f"variables that start with {ENV_PREFIX} are set by the operator; choose another name",
            holds=lambda self: not self.name.startswith(ENV_PREFIX),
            field="name",
            reason="FieldValueForbidden",
        ),
    )


def _default_requests() -> dict[str, int | str]:
    return {"cpu": "500m", "memory": "512Mi"}


class Resources(Model):
    """What the sidecar asks for and may use at most."""

    requests: Quantities = Field(
        default_factory=_default_requests,
        description="Resources that the scheduler sets aside, for example `cpu: 500m`.",
    )
    limits: Quantities = Field(
        default_factory=dict,
        description="Most that the sidecar may use. The spool's pages count: a memory limit below the payload hurts.",
    )


class Storage(Model):
    """Where the spool lives, and the memory that user process and sidecar share."""

    type: StorageType = Field(
        "EmptyDir",
        description="EmptyDir lives and dies with the pod; what is lost is fetched again. PersistentVolumeClaim lets "
        "a restarted member go on where it was.",
    )
    size_bytes: int = Field(
        24 * GIB, ge=64 * MIB, le=MAX_SPOOL_BYTES, description="Size of the spool. A claim can grow but not shrink."
    )
    storage_class_name: DnsSubdomain | None = Field(
        None, description="Storage class of the claim; the cluster's default if not given. Immutable."
    )
    shared_memory_bytes: int = Field(
        256 * MIB,
        ge=MIB,
        le=64 * GIB,
        description="Size of the ring between your process and the sidecar. It counts as memory of the pod.",
    )

    RULES: ClassVar[tuple[Invariant, ...]] = (
        Rule(
            cel=f"self.type == '{_CLAIM}' || !has(self.storageClassName)",
            message=f"storageClassName is used with storage type {_CLAIM} only",
            holds=lambda self: self.type == _CLAIM or self.storage_class_name is None,
            field="storageClassName",
            reason="FieldValueForbidden",
        ),
    )
    UPDATE_RULES: ClassVar[tuple[UpdateRule, ...]] = (
        UpdateRule(
            cel=f"self.type != '{_CLAIM}' || oldSelf.type != '{_CLAIM}' || self.sizeBytes >= oldSelf.sizeBytes",
            message="sizeBytes of a claim can grow but not shrink",
            holds=lambda new, old: not new.type == old.type == _CLAIM or new.size_bytes >= old.size_bytes,
            field="sizeBytes",
        ),
        UpdateRule(
            cel=f"self.type != '{_CLAIM}' || oldSelf.type != '{_CLAIM}' || "
            "(has(self.storageClassName) ? self.storageClassName : '') == "
            "(has(oldSelf.storageClassName) ? oldSelf.storageClassName : '')",
            message="storageClassName of a claim cannot be changed; switch to EmptyDir and back to get new claims",
            holds=lambda new, old: (
                not new.type == old.type == _CLAIM or new.storage_class_name == old.storage_class_name
            ),
            field="storageClassName",
        ),
    )


class Runtime(Model):
    """The sidecar and library that the operator adds to every pod of the group."""

    image: Annotated[str, Field(min_length=1, max_length=512, pattern=patterns.IMAGE)] | None = Field(
        None, description="Image of the sidecar. The one of the operator's own release if not given."
    )
    image_pull_policy: ImagePullPolicy = Field("IfNotPresent", description="When the kubelet pulls the image.")
    resources: Resources = Field(default_factory=Resources, description="Resources of the sidecar.")
    env: Annotated[list[EnvVar], Field(max_length=64), ListMap(("name",))] = Field(
        default_factory=list, description="Further environment variables of the sidecar, for example OTEL_* ones."
    )
    library: LibraryMode = Field(
        "Mount",
        description="How your container gets the library. Mount: a read-only folder to add to sys.path. PythonPath: "
        "the same, and PYTHONPATH is set. None: your image has it already.",
    )
    storage: Storage = Field(default_factory=Storage, description="Where the spool lives.")
