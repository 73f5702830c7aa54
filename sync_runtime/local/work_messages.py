"""What user's processes and sidecars say about work leases (PROTOCOL.md, section 11.3), one dataclass per message.

Plain data: `work_schema` checks what arrives. A `payload` follows the JSON of its message as it is.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class VersionName:
    """A version with its digest."""

    lineage: str
    seq: int
    digest: str
    step: int | None


@dataclass(frozen=True)
class GroupEntry:
    """A group of SUBMIT: its prompt has so many of the payload's bytes."""

    id: str
    samples: int
    bytes: int


@dataclass(frozen=True)
class Submit:
    """Groups, and their prompts one after the other."""

    order: str
    groups: tuple[GroupEntry, ...]
    payload: bytes


@dataclass(frozen=True)
class Submitted:
    """They are durable."""

    added: int
    pending: int


@dataclass(frozen=True)
class Next:
    """Consumes a result, and asks for the next one for so long; 0: only consumes."""

    order: str
    consumed: int | None
    wait_ms: int


@dataclass(frozen=True)
class Result:
    """A result; without `delivery`: none came in that time."""

    delivery: int | None
    id: str
    samples: int
    worker: str
    version: VersionName | None
    tokens: int
    failed: str | None
    pending: int
    payload: bytes


@dataclass(frozen=True)
class State:
    """Consumes a result, and asks for the ledger's state."""

    consumed: int | None


@dataclass(frozen=True)
class Stated:
    """The state, a JSON document."""

    payload: bytes


@dataclass(frozen=True)
class Load:
    """Puts the ledger where a state says; without a payload: empties it."""

    payload: bytes


@dataclass(frozen=True)
class Loaded:
    """It is there, durably."""

    pending: int


@dataclass(frozen=True)
class Take:
    """A worker asks for a group, for so long. Without a version: under whatever its engine runs."""

    version: VersionName | None
    wait_ms: int


@dataclass(frozen=True)
class Task:
    """A group; without `lease`: none came in that time."""

    lease: str | None
    id: str
    samples: int
    version: VersionName | None
    payload: bytes


@dataclass(frozen=True)
class Complete:
    """A result of a lease, and under which version it was made."""

    lease: str
    version: VersionName | None
    tokens: int
    payload: bytes


@dataclass(frozen=True)
class Completed:
    """Whether the sidecar sees to it from now on; else why it cannot count."""

    taken: bool
    reason: str
    message: str


@dataclass(frozen=True)
class Release:
    """A worker gives a lease back; `failed`: after an attempt."""

    lease: str
    reason: str
    failed: bool


@dataclass(frozen=True)
class Released:
    """It is on its way."""


WorkMessage = (
    Submit | Submitted | Next | Result | State | Stated | Load | Loaded | Take | Task | Complete | Completed | Release
    | Released
)  # fmt: skip
