"""The containers and volumes that the operator adds to a pod: the sidecar, and the copy of the library.

Pure. Knows the pod's inputs, not the template that they go into, except what the sidecar must share with the user's
container: its user and, with CudaIpc, its device claims.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sync_runtime.contract import names
from syncgroup_operator.manifests.inputs import PodInputs

Document = dict[str, Any]

RUNTIME_USER: Final = 65532
"""Where the template names no user: nobody's number in common images, and not root."""
PROGRAM: Final = "syncgroup"
TOKEN_SECONDS: Final = 3600
_MIB: Final = 1 << 20
SOCKET_VOLUME_BYTES: Final = 16 * _MIB
"""The socket alone lives there; the ring is anonymous memory of the sidecar."""
IDENTITY_VOLUME_BYTES: Final = 16 * _MIB
"""Key, certificates, and the plan twice while it is replaced."""
LIBRARY_VOLUME_BYTES: Final = 128 * _MIB
TMP_VOLUME_BYTES: Final = 512 * _MIB
"""Compiled loops of the CPU codec, above all."""
SPOOL_SHARE: Final = 16
"""One part in so many of the spool's volume is left to the file system and to what is being deleted."""

_FIELDS: Final = {
    names.ENV_POD_NAME: "metadata.name",
    names.ENV_POD_NAMESPACE: "metadata.namespace",
    names.ENV_POD_UID: "metadata.uid",
    names.ENV_POD_IP: "status.podIP",
    names.ENV_NODE: "spec.nodeName",
}


def sidecar(inputs: PodInputs, user: int, claims: list[Mapping[str, Any]]) -> Document:
    """The native sidecar: an init container that stays, so that it is there before and after the user's."""
    return {
        "name": names.RUNTIME_CONTAINER,
        "image": inputs.image,
        "imagePullPolicy": inputs.runtime.image_pull_policy,
        "restartPolicy": "Always",
        "command": [PROGRAM],
        "args": ["sidecar"],
        "env": _environment(inputs),
        "ports": [
            _port(names.DATA_PORT_NAME, names.DATA_PORT),
            _port(names.CONTROL_PORT_NAME, names.CONTROL_PORT),
        ],
        "resources": _resources(inputs, claims),
        # Alive means that the process answers: no hub, no plan, no certificate is needed for that, so the user's
        # container starts also while the hub is away.
        "startupProbe": _probe("/livez", period_s=1, failures=180, timeout_s=2),
        "livenessProbe": _probe("/livez", period_s=10, failures=6, timeout_s=5),
        "readinessProbe": _probe("/readyz", period_s=5, failures=3, timeout_s=5),
        "securityContext": security_context(user),
        "volumeMounts": [
            _mount(names.RUN_VOLUME, names.RUN_DIR),
            _mount(names.SPOOL_VOLUME, names.SPOOL_DIR),
            _mount(names.IDENTITY_VOLUME, names.IDENTITY_DIR),
            _mount(names.TRUST_VOLUME, names.TRUST_DIR, read_only=True),
            _mount(names.TOKEN_VOLUME, names.TOKEN_DIR, read_only=True),
            _mount(names.TMP_VOLUME, names.TMP_DIR),
            *([_mount(names.STORE_VOLUME, names.STORE_SECRET_DIR, read_only=True)] if inputs.has_store_secret else []),
            *([] if inputs.part.served is None else [_mount(inputs.part.served.volume, names.SERVED_DIR)]),
        ],
    }


def library_copy(inputs: PodInputs, user: int) -> Document:
    """The init container that copies the library out of its image; same resources, so that the pod needs no more."""
    return {
        "name": names.LIBRARY_CONTAINER,
        "image": inputs.image,
        "imagePullPolicy": inputs.runtime.image_pull_policy,
        "command": [PROGRAM],
        "args": ["library", "--output", inputs.library_path],
        "resources": _resources(inputs, []),
        "securityContext": security_context(user),
        "volumeMounts": [_mount(names.LIBRARY_VOLUME, names.LIBRARY_DIR)],
    }


