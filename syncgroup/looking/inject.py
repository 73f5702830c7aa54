"""What the operator would add to a pod: the pod as it would be made, by the operator's own code. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sync_runtime.contract.documents import load_resource
from sync_runtime.contract.errors import InvalidDocumentError
from sync_runtime.contract.names import GROUP_VERSION, SYNCGROUP_KIND, TRAINER_ROLE
from sync_runtime.contract.syncgroup import SyncGroup
from syncgroup.errors import CommandError
from syncgroup_operator.explain import offline_observation
from syncgroup_operator.manifests.inputs import Extras, LibraryFacts
from syncgroup_operator.manifests.parts import part_of
from syncgroup_operator.manifests.pods import pod
from syncgroup_operator.manifests.problems import problems_of
from syncgroup_operator.planning.decision import Seat
from syncgroup_operator.planning.observation import Slot
from syncgroup_operator.planning.problems import TemplateProblem

Document = dict[str, Any]
EXAMPLE: Final = "example"
_EXAMPLE_REGION: Final = "here"


def template_of(document: Mapping[str, Any], source: str) -> Document:
    """The pod template in a Pod, a PodTemplate or a workload; raises CommandError."""
    kind = document.get("kind")
    found: Any = document
    if kind != "Pod":
        found = document.get("template") or _below(document, "spec", "template")
        found = found or _below(document, "spec", "jobTemplate", "spec", "template")
    if not isinstance(found, Mapping) or not isinstance(found.get("spec"), Mapping):
        raise CommandError(f"{source} holds no pod: give a Pod, or a workload with spec.template")
    metadata = found.get("metadata") if isinstance(found.get("metadata"), Mapping) else {}
    kept = {key: value for key, value in (metadata or {}).items() if key in ("labels", "annotations") and value}
    return {"metadata": kept, "spec": dict(found["spec"])}


def group_with(group: Mapping[str, Any] | None, role: str | None, template: Document) -> tuple[SyncGroup, str]:
    """The group in which a role has this template, and that role. Without a group: one with every default."""
    if group is None:
        spec: Document = {"trainer": {"region": _EXAMPLE_REGION, "template": template}}
        spec["rollouts"] = [{"name": EXAMPLE, "region": _EXAMPLE_REGION, "replicas": 1, "template": template}]
        document: Document = {"apiVersion": GROUP_VERSION, "kind": SYNCGROUP_KIND, "metadata": {"name": EXAMPLE}}
        document["spec"] = spec
        chosen = role if role == TRAINER_ROLE else EXAMPLE
    else:
        document = {**group, "spec": dict(group.get("spec") or {})}
        document.pop("status", None)
        chosen = _put(document["spec"], role, template)
    try:
        resource = load_resource(document)
    except InvalidDocumentError as error:
        raise CommandError(f"the group is not valid: {error}") from error
    if not isinstance(resource, SyncGroup):
        raise CommandError(f"--group must hold a {SYNCGROUP_KIND}")
    return resource, chosen


def injected_pod(
    group: SyncGroup, role: str, *, image: str, library_hash: str
) -> tuple[Document | None, Sequence[TemplateProblem]]:
    """The pod that the operator would make of a role's template, or why it would refuse to."""
    observation = dataclasses.replace(offline_observation(group), default_image=image)
    part = part_of(group.spec, role)
    if part is None:
        return None, ()
    problems = [one for one in problems_of(observation) if one.field.startswith((part.field, "spec.runtime"))]
    if problems:
        return None, problems
    seat = Seat(Slot(role, 0), part.home, term=1 if role == TRAINER_ROLE else None)
    extras = Extras(hub_id="", trust_bundle="", library=LibraryFacts(library_hash))
    return pod(observation, seat, extras), ()


def _put(spec: Document, role: str | None, template: Document) -> str:
    """Give a role of the spec this template; which one it was."""
    if role == TRAINER_ROLE:
        spec["trainer"] = {**(spec.get("trainer") or {}), "template": template}
        return TRAINER_ROLE
    rollouts = [dict(one) for one in spec.get("rollouts") or () if isinstance(one, Mapping)]
    names = [str(one.get("name")) for one in rollouts]
    chosen = role if role is not None else next(iter(names), "")
    if chosen not in names:
        raise CommandError(f"the group has no rollout {chosen}: --role must be {', '.join([TRAINER_ROLE, *names])}")
    rollouts[names.index(chosen)]["template"] = template
    spec["rollouts"] = rollouts
    return chosen


def _below(document: Mapping[str, Any], *path: str) -> Any:
    found: Any = document
    for step in path:
        found = found.get(step) if isinstance(found, Mapping) else None
    return found
