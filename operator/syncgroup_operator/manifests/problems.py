"""Everything about a group's templates that no retry mends: each with its field and what to do about it.

Pure, and never raises: templates are opaque to the contract, so anything may stand in them. What only the API server
can judge (images, quantities, security) it judges itself when the pod is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from syncgroup_operator import reasons
from syncgroup_operator.manifests import shapes
from syncgroup_operator.manifests.conflicts import (
    OUR_PREFIX,
    conflicts,
    items,
    metadata_conflicts,
    user_container_conflicts,
)
from syncgroup_operator.manifests.parts import Part, parts_of
from syncgroup_operator.manifests.quantities import exceeds
from syncgroup_operator.planning.observation import Observation
from syncgroup_operator.planning.problems import TemplateProblem
from syncgroup_operator.planning.stores import store_problems

REGION_LABEL: Final = "topology.kubernetes.io/region"
MAX_PROBLEMS: Final = 100
"""A status shows a few; a hostile template could have thousands."""

_OURS: Final = {
    "hostname": "the operator gives every pod its member's name as hostname, for its certificate and for DNS",
    "subdomain": "the operator puts every pod under its own Service, so that relays have stable names",
    "hostnameOverride": "the operator gives every pod its member's name as hostname, for its certificate and for DNS",
    "setHostnameAsFQDN": "a member's full name is longer than a host name may be",
    "hostNetwork": "two members on one node would want the same ports",
}
"""Fields of a pod that a template must leave to the operator, and why."""
_READ_ONLY: Final = ("configMap", "secret", "downwardAPI", "projected", "image")
"""Kinds of volumes that nobody in the pod writes to."""


def problems_of(observation: Observation) -> tuple[TemplateProblem, ...]:
    """What keeps this group from being created, in the order of its spec."""
    found: list[TemplateProblem] = []
    for problem in _all_problems(observation):
        if problem not in found:
            found.append(problem)
        if len(found) == MAX_PROBLEMS:
            break
    return tuple(found)


def _all_problems(observation: Observation) -> Iterator[TemplateProblem]:
    yield from _group_problems(observation)
    for part in parts_of(observation.group.spec):
        misshapen = tuple(_shape_problems(part))
        # What follows reads the template and may rely on its shape.
        yield from misshapen or _part_problems(observation, part)


def _shape_problems(part: Part) -> Iterator[TemplateProblem]:
    for misfit in shapes.template_misfits(part.template.metadata, part.template.spec):
        yield TemplateProblem(reasons.INVALID_SPEC, f"{part.field}.template{misfit.path}", misfit.wanted)


def _part_problems(observation: Observation, part: Part) -> Iterator[TemplateProblem]:
    field, spec = f"{part.field}.template", part.template.spec
    runtime, gpu_access = observation.group.spec.runtime, observation.group.spec.sync.gpu_access
    yield from metadata_conflicts(field, part.template.metadata)
    yield from conflicts(field, spec)
    yield from _pod_problems(field, spec)
    yield from _service_account_problems(observation, part)
    yield from _region_problems(part)
    yield from _served_problems(part)
    index = user_container_index(part)
    if index is None:
        yield _no_container(part)
        return
    container, at = items(spec, "containers")[index], f"{field}.spec.containers[{index}]"
    yield from user_container_conflicts(at, container, runtime.library, gpu_access)
    if gpu_access == "CudaIpc":
        yield from _sharing_problems(observation, part, at, container)


def user_container_index(part: Part) -> int | None:
    """Which container of the template uses the library; None where the one that the spec names is not there."""
    found = items(part.template.spec, "containers")
    if part.container is None:
        return 0 if found else None
    return next((at for at, container in enumerate(found) if container.get("name") == part.container), None)


def named_user(spec: Mapping[str, Any], container: Mapping[str, Any]) -> int | None:
    """The user that a template says its container runs as; None: the image's, which nobody knows here."""
    for context in (container.get("securityContext"), spec.get("securityContext")):
        number = (context or {}).get("runAsUser")
        if number is not None:
            return int(number)
    return None


def _no_container(part: Part) -> TemplateProblem:
    spec = part.template.spec
    there = [str(container.get("name")) for container in items(spec, "containers")]
    if not there:
        field = f"{part.field}.template.spec.containers"
        return TemplateProblem(reasons.CONTAINER_NOT_FOUND, field, f"is empty: add the container that {part.verb}")
    message = f"the template has no container {part.container}: name one of {', '.join(there[:8])}"
    if any(container.get("name") == part.container for container in items(spec, "initContainers")):
        message = f"{part.container} is an init container, which ends before the work begins: name a container"
    return TemplateProblem(reasons.CONTAINER_NOT_FOUND, f"{part.field}.container", message)


def _pod_problems(field: str, spec: Mapping[str, Any]) -> Iterator[TemplateProblem]:
    for key, why in _OURS.items():
        if spec.get(key):
            yield TemplateProblem(reasons.TEMPLATE_CONFLICT, f"{field}.spec.{key}", f"{why}: remove it")
    if spec.get("dnsPolicy") == "Default":
        yield TemplateProblem(
            reasons.TEMPLATE_CONFLICT,
            f"{field}.spec.dnsPolicy",
            "members find each other by names of the cluster's DNS, which Default does not ask: remove it",
        )
    if (spec.get("os") or {}).get("name") not in (None, "linux"):
        yield TemplateProblem(
            reasons.TEMPLATE_CONFLICT, f"{field}.spec.os.name", "the runtime runs on Linux only: remove it"
        )


