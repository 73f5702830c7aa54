"""A member's pod, and the hash by which a pod of an older template is known.

Pure.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from sync_runtime.contract import names
from sync_runtime.contract.syncgroup import SyncGroup
from syncgroup_operator.manifests import shapes
from syncgroup_operator.manifests.injection import injected
from syncgroup_operator.manifests.inputs import Extras, LibraryFacts, PodInputs, pod_inputs
from syncgroup_operator.manifests.metadata import metadata_of
from syncgroup_operator.manifests.parts import Part, part_of, parts_of
from syncgroup_operator.manifests.problems import user_container_index
from syncgroup_operator.planning.decision import Seat
from syncgroup_operator.planning.observation import Observation
from syncgroup_operator.planning.stores import opens_with_secret

Document = dict[str, Any]


def pod(observation: Observation, seat: Seat, extras: Extras) -> Document | None:
    """The pod of one seat; None where the spec has no such role any more, or the cluster is not known."""
    part = part_of(observation.group.spec, seat.slot.role)
    view = observation.clusters.get(seat.place.cluster)
    if part is None or view is None or user_container_index(part) is None:
        return None
    inputs = pod_inputs(
        observation.group, observation.uid, part, seat.slot.index, seat.place, namespace=view.namespace,
        default_image=observation.default_image, library=extras.library, term=seat.term,
        select_region=any(node.region == seat.place.region for node in view.nodes.values()),
        avoid_nodes=seat.avoid_nodes,
    )  # fmt: skip
    document = _document(inputs)
    template_hash = observation.template_hashes.get(part.role) or _hash_of(
        observation.group, observation.uid, part, observation.default_image, extras.library
    )
    annotations = {**document["metadata"].get("annotations", {}), names.ANNOTATION_TEMPLATE_HASH: template_hash}
    if seat.term is not None:
        annotations[names.ANNOTATION_TERM] = str(seat.term)
    document["metadata"] = metadata_of(
        observation, seat.place.cluster, inputs.member, extras.hub_id,
        labels=document["metadata"]["labels"], annotations=annotations,
    )  # fmt: skip
    return document


def template_hashes(group: SyncGroup, uid: str, default_image: str, library: LibraryFacts) -> Mapping[str, str]:
    """Per role, SHA-256 of what its pods are built from, without term, place and nodes to avoid.

    Taken of the document itself, so that nothing that changes a pod can be forgotten. Roles whose template has a
    problem are left out.
    """
    hashes = {}
    for part in parts_of(group.spec):
        template = part.template
        if shapes.template_misfits(template.metadata, template.spec) or user_container_index(part) is None:
            continue
        hashes[part.role] = _hash_of(group, uid, part, default_image, library)
    return hashes


def _hash_of(group: SyncGroup, uid: str, part: Part, default_image: str, library: LibraryFacts) -> str:
    inputs = pod_inputs(group, uid, part, 0, part.home, namespace="", default_image=default_image, library=library)
    text = json.dumps(_document(inputs), sort_keys=True, separators=(",", ":"), default=str)
    elsewhere = [opens_with_secret(group.spec.sync, group.key, place, is_trainer=False) for place in part.places[1:]]
    if any(mounts != inputs.has_store_secret for mounts in elsewhere):  # pods there differ from those at home
        text += json.dumps(elsewhere)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _document(inputs: PodInputs) -> Document:
    """The pod without the metadata that depends on where it is kept."""
    template = inputs.part.template
    given: Document = shapes.without_nulls(template.metadata)
    labels = names.member_labels(
        inputs.key, inputs.uid, role=inputs.part.role, index=inputs.index, cluster=inputs.place.cluster,
        region=inputs.place.region,
    )  # fmt: skip
    metadata: Document = {"labels": {**given.get("labels", {}), **labels}}
    if given.get("annotations"):
        metadata["annotations"] = given["annotations"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": injected(inputs, template.spec)}
