"""Every name that operator, runtime and command line must spell alike.

Constants and small pure functions; standard library only, so that any process may import it. Object names are
functions of (group, role, index): an observer can say which object is missing, and a restarted operator finds what its
predecessor made.

Every such name ends in eight characters of hash. Two groups whose parts join to the same text (`a-b` + `c` and `a` +
`b-c`) and two namespaces mapped to one remote namespace must not share objects, and a long name must still fit 63
characters.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from typing import Final, NamedTuple

# --- the API ---------------------------------------------------------------------------------------------------------
API_GROUP: Final = "syncgroup.dev"
API_VERSION: Final = "v1alpha1"
GROUP_VERSION: Final = "syncgroup.dev/v1alpha1"
# kubectl reads `syncgroup` as this category before it reads it as a kind. A category of two kinds would make
# `kubectl get syncgroup NAME` an error, so SyncGroup is alone in it and both kinds share the other one.
SYNCGROUP_CATEGORY: Final = "syncgroup"
SHARED_CATEGORY: Final = "syncgroup-all"

SYNCGROUP_KIND: Final = "SyncGroup"
SYNCGROUP_PLURAL: Final = "syncgroups"
SYNCGROUP_SHORT_NAMES: Final = ("sg",)
SYNCCLUSTER_KIND: Final = "SyncCluster"
SYNCCLUSTER_PLURAL: Final = "syncclusters"
# StorageClass has `sc` too, and kubectl prefers it; the second one always works.
SYNCCLUSTER_SHORT_NAMES: Final = ("sc", "sgc")

FINALIZER: Final = f"{API_GROUP}/cleanup"
SIGNER_NAME: Final = f"{API_GROUP}/member"
MANAGED_BY_OPERATOR: Final = f"{API_GROUP}/operator"
MANAGED_BY_MULTIKUEUE: Final = "kueue.x-k8s.io/multikueue"
FIELD_MANAGER: Final = "syncgroup-controller"
STATUS_FIELD_MANAGER: Final = "syncgroup-status"
LEADER_LEASE: Final = "syncgroup-operator"

LOCAL_CLUSTER: Final = "local"
"""What a spec calls the cluster that the operator itself runs in; no SyncCluster may have this name."""
TRAINER_ROLE: Final = "trainer"
"""The role of the trainer; a rollout's role is its own name, so no rollout may have this one."""
KUBECONFIG_KEY: Final = "kubeconfig"
"""The default key of a kubeconfig inside its Secret."""

# --- labels: what objects are selected by ----------------------------------------------------------------------------
LABEL_GROUP: Final = f"{API_GROUP}/group"
LABEL_GROUP_NAMESPACE: Final = f"{API_GROUP}/group-namespace"
LABEL_GROUP_UID: Final = f"{API_GROUP}/group-uid"
LABEL_ROLE: Final = f"{API_GROUP}/role"
LABEL_INDEX: Final = f"{API_GROUP}/index"
LABEL_CLUSTER: Final = f"{API_GROUP}/cluster"
LABEL_REGION: Final = f"{API_GROUP}/region"

# --- annotations: what objects carry ---------------------------------------------------------------------------------
ANNOTATION_REPORT: Final = f"{API_GROUP}/report"
"""On a member's Lease: its report, JSON (`reports.MemberReport`)."""
ANNOTATION_TERM: Final = f"{API_GROUP}/term"
ANNOTATION_PLAN_REVISION: Final = f"{API_GROUP}/plan-revision"
ANNOTATION_TEMPLATE_HASH: Final = f"{API_GROUP}/template-hash"
ANNOTATION_HUB: Final = f"{API_GROUP}/hub"
"""On remote objects: which hub made them; a collector touches only its own."""
ANNOTATION_KEYS: Final = f"{API_GROUP}/keys"
"""On the copy of an object store's Secret: the names of its keys, so that one that went away is seen."""
ANNOTATION_TRACEPARENT: Final = f"{API_GROUP}/traceparent"

# --- inside a pod ----------------------------------------------------------------------------------------------------
RUNTIME_CONTAINER: Final = "sync-runtime"
LIBRARY_CONTAINER: Final = "sync-library"
"""The init container that copies the library into its volume."""

DATA_PORT: Final = 7443
DATA_PORT_NAME: Final = "sync-data"
CONTROL_PORT: Final = 7480
"""The sidecar's HTTP API and probes, for the pod itself."""
CONTROL_PORT_NAME: Final = "sync-control"
METRICS_PORT: Final = 7490
METRICS_PORT_NAME: Final = "sync-metrics"

RUN_VOLUME: Final = "syncgroup-run"
SPOOL_VOLUME: Final = "syncgroup-spool"
LIBRARY_VOLUME: Final = "syncgroup-library"
IDENTITY_VOLUME: Final = "syncgroup-identity"
TOKEN_VOLUME: Final = "syncgroup-token"  # noqa: S105 a volume's name, no secret
TRUST_VOLUME: Final = "syncgroup-trust"
TMP_VOLUME: Final = "syncgroup-tmp"
STORE_VOLUME: Final = "syncgroup-store"

