"""A version as users see it."""

from __future__ import annotations

from dataclasses import dataclass

from sync_runtime.local.messages import VersionRef


@dataclass(frozen=True)
class Version:
    """One published state of the weights."""

    lineage: str
    """The line of versions without a fork that it belongs to."""
    seq: int
    """Its number there; grows by one."""
    digest: str
    """128 bits of its weights, in hex: equal digests mean equal bits."""
    step: int | None = None
    """What the trainer called it."""

    @property
    def ref(self) -> VersionRef:
        """Its name in messages."""
        return VersionRef(self.lineage, self.seq)
