"""What every reason of the operator means to a person, and what to type next. Pure words.

A test holds this table against `reasons`: none may be missing. `{…}` are filled in by `why`; a command that would need
something that is not known is left out.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from syncgroup_operator import reasons

_DESCRIBE = "kubectl describe syncgroup -n {namespace} {name}"
_EDIT = "kubectl edit syncgroup -n {namespace} {name}"
_TOP = "kubectl syncgroup top -n {namespace} {name}"
_LINKS = "kubectl syncgroup links -n {namespace} {name}"
_POD = "kubectl describe pod -n {namespace} {pod}"
_LOGS = "kubectl logs -n {namespace} {pod} -c {container}"
_LAST_LOGS = "kubectl logs -n {namespace} {pod} -c {container} --previous"
_SIDECAR = "kubectl logs -n {namespace} {pod} -c sync-runtime"
_EVENTS = "kubectl events -n {namespace} --for syncgroup/{name}"
_CLUSTER = "kubectl describe synccluster {cluster}"
_CLUSTERS = "kubectl syncgroup cluster list"
_REGISTER = "kubectl syncgroup cluster register {cluster} --kubeconfig FILE --region REGION --allow {namespace}"
_OPERATOR = "kubectl logs -n syncgroup-system -l app.kubernetes.io/name=syncgroup --tail=50"
_SUSPEND = """kubectl patch syncgroup -n {namespace} {name} --type merge -p '{{"spec":{{"suspend":false}}}}'"""


class Advice(NamedTuple):
    """What a reason means."""

    meaning: str
    commands: tuple[str, ...] = ()


_WELL = Advice("nothing is wrong here")
_PASSES = "it passes by itself"

REASONS: Final[dict[str, Advice]] = {
    reasons.ALL_READY: _WELL,
    reasons.SERVING: _WELL,
    reasons.DONE: Advice("the trainer's program has ended; delete the group, or change its template to train on"),
    reasons.NOTHING_TO_DO: _WELL,
    reasons.MEASURED: Advice("the links were measured; loss above 5 % means a congested or policed path", (_LINKS,)),
    reasons.NOT_MEASURED: Advice("no payload was sent yet: links are measured by the first versions", (_TOP,)),
    reasons.PROGRESSING: Advice(f"something is being set up; {_PASSES}", (_TOP,)),
    reasons.STARTING: Advice(f"pods are starting; {_PASSES}", (_TOP,)),
    reasons.SCALING: Advice(f"pods come or go because the spec changed; {_PASSES}", (_TOP,)),
    reasons.ROLLING_OUT: Advice(f"pods change to the new template, `maxUnavailable` at a time; {_PASSES}", (_TOP,)),
    reasons.REPLACING: Advice(f"lost members get successors; {_PASSES}", (_TOP, _EVENTS)),
    reasons.DELETING: Advice("the group is being deleted; it stays until every cluster is clean", (_EVENTS, _CLUSTERS)),
    reasons.SUSPENDED: Advice("spec.suspend is true: no pod runs until it is false", (_SUSPEND,)),
    reasons.INVALID_SPEC: Advice("the spec holds something that this operator cannot carry out", (_EDIT,)),
    reasons.CLUSTER_NOT_FOUND: Advice("the spec names a cluster that is not registered", (_CLUSTERS, _REGISTER)),
    reasons.NAMESPACE_NOT_ALLOWED: Advice(
        "the SyncCluster does not let this namespace in; an administrator adds it to allowedNamespaces",
        (_CLUSTER, _REGISTER),
    ),
    reasons.SERVICE_ACCOUNT_NOT_ALLOWED: Advice(
        "the template names a service account that the SyncCluster does not allow", (_CLUSTER, _EDIT)
    ),
    reasons.CONTAINER_NOT_FOUND: Advice("`container` names none of the template's containers", (_EDIT,)),
    reasons.TEMPLATE_CONFLICT: Advice("the template uses a name, port or field that the operator needs", (_EDIT,)),
    reasons.TEMPLATE_REFUSED: Advice("the API server refuses a pod of this template", (_EDIT, _EVENTS)),
    reasons.NO_DEVICE_SHARING: Advice(
        "gpuAccess CudaIpc needs dynamic resource allocation, which the cluster has not: use InProcess", (_EDIT,)
    ),
    reasons.SECRET_NOT_FOUND: Advice("a Secret that is named is not there: create it, or correct its name", (_EVENTS,)),
    reasons.SECRET_UNUSABLE: Advice(
        "a Secret that is named does not hold what is needed: add the keys that the message names", (_EDIT,)
    ),
    reasons.DENIED: Advice(
        "the operator's role does not allow something: upgrade the chart, or register the cluster again",
        (_EVENTS, _OPERATOR),
    ),
    reasons.NAME_TAKEN: Advice("an object of the name that the operator needs belongs to somebody else", (_EVENTS,)),
    reasons.MANAGED_ELSEWHERE: Advice("spec.managedBy gives the group to another controller", (_DESCRIBE,)),
    reasons.STATE_UNREADABLE: Advice(
        "the operator's own record of the group was edited, or a newer operator wrote it: restore or upgrade",
        ("kubectl get configmap -n {namespace} -l syncgroup.dev/group={name}", _OPERATOR),
    ),
    reasons.CONNECTED_REASON: _WELL,
    reasons.UNREACHABLE: Advice(
        "a cluster does not answer; its members are held in their places unless lease.onClusterLost says Replace",
        (_CLUSTER, _CLUSTERS),
    ),
    reasons.KUBECONFIG_REFUSED: Advice(
        "the cluster's kubeconfig holds what the operator must not use: register the cluster again",
        (_CLUSTER, _REGISTER),
    ),
    reasons.KUBECONFIG_MISSING: Advice(
        "the Secret with the cluster's kubeconfig is not there: register the cluster again", (_CLUSTER, _REGISTER)
    ),
    reasons.UNAUTHORIZED: Advice(
        "the cluster no longer knows the operator's token: register it again with --new-token",
        (_CLUSTER, _REGISTER + " --new-token"),
    ),
    reasons.POD_PENDING: Advice(
        f"a pod is not there yet or has no node; {_PASSES}, or a node is missing", (_POD, _TOP)
    ),
    reasons.UNSCHEDULABLE: Advice(
        "no node takes the pod: add nodes, or change what the template asks for", (_POD, _EDIT)
    ),
    reasons.POD_NOT_READY: Advice("the pod runs and its program is not ready: see what it says", (_LOGS, _SIDECAR)),
    reasons.TRAINER_DOWN: Advice("nothing is heard of the trainer; it is replaced under a new term", (_POD, _EVENTS)),
    reasons.TRAINER_UNREACHED: Advice(
        "other clusters do not know where to dial the trainer: its Service has no address yet",
        ("kubectl get service -n {namespace} -l syncgroup.dev/group={name}", _EDIT),
    ),
    reasons.REGIONS_STALE: Advice("members are further behind than sync.maxStaleness allows", (_LINKS, _TOP)),
    reasons.MEMBER_POISONED: Advice(
        "a scrub found wrong weights in a member; its results are refused until its repair is proved",
        (_SIDECAR, _POD, "kubectl syncgroup replace -n {namespace} {pod}"),
    ),
    reasons.STORE_UNPROVED: Advice("the trainer's sidecar has not opened the object store yet", (_TOP, _SIDECAR)),
    reasons.STORE_AWAY: Advice(
        "the object store does not answer, or asks to wait; sidecars try again by themselves", (_LINKS, _SIDECAR)
    ),
    reasons.STORE_DENIED: Advice(
        "the object store refuses the credentials: correct the Secret that its objectStore.secretRef names; it is "
        "copied to members by itself, and nothing need be restarted",
        (_EDIT, _SIDECAR),
    ),
    reasons.STORE_CLOCK: Advice("the object store does not believe a node's clock: set it", (_SIDECAR,)),
    reasons.STORE_UNFIT: Advice(
        "the object store does not keep conditional writes: switch them on there, or use another store", (_EDIT,)
    ),
    reasons.STORE_FOREIGN: Advice(
        "something else lies under the prefix: give the store another one in objectStore.prefix, or remove it",
        (_EDIT, _SIDECAR),
    ),
    reasons.STORE_AHEAD: Advice(
        "the store holds later versions than the trainer's spool, an old copy: start from weights that begin a lineage",
        (_SIDECAR,),
    ),
    reasons.STORE_DAMAGED: Advice("bytes in the object store are not what was put there", (_SIDECAR,)),
    reasons.STORE_MISSING: Advice("the object store has lost what its pointer names", (_SIDECAR,)),
    reasons.LEASE_EXPIRED: Advice("a member stopped renewing its lease and is replaced", (_POD, _SIDECAR, _EVENTS)),
    reasons.NEVER_REPORTED: Advice(
        "a pod runs whose sidecar never renewed its lease: it has no plan, no certificate or no way to its API server",
        (_SIDECAR, _POD),
    ),
    reasons.POD_FAILED: Advice("a pod ended by itself and is replaced", (_LAST_LOGS, _EVENTS)),
    reasons.POD_DELETED: Advice("somebody deleted a pod; it is made again", (_EVENTS,)),
    reasons.NODE_LOST: Advice("a node is gone; its members get successors elsewhere", ("kubectl get nodes", _EVENTS)),
    reasons.NO_CAPACITY: Advice("no node has had room for minutes; the fallback regions are tried", (_POD, _EVENTS)),
    reasons.REGION_LOST: Advice(
        "most members of a region went silent together; its fallbacks take over", (_EVENTS, _TOP)
    ),
    reasons.CLUSTER_LOST: Advice(
        "a cluster was out of reach for longer than lease.lostGraceSeconds; its members are placed elsewhere",
        (_CLUSTER, _EVENTS),
    ),
    reasons.FENCED: Advice("the trainer saw a later term than its own and was replaced", (_EVENTS,)),
    reasons.SLOT_TAKEN: Advice("a pod came back after its seat was given away, and was removed", (_EVENTS,)),
    reasons.TEMPLATE_CHANGED: Advice(f"pods change to the new template; {_PASSES}", (_TOP,)),
    reasons.SCALED_DOWN: Advice(f"the spec asks for fewer members; {_PASSES}", (_TOP,)),
    reasons.REQUESTED: Advice(f"somebody asked for another pod; {_PASSES}", (_TOP,)),
    reasons.DAMPED: Advice(
        "more members are lost than lease.maxConcurrentReplacements and maxReplacementsPerHour let be replaced now",
        (_EVENTS, _EDIT),
    ),
    reasons.CERTIFICATE_DENIED: Advice(
        "a certificate was asked for by somebody who is not the pod it is for", ("kubectl get csr", _EVENTS)
    ),
    reasons.CERTIFICATE_ISSUED: _WELL,
    reasons.AUTHORITY_EXPIRING: Advice("the group's certificate authority ends soon and is being replaced", (_EVENTS,)),
    reasons.AUTHORITY_ROTATING: Advice(f"the group's certificate authority is being replaced; {_PASSES}", (_EVENTS,)),
    reasons.AUTHORITY_EXPIRED: Advice(
        "the group's certificate authority has ended: no member can dial another until it is replaced", (_OPERATOR,)
    ),
    reasons.CERTIFICATE_EXPIRING: Advice("a member does not renew its certificate", (_SIDECAR, "kubectl get csr")),
    reasons.VALID: _WELL,
}

_IMAGE = Advice("the kubelet cannot get the image: correct `image`, or give imagePullSecrets", (_POD, _EDIT))
_CRASH = Advice("the program ends again and again: its last words say why", (_LAST_LOGS, _POD))
CONTAINERS: Final[dict[str, Advice]] = {
    "ImagePullBackOff": _IMAGE,
    "ErrImagePull": _IMAGE,
    "InvalidImageName": _IMAGE,
    "ErrImageNeverPull": _IMAGE,
    "CrashLoopBackOff": _CRASH,
    "RunContainerError": _CRASH,
    "Error": _CRASH,
    "OOMKilled": Advice(
        "the program needs more memory than its limit: raise resources.limits.memory", (_LAST_LOGS, _EDIT)
    ),
    "CreateContainerConfigError": Advice(
        "a Secret, ConfigMap or key that the template names is not there: create it, or correct its name", (_POD, _EDIT)
    ),
    "CreateContainerError": Advice("the runtime refuses the container", (_POD, _EDIT)),
    "Evicted": Advice("the node ran out of something and ended the pod", (_POD, "kubectl describe node {node}")),
}
"""What kubelets say of containers; anything else is shown with their own words."""
OTHER: Final = Advice("see what the pod and its events say", (_POD, _EVENTS))


def advice_for(reason: str) -> Advice:
    """What is known of a reason, whoever gave it."""
    return REASONS.get(reason) or CONTAINERS.get(reason) or OTHER