def service_accounts(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """The accounts that a template names, old spelling included; the first one is what its pods run as."""
    named = [spec.get(key) for key in ("serviceAccountName", "serviceAccount")]
    return tuple(dict.fromkeys(str(name) for name in named if name)) or ("default",)


def _service_account_problems(observation: Observation, part: Part) -> Iterator[TemplateProblem]:
    for cluster in dict.fromkeys(place.cluster for place in part.places):
        view = observation.clusters.get(cluster)
        if view is None or view.service_accounts is None:
            continue
        for account in service_accounts(part.template.spec):
            if account not in view.service_accounts:
                allowed = ", ".join(sorted(view.service_accounts)) or "none"
                yield TemplateProblem(
                    reasons.SERVICE_ACCOUNT_NOT_ALLOWED,
                    f"{part.field}.template.spec.serviceAccountName",
                    f"service account {account:.100} may not be used in cluster {cluster} (allowed: {allowed:.400}): "
                    "name an allowed one, or ask for it in the SyncCluster's allowedNamespaces",
                )


def _region_problems(part: Part) -> Iterator[TemplateProblem]:
    """A template that pins its home region by the nodes' label can never run at a fallback."""
    pinned = (part.template.spec.get("nodeSelector") or {}).get(REGION_LABEL)
    if pinned != part.home.region:  # absent, or regions of the spec are no cloud regions
        return
    for place in part.places[1:]:
        if place.region != pinned:
            yield TemplateProblem(
                reasons.TEMPLATE_CONFLICT,
                f"{part.field}.template.spec.nodeSelector[{REGION_LABEL}]",
                f"no node of the fallback {place.cluster}/{place.region} has this label: remove it, the operator "
                "chooses nodes of the right region by the same label",
            )


def _served_problems(part: Part) -> Iterator[TemplateProblem]:
    """A folder can only be served in a volume that the pod has, and that can be written."""
    served = part.served
    if served is None:
        return
    field, found = f"{part.field}.servedFolder.volume", items(part.template.spec, "volumes")
    volume = next((one for one in found if one.get("name") == served.volume), None)
    if volume is None:
        there = ", ".join(str(one.get("name")) for one in found[:8]) or "none"
        message = f"the template has no volume {served.volume} (it has {there}): add it, or name another"
        yield TemplateProblem(reasons.TEMPLATE_CONFLICT, field, message)
    elif any(volume.get(kind) for kind in _READ_ONLY):
        message = f"the volume {served.volume} cannot be written: use an emptyDir or a claim, and copy the base into it"
        yield TemplateProblem(reasons.TEMPLATE_CONFLICT, field, message)


def _sharing_problems(
    observation: Observation, part: Part, field: str, container: Mapping[str, Any]
) -> Iterator[TemplateProblem]:
    """What keeps two containers from sharing one GPU, and one from seeing the other's processes."""
    if part.template.spec.get("shareProcessNamespace") is False:
        yield TemplateProblem(
            reasons.TEMPLATE_CONFLICT,
            f"{part.field}.template.spec.shareProcessNamespace",
            "spec.sync.gpuAccess CudaIpc needs one process namespace for all: remove it, or choose InProcess",
        )
    if not named_user(part.template.spec, container):  # root is none: the sidecar never runs as root
        yield TemplateProblem(
            reasons.TEMPLATE_CONFLICT,
            f"{field}.securityContext.runAsUser",
            "spec.sync.gpuAccess CudaIpc shares memory between two containers, which only works under one user that is "
            "not root: set it to the user of this image, or choose InProcess",
        )
    if not items(container.get("resources") or {}, "claims"):
        yield TemplateProblem(
            reasons.NO_DEVICE_SHARING,
            f"{field}.resources.claims",
            "spec.sync.gpuAccess CudaIpc shares the GPU of this container with the sidecar, and only a resource claim "
            "can do that: list one in the template's spec.resourceClaims and here, instead of a limit, or choose "
            "InProcess",
        )
    for cluster in dict.fromkeys(place.cluster for place in part.places):
        view = observation.clusters.get(cluster)
        if view is not None and view.reachable and not view.shares_devices:
            yield TemplateProblem(
                reasons.NO_DEVICE_SHARING,
                "spec.sync.gpuAccess",
                f"cluster {cluster} has no dynamic resource allocation (resource.k8s.io), so two containers cannot "
                "share a GPU there: choose InProcess",
            )


def _group_problems(observation: Observation) -> Iterator[TemplateProblem]:
    spec = observation.group.spec
    yield from store_problems(observation)
    for key in spec.trainer.exposure.annotations:
        if key.startswith(OUR_PREFIX):
            yield TemplateProblem(
                reasons.TEMPLATE_CONFLICT,
                f"spec.trainer.exposure.annotations[{key}]",
                f"annotations that start with {OUR_PREFIX} are set by the operator: remove it",
            )
    limits, requests = spec.runtime.resources.limits, spec.runtime.resources.requests
    for name in sorted(set(limits) & set(requests)):
        if exceeds(requests[name], limits[name]):
            yield TemplateProblem(
                reasons.INVALID_SPEC,
                f"spec.runtime.resources.limits[{name}]",
                f"is below the request of {requests[name]}: raise it, or lower spec.runtime.resources.requests",
            )
    ring_bytes = spec.runtime.storage.shared_memory_bytes
    if "memory" in limits and not exceeds(limits["memory"], ring_bytes):
        yield TemplateProblem(
            reasons.INVALID_SPEC,
            "spec.runtime.resources.limits[memory]",
            f"must exceed spec.runtime.storage.sharedMemoryBytes ({ring_bytes}), which counts as the sidecar's memory: "
            "the sidecar would be killed at its start",
        )
