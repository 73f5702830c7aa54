"""A template made a member's pod spec: what the user set stays as it is, the runtime is added around it.

Pure, and the same again: a spec that has been through here comes out unchanged. Called with templates in which
`problems_of` found nothing, so that shapes are right and no name of ours is taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sync_runtime.contract import names
from sync_runtime.contract.rollout import Spread
from syncgroup_operator.manifests import shapes
from syncgroup_operator.manifests.conflicts import PYTHON_PATH
from syncgroup_operator.manifests.inputs import PodInputs
from syncgroup_operator.manifests.problems import REGION_LABEL, named_user, user_container_index
from syncgroup_operator.manifests.sidecar import RUNTIME_USER, library_copy, sidecar, volumes

Document = dict[str, Any]

AVOID_WEIGHT: Final = 100
_SPREAD_KEYS: Final[Mapping[Spread, str]] = {"Nodes": "kubernetes.io/hostname", "Zones": "topology.kubernetes.io/zone"}
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def injected(inputs: PodInputs, template_spec: Mapping[str, Any]) -> Document:
    """The pod's spec: a deep copy of the template's with everything added."""
    spec: Document = shapes.without_nulls(template_spec)
    container: Document = spec["containers"][user_container_index(inputs.part) or 0]
    user = runtime_user(spec, container)
    shares_device = inputs.gpu_access == "CudaIpc"
    claims = container.get("resources", {}).get("claims", []) if shares_device else []

    _use_runtime(inputs, container)
    added = [library_copy(inputs, user)] if inputs.runtime.library != "None" else []
    # Before the user's own init containers: these may load for an hour, and a member shows life from its start.
    spec["initContainers"] = _put_first(spec.get("initContainers", []), [*added, sidecar(inputs, user, claims)])
    spec["volumes"] = _put_last(spec.get("volumes", []), volumes(inputs))
    spec["hostname"] = inputs.member
    spec["subdomain"] = names.members_service_name(inputs.key)
    spec.setdefault("automountServiceAccountToken", False)
    if shares_device and not spec.get("hostPID"):  # which shows them all processes already
        spec["shareProcessNamespace"] = True
    if inputs.runtime.storage.type == "PersistentVolumeClaim" or inputs.part.served is not None:
        _own_claim(spec, user)
    _place(inputs, spec)
    return spec


def runtime_user(spec: Mapping[str, Any], container: Mapping[str, Any]) -> int:
    """Whom the sidecar runs as: the user's own number where the template says it, so that both may use the socket."""
    return named_user(spec, container) or RUNTIME_USER  # root may use anybody's socket, and the sidecar is never root


def _use_runtime(inputs: PodInputs, container: Document) -> None:
    """The socket, and the library, in the container that uses them; no token, no certificate."""
    mounts: list[Document] = [{"name": names.RUN_VOLUME, "mountPath": names.RUN_DIR}]
    variables = {names.ENV_SOCKET: names.SOCKET_PATH}
    if inputs.runtime.library != "None":
        mounts.append({"name": names.LIBRARY_VOLUME, "mountPath": names.LIBRARY_DIR, "readOnly": True})
        variables[names.ENV_LIBRARY] = inputs.library_path
    if inputs.runtime.library == "PythonPath":
        variables[PYTHON_PATH] = inputs.library_path
    if inputs.gpu_access == "CudaIpc":
        variables[names.ENV_GPU_ACCESS] = inputs.gpu_access
    environment: list[Document] = [{"name": name, "value": value} for name, value in variables.items()]
    container["volumeMounts"] = _put_last(container.get("volumeMounts", []), mounts, key="mountPath")
    container["env"] = _put_last(container.get("env", []), environment)


def _own_claim(spec: Document, user: int) -> None:
    """A fresh volume belongs to root; the sidecar is not root, so the kubelet must give it to a group of the pod."""
    context: Document = spec.setdefault("securityContext", {})
    if "fsGroup" not in context:
        context["fsGroup"] = user
        context.setdefault("fsGroupChangePolicy", "OnRootMismatch")


def _place(inputs: PodInputs, spec: Document) -> None:
    if inputs.select_region:
        spec.setdefault("nodeSelector", {}).setdefault(REGION_LABEL, inputs.place.region)
    key = _SPREAD_KEYS.get(inputs.part.spread)
    constraints = spec.get("topologySpreadConstraints", [])
    if key is not None and all(constraint.get("topologyKey") != key for constraint in constraints):
        labels = {names.LABEL_GROUP_UID: inputs.uid, names.LABEL_ROLE: inputs.part.role}
        constraint = {
            "maxSkew": 1,
            "topologyKey": key,
            # Where the cluster has no room, an uneven spread is better than no member.
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": labels},
        }
        spec["topologySpreadConstraints"] = [*constraints, constraint]
    if inputs.avoid_nodes:
        _avoid(spec, inputs.avoid_nodes)


def _avoid(spec: Document, nodes: tuple[str, ...]) -> None:
    """Prefer other nodes than those that lost this member; one of them is still better than none."""
    requirements = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]
    term = {"weight": AVOID_WEIGHT, "preference": {"matchFields": requirements}}
    affinity: Document = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    preferred = affinity.get(_PREFERRED, [])
    if term not in preferred:
        affinity[_PREFERRED] = [*preferred, term]


def _put_last(found: list[Document], ours: list[Document], key: str = "name") -> list[Document]:
    names_of_ours = {item[key] for item in ours}
    return [*(item for item in found if item.get(key) not in names_of_ours), *ours]


def _put_first(found: list[Document], ours: list[Document]) -> list[Document]:
    names_of_ours = {item["name"] for item in ours}
    return [*ours, *(item for item in found if item.get("name") not in names_of_ours)]
