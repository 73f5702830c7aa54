"""What a member's engine holds: the live version, what is staged over it, and the mirror that both are checked against.

With coder `library` there is no mirror: versions are known by name and digest only. Its owner is the brain's loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sync_runtime.bucket.keys import ObjectKey, VersionRef
from sync_runtime.bucket.spool import Spool, StoredObject
from sync_runtime.errors import LayoutError, LocalProtocolError, SyncError
from sync_runtime.local.messages import Open
from sync_runtime.session.mirror import Mirror, Stages
from sync_runtime.session.versions import Versions
from sync_runtime.tensors.digest import parse_digest
from sync_runtime.tensors.layout import Layout, parse_layout


class Timed(Protocol):
    """Told of every stage of a version that is over."""

    def __call__(self, stage: str, version: VersionRef, spent_us: int, /, reason: str = "", sentence: str = "") -> None:
        """It took so many microseconds; where it failed, why in a word and a sentence."""


@dataclass(frozen=True)
class EngineContext:
    """What the session works with."""

    spool: Spool
    versions: Versions
    follow: Callable[[], None]
    """What is held changed otherwise than by a transfer: the parent is told."""
    moved: Callable[[], None]
    """What is held changed; the parent is told if it thinks otherwise."""
    changed: Callable[[], None]
    """Something worth a report."""
    timed: Timed
    """A stage of a version is over."""
    spawn: Callable[[object], None]
    """Runs a coroutine beside the rest; its failure is logged."""

    def step_of(self, version: VersionRef) -> int | None:
        """The trainer's number of a version, from its manifest or from a HEAD."""
        labels = (one.facts.label for one in self.spool.objects() if one.key.target == version)
        return next((int(label) for label in labels if is_step(label)), self.versions.step(version))


def is_step(label: str) -> bool:
    """Whether a manifest's label is a trainer's number."""
    return label.isascii() and label.isdecimal() and len(label) < 16


class OpenIntake:
    """OPEN of an engine on its way in: the layout's document, and behind it the state where the sidecar codes."""

    def __init__(self, message: Open, folder: Path, check: Callable[[Layout], None]) -> None:
        """`check` raises for a layout of no use, before anything of the state is taken."""
        self._message, self._folder, self._check = message, folder, check
        self._document = bytearray()
        self._layout: Layout | None = None
        self._state: Mirror | None = None

    def take(self, data: memoryview) -> None:
        """The next bytes."""
        missing = self._message.layout_bytes - len(self._document)
        self._document += data[:missing]
        if self._layout is None and len(self._document) == self._message.layout_bytes:
            layout = parse_layout(bytes(self._document))
            self._check(layout)
            self._layout = layout
            if self._message.state:
                self._state = Mirror.create(self._folder, self._layout)
        if len(data) > missing:
            if self._state is None:
                raise LocalProtocolError("bytes of a state came where none was announced")
            self._state.append(data[missing:])

    async def finish(self) -> tuple[Layout, Mirror | None, str]:
        """The layout, the state if it came, and the full digest; raises SyncError and keeps nothing then."""
        if self._layout is None:
            raise LocalProtocolError("OPEN ended before the layout was complete")
        if self._state is not None:
            try:
                return self._layout, self._state, str(await asyncio.to_thread(self._state.digest))
            except SyncError:
                self.drop()
                raise
        if len(self._message.digests) != 1:
            raise LocalProtocolError("OPEN without a state must carry the digest of the live weights")
        return self._layout, None, str(parse_digest(self._message.digests[0]))

    def drop(self) -> None:
        """It failed, or the engine is gone: nothing stays."""
        if self._state is not None:
            self._state.remove()