def security_context(user: int) -> Document:
    """What the restricted Pod Security Standard asks for, and a read-only root besides."""
    return {
        "runAsNonRoot": True,
        "runAsUser": user,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def volumes(inputs: PodInputs) -> list[Document]:
    """Every volume that the operator adds."""
    token = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": TOKEN_SECONDS}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": _field("metadata.namespace")}]}},
    ]
    found: list[Document] = [
        {"name": names.RUN_VOLUME, "emptyDir": _memory(SOCKET_VOLUME_BYTES)},
        {"name": names.SPOOL_VOLUME, **_spool(inputs)},
        {"name": names.IDENTITY_VOLUME, "emptyDir": _memory(IDENTITY_VOLUME_BYTES)},
        {"name": names.TRUST_VOLUME, "configMap": {"name": names.trust_bundle_name(inputs.key)}},
        {"name": names.TOKEN_VOLUME, "projected": {"sources": token}},
        {"name": names.TMP_VOLUME, "emptyDir": {"sizeLimit": str(TMP_VOLUME_BYTES)}},
    ]
    if inputs.has_store_secret:
        found.append({"name": names.STORE_VOLUME, "secret": {"secretName": names.store_secret_name(inputs.key)}})
    if inputs.runtime.library != "None":
        found.append({"name": names.LIBRARY_VOLUME, "emptyDir": {"sizeLimit": str(LIBRARY_VOLUME_BYTES)}})
    return found


def spool_bytes(size_bytes: int) -> int:
    """What the runtime may fill of a spool volume; a full one would be evicted, or fail."""
    return size_bytes - size_bytes // SPOOL_SHARE


def _environment(inputs: PodInputs) -> list[Document]:
    place, storage = inputs.place, inputs.runtime.storage
    values = {
        names.ENV_GROUP: inputs.key.name,
        names.ENV_GROUP_NAMESPACE: inputs.key.namespace,
        names.ENV_GROUP_UID: inputs.uid,
        names.ENV_MEMBER: inputs.member,
        names.ENV_ROLE: inputs.part.role,
        names.ENV_CLUSTER: place.cluster,
        names.ENV_REGION: place.region,
        names.ENV_PLAN: names.PLAN_PATH,
        names.ENV_PLAN_CONFIG_MAP: names.plan_name(inputs.key, place.cluster, place.region),
        names.ENV_LEASE: names.lease_name(inputs.key, inputs.part.role, inputs.index),
        names.ENV_SOCKET: names.SOCKET_PATH,
        names.ENV_SPOOL_DIR: names.SPOOL_DIR,
        names.ENV_RING_BYTES: str(storage.shared_memory_bytes),
        names.ENV_SPOOL_BYTES: str(spool_bytes(storage.size_bytes)),
    }
    if inputs.term is not None:
        values[names.ENV_TERM] = str(inputs.term)
    if inputs.has_store_secret:
        values[names.ENV_STORE_SECRET_DIR] = names.STORE_SECRET_DIR
    if inputs.gpu_access == "CudaIpc":
        values[names.ENV_GPU_ACCESS] = inputs.gpu_access
    served = inputs.part.served
    if served is not None:
        values[names.ENV_SERVED_FOLDER] = f"{names.SERVED_DIR}/{served.path}"
        values[names.ENV_SERVED_BASE] = f"{names.SERVED_DIR}/{served.base}"
        values[names.ENV_SERVED_GRACE] = str(served.grace_seconds)
    theirs = [variable.to_document() for variable in inputs.runtime.env]
    if all(variable["name"] != "HOME" for variable in theirs):
        values["HOME"] = names.TMP_DIR  # caches go there: a number without a home has / otherwise, which is read-only
    ours: list[Document] = [{"name": name, "value": value} for name, value in values.items()]
    fields: list[Document] = [{"name": name, "valueFrom": {"fieldRef": _field(path)}} for name, path in _FIELDS.items()]
    return [*ours, *fields, *theirs]


def _resources(inputs: PodInputs, claims: list[Mapping[str, Any]]) -> Document:
    found = {kind: dict(values) for kind, values in inputs.runtime.resources.to_document().items() if values}
    return {**found, "claims": [dict(claim) for claim in claims]} if claims else found


def _spool(inputs: PodInputs) -> Document:
    storage = inputs.runtime.storage
    if storage.type == "PersistentVolumeClaim":
        claim = names.spool_claim_name(inputs.key, inputs.part.role, inputs.index)
        return {"persistentVolumeClaim": {"claimName": claim}}
    return {"emptyDir": {"sizeLimit": str(storage.size_bytes)}}


def _memory(size_bytes: int) -> Document:
    return {"medium": "Memory", "sizeLimit": str(size_bytes)}


def _field(path: str) -> Document:
    return {"apiVersion": "v1", "fieldPath": path}


def _port(name: str, number: int) -> Document:
    return {"name": name, "containerPort": number, "protocol": "TCP"}


def _mount(volume: str, path: str, *, read_only: bool = False) -> Document:
    mount: Document = {"name": volume, "mountPath": path}
    return {**mount, "readOnly": True} if read_only else mount


def _probe(path: str, *, period_s: int, failures: int, timeout_s: int) -> Document:
    return {
        "httpGet": {"path": path, "port": names.CONTROL_PORT},
        "periodSeconds": period_s,
        "failureThreshold": failures,
        "timeoutSeconds": timeout_s,
    }
