"""What one pod is built from: nothing else may change a pod, and the template hash is taken of the same.

Pure values.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from sync_runtime.contract import names
from sync_runtime.contract.names import GroupKey
from sync_runtime.contract.runtime import Runtime
from sync_runtime.contract.sync import GpuAccess
from sync_runtime.contract.syncgroup import SyncGroup
from syncgroup_operator.manifests.parts import Part
from syncgroup_operator.planning.observation import Place
from syncgroup_operator.planning.stores import opens_with_secret

FOLDER_LENGTH = 16


@dataclass(frozen=True, slots=True)
class LibraryFacts:
    """What the operator knows of the library in its own release's image."""

    hash: str
    """As `syncgroup library --hash` prints it in that image."""


@dataclass(frozen=True, slots=True)
class Extras:
    """What children need besides observation and decision."""

    hub_id: str
    """Uid of the hub's kube-system namespace; remote objects carry it."""
    trust_bundle: str
    """Certificates that members trust, PEM; empty until the group has its authority."""
    library: LibraryFacts


@dataclass(frozen=True, slots=True)
class PodInputs:
    """One member's pod, before it is a document."""

    key: GroupKey
    uid: str
    part: Part
    index: int
    place: Place
    namespace: str
    """Where the pod lives in its cluster."""
    runtime: Runtime
    gpu_access: GpuAccess
    image: str
    """Of sidecar and library."""
    library: LibraryFacts
    has_store_secret: bool = False
    """Whether the sidecar opens an object store with credentials of a Secret."""
    term: int | None = None
    select_region: bool = False
    """Whether nodes of the cluster carry the place's region as their label."""
    avoid_nodes: tuple[str, ...] = ()

    @property
    def member(self) -> str:
        """The pod's name, which is the member's."""
        return names.member_name(self.key, self.part.role, self.index)

    @property
    def library_path(self) -> str:
        """The folder to import from. Another library is another folder: a container that restarts never mixes two."""
        name = self.library.hash
        if self.runtime.image is not None:
            # An image of the user's own choice may hold another library; what we can tell apart is the image's name.
            name = hashlib.sha256(f"{self.runtime.image}\0{name}".encode()).hexdigest()
        return f"{names.LIBRARY_DIR}/{name[:FOLDER_LENGTH]}"


def pod_inputs(
    group: SyncGroup, uid: str, part: Part, index: int, place: Place, *, namespace: str, default_image: str,
    library: LibraryFacts, term: int | None = None, select_region: bool = False, avoid_nodes: tuple[str, ...] = (),
) -> PodInputs:  # fmt: skip
    """The inputs of one member's pod, with what they take from the spec."""
    runtime = group.spec.runtime
    return PodInputs(
        key=group.key,
        uid=uid,
        part=part,
        index=index,
        place=place,
        namespace=namespace,
        runtime=runtime,
        gpu_access=group.spec.sync.gpu_access,
        image=runtime.image or default_image,
        library=library,
        has_store_secret=opens_with_secret(
            group.spec.sync, group.key, place, is_trainer=part.role == names.TRAINER_ROLE
        ),
        term=term,
        select_region=select_region,
        avoid_nodes=avoid_nodes,
    )