class EngineWeights:
    """One engine's weights, as far as its sidecar knows them."""

    def __init__(self, spool: Spool) -> None:
        self.spool = spool
        self.layout: Layout | None = None
        self.mirror: Mirror | None = None
        self.stages: Stages | None = None
        self.live: VersionRef | None = None
        self.digest: str | None = None
        """Of the live weights, whether or not they are a version."""
        self.staged: list[VersionRef] = []
        """What the library has staged, oldest first."""
        self._digests: dict[VersionRef, str] = {}
        """Of what is staged, as signed manifests name them."""
        self.replacement: tuple[VersionRef, Mirror] | None = None
        """A mirror that takes over when its version is activated: whole weights for one that was too far behind."""

    @property
    def folder(self) -> Path:
        """Where mirrors lie."""
        return self.spool.path / "mirror"

    @property
    def newest(self) -> VersionRef | None:
        """What the engine will hold once all that is staged is activated."""
        return self.staged[-1] if self.staged else self.live

    def opened(self, layout: Layout, mirror: Mirror | None, digest: str) -> None:
        """An engine opened with this state."""
        self.forget()
        self.layout, self.mirror, self.digest = layout, mirror, digest

    def is_contradicted(self, versions: Versions) -> bool:
        """Whether the live weights are known as another version than a parent once said, without a signature."""
        found = None if self.live is None or self.digest is None else versions.find(self.digest)
        return found is not None and found != self.live and versions.digest(self.live) != self.digest

    def become(self, version: VersionRef) -> None:
        """A full digest proved which version the live weights are."""
        self.live = version
        if self.mirror is not None and self.digest is not None:
            self.stages = Stages(self.mirror, version, parse_digest(self.digest))

    def replaced(self, version: VersionRef, mirror: Mirror | None, digest: str) -> None:
        """Whole weights were written over the live ones."""
        if self.mirror is not None and self.mirror is not mirror:
            self.mirror.remove()
        self.mirror, self.digest, self.staged = mirror, digest, []
        self.become(version)

    def commit(self, version: VersionRef) -> None:
        """The engine activated a staged version: brings the mirror there. May take long, so it is for a thread; what
        is staged meanwhile is none of its business, and `activated` follows on the loop.
        """
        if self.stages is not None and not self._is_replacement(version):
            self.stages.commit(version)

    def stage(self, version: VersionRef, digest: str) -> None:
        """The library has a version staged over the others."""
        self.staged.append(version)
        self._digests[version] = digest

    def activated(self, version: VersionRef) -> None:
        """The mirror holds a version that was staged, and it is live now."""
        digest = self._digests[version]
        if self.replacement is not None and self._is_replacement(version):
            _, mirror = self.replacement
            self.replacement, staged = None, self.staged
            self.replaced(version, mirror, digest)
            self.staged = staged
        self.live, self.digest = version, digest
        if version in self.staged:
            del self.staged[: self.staged.index(version) + 1]
        self._digests = {one: self._digests[one] for one in self.staged}

    def _is_replacement(self, version: VersionRef) -> bool:
        return self.replacement is not None and self.replacement[0] == version

    def unstage(self) -> None:
        """Forgets everything staged."""
        self.staged = []
        if self.stages is not None:
            self.stages.unstage(self.stages.active)
        if self.replacement is not None:
            self.replacement[1].remove()
            self.replacement = None

    def forget(self) -> None:
        """The engine is gone."""
        for mirror in (self.mirror, None if self.replacement is None else self.replacement[1]):
            if mirror is not None:
                mirror.remove()
        self.layout = self.mirror = self.stages = self.live = self.digest = self.replacement = None
        self.staged = []

    def stored(self, key: ObjectKey) -> StoredObject | None:
        """An object of the spool."""
        return self.spool.stored(key)

    def layout_of(self, stored: StoredObject) -> Layout:
        """The trainer's layout of an object; it may cut tensors otherwise than ours, but they must be the same."""
        document = self.spool.layout(stored.facts.layout_hash)
        own = self.layout
        if document is None or own is None:
            raise LayoutError(f"the layout of {stored.key} is not known here")
        layout = parse_layout(document)
        if layout.hash == own.hash:
            return own
        if layout.tied != own.tied or [(one.name, one.dtype, one.shape) for one in layout.tensors] != [
            (one.name, one.dtype, one.shape) for one in own.tensors
        ]:
            raise LayoutError("the trainer's tensors are not this engine's: names, dtypes, shapes or ties differ")
        if self.stages is not None and self.mirror is not None:
            if self.stages.layers:
                raise LayoutError("the trainer cuts its tensors otherwise from here on: activate what is staged first")
            self.mirror = Mirror.reopen(self.mirror.path, layout)
            self.stages = Stages(self.mirror, self.stages.active, self.stages.active_digest)
        self.layout = layout
        return layout
