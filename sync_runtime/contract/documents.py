"""From a parsed YAML or JSON document to a resource of the contract, or to the problems that keep it from being one.

No file, no YAML here: callers parse. `load_resource` gives the API server's answer offline: the same document is
accepted or refused on both sides. `load_stored` reads what an API server already accepted, perhaps for a newer
release.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import ValidationError

from sync_runtime.contract.base import Model
from sync_runtime.contract.errors import InvalidDocumentError, Problem
from sync_runtime.contract.names import GROUP_VERSION, SYNCCLUSTER_KIND, SYNCGROUP_KIND
from sync_runtime.contract.problems import path_text, problems_of
from sync_runtime.contract.synccluster import SyncCluster
from sync_runtime.contract.syncgroup import SyncGroup
from sync_runtime.contract.updates import broken_update_rules

Resource = SyncGroup | SyncCluster

KINDS: Mapping[str, type[Resource]] = {SYNCGROUP_KIND: SyncGroup, SYNCCLUSTER_KIND: SyncCluster}


def load_resource(document: object) -> Resource:
    """The resource in a document; raises InvalidDocumentError with every problem found."""
    kind = _kind_of(document)
    try:
        return KINDS[kind].parse(document)
    except ValidationError as error:
        raise InvalidDocumentError(kind, problems_of(error, KINDS[kind])) from error


class StoredResource(NamedTuple):
    """A resource, and the fields of it that this release does not know."""

    resource: Resource
    ignored: tuple[str, ...]


def load_stored(document: Mapping[str, Any]) -> StoredResource:
    """Read a stored object: fields that a newer release added are left out and named, anything else wrong raises.

    After a downgrade the objects still carry what the newer CRD and operator put there, in the status above all.
    """
    kind = _kind_of(document)
    try:
        return StoredResource(KINDS[kind].parse(document), ())
    except ValidationError as error:
        unknown = [item["loc"] for item in error.errors(include_url=False) if item["type"] == "extra_forbidden"]
    known = copy.deepcopy(dict(document))
    for location in unknown:
        _remove(known, location)
    return StoredResource(load_resource(known), tuple(path_text(location) for location in unknown))


def check_update(old: Model, new: Model) -> None:
    """Raise InvalidDocumentError where `new` changes what cannot be changed; both are valid by themselves."""
    problems = broken_update_rules(new, old)
    if problems:
        raise InvalidDocumentError(type(new).__name__, problems)


def _remove(document: Any, location: Sequence[int | str]) -> None:
    *path, last = location
    for step in path:
        document = document[step]
    del document[last]


def _kind_of(document: object) -> str:
    if not isinstance(document, Mapping):
        raise InvalidDocumentError("the document", [Problem("", "must be an object with apiVersion, kind and spec")])
    kind, version = document.get("kind"), document.get("apiVersion")
    problems = []
    if not isinstance(kind, str) or kind not in KINDS:
        problems.append(Problem("kind", f"must be {' or '.join(KINDS)}, not {kind!r:.60}"))
    if version != GROUP_VERSION:
        problems.append(Problem("apiVersion", f"must be {GROUP_VERSION}, not {version!r:.60}"))
    if problems:
        raise InvalidDocumentError("the document", problems)
    return str(kind)
