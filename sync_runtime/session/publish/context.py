"""What the trainer's session works with, and what it knows between two versions. Values only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from sync_runtime.bucket.keys import VersionRef
from sync_runtime.bucket.manifest import Version
from sync_runtime.bucket.spool import Spool
from sync_runtime.session.lineage import Position
from sync_runtime.session.mirror import Mirror
from sync_runtime.session.relay import Distributor
from sync_runtime.session.versions import Versions
from sync_runtime.tensors.digest import Digest
from sync_runtime.tensors.layout import Layout


@dataclass(frozen=True)
class TrainerContext:
    """Everything around the session."""

    spool: Spool
    versions: Versions
    distributor: Distributor
    group_uid: str
    sign: Callable[[bytes], bytes]
    """Ed25519 over a manifest's JSON, with the current certificate's key."""
    bucket_bytes: Callable[[], int]
    streams: Callable[[], int]
    trace: Callable[[VersionRef, int | None], str]
    """Begins the trace of a version with the user's step; its traceparent, or nothing."""
    published: Callable[[VersionRef, Mapping[str, int]], None]
    """Told of every durable version with its timings in microseconds."""
    failed: Callable[[VersionRef, str], None]
    """Told of every version that did not become durable, and why."""
    is_put: Callable[[], bool] = lambda: True
    """Whether the newest version is in the object store, where there is one: a publisher that closes waits for it."""

    @property
    def mirrors(self) -> Path:
        """The folder of states."""
        return self.spool.path / "mirror"


@dataclass(frozen=True)
class Standing:
    """Where a publisher stands: the last durable version, and its weights where the sidecar codes."""

    position: Position
    layout: Layout
    mirror: Mirror | None
    """None: the library codes and keeps its own snapshot."""
    step: int | None = None
    digest_before: str | None = None
    """Of the version before: a publisher that did not hear PUBLISHED still stands there."""

    @property
    def version(self) -> VersionRef:
        """Its name."""
        return VersionRef(self.position.lineage, self.position.seq)

    def advanced(self, target: Version, mirror: Mirror | None, step: int | None) -> Standing:
        """After the next version."""
        before = str(self.position.digest)
        return replace(self, position=self.position.advanced(target), mirror=mirror, step=step, digest_before=before)


@dataclass(frozen=True)
class Snapshot:
    """Weights of a version, for anchors."""

    version: VersionRef
    digest: Digest
    mirror: Mirror