RUN_DIR: Final = "/run/syncgroup"
"""Memory-backed: the socket and the shared ring between the user's process and the sidecar."""
SOCKET_PATH: Final = f"{RUN_DIR}/sidecar.sock"
GPU_WORKER_SOCKET_NAME: Final = "gpu-worker.sock"
"""Of the GPU worker that a sidecar runs: beside the sidecar's own socket, so that whoever finds one finds both."""
SPOOL_DIR: Final = "/var/lib/syncgroup/spool"
LIBRARY_DIR: Final = "/opt/syncgroup/library"
IDENTITY_DIR: Final = "/run/syncgroup-identity"
TRUST_DIR: Final = "/run/syncgroup-trust"
"""The trust bundle as the kubelet keeps it up to date: a mounted ConfigMap with `ca.crt`."""
TOKEN_DIR: Final = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 a folder, no secret
"""Mounted in the sidecar only: `token`, bound to the pod, and `ca.crt` of the API server."""
STORE_SECRET_DIR: Final = "/run/syncgroup-store"  # noqa: S105 a folder, no secret
"""The object store's credentials, mounted in the sidecar only; the kubelet keeps them up to date."""
SERVED_DIR: Final = "/var/lib/syncgroup/served"
"""Where the sidecar sees the volume of a served folder."""
PLAN_PATH: Final = f"{IDENTITY_DIR}/plan.json"
"""Where a sidecar in a pod keeps its plan: in memory that no other container sees."""
TMP_DIR: Final = "/tmp"  # noqa: S108 the sidecar's own volume
"""The one place besides its volumes where the sidecar may write: its root file system is read-only."""

ENV_PREFIX: Final = "SYNCGROUP_"
ENV_GROUP: Final = f"{ENV_PREFIX}GROUP"
ENV_GROUP_NAMESPACE: Final = f"{ENV_PREFIX}GROUP_NAMESPACE"
ENV_GROUP_UID: Final = f"{ENV_PREFIX}GROUP_UID"
ENV_MEMBER: Final = f"{ENV_PREFIX}MEMBER"
ENV_ROLE: Final = f"{ENV_PREFIX}ROLE"
ENV_CLUSTER: Final = f"{ENV_PREFIX}CLUSTER"
ENV_REGION: Final = f"{ENV_PREFIX}REGION"
ENV_PLAN: Final = f"{ENV_PREFIX}PLAN"
"""Path of the plan's file."""
ENV_PLAN_CONFIG_MAP: Final = f"{ENV_PREFIX}PLAN_CONFIG_MAP"
"""Name of the ConfigMap that the sidecar copies the plan from, into that file."""
ENV_TERM: Final = f"{ENV_PREFIX}TERM"
"""Of a trainer: the term that its pod was created for. A plan may be of a later one, which is another trainer's."""
ENV_LEASE: Final = f"{ENV_PREFIX}LEASE"
ENV_SOCKET: Final = f"{ENV_PREFIX}SOCKET"
ENV_SPOOL_DIR: Final = f"{ENV_PREFIX}SPOOL_DIR"
ENV_IDENTITY_DIR: Final = f"{ENV_PREFIX}IDENTITY_DIR"
ENV_TRUST_DIR: Final = f"{ENV_PREFIX}TRUST_DIR"
ENV_TOKEN_DIR: Final = f"{ENV_PREFIX}TOKEN_DIR"
ENV_LISTEN: Final = f"{ENV_PREFIX}LISTEN"
"""`host:port` of the data port, where it is not the usual one."""
ENV_CONTROL: Final = f"{ENV_PREFIX}CONTROL"
"""`host:port` of the control API, where it is not the usual one."""
ENV_POD_NAME: Final = f"{ENV_PREFIX}POD_NAME"
ENV_POD_NAMESPACE: Final = f"{ENV_PREFIX}POD_NAMESPACE"
ENV_POD_UID: Final = f"{ENV_PREFIX}POD_UID"
ENV_POD_IP: Final = f"{ENV_PREFIX}POD_IP"
ENV_NODE: Final = f"{ENV_PREFIX}NODE"
ENV_RING_BYTES: Final = f"{ENV_PREFIX}RING_BYTES"
ENV_SPOOL_BYTES: Final = f"{ENV_PREFIX}SPOOL_BYTES"
ENV_LIBRARY: Final = f"{ENV_PREFIX}LIBRARY"
"""In the user's container: the folder to add to `sys.path`."""
ENV_STORE_SECRET_DIR: Final = f"{ENV_PREFIX}STORE_SECRET_DIR"
"""Where the Secret of the object store is mounted; not set: the pod's own cloud identity."""
ENV_GPU_ACCESS: Final = f"{ENV_PREFIX}GPU_ACCESS"
"""In the sidecar and in the user's container, with `gpuAccess: CudaIpc` only."""
ENV_SERVED_FOLDER: Final = f"{ENV_PREFIX}SERVED_FOLDER"
"""In a rollout's sidecar: where a checkpoint folder is kept level with the group (`current` in it)."""
ENV_SERVED_BASE: Final = f"{ENV_PREFIX}SERVED_BASE"
"""The checkpoint folder that it is made from."""
ENV_SERVED_GRACE: Final = f"{ENV_PREFIX}SERVED_GRACE_SECONDS"
"""How long a version that was replaced there is left to readers that are between two files."""
ENV_GPU_WORKER_SOCKET: Final = f"{ENV_PREFIX}GPU_WORKER_SOCKET"
"""For a process whose GPU worker does not listen beside the sidecar."""

