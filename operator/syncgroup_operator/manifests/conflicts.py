"""Names, ports and paths of a template that belong to what the operator adds.

Pure. Called with templates whose shapes are right (`shapes`); knows nothing of clusters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from sync_runtime.contract import names
from sync_runtime.contract.runtime import LibraryMode
from sync_runtime.contract.sync import GpuAccess
from syncgroup_operator import reasons
from syncgroup_operator.planning.problems import TemplateProblem

Spec = Mapping[str, Any]

PYTHON_PATH: Final = "PYTHONPATH"
OUR_PREFIX: Final = f"{names.API_GROUP}/"
OUR_CONTAINERS: Final = frozenset({names.RUNTIME_CONTAINER, names.LIBRARY_CONTAINER})
OUR_VOLUMES: Final = frozenset(
    {
        names.RUN_VOLUME,
        names.SPOOL_VOLUME,
        names.LIBRARY_VOLUME,
        names.IDENTITY_VOLUME,
        names.TOKEN_VOLUME,
        names.TRUST_VOLUME,
        names.TMP_VOLUME,
        names.STORE_VOLUME,
    }
)
OUR_PORTS: Final = frozenset({names.DATA_PORT, names.CONTROL_PORT, names.METRICS_PORT})
OUR_PORT_NAMES: Final = frozenset({names.DATA_PORT_NAME, names.CONTROL_PORT_NAME, names.METRICS_PORT_NAME})
_PLAIN_VARIABLES: Final = frozenset({names.ENV_SOCKET})


def our_variables(library: LibraryMode, gpu_access: GpuAccess) -> frozenset[str]:
    """The environment variables that the user's container gets."""
    found = set(_PLAIN_VARIABLES)
    if library != "None":
        found.add(names.ENV_LIBRARY)
    if library == "PythonPath":
        found.add(PYTHON_PATH)
    if gpu_access == "CudaIpc":
        found.add(names.ENV_GPU_ACCESS)
    return frozenset(found)


def our_paths(library: LibraryMode) -> tuple[str, ...]:
    """The folders that are mounted in the user's container."""
    return (names.RUN_DIR,) if library == "None" else (names.RUN_DIR, names.LIBRARY_DIR)


def items(spec: Spec, key: str) -> list[Mapping[str, Any]]:
    """A list of the template; empty where it is absent or null."""
    found = spec.get(key)
    return list(found) if isinstance(found, list) else []


def all_containers(spec: Spec) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every container with its path behind the template's: `.spec.initContainers[0]`."""
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(items(spec, kind)):
            yield f".spec.{kind}[{index}]", container


def conflicts(field: str, spec: Spec) -> Iterator[TemplateProblem]:
    """What in any container or volume of the template is ours; `field` is the template's path."""
    for path, container in all_containers(spec):
        at = f"{field}{path}"
        if container.get("name") in OUR_CONTAINERS:
            yield _taken(f"{at}.name", f"the name {container['name']} belongs to a container that the operator adds")
        yield from _port_conflicts(at, container)
        for index, mount in enumerate(items(container, "volumeMounts")):
            if mount.get("name") in OUR_VOLUMES:
                # Not even to share the socket: the same words would mount the sidecar's API token.
                yield _taken(
                    f"{at}.volumeMounts[{index}].name",
                    f"the volume {mount['name']} is the runtime's own; the operator mounts it where it is needed",
                )
    for index, volume in enumerate(items(spec, "volumes")):
        if volume.get("name") in OUR_VOLUMES:
            message = f"the name {volume['name']} belongs to a volume that the operator adds"
            yield _taken(f"{field}.spec.volumes[{index}].name", message)


def user_container_conflicts(
    field: str, container: Mapping[str, Any], library: LibraryMode, gpu_access: GpuAccess
) -> Iterator[TemplateProblem]:
    """What in the container that uses the library is ours; `field` is that container's path."""
    ours = our_variables(library, gpu_access)
    for index, variable in enumerate(items(container, "env")):
        at = f"{field}.env[{index}].name"
        if variable.get("name") == PYTHON_PATH and PYTHON_PATH in ours:
            yield TemplateProblem(
                reasons.TEMPLATE_CONFLICT,
                at,
                "PYTHONPATH is set here, and spec.runtime.library PythonPath sets it too: remove it, or choose Mount "
                f"and add ${names.ENV_LIBRARY} to your own value",
            )
        elif variable.get("name") in ours:
            yield _taken(at, f"the variable {variable['name']} is set by the operator", "remove it")
    for index, mount in enumerate(items(container, "volumeMounts")):
        path = normal_path(str(mount.get("mountPath") or ""))
        for ours_at in our_paths(library):
            if path == ours_at or path.startswith(f"{ours_at}/"):
                message = f"the folder {ours_at} is the runtime's own"
                yield _taken(f"{field}.volumeMounts[{index}].mountPath", message, "mount this elsewhere")


def metadata_conflicts(field: str, metadata: Mapping[str, Any]) -> Iterator[TemplateProblem]:
    """Labels and annotations that are ours, and metadata that a template cannot have."""
    for kind in ("labels", "annotations"):
        for key in metadata.get(kind) or {}:
            if key.startswith(OUR_PREFIX):
                message = f"{kind} that start with {OUR_PREFIX} are set by the operator"
                yield _taken(f"{field}.metadata.{kind}[{key}]", message, "remove it")
    for key in sorted(set(metadata) - {"labels", "annotations"}, key=str):
        if metadata[key] is not None:
            yield TemplateProblem(
                reasons.INVALID_SPEC,
                f"{field}.metadata.{key}",
                "a template's metadata holds labels and annotations only, the operator names the pods: remove it",
            )


def normal_path(path: str) -> str:
    """An absolute path in its shortest spelling."""
    steps: list[str] = []
    for step in path.split("/"):
        if step == "..":
            steps = steps[:-1]
        elif step not in ("", "."):
            steps.append(step)
    return "/" + "/".join(steps)


def _port_conflicts(field: str, container: Mapping[str, Any]) -> Iterator[TemplateProblem]:
    for index, port in enumerate(items(container, "ports")):
        at = f"{field}.ports[{index}]"
        number, protocol = port.get("containerPort"), port.get("protocol") or "TCP"
        if number in OUR_PORTS and protocol == "TCP":
            message = f"the runtime listens on port {number} of the pod"
            yield _taken(f"{at}.containerPort", message, "let your process listen on another one")
        if port.get("name") in OUR_PORT_NAMES:
            yield _taken(f"{at}.name", f"the port name {port['name']} belongs to the runtime")


def _taken(field: str, what: str, remedy: str = "choose another name") -> TemplateProblem:
    return TemplateProblem(reasons.TEMPLATE_CONFLICT, field, f"{what}: {remedy}")
