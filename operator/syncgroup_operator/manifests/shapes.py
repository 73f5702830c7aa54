"""Whether a template's parts are what Kubernetes means by them: lists where it has lists, text where it has text.

The contract keeps templates opaque, so anything may stand in them. Only what the operator itself reads or adds to is
looked at; the API server judges the rest. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

MAX_DEPTH: Final = 64
"""Maps and lists inside each other; a pod has a dozen."""


class Misfit(NamedTuple):
    """A value of the wrong kind."""

    path: str
    """Behind the template's own path: `.spec.containers[0].ports`."""
    wanted: str


@dataclass(frozen=True, slots=True)
class Items:
    """A list whose items have a shape; `keys` tell them apart, as server-side apply merges them by these."""

    shape: Mapping[str, Any]
    keys: tuple[str, ...] = ()
    defaults: tuple[Any, ...] = ()


_SECURITY: Final = {"runAsUser": int}
_CONTAINER: Final[Mapping[str, Any]] = {
    "name": str,
    "restartPolicy": str,
    "env": Items({"name": str}, ("name",)),
    "ports": Items({"containerPort": int, "name": str, "protocol": str}, ("containerPort", "protocol"), (None, "TCP")),
    "volumeMounts": Items({"name": str, "mountPath": str}, ("mountPath",)),
    "resources": {"claims": Items({"name": str}, ("name",))},
    "securityContext": _SECURITY,
}
POD_SPEC: Final[Mapping[str, Any]] = {
    "containers": Items(_CONTAINER, ("name",)),
    "initContainers": Items(_CONTAINER, ("name",)),
    "volumes": Items({"name": str}, ("name",)),
    "resourceClaims": Items({"name": str}, ("name",)),
    "topologySpreadConstraints": Items({"topologyKey": str}, ("topologyKey", "whenUnsatisfiable")),
    "nodeSelector": {},
    "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": Items({})}},
    "securityContext": {**_SECURITY, "fsGroup": int},
    "os": {"name": str},
    "serviceAccountName": str,
    "serviceAccount": str,
    "dnsPolicy": str,
    "hostname": str,
    "subdomain": str,
    "hostnameOverride": str,
    "automountServiceAccountToken": bool,
    "shareProcessNamespace": bool,
    "hostNetwork": bool,
    "hostPID": bool,
    "setHostnameAsFQDN": bool,
}
METADATA: Final[Mapping[str, Any]] = {"labels": {}, "annotations": {}}

_WORDS: Final = {str: "text", int: "a whole number", bool: "true or false"}


def misfits(value: Any, shape: Any, path: str) -> Iterator[Misfit]:
    """Everything below `path` that has the wrong kind. What is absent or null fits: the API server drops nulls."""
    if value is None:
        return
    if isinstance(shape, Items):
        yield from _list_misfits(value, shape, path)
    elif isinstance(shape, Mapping):
        if not isinstance(value, Mapping):
            yield Misfit(path, "must be an object")
            return
        for key, inner in shape.items():
            yield from misfits(value.get(key), inner, f"{path}.{key}")
    elif type(value) is not shape:  # a bool is an int to Python, not to Kubernetes
        yield Misfit(path, f"must be {_WORDS[shape]}")


def _list_misfits(value: Any, shape: Items, path: str) -> Iterator[Misfit]:
    if not isinstance(value, list):
        yield Misfit(path, "must be a list")
        return
    seen: set[tuple[str, ...]] = set()
    for index, item in enumerate(value):
        here = f"{path}[{index}]"
        if not isinstance(item, Mapping):
            yield Misfit(here, "must be an object")
            continue
        yield from misfits(item, shape.shape, here)
        identity = _identity(item, shape)
        if identity and identity in seen:
            names = " and ".join(shape.keys)
            yield Misfit(here, f"has the same {names} as an earlier item; keep one of them")
        seen.add(identity)


def _identity(item: Mapping[str, Any], shape: Items) -> tuple[str, ...]:
    defaults: Sequence[Any] = shape.defaults or (None,) * len(shape.keys)
    values = (item.get(key) for key in shape.keys)
    return tuple(repr(default if value is None else value) for value, default in zip(values, defaults, strict=True))


def text_map_misfits(value: Any, path: str) -> Iterator[Misfit]:
    """Labels, annotations and node selectors: text to text."""
    for key, item in (value or {}).items():
        if not isinstance(key, str) or not isinstance(item, str | None):
            yield Misfit(f"{path}[{key}]", "must be text; put quotes round it")


def is_too_deep(value: Any, left: int = MAX_DEPTH) -> bool:
    """Whether it is nested beyond what any pod needs, so that nobody who walks it runs out of stack."""
    if left == 0:
        return True
    if isinstance(value, Mapping):
        return any(is_too_deep(item, left - 1) for item in value.values())
    return isinstance(value, list) and any(is_too_deep(item, left - 1) for item in value)


def without_nulls(value: Any) -> Any:
    """A deep copy without fields that are null, which is how the API server reads them."""
    if isinstance(value, Mapping):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def template_misfits(metadata: Any, spec: Any) -> tuple[Misfit, ...]:
    """Everything of a template that has the wrong kind; paths begin behind the template's own."""
    if is_too_deep(spec) or is_too_deep(metadata):
        return (Misfit("", f"is nested more than {MAX_DEPTH} levels deep, and no pod needs that: make it flatter"),)
    found = (*misfits(metadata, METADATA, ".metadata"), *misfits(spec, POD_SPEC, ".spec"))
    if found:
        return found
    return (
        *text_map_misfits(metadata.get("labels"), ".metadata.labels"),
        *text_map_misfits(metadata.get("annotations"), ".metadata.annotations"),
        *text_map_misfits(spec.get("nodeSelector"), ".spec.nodeSelector"),
    )
