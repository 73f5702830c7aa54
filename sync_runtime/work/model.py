"""The nouns of work leases, and the changes that a ledger is made of. Values only; nothing here decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Order = Literal["throughput", "fixed"]
ORDERS: Final = ("throughput", "fixed")

MAX_GROUPS: Final = 16_384
MAX_PROMPT_BYTES: Final = 64 << 20
"""Of all groups that are not consumed."""
MAX_RESULT_BYTES: Final = 128 << 20
"""Of all results that are not consumed; the one that the trainer waits for is always let in."""
MAX_ID_CHARACTERS: Final = 128
MAX_SAMPLES: Final = 65_536
MAX_REASON_CHARACTERS: Final = 256

# Why a lease ended without a result.
EXPIRED: Final = "Expired"
WORKER_LOST: Final = "WorkerLost"
RELEASED: Final = "Released"
NEW_LINEAGE: Final = "NewLineage"
ROLLED_BACK: Final = "RolledBack"
# Why a result does not count, besides.
NOT_LIVE: Final = "NotLive"
WRONG_WORKER: Final = "WrongWorker"
WRONG_VERSION: Final = "WrongVersion"
NOT_SCRUBBED: Final = "NotScrubbed"
NO_ROOM: Final = "NoRoom"
NOT_READY: Final = "NotReady"
COUNTED: Final = "Counted"
ALREADY_COUNTED: Final = "AlreadyCounted"


@dataclass(frozen=True, slots=True)
class WorkVersion:
    """A version with its digest: what a lease names and a result must have been made under."""

    lineage: str
    seq: int
    digest: str
    step: int | None = None

    def is_same(self, other: WorkVersion) -> bool:
        """The step is a label and proves nothing."""
        return (self.lineage, self.seq, self.digest) == (other.lineage, other.seq, other.digest)


@dataclass(frozen=True, slots=True)
class Policy:
    """What the plan says of work."""

    lease_s: float = 600.0
    max_inflight: int = 8
    max_attempts: int = 5
    max_payload_bytes: int = 4 << 20
    max_staleness: int = 4


@dataclass(frozen=True, slots=True)
class Prompts:
    """A prompt group as the trainer submits it."""

    id: str
    samples: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Offer:
    """A result as a worker brings it."""

    lease: str
    worker: str
    version: WorkVersion
    scrubbed: bool
    tokens: int
    payload: bytes


# --- changes: a ledger is what they make of an empty one -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Begun:
    """A new epoch: the ledger started, or was loaded. Numbers before `next_number` were given."""

    epoch: int
    next_number: int
    order: Order


@dataclass(frozen=True, slots=True)
class Submitted:
    """A group is queued."""

    number: int
    id: str
    samples: int
    attempts: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Leased:
    """A group is a worker's."""

    lease: str
    number: int
    worker: str
    version: WorkVersion


@dataclass(frozen=True, slots=True)
class Returned:
    """A lease ended without a result: the group is queued again. `counts`: as an attempt."""

    lease: str
    reason: str
    counts: bool


@dataclass(frozen=True, slots=True)
class Done:
    """A group has its result, or was given up (`failed`, without lease and version)."""

    number: int
    lease: str | None
    worker: str
    version: WorkVersion | None
    tokens: int
    failed: str | None
    payload: bytes


@dataclass(frozen=True, slots=True)
class Consumed:
    """The trainer has made use of a result; the group is gone."""

    number: int


@dataclass(frozen=True, slots=True)
class Ordered:
    """In which order groups go out and results come in from now on."""

    order: Order


Change = Begun | Submitted | Leased | Returned | Done | Consumed | Ordered


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of a result, and what that changes in the ledger."""

    reason: str
    message: str
    retry: bool = False
    changes: tuple[Change, ...] = ()

    @property
    def counted(self) -> bool:
        """Whether the work is in the books, now or before."""
        return self.reason in (COUNTED, ALREADY_COUNTED)