# --- inside objects --------------------------------------------------------------------------------------------------
PLAN_KEY: Final = "plan.json"
"""The key of the plan in its ConfigMap (`plan.Plan`)."""
CA_CERTIFICATE_KEY: Final = "ca.crt"
CA_PRIVATE_KEY_KEY: Final = "ca.key"
STATE_TERM_KEY: Final = "term"
STATE_PLAN_REVISION_KEY: Final = "planRevision"

NAME_MAX_LENGTH: Final = 63
_TAIL_LENGTH: Final = 8
_TAIL_BYTES: Final = _TAIL_LENGTH * 5 // 8
_READABLE_LENGTH: Final = NAME_MAX_LENGTH - _TAIL_LENGTH - 1


class GroupKey(NamedTuple):
    """Which SyncGroup: its namespace and name on the hub."""

    namespace: str
    name: str


def member_name(group: GroupKey, role: str, index: int) -> str:
    """The pod of one member: `role` is `trainer` or the rollout's name, `index` counts from 0."""
    return _object_name(group, role, str(index))


def lease_name(group: GroupKey, role: str, index: int) -> str:
    """The Lease that one member renews; named like its pod."""
    return member_name(group, role, index)


def spool_claim_name(group: GroupKey, role: str, index: int) -> str:
    """The PersistentVolumeClaim of one member's spool; it outlives the pod and is found again by its successor."""
    return _object_name(group, role, str(index), "spool")


def trainer_service_name(group: GroupKey) -> str:
    """The Service that relays dial."""
    return _object_name(group, TRAINER_ROLE)


def members_service_name(group: GroupKey) -> str:
    """The headless Service that gives members their DNS names."""
    return _object_name(group, "members")


def plan_name(group: GroupKey, cluster: str, region: str) -> str:
    """The ConfigMap with the plan for one cluster and region."""
    return _object_name(group, "plan", cluster, region)


def state_name(group: GroupKey) -> str:
    """The one hub object on which term and plan revision are allocated by compare-and-swap."""
    return _object_name(group, "state")


def ca_secret_name(group: GroupKey) -> str:
    """The hub Secret with the group's certificate authority."""
    return _object_name(group, "ca")


def trust_bundle_name(group: GroupKey) -> str:
    """The ConfigMap with the certificates that members trust."""
    return _object_name(group, "trust")


def store_secret_name(group: GroupKey) -> str:
    """The operator's copy of the Secret with the object store's credentials, in every cluster with members."""
    return _object_name(group, "store")


def member_role_name(group: GroupKey) -> str:
    """The Role and RoleBinding of the group's members."""
    return _object_name(group, "member")


def certificate_request_name(group: GroupKey, member: str, pod_uid: str, attempt: str) -> str:
    """One CertificateSigningRequest of one pod; cluster-scoped, so the pod's uid is part of it.

    A request is decided once: whoever asks again does so under another name, made by another `attempt`.
    """
    return _object_name(group, "csr", member, pod_uid, attempt)


def gpu_worker_socket(sidecar_socket: str) -> str:
    """Where the GPU worker of a sidecar listens."""
    folder, separator, _ = sidecar_socket.rpartition("/")
    return f"{folder}{separator}{GPU_WORKER_SOCKET_NAME}"


def group_labels(group: GroupKey, uid: str) -> dict[str, str]:
    """The labels on everything that belongs to a group, in any cluster."""
    return {LABEL_GROUP: group.name, LABEL_GROUP_NAMESPACE: group.namespace, LABEL_GROUP_UID: uid}


def member_labels(group: GroupKey, uid: str, *, role: str, index: int, cluster: str, region: str) -> dict[str, str]:
    """The labels on everything that belongs to one member."""
    return {
        **group_labels(group, uid),
        LABEL_ROLE: role,
        LABEL_INDEX: str(index),
        LABEL_CLUSTER: cluster,
        LABEL_REGION: region,
    }


@functools.lru_cache(maxsize=4096)
def _object_name(group: GroupKey, *parts: str) -> str:
    """Readable text and a hash of exactly what it was made from; the group's own name is shortened first."""
    # NUL cannot occur in a name, so that no two lists of parts hash alike.
    digest = hashlib.sha256("\0".join((*group, *parts)).encode()).digest()
    tail = base64.b32encode(digest[:_TAIL_BYTES]).decode().lower()
    suffix = "-".join(parts)
    room = _READABLE_LENGTH - len(suffix) - 1
    readable = f"{group.name[: max(room, 1)].rstrip('-')}-{suffix}"[:_READABLE_LENGTH].rstrip("-")
    return f"{readable}-{tail}"
